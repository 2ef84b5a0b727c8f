"""Looks once a second which times of jobs have come, and after those that run; after these also as
soon as one of their turns or deliveries ends.

Any number of gateways may look at once: an occurrence is admitted under its key, each fact about it
under another, so what two of them do is done once. Nothing is kept here that is not a fact: a
gateway that starts finds what is due, what was missed, and what still runs.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing

from msgspec import Struct

from steno.engine.jobs import (
    Job,
    JobList,
    JobRuns,
    Run,
    due_now,
    next_ms,
    to_tell,
)
from steno.engine.people import Account
from steno.engine.schedule import BadSchedule
from steno.gateway.channels.worker import Channels, Worker
from steno.gateway.hub import Hub
from steno.journal.facts import DeliverySettled, JobDue, JobOutcome, TurnEnded
from steno.journal.parts import Seq
from steno.service.jobs import Jobs, JobTarget, Standing, cut_off, outcome_of
from steno.session.errors import Misused
from steno.session.job_words import missed_text, told_text
from steno.store.errors import StoreError, UnknownSession
from steno.store.protocol import Admitted, FactAdded, FeedMark

LOOK_S = 1.0
TAKEN_UP_S = 3.0
"""What nobody runs for so long is taken up."""
Ending = tuple[JobOutcome, str, str]
"""What came of an occurrence, why in a word, and for people."""
_log = logging.getLogger("steno.jobs")


class _Seen(Struct):
    """An occurrence while this process looks after it. `session` is where it runs; `shown_in`,
    that of the chat which is told."""

    session: str
    shown_in: str = ""
    admitted: Admitted | None = None
    head: Seq = 0
    since_s: float | None = None
    continued: set[Seq] = set()


class _Quiet(Struct, frozen=True):
    """Nothing was due at `since_ms`, and nothing will be before `until_ms` unless the journals have
    grown or the clock was set back."""

    since_ms: int
    until_ms: int | None
    known: Seq
    runs: Seq

    def lasts(self, now_ms: int, known: Seq, runs: Seq) -> bool:
        early = self.until_ms is None or now_ms < self.until_ms
        return (
            early
            and now_ms >= self.since_ms
            and (known, runs) == (self.known, self.runs)
        )


class Scheduler:
    def __init__(self, hub: Hub, channels: Channels) -> None:
        self._hub = hub
        self._channels = channels
        self._jobs: Jobs = hub.service().jobs
        self._known = JobList()
        self._runs: dict[str, JobRuns] = {}
        self._quiet: dict[str, _Quiet] = {}
        self._seen: dict[tuple[str, Seq], _Seen] = {}

    async def run(self, may_act: Callable[[], bool]) -> None:
        """For ever. What goes wrong with one job holds up no other."""
        while True:
            mark: FeedMark | None = None
            try:
                if may_act():
                    mark = await self._hub.service().chats.now()
                    await self._look()
            except StoreError as error:
                _log.warning("jobs: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news(mark)

    async def _news(self, mark: FeedMark | None) -> None:
        """Until something has ended since a mark that an occurrence waits for."""
        awaited = {one.session for one in self._seen.values()}
        awaited |= {one.shown_in for one in self._seen.values()}
        if mark is not None and awaited:
            with contextlib.suppress(StoreError):
                changes = self._hub.service().chats.changes(mark)
                async with aclosing(changes) as news:  # type: ignore[type-var]
                    async for one in news:
                        if (
                            not isinstance(one, FactAdded)
                            or one.session not in awaited
                        ):
                            continue
                        if isinstance(one.record.fact, TurnEnded | DeliverySettled):
                            return
        await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        book = self._jobs.book
        await book.all(self._known)
        for id, job in list(self._known.jobs.items()):
            try:
                runs = await book.runs(id, self._runs.setdefault(id, JobRuns()))
                if not self._hub.draining.is_set():
                    await self._begin(job, runs)
                for seq, due in list(runs.open.items()):
                    await self._look_after(job, seq, due)
                await self._tell(job, await book.runs(id, runs))
            except (StoreError, BadSchedule, Misused) as error:
                _log.warning("job %s: %s", id, error)
        for id in self._runs.keys() - self._known.jobs.keys():
            del self._runs[id]
            self._quiet.pop(id, None)

    # --- what is due

    async def _begin(self, job: Job, runs: JobRuns) -> None:
        now_ms, id = self._jobs.book.now_ms(), job.set.job
        if (quiet := self._quiet.get(id)) is not None and quiet.lasts(
            now_ms, self._known.head, runs.head
        ):
            return
        before = runs.head
        for one in due_now(job, runs, now_ms):
            session = await self._session(job) if isinstance(one, Run) else ""
            await self._jobs.note(job, one, session)
        await self._jobs.book.runs(id, runs)
        if (
            runs.head == before
        ):  # nothing was due, or it was decided too long ago to be looked at
            next = next_ms(job, runs, now_ms)
            self._quiet[id] = _Quiet(now_ms, next, self._known.head, runs.head)

    async def _session(self, job: Job) -> str:
        """Where it runs. Without its chat it runs in a session of its own."""
        if (
            job.set.place == "chat"
            and (target := await self._target(job)) is not None
        ):
            return target.session
        model = self._hub.program.agents(self._hub.terms(None)).model_spec()
        return await self._jobs.own_session(job, model)

    # --- what runs

    async def _look_after(self, job: Job, seq: Seq, due: JobDue) -> None:
        seen = self._seen.setdefault((job.set.job, seq), _Seen(due.session))
        if seen.admitted is None and self._hub.draining.is_set():
            return  # the next service admits it
        ended = await self._settle(job, due, seen)
        if ended is not None:
            outcome, cause, detail = ended
            await self._jobs.end(job, seq, outcome, cause, detail)
            del self._seen[job.set.job, seq]

    async def _settle(self, job: Job, due: JobDue, seen: _Seen) -> Ending | None:
        """What came of it; None while that is not known."""
        try:
            admitted = await self._admit(job, due, seen)
            glance = await self._hub.service().views.glance(admitted.session)
        except UnknownSession:
            return "unknown", "deleted", ""
        if glance.owner is not None and glance.head == seen.head:
            return None
        idle = glance.head == seen.head and glance.owner is None
        seen.head = glance.head
        standing = await self._jobs.standing(admitted.session, admitted.seq)
        if standing is None:
            return "unknown", "deleted", ""
        if standing.ended is None and not standing.withdrawn:
            await self._take_up(admitted.session, idle, seen)
            return None
        cut = cut_off(standing)
        if cut is not None and await self._go_on(admitted.session, cut, seen):
            return None
        outcome = outcome_of(standing)
        if outcome is None or outcome[0] != "done" or not job.set.channel:
            return outcome
        return await self._deliver(job, due, standing, seen)

    async def _admit(self, job: Job, due: JobDue, seen: _Seen) -> Admitted:
        if seen.admitted is None:
            seen.admitted = await self._jobs.admit(job, due)
            if seen.admitted.first:
                await self._hub.admitted(seen.admitted.session)
        return seen.admitted

    async def _take_up(self, session: str, idle: bool, seen: _Seen) -> None:
        """Nobody runs it: whoever admitted it, or ran it, is gone."""
        now_s = asyncio.get_running_loop().time()
        if not idle or self._hub.runs(session):
            seen.since_s = None
        elif seen.since_s is None:
            seen.since_s = now_s
        elif now_s - seen.since_s > TAKEN_UP_S and not self._hub.draining.is_set():
            seen.since_s = None
            await self._hub.look_after(session)

    async def _go_on(self, session: str, turn: Seq, seen: _Seen) -> bool:
        """Go on with a turn that was cut off, if that may be; whether to wait for it."""
        if self._hub.runs(session) or self._hub.draining.is_set():
            return True
        if turn in seen.continued:
            return False
        seen.continued.add(turn)
        service = self._hub.service(session)
        try:
            opening = service.turns.continuation(await service.views.load(session))
        except StoreError:
            return False
        self._hub.wake(session, opening)
        return True

    async def _deliver(
        self, job: Job, due: JobDue, standing: Standing, seen: _Seen
    ) -> Ending | None:
        target = await self._target(job)
        if target is None:
            return (
                "undelivered",
                "no_chat",
                f"{job.set.channel} has no chat {job.set.chat}",
            )
        seen.shown_in = target.session
        await self._jobs.post(job, due, standing, target)
        outcome = await self._jobs.delivered(job, due, target)
        return (
            None
            if outcome is None
            else (outcome, "" if outcome == "done" else "delivery", "")
        )

    # --- who hears of it

    async def _target(self, job: Job) -> JobTarget | None:
        if not job.set.channel:
            return None
        for worker in self._channels.workers:
            if worker.health.name == job.set.channel:
                account = await self._account(worker)
                session = account.chats.get(job.set.chat)
                return (
                    None
                    if session is None
                    else _target(worker, job.set.chat, session)
                )
        return None

    async def _account(self, worker: Worker) -> Account:
        chats, account = self._hub.service().chats, Account()
        if (session := await chats.find_account(worker.channel.account)) is not None:
            await chats.catch_up(session, account)
        return account

    async def _owners(self) -> list[JobTarget]:
        """The direct chats of owners, on every channel."""
        found = []
        for worker in self._channels.workers:
            account = await self._account(worker)
            paired = {one.chat for one in account.owners()}
            named = set(worker.config.owners)
            for chat, session in account.chats.items():
                if chat in paired or (chat in named and chat not in account.groups):
                    found.append(_target(worker, chat, session))
        return found

    async def _tell(self, job: Job, runs: JobRuns) -> None:
        if runs.untold:
            key = f"missed:{runs.untold[-1].at}"
            await self._say(job, missed_text(job, runs.untold), key)
            await self._jobs.told(job, "missed", "", key)
        told = to_tell(runs)
        if told is None:
            return
        key = f"{told.what}:{runs.last_ended}"
        if told.what == "paused" and job.paused is None:
            id = job.set.job
            await self._jobs.book.pause(
                id, "steno", told.cause, f"paused:{id}:{runs.last_ended}"
            )
        await self._say(job, told_text(job, told), key)
        await self._jobs.told(job, told.what, told.cause, key)

    async def _say(self, job: Job, text: str, key: str) -> None:
        """Tell the owner; where there is no chat with them, the log and `steno jobs` say it."""
        _log.warning("%s", text)
        own = await self._target(job)
        for target in await self._owners() or ([] if own is None else [own]):
            where = f"{target.channel}:{target.chat}"
            with contextlib.suppress(UnknownSession):
                await self._jobs.tell(
                    target, text, f"job:{job.set.job}:{key}:{where}"
                )


def _target(worker: Worker, chat: str, session: str) -> JobTarget:
    return JobTarget(worker.health.name, chat, session, worker.config.expires_s)
