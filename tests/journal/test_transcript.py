"""The view for people, by equality."""

import pytest

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    Compacted,
    Continues,
    ForkPoint,
    InputWithdrawn,
    InterruptAsked,
    MessageHidden,
    Rewound,
    SessionRenamed,
    SessionStarted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import (
    Failed,
    File,
    Interrupted,
    Outcome,
    Reasoning,
    Redacted,
    Refused,
    Returned,
    Text,
    ToolCall,
    Unknown,
)
from steno.journal.transcript import Message, MessageState, Turn
from tests.journal.folding import messages, said, transcript

HELLO = said("hello")
BEGUN = [HELLO, TurnStarted(Takes(1)), StepStarted("model")]
CALL = ToolCall("a", "shell", '{"cmd":"ls"}')
CALLED = [*BEGUN, StepSealed(3, (Text("let me see"), CALL)), ToolStarted(3, "a")]


def test_an_input_is_pending_until_a_turn_takes_it() -> None:
    assert messages(HELLO) == [Message(1, 1, 1_000, "user", (Text("hello"),), "pending")]
    assert messages(*BEGUN) == [Message(1, 1, 1_000, "user", (Text("hello"),), "complete", turn=2)]


def test_an_input_that_was_taken_back_stays_as_withdrawn_before_those_that_wait() -> None:
    shown = messages(*BEGUN, said("one"), said("two"), InputWithdrawn(5), said("three"))
    assert [(message.text, message.state) for message in shown] == [
        ("hello", "complete"),
        ("two", "withdrawn"),
        ("one", "pending"),
        ("three", "pending"),
    ]


def test_an_input_that_was_taken_cannot_be_shown_as_withdrawn() -> None:
    assert [message.state for message in messages(*BEGUN, InputWithdrawn(1))] == ["complete"]


def test_a_step_takes_the_inputs_that_steer_it() -> None:
    shown = messages(
        *BEGUN, said("faster", "steer"), said("later"), StepStarted("model", takes=(4,))
    )
    assert [(message.text, message.state, message.turn) for message in shown] == [
        ("hello", "complete", 2),
        ("faster", "complete", 2),
        ("later", "pending", None),
    ]


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ("complete", "complete"),
        ("length", "complete"),
        ("incomplete", "incomplete"),
        ("interrupted", "interrupted"),
    ],
)
def test_an_answer_says_how_it_ended(ended: StepEnding, state: MessageState) -> None:
    answer = messages(*BEGUN, StepSealed(3, (Text("hi"),), ended))[1]
    assert answer == Message(3, 4, 4_000, "assistant", (Text("hi"),), state, turn=2)


def test_a_request_that_got_no_answer_is_shown_as_lost() -> None:
    assert messages(*BEGUN, StepLost(3, "dropped", "unknown"))[1] == Message(
        3, 4, 4_000, "assistant", (), "lost", turn=2
    )


@pytest.mark.parametrize(
    ("outcome", "state", "text"),
    [
        (Returned((Text("a b"),)), "complete", "a b"),
        (Failed((Text("no such file"),)), "failed", "no such file"),
        (Interrupted((Text("a"),)), "interrupted", "a"),
        (Unknown(), "interrupted", ""),
        (Refused("not allowed"), "failed", "not allowed"),
    ],
)
def test_a_tool_message_says_how_its_call_went(
    outcome: Outcome, state: MessageState, text: str
) -> None:
    result = messages(*CALLED, ToolSettled(3, "a", outcome, 5))[2]
    assert (result.seq, result.end, result.role, result.turn) == (5, 6, "tool", 2)
    assert (result.tool_call_id, result.state, result.text) == ("a", state, text)


def test_a_call_that_never_ran_has_the_address_of_its_settlement() -> None:
    assert messages(*BEGUN, StepSealed(3, (CALL,)), ToolSettled(3, "a", Refused("no")))[2].seq == 5


