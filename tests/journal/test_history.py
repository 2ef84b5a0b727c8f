"""The view for a model, by equality."""

import pytest

from steno.journal.facts import (
    AnyFact,
    Compacted,
    ContextSet,
    Continues,
    ForkPoint,
    MessageHidden,
    MessageRedacted,
    RewindWithdrawn,
    Rewound,
    SessionStarted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.history import (
    HIDDEN,
    Answered,
    Closed,
    Entry,
    History,
    Said,
    Settled,
    Summarised,
)
from steno.journal.parts import Content, Refused, Returned, Text, ToolCall, Unknown
from tests.journal.folding import entries, fold, in_place, said
from tests.journal.test_carry_over import moved

ONE: list[AnyFact] = [
    said("one?"),
    TurnStarted(Takes(1)),
    StepStarted("model"),
    StepSealed(3, (Text("one."),)),
    TurnEnded(2, "done"),
]
TWO: list[AnyFact] = [
    said("two?"),
    TurnStarted(Takes(6)),
    StepStarted("model"),
    StepSealed(8, (Text("two."),)),
    TurnEnded(7, "done"),
]
SAID_ONE, ANSWERED_ONE = Said(1, (Text("one?"),)), Answered(3, (Text("one."),), "complete")
SAID_TWO, ANSWERED_TWO = Said(6, (Text("two?"),)), Answered(8, (Text("two."),), "complete")

CALL_A, CALL_B = ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}")
GOT_A, GOT_B = Returned((Text("A"),)), Returned((Text("B"),))
TOOLS: list[AnyFact] = [
    said("one?"),
    TurnStarted(Takes(1)),
    StepStarted("model"),
    StepSealed(3, (Text("look"), CALL_A, CALL_B)),
    ToolStarted(3, "a"),
    ToolStarted(3, "b"),
    ToolSettled(3, "b", GOT_B, 6),
    ToolSettled(3, "a", GOT_A, 5),
    StepStarted("model"),
    StepSealed(9, (Text("one."),)),
    TurnEnded(2, "done"),
]


def test_what_was_said_and_answered_is_told_in_order() -> None:
    assert entries(*ONE, *TWO) == [SAID_ONE, ANSWERED_ONE, SAID_TWO, ANSWERED_TWO]


def test_calls_are_told_with_their_outcomes_as_they_came_in() -> None:
    assert entries(*TOOLS) == [
        SAID_ONE,
        Answered(3, (Text("look"), CALL_A, CALL_B), "complete"),
        Settled(6, "b", GOT_B),
        Settled(5, "a", GOT_A),
        Answered(9, (Text("one."),), "complete"),
    ]


def test_a_call_that_never_ran_is_told_with_why() -> None:
    refused = [*TOOLS[:4], ToolSettled(3, "a", Refused("no"))]
    assert entries(*refused)[2] == Settled(5, "a", Refused("no"))


@pytest.mark.promise(21)
def test_an_input_is_told_when_it_is_taken_and_each_stands_for_itself() -> None:
    waiting = [said("b"), said("a", "steer"), said("c")]
    story = [*ONE[:3], *waiting, StepSealed(3, (Text("hm"),)), StepStarted("model", takes=(5,))]
    assert entries(*story) == [
        SAID_ONE,
        Answered(3, (Text("hm"),), "complete"),
        Said(5, (Text("a"),)),
    ]
    later = [StepSealed(8, (Text("ok"),)), TurnEnded(2, "done"), TurnStarted(Takes(4))]
    assert entries(*story, *later)[3:] == [
        Answered(8, (Text("ok"),), "complete"),
        Said(4, (Text("b"),)),
    ]


# --- turns that did not end well ------------------------------------------------------------------


@pytest.mark.promise(24)
@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_the_prompt_of_a_turn_that_came_to_nothing_is_absent(outcome: TurnOutcome) -> None:
    lost = [*ONE[:3], StepLost(3, "provider", "yes"), TurnEnded(2, outcome, "provider")]
    assert entries(*lost) == []
    assert entries(*lost, *TWO) == [SAID_TWO, ANSWERED_TWO]


