"""When jobs run, and what is done about it: pure, so told by equality."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine import schedule as when
from steno.engine.jobs import (
    SKIPS_MAX,
    WAITING_MAX,
    Due,
    Job,
    JobList,
    JobRuns,
    Run,
    Skip,
    Tell,
    due_now,
    is_silent,
    next_ms,
    run_note,
    to_tell,
)
from steno.journal import facts as f
from steno.journal.state import JobRun

BERLIN = "Europe/Berlin"
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


NINE = ms("2026-11-18T09:00+01:00")


def stamps(expression: str, after: str, hours: int) -> list[str]:
    cron = when.cron(expression, BERLIN)
    upto_ms = ms(after) + hours * HOUR_MS
    return [when.stamp(cron, at) for at in when.past(cron, ms(after), upto_ms)]


def job(
    schedule: f.Schedule | None = None,
    missed: str = "once",
    overlap: str = "queue",
    since_ms: int = NINE,
) -> Job:
    made = f.JobSet(
        "j",
        "go",
        schedule or f.Every(3_600, NINE),
        missed=missed,  # type: ignore[arg-type]
        overlap=overlap,  # type: ignore[arg-type]
    )
    return Job(made, since_ms, since_ms)


class Journal:
    """A job's journal that grows as the scheduler writes it."""

    def __init__(self, job: Job) -> None:
        self.job, self.runs, self.seq = job, JobRuns(), 0
        self.ran: list[str] = []
        self.skipped: list[str] = []

    def add(self, fact: f.AnyJobFact, at_ms: int) -> int:
        self.seq += 1
        self.runs.apply(f.Record(self.seq, at_ms, fact))
        return self.seq

    def look(self, now_ms: int, finish: bool = True) -> list[Due]:
        found = due_now(self.job, self.runs, now_ms)
        for one in found:
            if isinstance(one, Skip):
                self.add(one.fact, now_ms)
                self.skipped.append(one.fact.at)
            else:
                due = f.JobDue(one.at, one.at_ms, "s", 1, one.late_ms, one.asked)
                seq = self.add(due, now_ms)
                self.ran.append(one.at)
                if finish:
                    self.add(f.JobEnded(seq, "done"), now_ms)
        return found


# --- times ----------------------------------------------------------------------------------------


def test_a_time_that_summer_time_leaves_out_comes_right_after_the_gap() -> None:
    assert stamps("30 2 * * *", "2026-03-28T12:00+01:00", 24) == ["2026-03-29T03:00+02:00"]


def test_a_time_that_the_clocks_show_twice_comes_once() -> None:
    assert stamps("30 2 * * *", "2026-10-24T12:00+02:00", 24) == ["2026-10-25T02:30+02:00"]


def test_every_hour_comes_every_hour_on_both_days() -> None:
    assert len(stamps("0 * * * *", "2026-03-28T12:00+01:00", 24)) == 24
    assert len(stamps("0 * * * *", "2026-10-24T12:00+02:00", 24)) == 24


