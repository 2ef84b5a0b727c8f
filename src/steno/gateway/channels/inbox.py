"""What arrives in chats: each update is looked at once, who may is let through, and what is said is
stored under (account, platform id) before it is acknowledged.

    message    may the sender? -> command, or input with its answer owed, in one commit
    edited     a fact of its own, about the input
    deleted    a fact of its own
    tapped     decide about the call that was shown

What a stranger sends is stored nowhere: only who, when, and that it was refused, once an hour.
"""

import logging
import secrets
from typing import assert_never

from steno.engine.people import (
    CODE_LEN,
    CODE_MS,
    CONFIGURED,
    LETTERS,
    REFUSAL_MS,
    Code,
    Let,
    Refuse,
    Sender,
    author_of,
    digest,
    enter,
    is_by,
    looks_like_code,
    may,
    may_give,
)
from steno.gateway.channels.commands import Commands, decide, parse
from steno.gateway.channels.held import HeldAccount
from steno.gateway.channels.protocol import (
    Deleted,
    Edited,
    Message,
    Outgoing,
    Tapped,
    Update,
)
from steno.gateway.channels.wording import PAIRED, PAIRING
from steno.journal.facts import (
    AwaitedFile,
    CodeGiven,
    CodeMissed,
    FreeFact,
    InputDeleted,
    InputEdited,
    PersonPaired,
    Rank,
    SenderRefused,
)
from steno.service.chats import Arrival
from steno.store.errors import UnknownSession

TEXT_CHARS_MAX = 200_000
NAME_CHARS_MAX = 64
REFUSED_MAX = 10_000
_log = logging.getLogger("steno.channels")


