"""What is left of a fact when its text is taken away."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.journal import facts as f
from steno.journal.codec import decode, encode
from steno.journal.facts import Distilled, Item
from steno.journal.parts import (
    GONE,
    Blob,
    Failed,
    File,
    Image,
    Reasoning,
    Redacted,
    Refused,
    Returned,
    Text,
    ToolCall,
)
from steno.journal.redaction import redact
from steno.library import open as open_library
from tests.journal.strategies import built, near_seqs

SECRET = "s3cr3t-\u6f22"


@pytest.mark.parametrize(
    ("fact", "left"),
    [
        (
            f.InputAdmitted(
                (Text("12345"), Image("0" * 64, "image/png", 99)), "cli", "key", "ann", "steer"
            ),
            f.InputAdmitted((Redacted(5), Redacted(99)), "cli", "key", "ann", "steer"),
        ),
        (
            f.StepSealed(
                3,
                (Reasoning("123", Blob("p", "d")), ToolCall("a", "sh", '{"x":1}')),
                "length",
                f.Usage(1),
            ),
            f.StepSealed(3, (Redacted(3), ToolCall("a", "sh", "{}")), "length", f.Usage(1)),
        ),
        (
            f.StepSealed(3, (Text("1"),), shown=(Text("12"),)),
            f.StepSealed(3, (Redacted(1),), shown=(Redacted(2),)),
        ),
        (
            f.ToolSettled(3, "a", Failed((File("0" * 64, "text/plain", 7),)), 4),
            f.ToolSettled(3, "a", Failed((Redacted(7),)), 4),
        ),
        (f.ToolSettled(3, "a", Refused("because")), f.ToolSettled(3, "a", Refused(GONE))),
        (
            f.TurnEnded(3, "failed", "provider", "your text"),
            f.TurnEnded(3, "failed", "provider", GONE),
        ),
        (f.StepLost(3, "provider", "yes", "your text"), f.StepLost(3, "provider", "yes", GONE)),
        (f.HelperEnded(3, "failed", "your text"), f.HelperEnded(3, "failed", GONE)),
        (
            f.ApprovalDecided(3, "deny", "user", "because"),
            f.ApprovalDecided(3, "deny", "user", GONE),
        ),
        (f.SessionRenamed("mine"), f.SessionRenamed(GONE)),
        (f.Compacted(3, "summary", "m", f.Usage(1)), f.Compacted(3, GONE, "m", f.Usage(1))),
        (f.ContextSet("m", "system", memories=("x",)), f.ContextSet("m", GONE)),
        (
            Distilled(1, 9, "title", "summary", (Item("fact", "tea", (3,)),), "m"),
            Distilled(1, 9, GONE, GONE, (Item("fact", GONE, (3,)),), "m"),
        ),
    ],
)
def test_text_goes_and_the_rest_stays(fact: f.AnyFact, left: f.AnyFact) -> None:
    assert redact(fact) == left


TEXTUAL = (
    f.InputAdmitted,
    f.StepSealed,
    f.ToolSettled,
    f.SessionRenamed,
    f.Compacted,
    f.ContextSet,
    Distilled,
)
secrets = st.sampled_from(["", f"a {SECRET} b", SECRET])


@pytest.mark.parametrize("kind", TEXTUAL)
def test_redaction_is_the_same_twice_and_what_is_left_decodes(kind: type) -> None:
    @given(built(kind, near_seqs, secrets))
    def holds(fact: Any) -> None:
        left = redact(fact)
        assert left is not None
        assert redact(left) == left
        assert decode(encode(left)) == left

    holds()


@given(st.lists(built(Text | Reasoning, near_seqs, secrets)), st.booleans())
def test_nothing_of_what_was_said_is_left(parts: list[Any], shown: bool) -> None:
    said = tuple(parts)
    for fact in (
        f.InputAdmitted(said, "cli"),
        f.StepSealed(1, said, shown=said if shown else None),
        f.ToolSettled(1, "a", Returned(said)),
    ):
        left = redact(fact)
        assert left is not None
        assert SECRET.encode() not in encode(left)


@pytest.mark.parametrize(
    "fact", [f.TurnStarted(f.Takes(1)), f.TurnEnded(3, "done"), f.MessageHidden(1)]
)
def test_what_holds_no_text_has_nothing_to_redact(fact: f.AnyFact) -> None:
    assert redact(fact) is None


@pytest.mark.parametrize(
    ("said", "target", "title"),
    [
        (["hi", "hi"], 3, "hi"),
        (["hi", "hi"], 2, GONE),
        (["\n", "hi"], 2, GONE),
        (["\n", "hi"], 3, GONE),
    ],
)
def test_after_a_redaction_the_row_for_lists_is_what_its_facts_say(
    tmp_path: Path, said: list[str], target: int, title: str
) -> None:
    with open_library(tmp_path / "store.db") as library:
        session = library.session("x")
        for text in said:
            session.say(text)
        library.store.redact(session.id, target)
        assert library.store.verify().damage == ()
        assert [listed.row.title for listed in library.sessions()] == [title]


def test_a_redacted_name_goes_only_where_it_is_still_the_title(tmp_path: Path) -> None:
    with open_library(tmp_path / "store.db") as library:
        session = library.session("x")
        session.rename("mine")
        fork = library.store.fork(session.id, 1, f.SessionStarted("test"))
        library.store.add(fork, [f.SessionRenamed("mine")])
        session.rename("mine")
        library.store.redact(session.id, 2)
        titles = {listed.id: listed.row.title for listed in library.sessions()}
        assert titles == {session.id: "mine", fork: "mine"}
        library.store.redact(session.id, 3)
        assert {listed.id: listed.row.title for listed in library.sessions()} == {
            session.id: GONE,
            fork: "mine",
        }
        assert library.store.verify().damage == ()