def test_an_answer_has_its_calls_and_its_text_without_the_reasoning() -> None:
    sealed = StepSealed(3, (Reasoning("hm"), Text("let me "), Text("see"), CALL))
    answer = messages(*BEGUN, sealed)[1]
    assert answer.text == "let me see"
    assert answer.tool_calls == (CALL,)


def test_what_was_redacted_or_is_a_file_is_not_shown_as_text() -> None:
    parts = (Redacted(12), Text("!"), File("0" * 64, "text/plain", 3))
    assert messages(*BEGUN, StepSealed(3, parts))[1].text == "[12 characters redacted]!"


def test_streams_are_shown_where_they_will_be_sealed() -> None:
    view = transcript(*CALLED)
    view.show_drafts([Draft(Stream(5, "output"), "a"), Draft(Stream(5, "text"), "")])
    assert view.messages[2] == Message(
        5, 5, 0, "tool", (Text("a"),), "streaming", turn=2, tool_call_id="a"
    )
    view = transcript(*BEGUN)
    view.show_drafts([Draft(Stream(3, "reasoning"), "hm"), Draft(Stream(3, "text"), "hi th")])
    assert view.messages[1:] == [
        Message(3, 3, 0, "assistant", (Text("hi th"),), "streaming", turn=2)
    ]


def test_a_turn_has_no_outcome_while_it_runs_and_then_one_with_its_cause() -> None:
    assert transcript(*BEGUN).turns == [Turn(2)]
    ended = TurnEnded(2, "failed", "provider", "503 from the server")
    assert transcript(*BEGUN, StepLost(3, "provider", "yes"), ended).turns == [
        Turn(2, "failed", "provider", "503 from the server")
    ]


def test_an_ending_belongs_to_the_turn_it_names() -> None:
    both = [
        *BEGUN,
        StepSealed(3, ()),
        TurnEnded(2, "done"),
        said("more"),
        TurnStarted(Takes(6)),
        TurnEnded(7, "failed"),
    ]
    assert transcript(*both).turns == [Turn(2, "done"), Turn(7, "failed")]


@pytest.mark.promise(24)
def test_the_prompt_of_a_failed_turn_is_shown_as_failed() -> None:
    lost = [*BEGUN, StepLost(3, "provider", "yes"), TurnEnded(2, "failed", "provider")]
    assert messages(*lost)[0].state == "failed"
    sealed = [*BEGUN, StepSealed(3, (Text("hi"),)), TurnEnded(2, "failed", "budget")]
    assert [message.state for message in messages(*sealed)] == ["failed", "complete"]


def test_a_prompt_is_interrupted_only_if_nothing_was_answered() -> None:
    assert (
        messages(*BEGUN, InterruptAsked(2), TurnEnded(2, "interrupted", "user"))[0].state
        == "interrupted"
    )
    partial = StepSealed(3, (Text("h"),), "interrupted")
    assert [m.state for m in messages(*BEGUN, partial, TurnEnded(2, "interrupted", "user"))] == [
        "complete",
        "interrupted",
    ]


def test_an_answer_in_one_turn_is_no_answer_in_the_next() -> None:
    answered = [
        *BEGUN,
        StepSealed(3, (Text("hi"),)),
        TurnEnded(2, "done"),
        said("more"),
        TurnStarted(Takes(6)),
    ]
    assert messages(*answered, TurnEnded(7, "interrupted", "user"))[2].state == "interrupted"


def test_a_prompt_that_is_tried_again_belongs_to_the_turn_that_tries() -> None:
    failed = [*BEGUN, StepLost(3, "provider", "yes"), TurnEnded(2, "failed", "provider")]
    prompt = messages(*failed, TurnStarted(Takes(1)))[0]
    assert (prompt.turn, prompt.state) == (6, "complete")