@pytest.mark.promise(24)
def test_the_prompt_of_a_failed_turn_with_sealed_steps_stays_and_is_closed() -> None:
    failed = [
        *TOOLS[:8],
        StepStarted("model"),
        StepLost(9, "provider", "yes"),
        TurnEnded(2, "failed", "provider"),
    ]
    told = entries(*failed)
    assert told[0] == SAID_ONE
    assert told[-1] == Closed(2, "failed", "provider")
    assert len(told) == 5


@pytest.mark.promise(24)
def test_the_prompt_of_a_stopped_turn_with_partial_text_stays_and_is_closed() -> None:
    stopped = [
        *ONE[:3],
        StepSealed(3, (Text("on"),), "interrupted"),
        TurnEnded(2, "interrupted", "user"),
    ]
    assert entries(*stopped) == [
        SAID_ONE,
        Answered(3, (Text("on"),), "interrupted"),
        Closed(2, "interrupted", "user"),
    ]


def test_the_prompt_of_a_running_turn_is_told_while_attempts_are_lost() -> None:
    assert entries(
        *ONE[:3], StepLost(3, "dropped", "unknown"), StepStarted("model", attempt=2)
    ) == [SAID_ONE]


@pytest.mark.promise(24)
def test_a_failed_prompt_counts_again_when_its_turn_is_continued() -> None:
    failed = [*ONE[:3], StepLost(3, "provider", "yes"), TurnEnded(2, "failed", "provider")]
    again = [*failed, TurnStarted(Continues(2))]
    closed = Closed(2, "failed", "provider")
    assert entries(*again) == [SAID_ONE, closed]
    twice = [*again, TurnEnded(6, "failed", "provider"), TurnStarted(Continues(6))]
    assert entries(*twice) == [SAID_ONE, closed, Closed(6, "failed", "provider")]


@pytest.mark.promise(24)
def test_a_failed_prompt_that_is_tried_again_is_told_once() -> None:
    failed = [*ONE[:3], StepLost(3, "provider", "yes"), TurnEnded(2, "failed", "provider")]
    assert entries(*failed, TurnStarted(Takes(1))) == [SAID_ONE]


@pytest.mark.parametrize("ended", ["incomplete", "interrupted", "length"])
def test_the_calls_of_an_answer_that_broke_off_are_not_told(ended: StepEnding) -> None:
    parts: tuple[Content, ...] = (Text("look"), CALL_A)
    assert entries(*ONE[:3], StepSealed(3, parts, ended))[1] == Answered(3, (Text("look"),), ended)


# --- hiding ---------------------------------------------------------------------------------------


@pytest.mark.promise(45)
def test_a_hidden_message_is_not_told_until_it_is_put_back() -> None:
    assert entries(*ONE, MessageHidden(1)) == [ANSWERED_ONE]
    assert entries(*ONE, MessageHidden(3)) == [SAID_ONE]
    assert entries(*ONE, MessageHidden(3), MessageHidden(3, hidden=False)) == [
        SAID_ONE,
        ANSWERED_ONE,
    ]


@pytest.mark.promise(45)
def test_a_hidden_answer_takes_the_outcomes_of_its_calls_along() -> None:
    assert entries(*TOOLS, MessageHidden(3)) == [SAID_ONE, Answered(9, (Text("one."),), "complete")]


@pytest.mark.promise(45)
def test_a_hidden_outcome_is_replaced_so_that_its_call_stays_paired() -> None:
    told = entries(*TOOLS, MessageHidden(5))
    assert told[2:4] == [Settled(6, "b", GOT_B), Settled(5, "a", HIDDEN)]


def test_the_marker_of_a_closed_turn_is_no_message_and_cannot_be_hidden() -> None:
    stopped = [*ONE[:4], TurnEnded(2, "interrupted", "user")]
    assert entries(*stopped, MessageHidden(2))[-1] == Closed(2, "interrupted", "user")


# --- rewinding ------------------------------------------------------------------------------------


