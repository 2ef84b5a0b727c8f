"""What jobs there are, and what to do about them now. Pure: the time comes from the caller.

1 job.set "morning" (cron 0 9 * * *, missed=once)
journal of the job: job.due 09:00 · job.ended done · (no service ran for three days)
due_now -> Skip 09:00 (missed) · Skip 09:00 (missed) · Run 09:00, 2 h late
"""

from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

from msgspec import Struct

from steno.engine.request import OPENING
from steno.engine.schedule import BadSchedule, how_long, past, stamp, stamped, times
from steno.journal import facts as f
from steno.journal.parts import Seq
from steno.journal.state import JobRun

LATE_MS = 60_000
"""What runs later than this was missed."""
SKIPS_MAX = 100
"""So many skipped times have a fact each; those before them have one together."""
WAITING_MAX = 20
"""So many occurrences of a job wait at most."""
ALL_MAX = 20
HANDLED_MAX = 1_000
TELL_AFTER = 2
PAUSE_AFTER = 10
SILENT = "[silent]"
SOURCE = "job"

BAD = frozenset(("failed", "undelivered", "unknown"))


def home_of(job: str) -> str:
    """The name of the session that has what came of a job."""
    return f"job/{job}"


def key_of(job: str, at: str) -> str:
    return f"job:{job}:{at}"


# --- which jobs there are -------------------------------------------------------------------------


class Job(Struct):
    """`since_ms`: times before it are none of its times: it was made, changed or resumed then.
    `asked` are wishes of people that it runs now."""

    set: f.JobSet
    since_ms: int
    made_ms: int
    paused: f.JobPaused | None = None
    asked: dict[Seq, int] = {}


class JobList(Struct):
    """What the session named `jobs` says."""

    head: Seq = 0
    jobs: dict[str, Job] = {}

    def apply(self, record: f.Record) -> None:
        self.head = record.seq
        if isinstance(record.fact, f.JobFact):
            self._apply(record.seq, record.at_ms, record.fact)

    def _apply(self, seq: Seq, at_ms: int, fact: f.AnyJobFact) -> None:
        match fact:
            case f.JobSet():
                before = self.jobs.get(fact.job)
                made_ms = at_ms if before is None else before.made_ms
                self.jobs[fact.job] = Job(fact, at_ms, made_ms)
            case f.JobRemoved():
                self.jobs.pop(fact.job, None)
            case f.JobPaused():
                if (job := self.jobs.get(fact.job)) is not None:
                    job.paused = fact
            case f.JobResumed():
                if (
                    job := self.jobs.get(fact.job)
                ) is not None and job.paused is not None:
                    job.paused, job.since_ms = None, at_ms
            case f.JobAsked():
                if (job := self.jobs.get(fact.job)) is not None:
                    job.asked[seq] = at_ms
                    while len(job.asked) > WAITING_MAX:
                        del job.asked[next(iter(job.asked))]
            case f.JobDue() | f.JobSkipped() | f.JobEnded() | f.JobTold():
                pass  # stand in the journal of one job
            case unreachable:
                assert_never(unreachable)


# --- what came of one -----------------------------------------------------------------------------


class Handled(Struct, frozen=True):
    """A time that was run, or times that were skipped. `noted_ms` is what the clock said then. If
    that is ahead of now, the clock was set back since: what was skipped stays so, unless its time
    comes again and is kept."""

    from_ms: int
    upto_ms: int
    noted_ms: int
    ran: bool


class Occurrence(Struct, frozen=True):
    """One time, for people: what came of it."""

    at: str
    at_ms: int
    outcome: f.JobOutcome | Literal["missed", "running"]
    cause: str = ""
    detail: str = ""
    session: str = ""
    input: Seq = 0
    late_ms: int = 0
    count: int = 1


