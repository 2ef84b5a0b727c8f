"""What holds for every view and every journal: a fold never raises, forgets nothing it was told,
and needs no clock."""

import copy
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.recover import close, recover
from steno.journal import facts as f
from steno.journal.codec import encode
from steno.journal.drafts import Draft, Stream
from steno.journal.history import (
    LET_GO_MAX,
    Answered,
    Entry,
    History,
    Settled,
    Summarised,
    kind_of,
    restored,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Returned, Text, ToolCall
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.journal.usage import UsageTotal
from tests.journal.author import Journal, journals
from tests.journal.folding import fold, in_place
from tests.journal.strategies import any_records, near_seqs

View = State | Transcript | History | ListingRow | UsageTotal
VIEWS: tuple[type[View], ...] = (State, Transcript, History, ListingRow, UsageTotal)
every_view = pytest.mark.parametrize("kind", VIEWS)


def closed(journal: Journal) -> list[f.Record]:
    """The journal with what closes it, whatever it waits for."""
    state = fold(State(), journal.records)
    closing = [
        f.Record(state.head + i, 0, fact)
        for i, fact in enumerate(close(state, journal.drafts), start=1)
    ]
    return journal.records + closing


@every_view
@given(journals(tidy=False), st.lists(st.integers(1, 20)))
def test_folding_page_by_page_equals_folding_at_once(
    kind: type[Any], journal: Journal, sizes: list[int]
) -> None:
    view, rest = kind(), journal.records
    for size in sizes:
        page, rest = rest[:size], rest[size:]
        view = copy.deepcopy(fold(view, page))
    assert fold(view, rest) == fold(kind(), journal.records)


@every_view
@given(journals(tidy=False), journals(tidy=False))
def test_two_folds_side_by_side_do_not_touch_each_other(
    kind: type[Any], one: Journal, two: Journal
) -> None:
    alone = fold(kind(), one.records)
    beside, other = kind(), kind()
    for i in range(max(len(one.records), len(two.records))):
        fold(beside, one.records[i : i + 1])
        fold(other, two.records[i : i + 1])
    assert beside == alone


@every_view
@given(journals(tidy=False))
def test_a_fold_changes_no_fact(kind: type[Any], journal: Journal) -> None:
    before = [encode(record.fact) for record in journal.records]
    fold(kind(), journal.records)
    assert [encode(record.fact) for record in journal.records] == before


@every_view
@given(any_records())
def test_a_fold_never_raises_whatever_the_order_of_facts(
    kind: type[Any], records: list[f.Record]
) -> None:
    fold(kind(), records)


streams = st.builds(Stream, near_seqs, st.sampled_from(["text", "reasoning", "output"]))


@given(any_records(), st.lists(st.builds(Draft, streams, st.text(max_size=3)), max_size=5))
def test_reading_a_view_never_raises_whatever_the_order_of_facts(
    records: list[f.Record], drafts: list[Draft]
) -> None:
    fold(History(), records).entries()
    transcript = fold(Transcript(), records)
    transcript.show_drafts(drafts)
    for message in transcript.messages:
        assert isinstance(message.text + str(message.tool_calls), str)
    recover(fold(State(), records), drafts)


@given(any_records())
def test_a_list_counts_the_messages_that_the_transcript_shows(records: list[f.Record]) -> None:
    assert fold(ListingRow(), records).messages == len(fold(Transcript(), records).messages)


@given(any_records())
def test_a_list_gives_a_session_the_title_that_its_transcript_has(records: list[f.Record]) -> None:
    assert fold(ListingRow(), records).title == fold(Transcript(), records).title


@given(journals(tidy=False))
def test_answers_stand_in_the_order_of_their_addresses_and_what_waits_stands_last(
    journal: Journal,
) -> None:
    messages = fold(Transcript(), journal.records).messages
    assert len(messages) == len({message.seq for message in messages})
    answers = [message.seq for message in messages if message.role != "user"]
    assert answers == sorted(answers)
    waiting = list(fold(State(), journal.records).pending)
    assert [message.seq for message in messages[len(messages) - len(waiting) :]] == waiting


@pytest.mark.promise(47)
@given(journals(), st.randoms(use_true_random=False))
def test_the_clock_changes_neither_order_nor_content(journal: Journal, clock: Any) -> None:
    other = [
        f.Record(record.seq, clock.randrange(-(10**15), 10**15), record.fact)
        for record in journal.records
    ]
    assert fold(State(), other) == fold(State(), journal.records)
    assert fold(History(), other) == fold(History(), journal.records)
    views = fold(Transcript(), other), fold(Transcript(), journal.records)
    for view in views:
        for message in view.messages:
            message.at_ms = 0
    assert views[0] == views[1]


# --- the transcript -------------------------------------------------------------------------------


@given(journals())
def test_a_streaming_message_is_sealed_under_the_address_it_was_streamed_at(
    journal: Journal,
) -> None:
    live = fold(Transcript(), journal.records)
    live.show_drafts(journal.drafts)
    sealed = {message.seq: message for message in fold(Transcript(), closed(journal)).messages}
    for message in live.messages:
        later = sealed[message.seq]
        assert (later.role, later.turn, later.tool_call_id) == (
            message.role,
            message.turn,
            message.tool_call_id,
        )
        assert later.text.startswith(message.text)
        assert later.state != "streaming"


@pytest.mark.promise(26)
@given(journals(tidy=False))
def test_compaction_and_rewind_take_nothing_from_the_transcript(journal: Journal) -> None:
    edits = (f.Compacted, f.Rewound, f.RewindWithdrawn)
    unedited = [record for record in journal.records if not isinstance(record.fact, edits)]
    assert fold(Transcript(), journal.records) == fold(Transcript(), unedited)


@given(journals())
def test_the_transcript_marks_exactly_what_is_hidden_whenever_it_was_hidden(
    journal: Journal,
) -> None:
    hidden: dict[int, bool] = {}
    for record in journal.records:
        if isinstance(record.fact, f.MessageHidden):
            hidden[record.fact.target] = record.fact.hidden
    for message in fold(Transcript(), closed(journal)).messages:
        assert message.hidden == hidden.get(message.seq, False)


# --- the history ----------------------------------------------------------------------------------


@pytest.mark.promise(30)
@given(journals(tidy=False))
def test_a_model_sees_every_call_with_exactly_one_outcome_right_after_it(journal: Journal) -> None:
    owed: list[str] = []
    for entry in fold(History(), closed(journal)).entries():
        match entry:
            case Settled():
                owed.remove(entry.call)
            case _:
                assert owed == []
        if isinstance(entry, Answered):
            owed = [part.id for part in entry.parts if isinstance(part, ToolCall)]
    assert owed == []


@given(journals(tidy=False))
def test_a_model_sees_at_most_one_summary_and_sees_it_first(journal: Journal) -> None:
    entries = fold(History(), journal.records).entries()
    assert not any(isinstance(entry, Summarised) for entry in entries[1:])


@given(journals(), st.data())
def test_a_withdrawn_rewind_leaves_no_trace(journal: Journal, data: st.DataObject) -> None:
    head = len(journal.records)
    to = data.draw(st.integers(0, head))
    undone = [
        f.Record(head + 1, 0, f.Rewound(to)),
        f.Record(head + 2, 0, f.RewindWithdrawn(head + 1)),
    ]
    before = fold(History(), journal.records).entries()
    assert fold(History(), journal.records + undone).entries() == before


def weigh(entry: Entry) -> tuple[int, int]:
    return 1, len(str(entry))


@given(
    st.one_of(journals(tidy=False).map(lambda one: one.records), any_records()),
    st.integers(1, 7),
    st.integers(0, 9),
)
def test_text_that_was_let_go_is_restored_from_its_facts(
    records: list[f.Record], every: int, chars: int
) -> None:
    """Whatever came before and after: rewinds, summaries, hidden messages, forks and prompts that
    are run again."""
    whole, thin = History(), History()
    for record in records:
        whole.apply(record)
        thin.apply(record)
        if record.seq % every == 0:
            thin.let_go(chars, weigh)
    assert [kind_of(entry) for entry in thin.outline()] == [
        type(entry) for entry in whole.outline()
    ]
    assert [at for at, _ in thin.placed()] == [at for at, _ in whole.placed()]
    facts = {record.seq: record.fact for record in records}
    thin.restore({one.fact: restored(one, facts[one.fact]) for one in thin.missing()})
    assert thin.entries() == whole.entries()


ANSWER = f.StepSealed(3, (Text("look"), ToolCall("a", "tool", "{}"), ToolCall("b", "tool", "{}")))
ASKED: list[f.AnyFact] = [
    f.InputAdmitted((Text("hello"),), "test"),
    f.TurnStarted(f.Takes(1)),
    f.StepStarted("model"),
    ANSWER,
]
A, B = (f.ToolSettled(3, call, Returned((Text(call),))) for call in "ab")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(
            [A, f.SessionStarted("test", forked_from=f.ForkPoint("p", 5))],
            id="a fork with an open call",
        ),
        pytest.param(
            [f.StepStarted("model"), f.StepSealed(5, (Text("."),)), B, A],
            id="outcomes after another answer",
        ),
        pytest.param([A, B, f.MessageHidden(5)], id="a hidden outcome"),
        pytest.param([A, B, f.Compacted(4, "so far")], id="a summary, and the prompt that it pins"),
    ],
)
def test_what_comes_later_finds_its_place_among_text_that_was_let_go(
    later: list[f.AnyFact],
) -> None:
    facts: list[f.AnyFact] = [*ASKED, *later]
    whole, thin = fold(History(), in_place(facts)), History()
    for record in in_place(facts):
        thin.apply(record)
        thin.let_go(0, weigh)
    assert thin.missing()
    thin.restore({one.fact: restored(one, facts[one.fact - 1]) for one in thin.missing()})
    assert thin.entries() == whole.entries()