EXPRESSIONS = ("30 2 * * *", "*/15 * * * *", "0 * * * *", "5 1-3 * * *", "0 9 * * 1-5", "0 0 1 * *")
CHANGES = (ms("2026-03-29T01:00+00:00"), ms("2026-10-25T01:00+00:00"))


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(CHANGES),
    st.integers(-30 * 60, 30 * 60),
    st.integers(0, 20 * 60),
    st.sampled_from((BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC")),
)
def test_the_times_are_the_same_from_wherever_they_are_asked(
    expression: str, change_ms: int, minutes: int, later: int, zone: str
) -> None:
    cron = when.cron(expression, zone)
    first_ms = change_ms + minutes * 60_000
    second_ms = first_ms + later * 60_000
    upto_ms = second_ms + 30 * HOUR_MS
    whole = when.past(cron, first_ms, upto_ms)
    assert when.past(cron, second_ms, upto_ms) == [at for at in whole if at > second_ms]
    assert len({when.stamp(cron, at) for at in whole}) == len(whole)
    assert [when.stamped(when.stamp(cron, at)) for at in whole] == list(whole)


def test_a_very_long_pause_is_counted_up_to_a_bound() -> None:
    for schedule in (when.cron("* * * * *", BERLIN), f.Every(60, NINE - 3 * 365 * 86_400_000)):
        found = when.past(schedule, NINE - 365 * 86_400_000, NINE)
        assert found[-1] == NINE
        assert found.more
        assert len(found) <= when.COUNTED_MAX


def test_a_rare_time_is_found_after_a_long_pause() -> None:
    yearly = when.cron("0 9 1 1 *", "UTC")
    found = when.past(yearly, ms("2020-06-01T00:00+00:00"), ms("2026-02-01T00:00+00:00"))
    assert [when.stamp(yearly, at)[:4] for at in found] == [
        "2021",
        "2022",
        "2023",
        "2024",
        "2025",
        "2026",
    ]


@pytest.mark.parametrize(
    "words", [("* * * *", BERLIN), ("61 * * * *", BERLIN), ("0 9 * * *", "Nowhere/At all")]
)
def test_what_names_no_time_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(when.BadSchedule):
        when.cron(*words)
    with pytest.raises(when.BadSchedule):
        when.every("0m", 0)
    with pytest.raises(when.BadSchedule):
        when.at("tomorrow", "UTC")


# --- what is due ----------------------------------------------------------------------------------


def test_a_time_runs_when_it_has_come_and_once() -> None:
    journal = Journal(job())
    assert journal.look(NINE + HOUR_MS - 1) == []
    at = "2026-11-18T09:00+00:00"
    assert journal.look(NINE + HOUR_MS + 5) == [Run(at, NINE + HOUR_MS, 5)]
    assert journal.look(NINE + HOUR_MS + 6) == []


@pytest.mark.parametrize(
    ("missed", "ran", "skipped"),
    [
        ("once", ["12"], ["09", "10", "11"]),
        ("all", ["09", "10", "11", "12"], []),
        ("skip", [], ["09", "10", "11", "12"]),
    ],
)
def test_missed_times_are_run_once_all_or_not_as_the_job_says(
    missed: str, ran: list[str], skipped: list[str]
) -> None:
    journal = Journal(job(missed=missed))
    journal.look(NINE + 4 * HOUR_MS + 120_000)
    assert [at[11:13] for at in journal.ran] == ran
    assert [at[11:13] for at in journal.skipped] == skipped
    assert journal.look(NINE + 4 * HOUR_MS + 180_000) == []
    assert {one.outcome for one in journal.runs.occurrences()} <= {"done", "missed"}


def test_a_time_that_comes_while_an_earlier_one_runs_waits_or_is_skipped() -> None:
    for overlap, ran in (("queue", 3), ("skip", 1)):
        journal = Journal(job(overlap=overlap))
        for hour in (1, 2, 3):
            journal.look(NINE + hour * HOUR_MS, finish=False)
        assert (len(journal.ran), len(journal.skipped)) == (ran, 3 - ran)


def test_so_many_wait_and_no_more() -> None:
    journal = Journal(job())
    for hour in range(1, WAITING_MAX + 4):
        journal.look(NINE + hour * HOUR_MS, finish=False)
    assert len(journal.ran) == WAITING_MAX
    assert [one.cause for one in journal.runs.last] == ["too_many"] * 3


def test_very_many_missed_times_have_one_fact_together_and_the_last_one_each() -> None:
    journal = Journal(job())
    journal.look(NINE + 500 * HOUR_MS)
    skips = [one for one in journal.runs.last if one.outcome == "missed"]
    assert len(skips) == SKIPS_MAX + 1
    assert sum(one.count for one in skips) == 499


def test_nothing_is_due_while_paused_and_nothing_of_that_time_afterwards() -> None:
    paused = job()
    paused.paused = f.JobPaused("j")
    assert due_now(paused, JobRuns(), NINE + 5 * HOUR_MS) == []
    assert next_ms(paused, JobRuns(), NINE) is None
    book = JobList()
    facts: tuple[f.AnyJobFact, ...] = (paused.set, f.JobPaused("j"), f.JobResumed("j"))
    for seq, (fact, hours) in enumerate(zip(facts, (0, 1, 5), strict=True), 1):
        book.apply(f.Record(seq, NINE + hours * HOUR_MS, fact))
    assert due_now(book.jobs["j"], JobRuns(), NINE + 5 * HOUR_MS + 60_000) == []
    assert len(due_now(book.jobs["j"], JobRuns(), NINE + 6 * HOUR_MS)) == 1


def test_a_clock_that_was_a_year_ahead_costs_no_time_of_that_year() -> None:
    journal = Journal(job())
    journal.look(NINE + HOUR_MS)
    journal.look(NINE + 365 * 24 * HOUR_MS)
    journal.look(NINE + 2 * HOUR_MS)
    assert len(journal.ran) == 3


clocks = st.lists(st.integers(-600, 900), min_size=1, max_size=60)


@given(clocks, st.sampled_from(("once", "all", "skip")), st.sampled_from(("queue", "skip")))
def test_no_time_runs_twice_whatever_the_clock_does(
    minutes: list[int], missed: str, overlap: str
) -> None:
    journal, now_ms = Journal(job(missed=missed, overlap=overlap)), NINE
    for step in minutes:
        now_ms += step * 60_000
        journal.look(now_ms)
    assert len(journal.ran) == len(set(journal.ran))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.sampled_from(EXPRESSIONS))
