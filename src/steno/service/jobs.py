"""Carrying jobs out: an occurrence is an admission under a key of job and time.

decide    engine/jobs: which times have come, which of them are run, which are skipped
note      job.due or job.skipped in the job's own journal, under the time: of two processes, or two
          clocks, that decide differently about it, the first has decided
admit     what is due, under `job:ID:TIME`: once, for ever, by any process; a kill between the two
          is made up for by the next look
settle    when its turn has ended: post what it said in the chat's session, owe it to the chat,
          wait until that is settled, note job.ended
tell      the owner hears of failures, pauses and what was missed
"""

import contextlib
from typing import Literal, assert_never

from msgspec import Struct

from steno.engine.jobs import Due, Job, Run, Skip, is_silent, key_of
from steno.journal.facts import (
    CUT_OFF,
    Delivered,
    DeliveryExpired,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    InputWithdrawn,
    JobDue,
    JobEnded,
    JobOutcome,
    JobSkipped,
    JobTold,
    SessionStarted,
    TurnEnded,
)
from steno.journal.listing import JOB
from steno.journal.parts import Seq
from steno.service.chats import Arrival, Chats
from steno.session.jobs import JobBook
from steno.store.errors import KeyReused, UnknownSession
from steno.store.protocol import Admitted


class JobTarget(Struct, frozen=True):
    """Where what a job says goes: a chat, and the session that is shown there."""

    channel: str
    chat: str
    session: str
    expires_s: int


class Standing(Struct, frozen=True):
    """How an occurrence stands. `taken` is the fact that took its input, 0 if none did; `ended` is
    how its turn ended, None while it runs."""

    taken: Seq = 0
    ended: TurnEnded | None = None
    text: str = ""
    withdrawn: bool = False


class Jobs:
    """What there is to do with jobs is `book`."""

    def __init__(self, book: JobBook, chats: Chats) -> None:
        self.book = book
        self._store = book.store
        self._chats = chats
        self._deliveries: dict[str, Seq] = {}

    async def own_session(self, job: Job, model: str) -> str:
        name = f"job/{job.set.job}/runs"
        return await self._store.ensure(SessionStarted(JOB, model, name))

    # --- an occurrence

    async def note(self, job: Job, decided: Due, session: str) -> None:
        """Record what was decided about a time, unless something was before."""
        match decided:
            case Run() as run:
                due = JobDue(run.at, run.at_ms, session, 0, run.late_ms, run.asked)
                again = ":again" if run.again else ""
                await self._add(job.set.job, due, f"due:{run.at}{again}")
            case Skip(fact=skipped):
                await self._add(job.set.job, skipped, f"due:{skipped.at}")
            case unreachable:
                assert_never(unreachable)

    async def admit(self, job: Job, due: JobDue) -> Admitted:
        """Admit an occurrence that was noted; where it stands, and whether that is new."""
        id = job.set.job
        key = key_of(id, due.at)
        arrival = Arrival(JOB, JOB, key, "", job.set.prompt, f"job:{id}", due.session)
        admitted = await self._chats.admit(arrival, ())
        if (
            admitted is None
        ):  # the job was changed since: what was admitted then counts
            admitted = await self._store.admitted(JOB, key)
        if admitted is None:
            raise UnknownSession(due.session)
        return admitted

    async def _add(
        self, job: str, fact: JobDue | JobSkipped | JobEnded | JobTold, key: str
    ) -> None:
        home = await self.book.home_of(job)
        with contextlib.suppress(KeyReused):  # another process said how it was
            await self._store.add(home, [fact], key)

    async def standing(self, session: str, input: Seq) -> Standing | None:
        """Of an occurrence, by where it was admitted. None if its session is gone."""
        try:
            taken = await self._chats.taken(session, input)
            if isinstance(taken, InputWithdrawn):
                return Standing(withdrawn=True)
            if taken is None:
                return Standing()
            answer = await self._chats.answer(session, taken)
        except UnknownSession:
            return None
        return Standing(taken, answer.ended, answer.text())

    async def post(
        self, job: Job, due: JobDue, standing: Standing, target: JobTarget
    ) -> None:
        """Have the chat show what the job said. Said in a session of its own, it becomes a fact of
        the chat's session, as what was posted. In the chat's session it stands already."""
        id = job.set.job
        key = key_of(id, due.at)
        where = (target.channel, target.chat, key, target.expires_s)
        owed = DeliveryOwed(standing.taken, *where, show="text")
        if due.session == target.session:
            await self._chats.owe(target.session, [owed], key)
        else:
            await self._chats.post(
                target.session, standing.text, f"job:{id}", owed, key
            )

    async def delivered(
        self, job: Job, due: JobDue, target: JobTarget
    ) -> JobOutcome | None:
        """What came of the delivery; None while it is under way."""
        key = key_of(job.set.job, due.at)
        if key not in self._deliveries:
            found = [
                one
                for one in await self._store.keys(target.session)
                if one.key == key
            ]
            if not found:
                return "unknown"
            self._deliveries[key] = found[0].seq
        owed = self._deliveries[key]
        if owed in (await self._store.glance(target.session)).row.deliveries.open:
            return None
        del self._deliveries[key]
        settled = await self._store.read(
            target.session, owed, 1_000, ("delivery.settled",)
        )
        outcomes = [
            one.fact.outcome
            for one in settled
            if isinstance(one.fact, DeliverySettled) and one.fact.owed == owed
        ]
        match outcomes[-1] if outcomes else None:
            case Delivered():
                return "done"
            case DeliveryRefused(unknown=False) | DeliveryExpired():
                return "undelivered"
            case DeliveryRefused() | None:
                return "unknown"

    async def end(
        self,
        job: Job,
        due: Seq,
        outcome: JobOutcome,
        cause: str = "",
        detail: str = "",
    ) -> None:
        ended = JobEnded(due, outcome, cause, detail[:500])
        await self._add(job.set.job, ended, f"ended:{due}")

    async def told(
        self,
        job: Job,
        what: Literal["failing", "paused", "recovered", "missed"],
        cause: str,
        key: str,
    ) -> None:
        await self._add(job.set.job, JobTold(what, cause), f"told:{key}"[:200])

    async def tell(self, target: JobTarget, text: str, key: str) -> None:
        """Have a chat show a notice. No model is told of it."""
        owed = DeliveryOwed(
            0, target.channel, target.chat, key, target.expires_s, "text"
        )
        await self._chats.post(target.session, text, "gateway", owed, key[:190])


def outcome_of(standing: Standing) -> tuple[JobOutcome, str, str] | None:
    """What came of a turn, before anything is posted; None while it runs. A turn that was cut off
    may still be taken up."""
    if standing.withdrawn:
        return "failed", "withdrawn", ""
    ended = standing.ended
    if ended is None:
        return None
    if ended.outcome != "done":
        return "failed", ended.cause or ended.outcome, ended.detail
    return ("silent" if is_silent(standing.text) else "done"), "", ""


def cut_off(standing: Standing) -> Seq | None:
    """The turn, if something other than a person cut it off."""
    ended = standing.ended
    return (
        ended.turn
        if ended is not None and ended.cause in CUT_OFF | {"terminated"}
        else None
    )
