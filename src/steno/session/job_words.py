"""Jobs in words, for every front end."""

from collections.abc import Sequence
from datetime import datetime

from steno.engine.jobs import Job, Occurrence, Tell
from steno.journal.facts import JobSkipped
from steno.session.jobs import JobShown

TIMES_SHOWN = 3


def called(job: Job) -> str:
    return f"{job.set.name} ({job.set.job})" if job.set.name else job.set.job


def missed_text(job: Job, skipped: Sequence[JobSkipped]) -> str:
    counts = [one.count for one in skipped]
    many = "many" if 0 in counts else str(sum(counts))
    times = ", ".join(one.at for one in skipped[-TIMES_SHOWN:])
    more = "… " if len(skipped) > TIMES_SHOWN or sum(counts) > len(skipped) else ""
    return (
        f"Job {called(job)} missed {many} of its times ({more}{times}): no service ran then, or "
        f"too many waited. They are skipped. /jobs show {job.set.job} lists them."
    )


def told_text(job: Job, told: Tell) -> str:
    match told.what:
        case "failing":
            return (
                f"Job {called(job)} failed twice in a row: {told.cause}. It stays on. "
                f"/jobs show {job.set.job} says more."
            )
        case "paused":
            return (
                f"Job {called(job)} failed ten times in a row and is paused: {told.cause}. "
                f"/jobs resume {job.set.job} turns it on again."
            )
        case "recovered":
            return f"Job {called(job)} works again."


def line(one: JobShown) -> str:
    """A job in one line of a list."""
    next = one.next or one.state
    state = (
        f"paused: {one.cause}" if one.state == "paused" and one.cause else one.state
    )
    name = f"{one.name}: " if one.name else ""
    prompt = " ".join(one.prompt.split())
    prompt = prompt if len(prompt) <= 60 else f"{prompt[:59]}…"
    return f"{one.id}  {state:<7} {one.schedule}  next {next}  {name}{prompt}"


def detail(one: JobShown) -> str:
    """All about a job."""
    lines = [
        f"Job {one.id}{f' ({one.name})' if one.name else ''}: {one.state}"
        + (f" ({one.cause})" if one.cause else ""),
        f"  when      {one.schedule}",
        f"  next      {one.next or '-'}",
        f"  posts to  {one.to or '-'}",
        f"  runs in   {'the session of the chat' if one.place == 'chat' else 'its own session'}",
        f"  missed    {one.missed}",
        f"  overlap   {one.overlap}",
        f"  made      {datetime.fromtimestamp(one.made_ms / 1000).astimezone():%Y-%m-%d %H:%M}"
        + (f" by {one.by}" if one.by else ""),
        f"  prompt    {one.prompt}",
    ]
    lines += [_run(run) for run in one.runs] or ["  It has not run yet."]
    return "\n".join(lines)


def _run(one: Occurrence) -> str:
    late = f", {one.late_ms // 1000} s late" if one.late_ms > 1_000 else ""
    why = f": {one.cause}" if one.cause else ""
    many = (
        ""
        if one.count == 1
        else f" and {'many' if not one.count else one.count - 1} more"
    )
    where = f"  {one.session} {one.input}" if one.session else ""
    return f"  {one.at}{many}  {one.outcome}{why}{late}{where}"
