"""Jobs, as every front end and the model's tool see them: set, list, pause, resume, remove, ask to
run. What is due is decided in `engine/jobs`; the service carries it out."""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from steno.engine import schedule as when
from steno.engine.jobs import (
    SOURCE,
    Job,
    JobList,
    JobRuns,
    Occurrence,
    home_of,
    key_of,
    next_ms,
)
from steno.journal.facts import (
    FreeFact,
    JobAsked,
    JobPaused,
    JobRemoved,
    JobResumed,
    JobSet,
    Schedule,
    SessionStarted,
)
from steno.journal.listing import JOBS
from steno.session.errors import Misused
from steno.store.errors import KeyReused
from steno.store.protocol import Store, read_all
from steno.tools.protocol import Unusable

HOME = "jobs"
"""The name of the session that lists the jobs."""
PROMPT_CHARS_MAX = 50_000
NAME_CHARS_MAX = 80
JOBS_MAX = 1_000
SHOWN = 20
RUNS_READ = 5_000
"""So many of the last facts of a job say how it stands."""


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be run: one of `cron`, `at` and `every`. `to` is CHANNEL:CHAT."""

    prompt: str
    cron: str = ""
    at: str = ""
    every: str = ""
    zone: str = ""
    name: str = ""
    to: str = ""
    place: Literal["own", "chat"] = "own"
    missed: Literal["skip", "once", "all"] = "once"
    overlap: Literal["queue", "skip"] = "queue"


class JobShown(Struct, frozen=True):
    """A job as it stands. `state`: on, paused, or over if none of its times is left."""

    id: str
    name: str
    prompt: str
    schedule: str
    state: Literal["on", "paused", "over"]
    next: str
    next_ms: int | None
    to: str
    place: str
    missed: str
    overlap: str
    by: str
    made_ms: int
    cause: str = ""
    failures: int = 0
    runs: tuple[Occurrence, ...] = ()


class JobBook:
    def __init__(
        self,
        store: Store,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.store = store
        self.now_ms = now_ms

    # --- what there is

    async def home(self) -> str:
        return await self.store.ensure(SessionStarted(JOBS, "", HOME))

    async def home_of(self, job: str) -> str:
        return await self.store.ensure(SessionStarted(JOBS, "", home_of(job)))

    async def all(self, known: JobList | None = None) -> JobList:
        """Every job; what is known of them already is gone on with."""
        known = JobList() if known is None else known
        if (home := await self.store.find(HOME)) is not None:
            async for record in read_all(self.store, home, known.head):
                known.apply(record)
        return known

    async def runs(self, job: str, known: JobRuns | None = None) -> JobRuns:
        """What came of a job: as far as its last facts say."""
        known = JobRuns() if known is None else known
        if (home := await self.store.find(home_of(job))) is not None:
            after = max(known.head, (await self.store.glance(home)).head - RUNS_READ)
            async for record in read_all(self.store, home, after):
                known.apply(record)
        return known

    async def listed(self) -> list[JobShown]:
        found = (await self.all()).jobs
        return [await self._shown(job, 1) for job in found.values()]

    async def show(self, wanted: str, limit: int = SHOWN) -> JobShown:
        return await self._shown(await self.find(wanted), limit)

    async def find(self, wanted: str) -> Job:
        """A job by its id, the beginning of it, or its name."""
        jobs = (await self.all()).jobs
        if wanted in jobs:
            return jobs[wanted]
        found = [
            job
            for id, job in jobs.items()
            if wanted and (id.startswith(wanted) or job.set.name == wanted)
        ]
        if len(found) != 1:
            said = "is no job" if not found else "fits more than one job"
            raise Misused(f"{wanted[:80]!r} {said}; steno jobs list shows them")
        return found[0]

    async def _shown(self, job: Job, limit: int) -> JobShown:
        runs = await self.runs(job.set.job)
        due_ms = next_ms(job, runs, self.now_ms())
        asked = any(seq not in runs.asked for seq in job.asked)
        over = due_ms is None and not asked
        paused = job.paused
        one = job.set
        return JobShown(
            one.job,
            one.name,
            one.prompt,
            when.worded(one.schedule),
            "paused" if paused is not None else "over" if over else "on",
            "" if due_ms is None else when.stamp(one.schedule, due_ms),
            due_ms,
            f"{one.channel}:{one.chat}" if one.channel else "",
            one.place,
            one.missed,
            one.overlap,
            one.by,
            job.made_ms,
            "" if paused is None else paused.cause,
            runs.failures,
            tuple(
                [await self._placed(one, job) for one in runs.occurrences()[-limit:]]
            ),
        )

    async def _placed(self, one: Occurrence, job: Job) -> Occurrence:
        """With the input that it is, if it was admitted."""
        if one.input or not one.session:
            return one
        admitted = await self.store.admitted(SOURCE, key_of(job.set.job, one.at))
        return one if admitted is None else replace(one, input=admitted.seq)

    # --- changing

    async def add(self, new: NewJob, by: str, key: str = "") -> JobShown:
        """Make a job; the same one however often under a key."""
        job = (
            hashlib.sha256(key.encode()).hexdigest()[:8]
            if key
            else os.urandom(4).hex()
        )
        jobs = (await self.all()).jobs
        if job not in jobs and len(jobs) >= JOBS_MAX:
            raise Misused(f"there are {JOBS_MAX} jobs already; remove one first")
        made = self._made(new, job, by)
        try:
            await self.store.add(await self.home(), [made], f"set:{job}")
        except KeyReused:
            if job not in (await self.all()).jobs:
                raise Misused(
                    "under this key a job was made that has been removed"
                ) from None
        return await self.show(job)

    def _made(self, new: NewJob, job: str, by: str) -> JobSet:
        if not new.prompt.strip() or len(new.prompt) > PROMPT_CHARS_MAX:
            raise Misused(
                f"a job needs a prompt, of {PROMPT_CHARS_MAX} characters at most"
            )
        channel, colon, chat = new.to.partition(":")
        if new.to and not (channel and colon and chat):
            raise Misused(f"{new.to!r} must be CHANNEL:CHAT")
        if new.place == "chat" and not new.to:
            raise Misused(
                "to run in a chat's session a job needs the chat: CHANNEL:CHAT"
            )
        return JobSet(
            job,
            new.prompt,
            self._schedule(new),
            new.name[:NAME_CHARS_MAX],
            channel[:200],
            chat[:200],
            new.place,
            new.missed,
            new.overlap,
            by,
        )

    def _schedule(self, new: NewJob) -> Schedule:
        if sum(map(bool, (new.cron, new.at, new.every))) != 1:
            raise Misused("say when: one of cron, at and every")
        zone = new.zone or local_zone()
        try:
            if new.cron:
                return when.cron(new.cron, zone)
            return (
                when.at(new.at, zone)
                if new.at
                else when.every(new.every, self.now_ms())
            )
        except when.BadSchedule as error:
            raise Misused(str(error)) from error

    async def pause(
        self, wanted: str, by: str, cause: str = "", key: str | None = None
    ) -> JobShown:
        job = (await self.find(wanted)).set.job
        return await self._note(job, JobPaused(job, by, cause), key)

    async def resume(self, wanted: str, by: str, key: str | None = None) -> JobShown:
        job = (await self.find(wanted)).set.job
        return await self._note(job, JobResumed(job, by), key)

    async def ask_to_run(
        self, wanted: str, by: str, key: str | None = None
    ) -> JobShown:
        """Have it run now: at once if a service runs, else when the next one starts."""
        job = (await self.find(wanted)).set.job
        return await self._note(job, JobAsked(job, by), key)

    async def remove(self, wanted: str, by: str) -> JobShown:
        shown = await self.show(wanted)
        await self.store.add(
            await self.home(), [JobRemoved(shown.id, by)], f"removed:{shown.id}"
        )
        return shown

    async def _note(self, job: str, fact: FreeFact, key: str | None) -> JobShown:
        await self.store.add(await self.home(), [fact], key)
        return await self.show(job)


class JobsForModel:
    """The book, as the model's tools use it in one session."""

    def __init__(self, book: JobBook, session: str) -> None:
        self._book = book
        self._by = f"model:{session}"

    async def listed(self) -> list[JobShown]:
        return await self._book.listed()

    async def change(self, act: str, given: dict[str, Any]) -> JobShown:
        id = given.pop("id", "")
        try:
            match act:
                case "add":
                    return await self._book.add(convert(given, NewJob), self._by)
                case "run":
                    return await self._book.ask_to_run(id, self._by)
                case "pause":
                    return await self._book.pause(id, self._by)
                case "resume":
                    return await self._book.resume(id, self._by)
                case _:
                    return await self._book.remove(id, self._by)
        except (Misused, ValidationError) as error:
            raise Unusable(f"nothing was changed: {error}") from error


def is_zone(name: str) -> bool:
    """Whether this names a time zone."""
    try:
        when.at("2026-01-01T00:00", name)
    except when.BadSchedule:
        return False
    return "/" in name or name == "UTC"


def local_zone() -> str:
    """The time zone of this machine by its name; UTC if it does not say."""
    named = os.environ.get("TZ", "").lstrip(":")
    link = Path("/etc/localtime")
    if not named and link.is_symlink():
        named = str(link.resolve()).partition("zoneinfo/")[2]
    return named if is_zone(named) else "UTC"
