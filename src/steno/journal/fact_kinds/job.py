"""The facts of jobs: what runs at which times by itself, and what came of each time.

The session named `jobs` has what people decided: a job was set, paused, resumed, removed, asked to
run. What came of its occurrences stands in a session of its own, named `job/ID`, so that the last
page of it says all that the next decision needs, however long a job has run.
"""

from typing import Literal

from steno.journal.fact_kinds.base import Fact, OutsideFact
from steno.journal.parts import Seq


class JobFact(OutsideFact, frozen=True):
    """Stands in the journals of jobs, and in no other."""


class Cron(Fact, frozen=True, tag="cron"):
    """The minutes that a cron expression of five fields names, by the clocks of a time zone."""

    expression: str
    zone: str


class At(Fact, frozen=True, tag="at"):
    """Once. `zone` is how people read the time."""

    at_ms: int
    zone: str


class Every(Fact, frozen=True, tag="every"):
    """Each time that so many seconds have passed since `from_ms`."""

    seconds: int
    from_ms: int


Schedule = Cron | At | Every
Missed = Literal["skip", "once", "all"]
Overlap = Literal["queue", "skip"]


class JobSet(JobFact, frozen=True, tag="job.set"):
    """A job was made, or is another one from here on. `channel` and `chat`: where what it says is
    posted; "" if nowhere. `place`: whether it runs in a session of its own or in the chat's.
    `missed`: of the times at which no service ran, none is made up for, the last one, or all.
    `overlap`: whether a time that comes while an earlier one still runs waits, or is skipped."""

    job: str
    prompt: str
    schedule: Schedule
    name: str = ""
    channel: str = ""
    chat: str = ""
    place: Literal["own", "chat"] = "own"
    missed: Missed = "once"
    overlap: Overlap = "queue"
    by: str = ""


class JobPaused(JobFact, frozen=True, tag="job.paused"):
    job: str
    by: str = ""
    cause: str = ""


class JobResumed(JobFact, frozen=True, tag="job.resumed"):
    job: str
    by: str = ""


class JobRemoved(JobFact, frozen=True, tag="job.removed"):
    job: str
    by: str = ""


class JobAsked(JobFact, frozen=True, tag="job.asked"):
    """A person wants the job to run now, whatever its times are."""

    job: str
    by: str = ""


class JobDue(JobFact, frozen=True, tag="job.due"):
    """An occurrence is to run in `session`: this is noted before it is admitted, so that one
    decision about a time is ever carried out. `input` is where it stands, if that was known. `at`
    is its time as its key has it, `late_ms` how long after it that was. `asked` is the wish of a
    person that it came from, 0 if it is one of the job's times."""

    at: str
    at_ms: int
    session: str
    input: Seq = 0
    late_ms: int = 0
    asked: Seq = 0


class JobSkipped(JobFact, frozen=True, tag="job.skipped"):
    """An occurrence was not run. With `upto_ms` it is all of them up to there, `count` of them; 0
    if they were too many to count."""

    at: str
    at_ms: int
    reason: Literal["missed", "overlap", "too_many"]
    upto_ms: int = 0
    count: int = 1


JobOutcome = Literal["done", "silent", "failed", "undelivered", "unknown"]


class JobEnded(JobFact, frozen=True, tag="job.ended"):
    """What came of the occurrence at `due`. `done`: it ran, and what it said was delivered, if it
    was to be. `silent`: it had nothing to say. `cause` is a short stable word."""

    due: Seq
    outcome: JobOutcome
    cause: str = ""
    detail: str = ""


class JobTold(JobFact, frozen=True, tag="job.told"):
    """The owner was told that the job fails, was paused for that, works again, or missed some
    times."""

    what: Literal["failing", "paused", "recovered", "missed"]
    cause: str = ""


AnyJobFact = (
    JobSet
    | JobPaused
    | JobResumed
    | JobRemoved
    | JobAsked
    | JobDue
    | JobSkipped
    | JobEnded
    | JobTold
)