@pytest.mark.promise(57)
def test_a_rewind_leaves_out_what_came_after_a_message() -> None:
    assert entries(*ONE, *TWO, Rewound(3)) == [SAID_ONE, ANSWERED_ONE]
    assert entries(*ONE, *TWO, Rewound(6)) == [SAID_ONE, ANSWERED_ONE, SAID_TWO]
    assert entries(*ONE, *TWO, Rewound(0)) == []


@pytest.mark.promise(57)
def test_a_withdrawn_rewind_puts_it_all_back() -> None:
    assert entries(*ONE, *TWO, Rewound(3), RewindWithdrawn(11)) == entries(*ONE, *TWO)


def test_what_two_rewinds_leave_out_comes_back_only_with_both() -> None:
    both = [*ONE, *TWO, Rewound(3), Rewound(0)]
    assert entries(*both, RewindWithdrawn(12)) == [SAID_ONE, ANSWERED_ONE]
    assert entries(*both, RewindWithdrawn(11)) == []
    assert entries(*both, RewindWithdrawn(11), RewindWithdrawn(12)) == entries(*ONE, *TWO)


def test_a_rewind_does_not_leave_out_what_comes_after_it() -> None:
    three = [said("three?"), TurnStarted(Takes(12))]
    assert entries(*ONE, *TWO, Rewound(3), *three) == [
        SAID_ONE,
        ANSWERED_ONE,
        Said(12, (Text("three?"),)),
    ]


@pytest.mark.promise(30)
def test_a_rewind_into_the_middle_of_tools_parts_no_call_from_its_outcome() -> None:
    whole = entries(*TOOLS)[:4]
    for to in (3, 4, 5, 6, 7, 8):
        assert entries(*TOOLS, Rewound(to)) == whole
    assert entries(*TOOLS, Rewound(1)) == [SAID_ONE]
    assert entries(*TOOLS[:6], Rewound(1), *TOOLS[6:8]) == [SAID_ONE]
    assert entries(*TOOLS[:6], Rewound(1), *TOOLS[6:8], RewindWithdrawn(7))[-1] == Settled(
        5, "a", GOT_A
    )


@pytest.mark.promise(30)
def test_a_compaction_in_the_middle_of_tools_parts_no_call_from_its_outcome() -> None:
    for upto in (4, 5, 6, 7, 8):
        assert entries(*TOOLS, Compacted(upto, "so far"), said("two?"), TurnStarted(Takes(13))) == [
            Summarised(12, upto, "so far"),
            Answered(9, (Text("one."),), "complete"),
            Said(13, (Text("two?"),)),
        ]


@pytest.mark.promise(30)
def test_a_fork_in_the_middle_of_tools_says_that_nobody_knows_their_outcome() -> None:
    fork = SessionStarted("cli", forked_from=ForkPoint("parent", 7))
    assert entries(*TOOLS[:7], fork)[1:] == [
        Answered(3, (Text("look"), CALL_A, CALL_B), "complete"),
        Settled(6, "b", GOT_B),
        Settled(8, "a", Unknown()),
        Closed(8, "interrupted", "forked"),
    ]


def test_a_rewind_to_a_place_between_messages_leaves_out_what_came_after_that_seq() -> None:
    assert entries(*ONE, *TWO, Rewound(5)) == [SAID_ONE, ANSWERED_ONE]


@pytest.mark.parametrize("outcome", ["done", "failed", "interrupted"])
def test_a_rewind_to_a_turn_takes_its_prompt_out_too_however_it_ended(outcome: TurnOutcome) -> None:
    assert entries(*ONE[:4], TurnEnded(2, outcome), Rewound(2)) == []


# --- compaction -----------------------------------------------------------------------------------


@pytest.mark.promise(29)
def test_a_summary_stands_first_for_everything_up_to_its_mark() -> None:
    assert entries(*ONE, *TWO, Compacted(5, "one")) == [
        Summarised(11, 5, "one"),
        SAID_TWO,
        ANSWERED_TWO,
    ]