def test_a_request_is_not_built_from_text_that_was_let_go() -> None:
    history = fold(History(), in_place(one_turn(1)))
    history.let_go(0, weigh)
    assert history.thinned
    with pytest.raises(ValueError, match="restore it first"):
        history.entries()


def test_so_much_text_is_let_go_at_once_that_nobody_waits_for_it() -> None:
    facts: list[f.AnyFact] = []
    for _ in range(LET_GO_MAX):
        first = len(facts) + 1
        facts += [
            f.InputAdmitted((Text("asked"),), "test"),
            f.TurnStarted(f.Takes(first)),
            f.StepStarted("model"),
            f.StepSealed(first + 2, (Text("said"),)),
            f.TurnEnded(first + 1, "done"),
        ]
    history = fold(History(), in_place(facts))
    gone = [0]
    while len(gone) == 1 or gone[-1] > gone[-2]:
        history.let_go(10, weigh)
        gone.append(len(history.missing()))
    steps = [after - before for before, after in pairwise(gone)]
    assert max(steps) == LET_GO_MAX
    assert gone[-1] >= 2 * LET_GO_MAX - 2, "in the end all but the last"


# --- the state ------------------------------------------------------------------------------------


def one_turn(first: int) -> list[f.AnyFact]:
    """A turn of 14 facts whose own seqs begin at `first`, with a tool, an approval, a delivery and
    a hook."""
    return [
        f.InputAdmitted((Text("hello"),), "test"),
        f.TurnStarted(f.Takes(first)),
        f.StepStarted("model"),
        f.StepSealed(first + 2, (ToolCall("a", "tool", "{}"),)),
        f.ApprovalAsked(first + 2, "a"),
        f.ApprovalDecided(first + 4, "allow", "user"),
        f.ToolStarted(first + 2, "a"),
        f.ToolSettled(first + 2, "a", Returned((Text("x"),)), first + 6),
        f.StepLost(first + 2, "dropped", "no"),
        f.DeliveryOwed(first + 2, "chat", "me", "key"),
        f.DeliverySettled(first + 9, f.Delivered()),
        f.HookOwed("end", "key"),
        f.HookDone(first + 11),
        f.TurnEnded(first + 1, "done"),
    ]


def test_the_state_does_not_grow_with_finished_turns() -> None:
    def size_after(turns: range) -> int:
        sequence = [fact for i in turns for fact in one_turn(1_000_000 + 14 * i)]
        return len(msgspec.json.encode(fold(State(), in_place(sequence, first=1_000_000))))

    assert size_after(range(500)) == size_after(range(2))


@given(journals(closed=True), journals(closed=True))
def test_a_fork_inherits_nothing_that_is_under_way(parent: Journal, child: Journal) -> None:
    state = fold(State(), parent.records)
    state.apply(
        f.Record(
            state.head + 1, 0, f.SessionStarted("test", forked_from=f.ForkPoint("p", state.head))
        )
    )
    assert (state.turn, state.ended) == (None, None)
    assert (state.pending, state.deliveries, state.hooks, state.threads) == ({}, {}, {}, {})
    assert recover(state, child.drafts) == ()
