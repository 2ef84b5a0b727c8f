"""At which times a job runs: arithmetic with calendars, no clock.

`datetime` is used for what a date is in a time zone; what time it is comes from the caller.

The times of a schedule are a fixed sequence: asked from anywhere, `times` gives the same ones. So
each time is a name for one occurrence, for ever, and clocks that are set back or forward change
which of them are past, never which there are. Both changes of summer time follow cron's own rules:
a time that the clocks leave out runs once, right after the gap; one that they show twice runs once,
unless the schedule names every hour or every minute of some.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_never
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from steno.journal.facts import At, Cron, Every, Schedule

EVERY_S_MIN = 1
EVERY_S_MAX = 366 * 86_400
COUNTED_MAX = 2_000
"""So many missed times are counted and looked at one by one."""
_BEFORE = timedelta(hours=26)
"""A sequence is begun so long before the time that is asked for. Begun in the middle of a change of
clocks it would depend on where."""
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class BadSchedule(ValueError):
    """It names no times. The message says why."""


def cron(expression: str, zone: str) -> Cron:
    words = expression.split()
    if len(words) != 5:
        raise BadSchedule(
            f"{expression!r} must have five fields: minute hour day month weekday"
        )
    where = _zone(zone)
    try:
        next(CronSim(" ".join(words), datetime(2024, 1, 1, tzinfo=where)))
    except CronSimError as error:
        raise BadSchedule(f"{expression!r} is no cron expression: {error}") from error
    except StopIteration:
        raise BadSchedule(f"{expression!r} names a day that never comes") from None
    return Cron(" ".join(words), zone)


def at(text: str, zone: str) -> At:
    """A time such as 2026-11-19T09:00, by the clocks of a zone unless it says its own offset."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadSchedule(f"{text!r} is no time such as 2026-11-19T09:00") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=_zone(zone))
    try:
        return At(int(when.timestamp() * 1_000), zone)
    except (OverflowError, ValueError):
        raise BadSchedule(f"{text!r} is too far away") from None


def every(text: str, now_ms: int) -> Every:
    """A time such as 90s, 30m, 12h or 1d."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    ok = (
        unit is not None
        and number.isascii()
        and number.isdecimal()
        and len(number) <= 9
    )
    seconds = int(number) * (unit or 0) if ok else 0
    if not EVERY_S_MIN <= seconds <= EVERY_S_MAX:
        raise BadSchedule(
            f"{text!r} must be a time such as 90s, 30m, 12h or 1d, a year at most"
        )
    return Every(seconds, now_ms)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadSchedule(f"{name!r} is no time zone such as Europe/Berlin") from None


def times(schedule: Schedule, after_ms: int) -> Iterator[int]:
    """The times after one, oldest first."""
    match schedule:
        case At():
            yield from (schedule.at_ms,) if schedule.at_ms > after_ms else ()
        case Every():
            step_ms = schedule.seconds * 1_000
            passed = max(0, (after_ms - schedule.from_ms) // step_ms)
            at_ms = schedule.from_ms + (passed + 1) * step_ms
            while True:
                yield at_ms
                at_ms += step_ms
        case Cron():
            yield from _cron_times(schedule, after_ms)
        case unreachable:
            assert_never(unreachable)


def _cron_times(schedule: Cron, after_ms: int) -> Iterator[int]:
    begin = datetime.fromtimestamp(after_ms / 1_000, UTC) - _BEFORE
    last_ms = after_ms
    for when in CronSim(schedule.expression, begin.astimezone(_zone(schedule.zone))):
        at_ms = int(when.timestamp() * 1_000)
        if at_ms > last_ms:
            last_ms = at_ms
            yield at_ms


class Past(list[int]):
    """Times that have come, oldest first. `more`: there were others before them, too many to
    count."""

    more = False


def past(schedule: Schedule, after_ms: int, now_ms: int) -> Past:
    """The times after one and up to now; of very many, the last ones."""
    found, count, last_ms = deque[int](maxlen=COUNTED_MAX), 0, after_ms
    if isinstance(schedule, Every):
        step_ms = schedule.seconds * 1_000
        begin_ms = max(after_ms, now_ms - (COUNTED_MAX + 1) * step_ms)
        count += (begin_ms - after_ms) // step_ms
        after_ms = begin_ms
    for at_ms in times(schedule, after_ms):
        if at_ms > now_ms:
            break
        found.append(at_ms)
        count, last_ms = count + 1, at_ms
        if count == 2 * COUNTED_MAX:  # a dense one: only the end of it counts
            span_ms = last_ms - after_ms
            if now_ms - span_ms > last_ms:
                rest = past(schedule, now_ms - span_ms, now_ms)
                rest.more = True
                return rest
    result = Past(found)
    result.more = count > len(found)
    return result


def stamp(schedule: Schedule, at_ms: int) -> str:
    """A time as the key of its occurrence has it: 2026-11-19T09:00+01:00."""
    zone = UTC if isinstance(schedule, Every) else _zone(schedule.zone)
    when = datetime.fromtimestamp(at_ms / 1_000, zone)
    whole = at_ms % 60_000 == 0
    return when.isoformat(timespec="minutes" if whole else "milliseconds")


def stamped(text: str) -> int | None:
    """The time that a stamp says; None if it is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return None


def worded(schedule: Schedule) -> str:
    """For people."""
    match schedule:
        case Cron():
            return f"cron {schedule.expression} ({schedule.zone})"
        case At():
            return f"at {stamp(schedule, schedule.at_ms)}"
        case Every():
            unit = next(
                u for u in ("d", "h", "m", "s") if schedule.seconds % _UNITS[u] == 0
            )
            return f"every {schedule.seconds // _UNITS[unit]}{unit}"
        case unreachable:
            assert_never(unreachable)


def how_long(ms: int) -> str:
    """A span of time for people: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    minutes, seconds = divmod(max(ms, 0) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
