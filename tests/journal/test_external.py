"""Facts of an external runtime in every fold: calls that overlap, threads that fall behind, usage
told later."""

import pytest

from steno.journal import facts as f
from steno.journal.budget import Spent
from steno.journal.drafts import Draft, Stream, keeps, streams_of
from steno.journal.history import Answered, History, Said, Settled
from steno.journal.listing import ListingRow
from steno.journal.parts import GONE, Opaque, Redacted, Returned, Text, ToolCall
from steno.journal.redaction import redact
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.journal.usage import UsageTotal
from tests.journal.folding import fold, in_place

CALLS = tuple(ToolCall(id, "shell", "{}") for id in ("a", "b"))
BEGUN = [
    f.SessionStarted("test"),
    f.InputAdmitted((Text("go"),), "test"),
    f.TurnStarted(f.Takes(2)),
    f.ThreadBound("codex", "t1"),
]
OVERLAPPING = [
    *BEGUN,
    f.StepStarted("codex:m"),
    f.StepSealed(5, (CALLS[0],)),
    f.ToolStarted(5, "a"),
    f.StepStarted("codex:m"),
    f.StepSealed(8, (CALLS[1],)),
    f.ToolStarted(8, "b"),
]


def test_a_call_stays_open_while_another_one_is_made() -> None:
    state = fold(State(), in_place(OVERLAPPING))
    assert state.turn is not None
    assert list(state.turn.calls) == ["a", "b"]


def test_an_outcome_stands_behind_its_answer_whenever_it_comes() -> None:
    settled = [f.ToolSettled(8, "b", Returned(), 10), f.ToolSettled(5, "a", Returned(), 7)]
    entries = fold(History(), in_place([*OVERLAPPING, *settled])).entries()
    assert [type(entry) for entry in entries] == [Said, Answered, Settled, Answered, Settled]
    assert [entry.call for entry in entries if isinstance(entry, Settled)] == ["a", "b"]


@pytest.mark.parametrize(
    ("fact", "behind"),
    [
        (f.StepStarted("codex:other"), False),
        (f.StepStarted("openai-chat:gpt"), True),
        (f.Rewound(2), True),
        (f.RewindWithdrawn(2), True),
        (f.MessageHidden(2), True),
        (f.MessageRedacted(2), True),
        (f.Compacted(2, "so far"), True),
        (f.ThreadCompacted("codex", "t1"), False),
        (f.SessionRenamed("title"), False),
    ],
)
def test_a_thread_falls_behind_what_it_cannot_know(fact: f.AnyFact, behind: bool) -> None:
    state = fold(State(), in_place([*BEGUN, fact]))
    assert ("codex" in state.behind) is behind
    again = fold(State(), in_place([*BEGUN, fact, f.ThreadBound("codex", "t2")]))
    assert (again.threads, again.behind) == ({"codex": "t2"}, frozenset())


def test_a_fork_has_no_thread() -> None:
    state = fold(
        State(), in_place([*BEGUN, f.SessionStarted("test", forked_from=f.ForkPoint("s", 4))])
    )
    assert (state.threads, state.behind) == ({}, frozenset())


def test_usage_told_later_counts_once() -> None:
    records = in_place([*OVERLAPPING, f.UsageReported(5, f.Usage(10, 5))])
    total = fold(UsageTotal(), records)
    assert (total.calls, total.unreported, total.input, total.output) == (2, 1, 10, 5)
    spent = Spent()
    for record in records:
        spent.apply(record)
    assert spent.tokens == 15
    row = fold(ListingRow(), records)
    assert row.usage == total


def test_what_was_shown_beside_the_outcome_is_what_a_draft_must_be_kept_as() -> None:
    fact = f.ToolSettled(5, "a", Returned((Text("whole"),)), 7, (Text("shown"),))
    assert streams_of(fact) == (Draft(Stream(7, "output"), "shown"),)
    assert keeps(fact, Draft(Stream(7, "output"), "sho"))
    assert not keeps(fact, Draft(Stream(7, "output"), "other"))


def test_a_redaction_takes_what_was_shown_and_what_came_late() -> None:
    settled = f.ToolSettled(5, "a", Returned((Text("whole"),)), 7, (Text("shown"),))
    emptied = redact(settled)
    assert emptied == f.ToolSettled(5, "a", Returned((Redacted(5),)), 7, (Redacted(5),))
    assert redact(f.OutputLate(7, "late")) == f.OutputLate(7, GONE)
    plan = f.PlanUpdated((f.PlanStep("secret", "pending"),), "why")
    assert redact(plan) == f.PlanUpdated((f.PlanStep(GONE, "pending"),), GONE)
    sealed = f.StepSealed(5, (Opaque("codex", "dream", "{}"),))
    assert redact(sealed) == f.StepSealed(5, (Redacted(2),))


def test_an_opaque_item_is_shown_as_such() -> None:
    facts = [
        *BEGUN,
        f.StepStarted("codex:m"),
        f.StepSealed(5, (Opaque("codex", "dream", '{"id":"d"}'),)),
    ]
    messages = fold(Transcript(), in_place(facts)).messages
    assert messages[-1].text == '[codex item dream: {"id":"d"}]'