class JobRuns(Struct):
    """What the journal of a job says, folded from any place not too near its end. `failures` are
    those in a row; `causes` those of them that the owner was told of; `paused_told`: whether the
    owner must hear that it works again. `untold` are missed times that the owner is yet to hear
    of."""

    head: Seq = 0
    open: dict[Seq, f.JobDue] = {}
    handled: list[Handled] = []
    asked: set[Seq] = set()
    last: list[Occurrence] = []
    untold: list[f.JobSkipped] = []
    failures: int = 0
    cause: str = ""
    causes: frozenset[str] = frozenset()
    paused_told: bool = False
    last_ended: Seq = 0

    def apply(self, record: f.Record) -> None:
        self.head = record.seq
        if isinstance(record.fact, f.JobFact):
            self._apply(record.seq, record.at_ms, record.fact)

    def _apply(self, seq: Seq, at_ms: int, fact: f.AnyJobFact) -> None:
        match fact:
            case f.JobDue():
                self.open[seq] = fact
                if fact.asked:
                    self.asked.add(fact.asked)
                else:
                    self._handle(Handled(fact.at_ms, fact.at_ms, at_ms, True))
            case f.JobSkipped():
                self._handle(
                    Handled(fact.at_ms, fact.upto_ms or fact.at_ms, at_ms, False)
                )
                if fact.reason != "overlap":
                    self.untold = [*self.untold, fact][-HANDLED_MAX:]
                missed = Occurrence(
                    fact.at, fact.at_ms, "missed", fact.reason, count=fact.count
                )
                self._remember(missed)
            case f.JobEnded():
                self._end(seq, fact)
            case f.JobTold():
                self._told(fact)
            case (
                f.JobSet()
                | f.JobPaused()
                | f.JobResumed()
                | f.JobRemoved()
                | f.JobAsked()
            ):
                pass  # stand in the session that lists the jobs
            case unreachable:
                assert_never(unreachable)

    def _handle(self, one: Handled) -> None:
        self.handled = [*self.handled, one][-HANDLED_MAX:]

    def _remember(self, one: Occurrence) -> None:
        self.last = [*self.last, one][-HANDLED_MAX:]

    def _end(self, seq: Seq, fact: f.JobEnded) -> None:
        due = self.open.pop(fact.due, None)
        if due is None:
            return
        self._remember(_occurrence(due, fact.outcome, fact.cause, fact.detail))
        self.last_ended = seq
        if fact.outcome in BAD:
            self.failures += 1
            self.cause = fact.cause or fact.outcome
        else:
            self.failures, self.cause = 0, ""

    def _told(self, fact: f.JobTold) -> None:
        match fact.what:
            case "failing":
                self.causes |= {fact.cause}
            case "paused":
                self.paused_told = True
            case "recovered":
                self.causes, self.paused_told = frozenset(), False
            case "missed":
                self.untold = []

    def occurrences(self) -> list[Occurrence]:
        """Those that are known, oldest first; those that still run last."""
        return [
            *self.last,
            *(_occurrence(due, "running") for due in self.open.values()),
        ]

    def upto_ms(self, now_ms: int) -> int:
        """The last time up to now that was dealt with."""
        counted = (
            one.upto_ms
            for one in self.handled
            if one.upto_ms <= now_ms and (one.ran or one.noted_ms <= now_ms)
        )
        return max(counted, default=0)

    def ran(self, at_ms: int) -> bool:
        return any(one.ran and one.upto_ms == at_ms for one in self.handled)

    def skipped(self, at_ms: int) -> bool:
        return any(
            not one.ran and one.from_ms <= at_ms <= one.upto_ms
            for one in self.handled
        )


def _occurrence(
    due: f.JobDue,
    outcome: f.JobOutcome | Literal["running"],
    cause: str = "",
    detail: str = "",
) -> Occurrence:
    return Occurrence(
        due.at, due.at_ms, outcome, cause, detail, due.session, due.input, due.late_ms
    )


# --- what to do now -------------------------------------------------------------------------------


class Run(Struct, frozen=True):
    """`again`: it was skipped by a clock that was ahead, and its time comes now."""

    at: str
    at_ms: int
    late_ms: int
    asked: Seq = 0
    again: bool = False


class Skip(Struct, frozen=True):
    fact: f.JobSkipped


Due = Run | Skip


