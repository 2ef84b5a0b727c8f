"""How entries become messages, in no provider's words."""

import re
from collections.abc import Mapping

import pytest

from steno.engine.request import Request
from steno.journal.history import Closed, Settled, Summarised
from steno.journal.parts import (
    Blob,
    Failed,
    Hash,
    Image,
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
from steno.models import wording
from steno.models.conversation import (
    PICTURE_BYTES_MAX,
    Call,
    FromModel,
    FromTools,
    FromUser,
    Message,
    Picture,
    Plain,
    Result,
    Thought,
    Words,
    conversation,
)
from tests.models.samples import BINARY, PAYLOADS, PICTURE, PIXEL, TABLE, answered, request, said

ID = re.compile(r"[a-z0-9_]{1,40}")


def told(asked: Request, payloads: Mapping[Hash, bytes] = PAYLOADS) -> list[Message]:
    return conversation(asked, payloads, "openai", ID).messages()


def user(*texts: str) -> Plain | FromUser:
    return (
        Plain("user", texts[0])
        if len(texts) == 1
        else FromUser(tuple(Words(text) for text in texts))
    )


def model(*texts: str) -> Plain | FromModel:
    return (
        Plain("assistant", texts[0])
        if len(texts) == 1
        else FromModel(tuple(Words(text) for text in texts))
    )


@pytest.mark.promise(21)
def test_inputs_in_a_row_stay_apart_and_in_order() -> None:
    assert told(request(said(1, "a"), said(2, "b"), said(3, "c"))) == [
        user("a"),
        user("b"),
        user("c"),
    ]


def test_an_input_shows_its_pictures_and_texts_and_names_the_rest() -> None:
    assert told(request(said(1, "Look:", PICTURE, TABLE, BINARY, Redacted(4)))) == [
        FromUser(
            (
                Words("Look:"),
                Picture("image/png", "iVBORw0KGgogcGl4ZWw="),
                Words("[file people.csv]\nname,age\n\n[end of file]"),
                Words("[file blob.bin, application/octet-stream, 2 bytes, not shown]"),
                Words("[redacted]"),
            )
        )
    ]


@pytest.mark.promise(41)
@pytest.mark.parametrize("data", [b"no picture", b"", PIXEL + b"." * PICTURE_BYTES_MAX])
def test_an_image_that_no_provider_takes_is_named_and_one_with_a_wrong_name_is_called_what_it_is(
    data: bytes,
) -> None:
    """A provider refuses every request with such an image in it, so the session would be lost."""
    image = Image("f" * 64, "image/jpeg", len(data), "x.jpg")
    [shown] = told(request(said(1, image)), payloads={image.hash: data})
    assert shown == Plain("user", f"[image x.jpg, image/jpeg, {len(data)} bytes, not shown]")
    [seen] = told(request(said(1, image)), payloads={image.hash: PIXEL})
    assert isinstance(seen, FromUser)
    assert isinstance(picture := seen.shown[0], Picture)
    assert picture.media_type == "image/png"


def test_blank_text_gives_no_block_and_an_empty_input_says_that_it_is_empty() -> None:
    assert told(request(said(1, " ", "a", ""), said(2, "\n"))) == [
        user("a"),
        user("[empty message]"),
    ]


@pytest.mark.promise(10, 12)
@pytest.mark.parametrize(
    ("ended", "marker"),
    [
        ("incomplete", "[This answer broke off before it was finished.]"),
        ("interrupted", "[This answer was stopped before it was finished.]"),
        ("length", "[This answer was cut off at its length limit.]"),
    ],
)
def test_an_answer_that_is_not_whole_says_so(ended: str, marker: str) -> None:
    messages = told(request(said(1, "a"), answered(2, "Once upon", ended=ended), said(3, "b")))
    assert messages == [user("a"), model("Once upon", marker), user("b")]


@pytest.mark.promise(11)
def test_a_whole_answer_is_its_text_and_nothing_else() -> None:
    assert told(request(said(1, "a"), answered(2, "b", "c"), said(3, "d"))) == [
        user("a"),
        model("bc"),
        user("d"),
    ]


@pytest.mark.promise(24)
@pytest.mark.parametrize(
    ("closed", "marker"),
    [
        (Closed(9, "interrupted", "user"), "[This turn was stopped by the user.]"),
        (Closed(9, "interrupted", "killed"), "[This turn was interrupted: killed.]"),
        (Closed(9, "failed", "provider"), "[This turn failed: provider.]"),
        (Closed(9, "failed", ""), "[This turn failed.]"),
    ],
)
def test_a_turn_that_did_not_end_well_is_closed_by_the_models_side(
    closed: Closed, marker: str
) -> None:
    assert told(request(said(1, "a"), closed, said(10, "b"))) == [
        user("a"),
        model(marker),
        user("b"),
    ]


@pytest.mark.promise(19, 35)
def test_each_outcome_is_told_as_it_was() -> None:
    calls = [ToolCall(f"c{n}", "shell", "{}") for n in range(6)]
    outcomes: tuple[Outcome, ...] = (
        Returned((Text("out"),)),
        Failed((Text("no such file"),)),
        Refused("the user said no"),
        Interrupted((Text("half"),)),
        Unknown(),
        Returned(),
    )
    settled = [Settled(n + 3, f"c{n}", outcome) for n, outcome in enumerate(outcomes)]
    assert told(request(said(1, "a"), answered(2, *calls), *settled))[2] == FromTools(
        (
            Result("c0", (Words("out"),), failed=False),
            Result(
                "c1", (Words("no such file"), Words("[The tool reports an error.]")), failed=True
            ),
            Result("c2", (Words("not run: the user said no"),), failed=True),
            Result("c3", (Words("half"), Words(wording.CALL_INTERRUPTED)), failed=True),
            Result("c4", (Words(wording.CALL_UNKNOWN),), failed=True),
            Result("c5", (Words("[no output]"),), failed=False),
        )
    )


def test_a_refusal_that_says_that_nothing_ran_is_not_told_twice() -> None:
    call, outcome = (
        ToolCall("c", "shell", "{}"),
        Refused("not run: the turn was cut off before this call started"),
    )
    results = told(request(said(1, "a"), answered(2, call), Settled(3, "c", outcome)))[-1]
    assert results == FromTools((Result("c", (Words(outcome.reason),), failed=True),))


def test_a_long_output_that_was_stored_apart_is_named_not_sent() -> None:
    call = ToolCall("c", "shell", "{}")
    results = told(
        request(said(1, "a"), answered(2, call), Settled(3, "c", Returned((Text("head"), TABLE))))
    )[-1]
    stub = Words("[file people.csv, text/csv, 9 bytes, not shown]")
    assert results == FromTools((Result("c", (Words("head"), stub), failed=False),))


def test_a_call_without_an_outcome_gets_one_that_says_so() -> None:
    calls = (ToolCall("c", "shell", "{}"), ToolCall("d", "shell", "{}"))
    asked = request(
        said(1, "a"), answered(2, *calls), Settled(3, "d", Returned((Text("x"),))), said(4, "b")
    )
    assert told(asked)[2:] == [
        FromTools(
            (Result("d", (Words("x"),), False), Result("c", (Words(wording.NO_OUTCOME),), True))
        ),
        user("b"),
    ]


def test_an_outcome_without_its_call_is_told_in_words() -> None:
    assert told(request(said(1, "a"), Settled(2, "c", Returned((Text("x"),))))) == [
        user("a"),
        user("[Outcome of the earlier call c]", "x"),
    ]


def test_calls_come_with_names_ids_and_arguments_that_every_server_takes() -> None:
    calls = (
        ToolCall("ok", "shell", '{"a": 1}'),
        ToolCall("ok", "my tool!", "{broken"),
        ToolCall("has spaces", "", ""),
    )
    message = told(request(said(1, "a"), answered(2, *calls)))[1]
    assert isinstance(message, FromModel)
    first, second, third = (block for block in message.blocks if isinstance(block, Call))
    assert first == Call("ok", "shell", '{"a": 1}', "ok")
    assert (second.name, second.arguments) == ("my_tool_", '{"unparsed":"{broken"}')
    assert (third.name, third.arguments) == ("unnamed", "{}")
    assert len({first.id, second.id, third.id}) == 3
    assert all(ID.fullmatch(call.id) for call in (first, second, third))


@pytest.mark.promise(29)
def test_a_summary_says_that_it_is_one() -> None:
    assert told(request(Summarised(5, 4, "They met."), said(6, "a"))) == [
        user(f"{wording.SUMMARY}\nThey met."),
        user("a"),
    ]


@pytest.mark.promise(44)
def test_only_the_reasoning_of_whole_answers_goes_back_and_only_before_something() -> None:
    thought = Reasoning("hm", Blob("openai", "data"))
    foreign, plain = Reasoning("hm", Blob("anthropic", "data")), Reasoning("hm")
    asked = request(
        said(1, "a"),
        answered(2, thought, foreign, plain, "b"),
        answered(3, thought, "c", ended="incomplete"),
        answered(4, "d", thought),
        answered(5, thought),
        said(6, "e"),
    )
    assert told(asked) == [
        user("a"),
        FromModel((Thought("hm", "data"), Words("b"))),
        model("c", wording.ending("incomplete")),
        model("d"),
        user("e"),
    ]


def test_the_first_and_the_last_word_are_the_users() -> None:
    assert told(request(answered(1, "b"))) == [
        user(wording.EARLIER),
        model("b"),
        user(wording.GO_ON),
    ]
    assert told(request()) == [user(wording.GO_ON)]
    assert told(request(answered(1, "b"), note="Check.")) == [
        user(wording.EARLIER),
        model("b"),
        user("Check."),
    ]


@pytest.mark.promise(40)
def test_a_note_stands_at_the_end() -> None:
    asked = conversation(request(said(1, "a"), note="Check."), PAYLOADS, "openai", ID)
    assert (asked.lasting, asked.note) == ([user("a")], user("Check."))