@pytest.mark.promise(29)
def test_a_later_summary_never_shows_the_earlier_one() -> None:
    assert entries(*ONE, Compacted(5, "one"), Compacted(5, "uno")) == [Summarised(7, 5, "uno")]
    shorter = [*ONE, *TWO, Compacted(10, "both"), Compacted(5, "one")]
    assert entries(*shorter) == [Summarised(12, 5, "one"), SAID_TWO, ANSWERED_TWO]


def test_an_input_that_waited_through_a_compaction_is_told_in_full() -> None:
    waited = [*ONE[:3], said("later"), StepSealed(3, ()), TurnEnded(2, "done"), Compacted(6, "s")]
    assert entries(*waited, TurnStarted(Takes(4))) == [
        Summarised(7, 6, "s"),
        Said(4, (Text("later"),)),
    ]


def test_a_rewind_past_a_compaction_brings_the_originals_back() -> None:
    assert entries(*ONE, *TWO, Compacted(10, "both"), Rewound(3)) == [SAID_ONE, ANSWERED_ONE]


# --- what shapes a request, and forks -------------------------------------------------------------


def test_the_context_is_the_last_one_set() -> None:
    contexts = [ContextSet("a", "be brief"), ContextSet("b")]
    assert fold(History(), in_place(contexts)).context == ContextSet("b")


def test_a_fork_is_told_what_its_parent_was_told() -> None:
    fork = SessionStarted("cli", forked_from=ForkPoint("parent", 5))
    assert entries(*ONE, fork) == entries(*ONE)


def test_a_turn_that_was_open_where_a_fork_begins_is_closed_in_the_fork() -> None:
    fork = SessionStarted("cli", forked_from=ForkPoint("parent", 4))
    assert entries(*ONE[:4], fork) == [SAID_ONE, ANSWERED_ONE, Closed(5, "interrupted", "forked")]


def test_a_fork_does_not_take_its_parents_pending_inputs() -> None:
    fork = SessionStarted("cli", forked_from=ForkPoint("parent", 1))
    assert entries(said("one?"), fork, TurnStarted(Takes(1))) == []


SUMMARY = Compacted(10, "so far")
SO_FAR = Summarised(11, 10, "so far")
LATER: list[AnyFact] = [*ONE, *TWO, SUMMARY]


@pytest.mark.promise(45)
@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([], [SO_FAR]),
        ([MessageHidden(3)], [SAID_ONE, SAID_TWO, ANSWERED_TWO]),
        ([MessageHidden(3), MessageHidden(3, False)], [SO_FAR]),
        ([MessageRedacted(3)], [SAID_ONE, ANSWERED_ONE, SAID_TWO, ANSWERED_TWO]),
        ([MessageRedacted(11)], [SAID_ONE, ANSWERED_ONE, SAID_TWO, ANSWERED_TWO]),
        ([MessageHidden(3), Compacted(10, "without it")], [Summarised(13, 10, "without it")]),
        ([MessageHidden(12)], [SO_FAR]),
    ],
)
def test_a_summary_does_not_stand_for_what_was_taken_from_the_models_view_after_it(
    edits: list[AnyFact], told: list[Entry]
) -> None:
    assert entries(*LATER, *edits) == told


@pytest.mark.promise(45)
def test_an_earlier_summary_stands_where_only_a_later_one_repeats_what_is_hidden() -> None:
    facts = [*ONE, Compacted(5, "one"), *(moved(fact, 1) for fact in TWO), Compacted(11, "both")]
    assert entries(*facts) == [Summarised(12, 11, "both")]
    assert entries(*facts, MessageHidden(9)) == [Summarised(6, 5, "one"), Said(7, (Text("two?"),))]


def test_what_was_hidden_when_a_summary_was_made_is_told_again_when_it_is_shown() -> None:
    facts = [*ONE, *TWO, MessageHidden(3), Compacted(10, "without it"), MessageHidden(3, False)]
    assert entries(*facts) == [SAID_ONE, ANSWERED_ONE, SAID_TWO, ANSWERED_TWO]