def due_now(job: Job, runs: JobRuns, now_ms: int) -> list[Due]:
    """What is to be done about the times that have come, oldest first."""
    found: list[Due] = [
        Run(f"asked:{seq}", at_ms, 0, seq)
        for seq, at_ms in job.asked.items()
        if seq not in runs.asked
    ]
    if job.paused is not None:
        return found
    schedule = job.set.schedule
    after_ms = max(job.since_ms, runs.upto_ms(now_ms))
    come = past(schedule, after_ms, now_ms)
    left = [at_ms for at_ms in come if _open(runs, at_ms, now_ms)]
    if not left:
        return found
    skips, run = _chosen(job.set.missed, left, now_ms)
    found += _skipped(job, skips, come.more)
    room = WAITING_MAX - len(runs.open)
    busy = bool(runs.open)
    for at_ms in run:
        if busy and job.set.overlap == "skip":
            found.append(Skip(_skip(schedule, at_ms, "overlap")))
        elif room <= 0:
            found.append(Skip(_skip(schedule, at_ms, "too_many")))
        else:
            again = runs.skipped(at_ms)
            found.append(
                Run(stamp(schedule, at_ms), at_ms, now_ms - at_ms, again=again)
            )
            busy, room = True, room - 1
    return found


def _open(runs: JobRuns, at_ms: int, now_ms: int) -> bool:
    """Whether a time that has come is yet to be dealt with. One decision about it stands for ever,
    but for a clock that was ahead: what that skipped is run if its time comes again and is kept."""
    return not runs.ran(at_ms) and (
        now_ms - at_ms <= LATE_MS or not runs.skipped(at_ms)
    )


def _chosen(
    missed: Literal["skip", "once", "all"], left: Sequence[int], now_ms: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Which of them are skipped because they were missed, and which are run."""
    match missed:
        case "skip":
            late = [at_ms for at_ms in left if now_ms - at_ms > LATE_MS]
            return late, left[len(late) :][-1:]
        case "once":
            return left[:-1], left[-1:]
        case "all":
            return left[:-ALL_MAX], left[-ALL_MAX:]


def _skipped(job: Job, skips: Sequence[int], more: bool) -> Iterable[Due]:
    schedule = job.set.schedule
    early, each = skips[:-SKIPS_MAX], skips[-SKIPS_MAX:]
    if early:
        first = stamp(schedule, early[0])
        count = 0 if more else len(early)
        yield Skip(f.JobSkipped(first, early[0], "missed", early[-1], count))
    for at_ms in each:
        yield Skip(_skip(schedule, at_ms, "missed"))


def _skip(
    schedule: f.Schedule, at_ms: int, reason: Literal["missed", "overlap", "too_many"]
) -> f.JobSkipped:
    return f.JobSkipped(stamp(schedule, at_ms), at_ms, reason)


def next_ms(job: Job, runs: JobRuns, now_ms: int) -> int | None:
    """When it runs next; None if it does not."""
    if job.paused is not None:
        return None
    after_ms = max(job.since_ms, runs.upto_ms(now_ms), now_ms)
    try:
        return next(
            (at for at in times(job.set.schedule, after_ms) if not runs.ran(at)), None
        )
    except (BadSchedule, OverflowError):
        return None


# --- what came of an answer, and what the owner hears ---------------------------------------------


def is_silent(text: str) -> bool:
    """Whether a job had nothing to say."""
    return not text.strip() or text.strip().strip("`*.").casefold() == SILENT


class Tell(Struct, frozen=True):
    """What the owner is to hear of a job."""

    what: Literal["failing", "paused", "recovered"]
    cause: str = ""


def to_tell(runs: JobRuns) -> Tell | None:
    """Failing twice is told once for each cause, ten times pauses it, and a success after either
    is told once."""
    if runs.failures >= PAUSE_AFTER and not runs.paused_told:
        return Tell("paused", runs.cause)
    if (
        runs.failures >= TELL_AFTER
        and runs.cause not in runs.causes
        and not runs.paused_told
    ):
        return Tell("failing", runs.cause)
    if not runs.failures and runs.last_ended and (runs.causes or runs.paused_told):
        return Tell("recovered")
    return None


def run_note(run: JobRun) -> str:
    """What a model is told of the occurrence that it answers."""
    at_ms, admitted_ms = stamped(run.key.split(":", 2)[-1]), run.admitted_ms
    said = f"{OPENING} This is the job {run.key}. It runs by itself; nobody waits for the answer."
    if at_ms is not None and admitted_ms - at_ms > LATE_MS:
        late = how_long(admitted_ms - at_ms)
        said += f" It runs {late} late, because no service ran at its time."
    return f"{said} If there is nothing to report, answer with exactly {SILENT} and nothing else."