def test_each_time_is_run_or_skipped_once_while_the_clock_goes_on(
    minutes: list[int], expression: str
) -> None:
    begin_ms = CHANGES[0] - 10 * HOUR_MS
    journal, now_ms = Journal(job(when.cron(expression, BERLIN), since_ms=begin_ms)), begin_ms
    for step in minutes:
        now_ms += step * 60_000
        journal.look(now_ms)
    cron = journal.job.set.schedule
    wanted = [when.stamp(cron, at) for at in when.past(cron, begin_ms, now_ms)]
    if len(wanted) <= SKIPS_MAX:
        assert sorted(journal.ran + journal.skipped) == sorted(wanted)


def test_a_person_can_have_it_run_at_any_time_once() -> None:
    asked = job()
    asked.asked[7] = NINE
    asked.paused = f.JobPaused("j")
    journal = Journal(asked)
    assert journal.look(NINE + 1) == [Run("asked:7", NINE, 0, 7)]
    assert journal.look(NINE + 2) == []


# --- what is told ---------------------------------------------------------------------------------


def told_after(*outcomes: tuple[str, str]) -> list[Tell]:
    journal, heard = Journal(job()), []
    for n, (outcome, cause) in enumerate(outcomes):
        seq = journal.add(f.JobDue(f"{n}", n, "s", 1), n)
        journal.add(f.JobEnded(seq, outcome, cause), n)  # type: ignore[arg-type]
        while (tell := to_tell(journal.runs)) is not None:
            heard.append(tell)
            journal.add(f.JobTold(tell.what, tell.cause), n)
    return heard


def test_failing_twice_is_told_once_for_each_cause_and_a_success_once() -> None:
    bad, other, good = ("failed", "provider"), ("undelivered", "delivery"), ("done", "")
    assert told_after(bad) == []
    assert told_after(bad, bad, bad) == [Tell("failing", "provider")]
    assert told_after(bad, bad, other) == [Tell("failing", "provider"), Tell("failing", "delivery")]
    assert told_after(bad, bad, good, good) == [Tell("failing", "provider"), Tell("recovered")]
    assert told_after(bad, good, bad) == []


def test_failing_ten_times_pauses_and_says_so_once() -> None:
    bad = ("failed", "provider")
    assert told_after(*[bad] * 11) == [Tell("failing", "provider"), Tell("paused", "provider")]
    assert told_after(*[bad] * 10, ("silent", ""))[-1] == Tell("recovered")


def test_nothing_to_say_is_known_by_its_word() -> None:
    assert all(map(is_silent, ("", "  ", "[silent]", "[SILENT]\n", "`[silent]`")))
    assert not is_silent("silent night")


def test_a_late_run_is_told_how_late_it_is() -> None:
    late = JobRun("job:j:2026-11-18T09:00+01:00", NINE + 2 * HOUR_MS + 300_000)
    assert "2 h 5 min late" in run_note(late)
    assert "late" not in run_note(JobRun(late.key, NINE + 1_000))
    assert "late" not in run_note(JobRun("job:j:asked:7", NINE))


def test_times_of_every_go_on_from_where_they_began() -> None:
    begun = f.Every(90, NINE)
    found = list(islice(when.times(begun, NINE + 100_000), 2))
    assert found == [NINE + 180_000, NINE + 270_000]
    assert when.worded(begun) == "every 90s"
    assert datetime.fromtimestamp(found[0] / 1_000, UTC) - datetime.fromtimestamp(
        NINE / 1_000, UTC
    ) == timedelta(minutes=3)