def test_a_continued_turn_says_the_prompt_once() -> None:
    cut = [
        *BEGUN,
        StepSealed(3, (Text("o"),), "interrupted"),
        TurnEnded(2, "interrupted", "killed"),
    ]
    shown = messages(
        *cut, TurnStarted(Continues(2)), StepStarted("model"), StepSealed(7, (Text("ne"),))
    )
    assert [(message.role, message.text, message.turn) for message in shown] == [
        ("user", "hello", 2),
        ("assistant", "o", 2),
        ("assistant", "ne", 6),
    ]


def test_an_answer_stands_before_what_was_said_while_it_was_being_given() -> None:
    shown = messages(*BEGUN, said("meanwhile"), StepSealed(3, (Text("hi"),)))
    assert [message.seq for message in shown] == [1, 3, 4]


def test_an_input_that_waits_for_its_turn_stands_after_all_of_the_turn_before() -> None:
    asked = [*BEGUN, said("later"), said("faster", "steer"), StepSealed(3, (Text("hm"),))]
    going = [*asked, StepStarted("m", takes=(5,)), StepSealed(7, (Text("hi"),))]
    assert [message.text for message in messages(*going)] == [
        "hello",
        "hm",
        "faster",
        "hi",
        "later",
    ]
    taken = [
        TurnEnded(2, "done"),
        TurnStarted(Takes(4)),
        StepStarted("m"),
        StepSealed(11, (Text("now"),)),
    ]
    assert [message.text for message in messages(*going, *taken)] == [
        "hello",
        "hm",
        "faster",
        "hi",
        "later",
        "now",
    ]


def test_a_hidden_message_is_still_shown_and_says_so() -> None:
    shown = messages(
        *BEGUN,
        StepSealed(3, (Text("hi"),)),
        MessageHidden(3),
        MessageHidden(1),
        MessageHidden(1, False),
    )
    assert [(message.text, message.hidden) for message in shown] == [("hello", False), ("hi", True)]


def test_a_message_that_was_hidden_while_it_was_streamed_stays_hidden() -> None:
    live = transcript(*BEGUN, MessageHidden(3))
    live.show_drafts([Draft(Stream(3, "text"), "h")])
    assert live.messages[1].hidden
    assert messages(*BEGUN, MessageHidden(3), StepSealed(3, (Text("hi"),)))[1].hidden


@pytest.mark.promise(26, 29)
def test_people_read_the_originals_of_what_was_compacted_and_never_the_summary() -> None:
    story = [*BEGUN, StepSealed(3, (Text("hi"),)), TurnEnded(2, "done")]
    assert messages(*story, Compacted(5, "they met"), Rewound(0)) == messages(*story)


def test_the_title_is_the_last_one_given_or_else_the_first_line_said() -> None:
    assert transcript(SessionRenamed("a"), HELLO, SessionRenamed("b")).title == "b"
    assert transcript(HELLO, said("more")).title == "hello"


def test_a_fork_shows_what_its_parent_said_and_cannot_take_its_inputs() -> None:
    forked = [HELLO, SessionStarted("cli", forked_from=ForkPoint("p", 1)), TurnStarted(Takes(1))]
    assert [(message.text, message.state) for message in messages(*forked)] == [
        ("hello", "pending")
    ]


def test_a_turn_that_was_open_where_a_fork_begins_is_interrupted_in_the_fork() -> None:
    fork = SessionStarted("cli", forked_from=ForkPoint("p", 3))
    assert transcript(*BEGUN, fork).turns == [Turn(2, "interrupted", "forked")]


def test_a_message_keeps_its_address_from_the_first_piece_to_the_end() -> None:
    story = [
        *CALLED,
        ToolSettled(3, "a", Returned((Text("a b"),)), 5),
        StepStarted("m"),
        StepSealed(7, (Text("2"),)),
    ]
    addresses = [[message.seq for message in messages(*story[:n])] for n in range(len(story) + 1)]
    assert addresses[-1] == [1, 3, 5, 7]
    assert all(addresses[-1][: len(seen)] == seen for seen in addresses)
