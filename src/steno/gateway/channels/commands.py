"""The commands that work in every chat. Each is recorded before it is carried out, with the turn
that it is about: so a kill leaves it to be carried out once, and it can mean no later turn."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from steno.config import ConfigError
from steno.engine.people import OWNERS_ONLY, call_digest, is_by, rank_of
from steno.gateway.channels.held import HeldAccount
from steno.gateway.channels.protocol import Message
from steno.gateway.channels.wording import HELP
from steno.journal.facts import (
    ChatBound,
    CommandDone,
    CommandGiven,
    Takes,
)
from steno.journal.listing import UNSPOKEN
from steno.journal.parts import Seq
from steno.service import Misused
from steno.service.approvals import ALWAYS_DAYS, always
from steno.service.objects import rule_line
from steno.store.errors import SessionBusy, StoreError, UnknownSession

SESSIONS_SHOWN = 10
_log = logging.getLogger("steno.channels")
Handler = Callable[[CommandGiven, Seq], Awaitable[str]]
Extra = Callable[[CommandGiven, str, str], Awaitable[str]]
"""A command of another part of the service: given what, on which channel, under which key that
stays the same however often it is carried out; what to answer."""


def parse(text: str) -> tuple[str, str] | None:
    """The name and the argument of a command; None of anything else. A platform may add
    `@account` to the name."""
    first, _, rest = text.strip().partition(" ")
    if not first.startswith("/"):
        return None
    name = first[1:].partition("@")[0].lower()
    return (name, rest.strip()) if name in NAMES else None


class Commands:
    """`extra` are commands of other parts of the service, by their name."""

    def __init__(
        self, held: HeldAccount, extra: dict[str, Extra] | None = None
    ) -> None:
        self._held = held
        self._extra = extra or {}
        self._beside: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Handler] = {
            "new": self._new,
            "stop": self._stop,
            "retry": self._retry,
            "undo": self._undo,
            "status": self._status,
            "sessions": self._sessions,
            "resume": self._resume,
            "fork": self._fork,
            "model": self._model,
            "compact": self._compact,
            "link": self._link,
            "jobs": self._jobs,
            "help": self._help,
            "start": self._help,
            "approve": self._approve,
            "deny": self._deny,
        }

    async def give(
        self, said: Message, name: str, argument: str, session: str
    ) -> None:
        """Record a command and carry it out; nothing if it was given before."""
        turn = await self._turn_meant(name, session)
        given = CommandGiven(
            said.chat, session, said.person, said.message, name, argument[:500], turn
        )
        seq, new = await self._held.note([given], f"command:{said.id}")
        if new:
            await self._carry_out(given, seq)

    async def go_on(self) -> None:
        """Carry out what an earlier process recorded and did not finish."""
        for seq, given in list(self._held.known.commands.items()):
            await self._carry_out(given, seq)

    async def close(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    async def _turn_meant(self, name: str, session: str) -> Seq | None:
        if name not in ("stop", "undo", "fork"):
            return None
        loaded = await self._held.service().views.load(session)
        if loaded.state.turn is not None and name != "fork":
            return loaded.state.turn.seq
        last = loaded.state.last_turn
        return None if last is None or name == "stop" else last.turn.seq

    async def _carry_out(self, given: CommandGiven, seq: Seq) -> None:
        if (
            given.name == "compact"
        ):  # it may take a minute, and the next message must not wait
            task = asyncio.create_task(self._act(given, seq))
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)
        else:
            await self._act(given, seq)

    async def _act(self, given: CommandGiven, seq: Seq) -> None:
        held = self._held
        rank = rank_of(held.known, held.rules, given.person)
        try:
            if given.name in OWNERS_ONLY and rank != "owner":
                said = "Only the owner may do that."
            elif given.name in self._extra:
                said = await self._extra[given.name](
                    given, held.name, f"{held.source}:{seq}"
                )
            else:
                said = await self._handlers[given.name](given, seq)
        except SessionBusy:
            said = "A turn is running. /stop ends it; then try again."
        except UnknownSession:
            said = "There is no such session."
        except (StoreError, Misused, ConfigError) as error:
            said = f"That did not work: {error}."
        except Exception:  # noqa: BLE001 - see below
            # What was recorded would be carried out again at each start, and fail again.
            _log.exception("the command /%s of %s", given.name, held.name)
            said = "That did not work, and steno does not know why; its log has more."
        key = f"command:{held.source}:{seq}"
        await held.post(given.chat, said, key, "command")
        await held.note([CommandDone(seq)], f"done:{seq}")

    # --- each of them

    async def _new(self, given: CommandGiven, seq: Seq) -> str:
        session = await self._held.begin(
            f"chat/{self._held.source}/{given.chat}/{seq}"
        )
        await self._bind(given, seq, session)
        return "A new session begins. /sessions lists the others."

    async def _bind(self, given: CommandGiven, seq: Seq, session: str) -> None:
        group = given.chat in self._held.known.groups
        bound = ChatBound(given.chat, session, given.person, group)
        await self._held.note([bound], f"bound:{given.chat}:{seq}")

    async def _stop(self, given: CommandGiven, seq: Seq) -> str:
        if given.turn is None:
            return "Nothing is running."
        service = self._held.service()
        if not await self._is_own(given):
            return "Only who began this turn, or the owner, may stop it."
        stopped = await service.turns.interrupt(given.session, turn=given.turn)
        return "Stopping." if stopped is not None else "That turn is over already."

    async def _is_own(self, given: CommandGiven) -> bool:
        """Whether somebody stops their own turn, or is the owner."""
        held = self._held
        if rank_of(held.known, held.rules, given.person) == "owner":
            return True
        turn = (await held.service().views.load(given.session)).state.turn
        for input in () if turn is None else turn.inputs:
            said = await held.chats.input_at(given.session, input)
            if said is None or said.chat != given.chat:
                continue
            if is_by(said.author, given.person):
                return True
        return turn is None

    async def _retry(self, given: CommandGiven, seq: Seq) -> str:
        held = self._held
        service = held.service(given.session)
        opening = await service.turns.retry(await service.views.load(given.session))
        if isinstance(opening.origin, Takes):
            again = held.owed(given.chat, target=opening.origin.input)
            await held.chats.owe(given.session, [again], f"retry:{held.source}:{seq}")
        held.hub.wake(given.session, opening)
        return "Running your last message again."

    async def _undo(self, given: CommandGiven, seq: Seq) -> str:
        if given.turn is None:
            return "There is nothing to undo."
        edits = self._held.service(given.session).edits
        await edits.rewind(given.session, given.turn)
        return "The last turn is taken back. It is kept, and the model is not told of it any more."

    async def _status(self, given: CommandGiven, seq: Seq) -> str:
        held = self._held
        service = held.service()
        loaded = await service.views.load(given.session)
        state, row = loaded.state, loaded.row
        doing = "running" if state.turn is not None else "resting"
        if loaded.waits():
            doing = "waiting for approval"
        known = [
            f"Session {given.session}: {doing}, {row.messages} messages, model {row.model or '-'}."
        ]
        if state.pending:
            known.append(f"{len(state.pending)} messages wait.")
        known += [
            f"Rule: {rule_line(rule, one)}." for rule, one in state.rules.items()
        ]
        unknown = [
            one
            for one in await service.deliveries.listed(SESSIONS_SHOWN)
            if one.session == given.session and one.state == "refused"
        ]
        if unknown:
            known.append(f"Not delivered: {len(unknown)} ({unknown[0].cause}).")
        return " ".join(known)

    async def _sessions(self, given: CommandGiven, seq: Seq) -> str:
        found = await self._held.service().views.sessions(SESSIONS_SHOWN)
        lines = [
            f"{'▸ ' if one.listed.id == given.session else ''}{one.listed.id}  "
            f"{one.listed.row.title or '(empty)'}"
            for one in found
        ]
        return "\n".join(lines) or "There are no sessions yet."

    async def _resume(self, given: CommandGiven, seq: Seq) -> str:
        if not given.argument:
            return "Say which: /resume ID. /sessions lists them."
        views = self._held.service().views
        session = await views.resolve(given.argument)
        if (await views.glance(session)).row.platform in UNSPOKEN:
            raise UnknownSession(session)
        await self._bind(given, seq, session)
        title = (await views.glance(session)).row.title
        return f"This chat goes on with {session}" + (f": {title}" if title else ".")

    async def _link(self, given: CommandGiven, seq: Seq) -> str:
        if not given.argument:
            return (
                f"This chat shows session {given.session}. Send /link {given.session} in another "
                f"chat, or steno --resume {given.session} in a terminal, to share it."
            )
        return await self._resume(given, seq)

    async def _fork(self, given: CommandGiven, seq: Seq) -> str:
        if given.turn is None:
            return "There is nothing to copy yet."
        fork = await self._held.service().edits.fork(given.session, given.turn)
        await self._bind(given, seq, fork)
        return (
            f"This chat goes on in a copy, {fork}. /resume {given.session} goes back."
        )

    async def _model(self, given: CommandGiven, seq: Seq) -> str:
        held = self._held
        if not given.argument:
            row = (await held.service().views.glance(given.session)).row
            return f"The model is {row.model or 'the default'}. /model SPEC chooses another."
        terms = replace(held.hub.terms(None), model=given.argument)
        held.hub.program.agents(terms).check()
        await held.service(given.session).edits.choose_model(
            given.session, given.argument
        )
        return f"From the next message on {given.argument} answers."

    async def _compact(self, given: CommandGiven, seq: Seq) -> str:
        edits = self._held.service(given.session).edits
        await edits.compact(given.session, self._held.hub.leaving)
        return "The older part is summarised for the model. You still read all of it."

    async def _jobs(self, given: CommandGiven, seq: Seq) -> str:
        return "There are no jobs."

    async def _help(self, given: CommandGiven, seq: Seq) -> str:
        return HELP

    async def _approve(self, given: CommandGiven, seq: Seq) -> str:
        return await self._decide(given, "allow")

    async def _deny(self, given: CommandGiven, seq: Seq) -> str:
        return await self._decide(given, "deny")

    async def _decide(
        self, given: CommandGiven, decision: Literal["allow", "deny"]
    ) -> str:
        held = self._held
        words = given.argument.split()
        lasts = "always" in words[:2]
        word = next((one for one in words[:2] if one != "always"), "")
        approvals = held.service().approvals
        if word and not word.isdecimal():
            return f"Say which by its number: /{given.name} N."
        if word and await held.chats.asked(given.session, int(word)) is None:
            return await late(held, given.session, int(word))
        one = await approvals.choose(given.session, int(word) if word else None)
        return await decide(
            held,
            given.session,
            one.seq,
            decision,
            given.person,
            call_digest(one.tool, one.arguments),
            always(one) if lasts else (),
        )


NAMES = frozenset(
    [
        "new",
        "stop",
        "retry",
        "undo",
        "status",
        "sessions",
        "resume",
        "fork",
        "model",
        "compact",
        "link",
        "jobs",
        "help",
        "start",
        "approve",
        "deny",
    ]
)


async def decide(
    held: HeldAccount,
    session: str,
    asked: Seq,
    decision: Literal["allow", "deny"],
    person: str,
    digest: str,
    rules: Sequence[str] = (),
) -> str:
    """Decide about the call that was shown, and no other; with `rules`, about those like it, too.
    What to say of it."""
    waiting = await held.chats.asked(session, asked)
    if waiting is None:
        return await late(held, session, asked)
    if call_digest(waiting.tool, waiting.arguments) != digest:
        return "Nothing was decided: the call is not the one that was shown."
    by = f"{held.config.kind}:{person}"
    first = await held.service().approvals.decide(
        session, asked, decision, "", rules, by
    )
    if not first:
        return await late(held, session, asked)
    held.hub.wake(session)
    said = "Allowed" if decision == "allow" else "Denied"
    if not rules:
        return f"{said}."
    for_long = f" for {ALWAYS_DAYS} days" if decision == "allow" else ""
    return f"{said}, and so are calls like it in this session{for_long}: {', '.join(rules)}"


async def late(held: HeldAccount, session: str, asked: Seq) -> str:
    """What who answers too late is told: what was decided, or that nothing is asked any more."""
    decided = None
    with contextlib.suppress(StoreError):
        decided = await held.chats.decision(session, asked)
    if decided == "allow":
        return "Nothing was changed: this call was allowed before."
    if decided == "deny":
        return "Nothing was changed: this call was denied before."
    return (
        "Nothing was changed: the turn that asked is over, so the call will not run."
    )