class Inbox:
    def __init__(self, held: HeldAccount, commands: Commands) -> None:
        self._held = held
        self._commands = commands
        self._refused: dict[tuple[str, int], None] = {}
        self.taken = 0
        self.last_ms = 0

    async def take(self, update: Update) -> None:
        """When this returns, the update is stored as far as it is to be."""
        self.taken += 1
        self.last_ms = self._held.now_ms()
        await (
            self._held.catch_up()
        )  # who was let in or taken out by another process counts at once
        match update:
            case Message():
                await self._message(update)
            case Edited() | Deleted():
                await self._changed(update)
            case Tapped():
                await self._tapped(update)
            case unreachable:
                assert_never(unreachable)

    # --- what is said

    async def _message(self, said: Message) -> None:
        held = self._held
        sender = _sender(said)
        match may(held.known, held.rules, sender):
            case Refuse() as refused:
                if not said.group or said.addressed:
                    await self._refuse(said, sender, refused)
            case Let(rank=rank):
                empty = not said.text.strip() and not said.files
                if empty or (said.group and not said.addressed):
                    return
                await self._remember(sender, rank)
                session = await held.session_of(said.chat, said.group)
                try:
                    await self._say(said, session)
                except (
                    UnknownSession
                ):  # it was deleted: the chat goes on in another one
                    await self._say(
                        said, await held.bind_anew(said.chat, said.group, session)
                    )

    async def _say(self, said: Message, session: str) -> None:
        if (command := parse(said.text)) is not None:
            await self._commands.give(said, *command, session)
        else:
            await self._admit(said, session)

    async def _admit(self, said: Message, session: str) -> None:
        held = self._held
        text = said.text[:TEXT_CHARS_MAX]
        name = shown_name(said.name)
        arrival = Arrival(
            held.source,
            held.config.kind,
            said.id,
            said.chat,
            text,
            author_of(name, said.person),
            session,
            said.quoted,
            files=tuple(
                AwaitedFile(one.id, one.name, one.media_type, one.size)
                for one in said.files
            ),
        )
        reply_to = said.message if said.group else ""
        admitted = await held.chats.admit(
            arrival, (held.owed(said.chat, reply_to=reply_to),)
        )
        if admitted is not None:
            held.hub.wake(admitted.session)

    async def _remember(self, sender: Sender, rank: Rank) -> None:
        """Where a person whom the configuration names talks to us: questions go there."""
        held = self._held
        if sender.group or sender.person in held.known.people:
            return
        paired = PersonPaired(
            sender.person, sender.chat, rank, shown_name(sender.name), CONFIGURED
        )
        await held.note([paired], f"configured:{sender.person}:{sender.chat}")

    # --- who may not

    async def _refuse(self, said: Message, sender: Sender, refused: Refuse) -> None:
        if refused.code and looks_like_code(said.text.strip()):
            await self._enter(said, sender)
            return
        await self._record_refusal(sender, refused.why)
        if refused.code:
            await self._give_code(sender)

    async def _record_refusal(self, sender: Sender, why: str) -> None:
        """Once an hour for each sender. What was recorded is remembered, so that a flood costs
        nothing; the key makes it once even if that is forgotten."""
        hour = self._held.now_ms() // REFUSAL_MS
        if (sender.person, hour) in self._refused:
            return
        while len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[sender.person, hour] = None
        fact = SenderRefused(sender.person, sender.chat, why, shown_name(sender.name))
        await self._held.note([fact], f"refused:{sender.person}:{hour}"[:200])

    async def _give_code(self, sender: Sender) -> None:
        """The code is in the message to the stranger and nowhere else, so it is sent once: if it
        does not arrive, another can be asked for when this one is over."""
        held = self._held
        if not may_give(held.known, sender.person, held.now_ms()):
            return
        code, fact = new_code(held.now_ms(), sender=sender)
        await held.note([fact])
        text = PAIRING.format(code=code)
        await held.channel.send(
            sender.chat, f"code-{fact.salt}", Outgoing(text, plain=True)
        )

    async def _enter(self, said: Message, sender: Sender) -> None:
        held = self._held
        entered = enter(held.known, said.text.strip(), sender.person, held.now_ms())
        if not isinstance(entered, Code):
            if entered == "wrong":
                await held.note([CodeMissed(sender.person)], f"missed:{said.id}")
            await self._record_refusal(
                sender, "unknown" if entered == "wrong" else "locked"
            )
            return
        paired = PersonPaired(
            sender.person,
            sender.chat,
            entered.fact.rank,
            shown_name(sender.name),
            "invitation",
            entered.seq,
        )
        _, new = await held.note([paired], f"invited:{entered.seq}")
        if new:
            await held.session_of(said.chat, group=False)
            await held.post(said.chat, PAIRED, f"paired:{said.id}")

    # --- what is changed, and pressed

    async def _changed(self, update: Edited | Deleted) -> None:
        held = self._held
        sender = Sender(update.person, update.chat, group=update.group)
        if isinstance(update, Edited) and isinstance(
            may(held.known, held.rules, sender), Refuse
        ):
            return
        found = await held.chats.find_input(held.source, update.of)
        if found is None:
            return  # it was a command
        session, input, said = found
        if said.chat != update.chat:
            return
        if isinstance(update, Edited) and not is_by(said.author, update.person):
            return  # nobody changes what others said
        fact: FreeFact = (
            InputEdited(input, update.text[:TEXT_CHARS_MAX], update.person)
            if isinstance(update, Edited)
            else InputDeleted(input, update.person)
        )
        await held.chats.note(
            session, [fact], f"update:{held.source}:{update.id}"[:200]
        )

    async def _tapped(self, tapped: Tapped) -> None:
        held = self._held
        token, _, answer = tapped.token.rpartition(":")
        sender = Sender(tapped.person, tapped.chat, tapped.name, tapped.group)
        let = may(held.known, held.rules, sender)
        if isinstance(let, Refuse):
            await self._record_refusal(sender, let.why)
            await held.channel.answer_tap(tapped.tap, "")
            return
        question = held.known.questions.get(token)
        if let.rank != "owner":
            await self._record_refusal(sender, "rank")
            said = "Only the owner may decide."
        elif (
            question is None
            or question.chat != tapped.chat
            or answer not in ("y", "n")
        ):
            said = "Nothing was changed: this button is not known."
        else:
            decision = "allow" if answer == "y" else "deny"
            said = await decide(
                held,
                question.session,
                question.asked,
                "allow" if decision == "allow" else "deny",
                tapped.person,
                question.digest,
            )
        await held.channel.answer_tap(tapped.tap, said)


def new_code(
    now_ms: int, sender: Sender | None = None, rank: Rank = "person"
) -> tuple[str, CodeGiven]:
    """A code, and the fact that knows it again: for a stranger, or an invitation."""
    code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LEN))
    salt = secrets.token_hex(8)
    who = (
        ("", "", "")
        if sender is None
        else (sender.person, sender.chat, shown_name(sender.name))
    )
    return code, CodeGiven(salt, digest(code, salt), now_ms + CODE_MS, *who, rank)


def shown_name(name: str) -> str:
    """A name as it is shown to people: one short line. It decides nothing."""
    kept = "".join(one if one.isprintable() else " " for one in name)
    return " ".join(kept.split())[:NAME_CHARS_MAX]


def _sender(said: Message) -> Sender:
    return Sender(said.person, said.chat, said.name, said.group, said.bot)
