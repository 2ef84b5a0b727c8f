"""Sessions that people talk to in chats, and the accounts through which they do.

An account has a session of its own, named `account/ID`: its facts say who may talk, which chat
belongs to which session, and what was asked where. The process that holds its lease receives and
sends as that account, so one process does. Nothing is said in it, and lists leave it out.

What must appear in a chat is a delivery of the chat's session. What it shows is read from the
journal each time, so a message can be filled, filled again after a kill, and is never kept twice.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.people import Account, Code, enter
from steno.journal.debts import OwedDelivery
from steno.journal.drafts import Draft
from steno.journal.facts import (
    AttachmentSettled,
    AwaitedFile,
    CodeMissed,
    Continues,
    Delivered,
    DeliveryAttempted,
    DeliveryExpired,
    DeliveryOwed,
    DeliveryPlaced,
    DeliveryRefused,
    DeliverySettled,
    FreeFact,
    InputAdmitted,
    InputWithdrawn,
    PersonPaired,
    PersonRemoved,
    Posted,
    Record,
    SessionStarted,
    StepSealed,
    StepStarted,
    TurnEnded,
    TurnStarted,
    taken_by,
)
from steno.journal.listing import ACCOUNT
from steno.journal.parts import Seq, Text
from steno.journal.transcript import shown_text
from steno.service.attachments import Attachment
from steno.service.views import Approval, Views
from steno.service.visits import Visits
from steno.session.errors import Misused
from steno.session.load import Sessions
from steno.store.errors import KeyReused, SessionBusy, UnknownSession
from steno.store.protocol import (
    PAGE,
    Admission,
    Admitted,
    Change,
    FeedMark,
    Lease,
    read_all,
)

KEY_CHARS_MAX = 200
ANSWER_PAGE = 100
TAKES = ("turn.started", "step.started", "input.withdrawn")


def account_name(account: str) -> str:
    return f"{ACCOUNT}/{account}"


class Debt(Struct, frozen=True):
    """A delivery to a chat, as it stands: where it is owed, what it says, and how far it is.
    `behind`: an earlier answer of its session is not in its chat yet."""

    session: str
    seq: Seq
    owed: DeliveryOwed
    one: OwedDelivery
    behind: bool = False


class Showing(Struct, frozen=True):
    """What a chat is to show of a debt now. `final`: nothing will change any more. `ended` is how
    the turn ended, of an answer; `asks` is the call, of a question that waits."""

    text: str
    final: bool
    ended: TurnEnded | None = None
    asks: Approval | None = None
    decided: str = ""
    began: bool = False


class Arrival(Struct, frozen=True):
    """What was said in a chat. `id` is the platform's, unique in the account."""

    account: str
    platform: str
    id: str
    chat: str
    text: str
    author: str
    session: str
    quoted: str = ""
    mode: Literal["queue", "steer"] = "queue"
    files: tuple[AwaitedFile, ...] = ()


