"""A sealing fact takes the place of its streams and keeps every character of them."""

from hashlib import sha256

import pytest

from steno.journal.drafts import Draft, Stream, keeps, sealed_by, streams_of
from steno.journal.facts import AnyFact, StepLost, StepSealed, ToolSettled, TurnEnded
from steno.journal.parts import File, Reasoning, Refused, Returned, Text, ToolCall, Unknown

TEXT, REASONING, OUTPUT = Stream(3, "text"), Stream(3, "reasoning"), Stream(5, "output")
SEALED = StepSealed(
    3, (Reasoning("hm"), Text("a"), ToolCall("x", "t", "{}"), Text("b"), Reasoning("m"))
)


def test_a_fact_seals_the_streams_of_what_it_ends() -> None:
    assert sealed_by(SEALED) == 3
    assert sealed_by(StepLost(3, "x", "no")) == 3
    assert sealed_by(ToolSettled(3, "x", Returned(), 5)) == 5
    assert sealed_by(ToolSettled(3, "x", Refused("no"))) is None
    assert sealed_by(TurnEnded(2, "done")) is None


def test_a_sealed_fact_stands_for_its_streams_in_full() -> None:
    assert streams_of(SEALED) == (Draft(REASONING, "hmm"), Draft(TEXT, "ab"))
    assert streams_of(ToolSettled(3, "x", Returned((Text("out"),)), 5)) == (Draft(OUTPUT, "out"),)
    assert streams_of(ToolSettled(3, "x", Returned((Text("out"),)))) == ()
    assert streams_of(StepLost(3, "x", "no")) == ()


def test_where_something_else_was_shown_the_stream_is_what_was_shown() -> None:
    corrected = StepSealed(3, (Text("ab"),), shown=(Text("ax"),))
    assert streams_of(corrected) == (Draft(TEXT, "ax"),)
    assert keeps(corrected, Draft(TEXT, "ax"))
    assert not keeps(corrected, Draft(TEXT, "ab"))


LONG = "long \ud800 output"
PAYLOAD = File(sha256(LONG.encode("utf-8", "surrogatepass")).hexdigest(), "text/plain", len(LONG))


@pytest.mark.parametrize(
    ("fact", "draft", "kept"),
    [
        (SEALED, Draft(TEXT, "a"), True),
        (SEALED, Draft(TEXT, "ab"), True),
        (SEALED, Draft(TEXT, "abc"), False),
        (SEALED, Draft(TEXT, "b"), False),
        (SEALED, Draft(REASONING, "hmm"), True),
        (SEALED, Draft(REASONING, "ab"), False),
        (SEALED, Draft(Stream(4, "text"), "ab"), False),
        (StepLost(3, "x", "no"), Draft(TEXT, ""), True),
        (StepLost(3, "x", "no"), Draft(TEXT, "a"), False),
        (ToolSettled(3, "x", Unknown((Text("out"),)), 5), Draft(OUTPUT, "ou"), True),
        (ToolSettled(3, "x", Refused("out"), 5), Draft(OUTPUT, "out"), False),
        (ToolSettled(3, "x", Returned((Text("see file"), PAYLOAD)), 5), Draft(OUTPUT, LONG), True),
        (ToolSettled(3, "x", Returned((PAYLOAD,)), 5), Draft(OUTPUT, LONG[:-1]), False),
    ],
)
def test_a_fact_keeps_a_draft_only_with_every_character(
    fact: AnyFact, draft: Draft, kept: bool
) -> None:
    assert keeps(fact, draft) is kept