class Chats:
    def __init__(self, sessions: Sessions, views: Views, visits: Visits) -> None:
        self.store = sessions.store
        self._sessions = sessions
        self._views = views
        self._visits = visits

    # --- the account's own journal

    async def account(self, account: str) -> str:
        """The session of an account, made if absent."""
        return await self.store.ensure(
            SessionStarted(ACCOUNT, "", account_name(account))
        )

    async def find_account(self, account: str) -> str | None:
        return await self.store.find(account_name(account))

    async def accounts(self) -> AsyncIterator[tuple[str, str]]:
        """Every account that was ever used here, and its session."""
        page = await self.store.list(PAGE, after=0)
        while page:
            for listed in page:
                if listed.row.platform == ACCOUNT and listed.row.name is not None:
                    yield listed.row.name.removeprefix(f"{ACCOUNT}/"), listed.id
            page = await self.store.list(PAGE, after=page[-1].mark)

    async def every_account(self) -> AsyncIterator[tuple[str, str, Account]]:
        """Every account that was ever used here, its session, and how it stands."""
        async for name, session in self.accounts():
            account = Account()
            await self.catch_up(session, account)
            yield name, session, account

    async def pair(
        self, code: str, owner: bool, by: str, now_ms: int
    ) -> tuple[str, PersonPaired]:
        """Let a person in who has a code: to which account, and as what. A code that fits nowhere
        counts as a wrong try at each."""
        locked, sessions = False, []
        async for name, session, account in self.every_account():
            sessions.append(session)
            entered = enter(account, code, "", now_ms)
            if isinstance(entered, Code):
                asked = entered.fact
                rank = "owner" if owner else asked.rank
                paired = PersonPaired(
                    asked.person, asked.chat, rank, asked.name, by, entered.seq
                )
                await self.note(session, [paired], f"paired:{entered.seq}")
                return name, paired
            locked |= entered == "locked"
        for session in sessions:
            await self.note(session, [CodeMissed()])
        if locked:
            raise Misused("too many wrong codes; wait an hour. Nothing was changed")
        raise Misused(
            "no code like this is waiting: it is wrong, used, or older than an hour"
        )

    async def unpair(self, person: str, by: str) -> list[str]:
        """Let a person in no longer; the accounts that did."""
        removed = []
        async for name, session, account in self.every_account():
            if person in account.people:
                await self.note(session, [PersonRemoved(person, by)])
                removed.append(name)
        return removed

    async def take_account(self, session: str) -> Lease | None:
        """The right to receive and send as an account; None while another process has it."""
        try:
            return await self.store.acquire(session)
        except SessionBusy:
            return None

    async def keep_account(self, lease: Lease) -> Lease:
        return await self.store.renew(lease)

    async def leave_account(self, lease: Lease) -> None:
        while True:
            head = (await self.store.glance(lease.session)).head
            if (await self.store.release(lease, head)).released:
                return

    async def catch_up(self, session: str, account: Account) -> None:
        async for record in read_all(self.store, session, account.head):
            account.apply(record)

    async def of_account(self, session: str, kinds: Sequence[str]) -> list[Record]:
        """The last facts of these kinds in an account's journal, as far as a page reaches."""
        head = (await self.store.glance(session)).head
        return await self.store.read(session, max(head - PAGE, 0), PAGE, kinds)

    async def note(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> tuple[Seq, bool]:
        """Add facts, once under a key; where, and whether they are new."""
        head = (await self.store.glance(session)).head if key is not None else 0
        try:
            added = await self.store.add(session, facts, key)
        except KeyReused:
            return 0, False
        return added.first, key is None or added.first > head

    # --- sessions of chats

    async def begin(self, platform: str, model: str, name: str) -> str:
        """The session of this name, made if absent: a chat's first one is named after it."""
        return await self.store.ensure(
            SessionStarted(platform, model, name[:KEY_CHARS_MAX])
        )

    async def admit(
        self, arrival: Arrival, owes: tuple[DeliveryOwed, ...]
    ) -> Admitted | None:
        """Store what was said; None if the same id came before with other words, which change
        nothing."""
        said = InputAdmitted(
            (Text(arrival.text),),
            arrival.account,
            arrival.id,
            arrival.author,
            arrival.mode,
            chat=arrival.chat,
            quoted=arrival.quoted,
            awaits=arrival.files,
        )
        visit = await self._visits.opening(arrival.session)
        try:
            admitted = await self.store.admit(
                Admission(input=said, session=arrival.session, visit=visit, owes=owes)
            )
        except KeyReused:
            return None
        self._visits.began(admitted.session, admitted.visit)
        return admitted

    async def input_at(self, session: str, seq: Seq) -> InputAdmitted | None:
        found = await self.store.read(session, seq - 1, 1)
        fact = found[0].fact if found else None
        return fact if isinstance(fact, InputAdmitted) else None

    async def awaited(
        self, session: str
    ) -> tuple[Seq, list[tuple[Seq, str, AwaitedFile]]]:
        """The files that pending inputs await: each with its input and where that came from; and
        the head up to which inputs were looked at."""
        glance = await self.store.glance(session)
        pending = glance.row.pending
        if not pending:
            return glance.head, []
        settled = {
            (record.fact.input, record.fact.file)
            for record in await self.store.read(
                session, pending[0], PAGE, ("attachment.settled",)
            )
            if isinstance(record.fact, AttachmentSettled)
        }
        found: list[tuple[Seq, str, AwaitedFile]] = []
        for seq in pending:
            if (said := await self.input_at(session, seq)) is not None:
                waits = [
                    file for file in said.awaits if (seq, file.id) not in settled
                ]
                found += [(seq, said.source, file) for file in waits]
        return glance.head, found

    async def attach(
        self,
        session: str,
        input: Seq,
        file: str,
        found: Attachment | None,
        cause: str,
    ) -> None:
        """Record what came of fetching a file, once."""
        parts = () if found is None else (found.part,)
        if found is not None:
            await self.store.put(session, found.data)
        fact = AttachmentSettled(input, file, parts, cause)
        await self.note(session, [fact], f"attachment:{input}:{file}"[:KEY_CHARS_MAX])

    async def find_input(
        self, source: str, key: str
    ) -> tuple[str, Seq, InputAdmitted] | None:
        """The input that came under a key, in whichever session: where it is, and what it says."""
        found = await self.store.admitted(source, key)
        said = (
            None if found is None else await self.input_at(found.session, found.seq)
        )
        return (
            None
            if found is None or said is None
            else (found.session, found.seq, said)
        )

    async def post(
        self, session: str, text: str, by: str, owed: DeliveryOwed, key: str
    ) -> Seq | None:
        """Text that a chat is to show, and that it is owed there, in one commit; None if that was
        stored before."""
        head = (await self.store.glance(session)).head
        facts: list[FreeFact] = [Posted(text, by)]
        first, new = await self.note(session, facts, f"{key}:text")
        if not first:
            found = [
                one
                for one in await self.store.keys(session)
                if one.key == f"{key}:text"
            ]
            if not found:
                return None
            first = found[0].seq
        await self.owe(session, [replace(owed, target=first)], key)
        return first if new or first > head else None

    async def owe(self, session: str, owed: Sequence[DeliveryOwed], key: str) -> bool:
        """Owe something to chats, once under a key; whether that is new."""
        return (await self.note(session, list(owed), key))[1]

    # --- what is owed to chats

    async def debts(self, channels: frozenset[str]) -> AsyncIterator[Debt]:
        """Everything that is owed on these channels."""
        page = await self.store.list(PAGE, after=0, where="owes")
        while page:
            for listed in page:
                for seq, one in listed.row.deliveries.open.items():
                    if one.channel in channels and (
                        debt := await self._debt(listed.id, seq, one)
                    ):
                        yield debt
            page = await self.store.list(PAGE, after=page[-1].mark, where="owes")

    async def owed(
        self, session: str, channels: frozenset[str]
    ) -> dict[Seq, OwedDelivery]:
        """What a session owes on these channels."""
        try:
            row = (await self.store.glance(session)).row
        except UnknownSession:
            return {}
        return {
            seq: one
            for seq, one in row.deliveries.open.items()
            if one.channel in channels
        }

    async def debt(self, session: str, seq: Seq) -> Debt | None:
        """One debt as it stands; None if it is settled."""
        try:
            owed = (await self.store.glance(session)).row.deliveries.open
        except UnknownSession:
            return None
        one = owed.get(seq)
        debt = None if one is None else await self._debt(session, seq, one)
        return None if debt is None else replace(debt, behind=_behind(owed, debt))

    async def _debt(self, session: str, seq: Seq, one: OwedDelivery) -> Debt | None:
        [record] = await self.store.read(session, seq - 1, 1)
        return (
            Debt(session, seq, record.fact, one)
            if isinstance(record.fact, DeliveryOwed)
            else None
        )

    async def attempt(self, debt: Debt, part: int) -> bool:
        """Record that a message for a part is about to be made; False if another process did."""
        number = debt.one.attempts.get(part, 0) + 1
        fact = DeliveryAttempted(debt.seq, self.store.owner, None, part)
        key = f"delivery:{debt.seq}:{part}:{number}"
        return (await self.note(debt.session, [fact], key))[1]

    async def placed(self, debt: Debt, part: int, message: str) -> None:
        fact = DeliveryPlaced(debt.seq, part, message)
        await self.note(
            debt.session,
            [fact],
            f"placed:{debt.seq}:{part}:{message}"[:KEY_CHARS_MAX],
        )

    async def failed(
        self, debt: Debt, cause: str, unknown: bool, final: bool
    ) -> None:
        outcome = DeliveryRefused(cause, unknown, final)
        key = f"settled:{debt.seq}" if final else None
        await self.note(debt.session, [DeliverySettled(debt.seq, outcome)], key)

    async def expired(self, debt: Debt, cause: str) -> None:
        settled = DeliverySettled(debt.seq, DeliveryExpired(cause))
        await self.note(debt.session, [settled], f"settled:{debt.seq}")

    async def delivered(self, debt: Debt, receipt: str) -> None:
        settled = DeliverySettled(debt.seq, Delivered(receipt))
        await self.note(debt.session, [settled], f"settled:{debt.seq}")

    # --- what to show

    async def showing(self, debt: Debt) -> Showing:
        match debt.owed.show:
            case "answer":
                return await self._answer(debt)
            case "text":
                return await self._text(debt)
            case "question":
                return await self._question(debt)

    async def _answer(self, debt: Debt) -> Showing:
        taken = debt.one.taken
        if not taken:
            return Showing("", False)
        glance = await self.store.glance(debt.session)
        answer = await self.answer(debt.session, taken, glance.head)
        text = answer.text(glance.drafts)
        return Showing(text, answer.ended is not None, answer.ended, began=True)

    async def answer(
        self, session: str, taken: Seq, upto: Seq | None = None
    ) -> "Answer":
        """What was said to an input that this fact took. What came after an answer that is done is
        not read: it may be a thousand turns."""
        answer = Answer(taken)
        facts = read_all(self.store, session, taken - 1, upto, ANSWER_PAGE)
        async with aclosing(facts):  # type: ignore[type-var]
            async for record in facts:
                answer.apply(record)
                if answer.done():
                    break
        return answer

    async def taken(self, session: str, input: Seq) -> Seq | InputWithdrawn | None:
        """The last fact that took an input, for one that was run again; or that it was taken
        back."""
        after, found = input, None
        while page := await self.store.read(session, after, 1_000, TAKES):
            for record in page:
                fact = record.fact
                if isinstance(fact, InputWithdrawn) and fact.input == input:
                    return fact
                if input in taken_by(fact):
                    found = record.seq
            after = page[-1].seq
        return found

    async def _text(self, debt: Debt) -> Showing:
        [record] = await self.store.read(debt.session, debt.owed.target - 1, 1)
        fact = record.fact
        if isinstance(fact, InputAdmitted):
            who = fact.author or fact.source
            said = "".join(map(shown_text, fact.parts)) or "(attachment)"
            return Showing(f"{who}:\n{said}", True)
        if isinstance(fact, TurnStarted | StepStarted):
            answer = await self.answer(debt.session, record.seq)
            return Showing(answer.text(), answer.ended is not None, answer.ended)
        return Showing(fact.text if isinstance(fact, Posted) else "", True)

    async def _question(self, debt: Debt) -> Showing:
        for one in await self._views.approvals(debt.session):
            if one.seq == debt.owed.target:
                return Showing(
                    "", one.decision is not None, asks=one, decided=one.decision or ""
                )
        decided = await self.decision(debt.session, debt.owed.target)
        return Showing("", True, decided=decided or "over")

    async def decision(self, session: str, asked: Seq) -> str | None:
        """What was decided about a call, by any person; None if nothing was."""
        found = await self.store.read(session, asked, 1_000, ("approval.decided",))
        said = (one.fact for one in found)
        return next(
            (one.decision for one in said if getattr(one, "asked", None) == asked),  # type: ignore[union-attr]
            None,
        )

    async def asked(self, session: str, asked: Seq) -> Approval | None:
        """A call that waits for a decision."""
        waiting = await self._views.approvals(session)
        return next(
            (one for one in waiting if one.seq == asked and one.decision is None),
            None,
        )

    # --- what changes

    async def now(self) -> FeedMark:
        return (await self.store.changes(None)).mark

    def changes(self, after: FeedMark) -> AsyncIterator[Change]:
        return self.store.follow_changes(after)


def _behind(owed: Mapping[Seq, OwedDelivery], debt: Debt) -> bool:
    """Answers come in the order of what they answer."""
    if debt.owed.show != "answer":
        return False
    return any(
        seq < debt.seq and other.show == "answer" and not other.placed
        for seq, other in owed.items()
        if other.channel == debt.owed.channel
    )


def new_key() -> str:
    return os.urandom(12).hex()


class Answer:
    """What was said to an input: in the turn that took it, from there on, and in those that went on
    with it. As `run` prints it: the texts one after the other, with nothing between."""

    def __init__(self, taken: Seq) -> None:
        self.ended: TurnEnded | None = None
        self._taken = taken
        self._within = False
        self._turns: set[Seq] = set()
        self._texts: dict[Seq, str] = {}

    def apply(self, record: Record) -> None:
        fact = record.fact
        if record.seq == self._taken:
            self._within = True
        if isinstance(fact, TurnStarted):
            goes_on = (
                isinstance(fact.origin, Continues) and fact.origin.turn in self._turns
            )
            if record.seq == self._taken or goes_on:
                self._turns.add(record.seq)
                self._within, self.ended = True, None
        elif isinstance(fact, TurnEnded) and self._within:
            self._turns.add(fact.turn)
            self._within, self.ended = False, fact
        elif isinstance(fact, StepStarted) and self._within:
            self._texts[record.seq] = ""
        elif isinstance(fact, StepSealed) and fact.step in self._texts:
            self._texts[fact.step] = "".join(map(shown_text, fact.parts))

    def done(self) -> bool:
        """Whether nothing can be added to it any more."""
        return self.ended is not None and self.ended.outcome == "done"

    def text(self, drafts: Sequence[Draft] = ()) -> str:
        for draft in drafts:
            stream = draft.stream
            if (
                stream.kind == "text"
                and stream.started in self._texts
                and not self.ended
            ):
                self._texts[stream.started] = draft.text
        return "".join(self._texts.values())
