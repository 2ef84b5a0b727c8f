"""What is on the screen, by equality: the same messages as every other view, in the same order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.journal.drafts import Stream
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ContextSet,
    InputWithdrawn,
    Record,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Reasoning, Refused, Returned, Text, ToolCall, Unknown
from steno.journal.transcript import Transcript
from steno.store.protocol import Piece
from steno.tui.blocks import Answer, Block, Call, Notice, Said
from steno.tui.to_blocks import Folded, earlier_blocks
from tests.journal.author import Journal, journals
from tests.journal.folding import in_place, said
from tests.service.test_pages import paged

CALL = ToolCall("a", "shell", '{"command": "ls"}')
CALLED = [
    said("go"),
    TurnStarted(Takes(1)),
    StepStarted("m"),
    StepSealed(3, (Reasoning("hm"), Text("I will."), CALL)),
]


def blocks(*facts: object) -> list[Block]:
    folded = Folded.empty()
    folded.take(in_place(facts))  # type: ignore[arg-type]
    return folded.blocks()


def state_of(*facts: object) -> tuple[str, str]:
    (call,) = (block for block in blocks(*facts) if isinstance(block, Call))
    return call.state, call.output


def test_an_answer_stands_before_its_calls() -> None:
    assert [type(block) for block in blocks(*CALLED)] == [Said, Answer, Call]
    answer = blocks(*CALLED)[1]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.reasoning) == ("I will.", "hm")


def test_a_card_says_what_became_of_its_call() -> None:
    assert state_of(*CALLED)[0] == "waiting"
    asked = [*CALLED, ApprovalAsked(3, "a")]
    assert state_of(*asked)[0] == "asked"
    assert state_of(*asked, ApprovalDecided(5, "allow", "user"))[0] == "waiting"
    started = [*CALLED, ToolStarted(3, "a")]
    assert state_of(*started)[0] == "running"
    assert state_of(*started, ToolSettled(3, "a", Returned((Text("x"),)), 5)) == ("returned", "x")
    assert state_of(*started, ToolSettled(3, "a", Unknown(), 5))[0] == "unknown"
    assert state_of(*CALLED, ToolSettled(3, "a", Refused("no"))) == ("refused", "no")


def test_how_long_a_call_took_is_said_only_where_that_is_known() -> None:
    for outcome, took_ms in (
        (Returned((Text("x"),)), 1_000),
        (Unknown(), None),
    ):  # recovered when somebody came by
        call = blocks(*CALLED, ToolStarted(3, "a"), ToolSettled(3, "a", outcome, 5))[-1]
        assert isinstance(call, Call)
        assert call.took_ms == took_ms


def test_a_fallback_is_a_notice_where_it_takes_over_and_where_it_is_over() -> None:
    taken_over = [
        StepLost(4, "no_key", "yes"),
        ContextSet("b", instead_of="a"),
        ContextSet("b", "s", instead_of="a"),
    ]
    found = blocks(
        said("go"),
        TurnStarted(Takes(1)),
        ContextSet("a"),
        StepStarted("a"),
        *taken_over,
        ContextSet("a"),
    )
    told = [block.text for block in found if isinstance(block, Notice)]
    assert told[1:] == ["b answers the rest of this turn instead of a", "a answers from here on"]


def test_the_end_of_a_turn_that_is_not_done_is_a_notice_behind_it() -> None:
    found = blocks(
        *CALLED,
        ToolSettled(3, "a", Refused("no")),
        TurnEnded(2, "interrupted", "killed"),
        said("next"),
    )
    assert isinstance(found[-1], Notice)
    assert "killed" in found[-1].text


def test_that_the_model_is_asked_to_go_on_is_said_once_it_is() -> None:
    """A turn can end with an answer that broke off: then nobody is asked for the rest."""
    broken = [*CALLED[:3], StepSealed(3, (Text("I wi"),), "incomplete")]
    *_, told = blocks(*broken)
    assert isinstance(told, Notice)
    assert told.text == "the answer broke off"
    *_, told, _ = blocks(*broken, TurnEnded(2, "failed", "codex", "it is gone"))
    assert isinstance(told, Notice)
    assert told.text == "the answer broke off"
    *_, told = blocks(*broken, StepStarted("m", attempt=2))
    assert isinstance(told, Notice)
    assert told.text == "the answer broke off; the model is asked to go on"


def test_an_input_that_was_taken_back_stands_behind_the_answer_that_goes_on() -> None:
    folded = Folded.empty()
    asked = (said("go"), TurnStarted(Takes(1)), StepStarted("m"), said("no"), InputWithdrawn(4))
    folded.take(in_place(asked))
    folded.piece(Piece(Stream(3, "text"), 0, "so"))
    assert [getattr(block, "text", "") for block in folded.blocks()] == ["go", "so", "no"]


def test_why_a_turn_failed_is_said_once() -> None:
    asked = [said("go"), TurnStarted(Takes(1)), StepStarted("m")]
    lost = StepLost(3, "refused", "yes", detail="no such thing")
    found = blocks(*asked, lost, TurnEnded(2, "failed", "refused", "no such thing"))
    notices = [block.text for block in found if isinstance(block, Notice)]
    assert len(notices) == 1
    assert notices[0].startswith(
        "failed: the provider refused the request; no such thing. Everything is kept"
    )
    assert len(blocks(*asked, lost, TurnEnded(2, "failed", "unreachable"))) == 3


def test_a_prompt_that_codex_does_not_take_is_no_shorter_after_a_compaction() -> None:
    for cause, mend in (
        ("input_too_long", "put the text into a file that codex can read, and name it"),
        ("too_long", "/compact makes it shorter, then /retry"),
    ):
        asked = (ContextSet("codex:m"), said("go"), TurnStarted(Takes(2)))
        *_, told = blocks(*asked, TurnEnded(3, "failed", cause, "codex says: no"))
        assert isinstance(told, Notice)
        assert told.text.endswith(f"codex says: no. Everything is kept; {mend}")


@pytest.mark.promise(46)
@given(journals())
def test_the_screen_has_the_messages_of_the_transcript_in_its_order(journal: object) -> None:
    records: list[Record] = journal.records  # type: ignore[attr-defined]
    view, folded = Transcript(), Folded.empty()
    for record in records:
        view.apply(record)
        folded.apply(record)
    spoken = [m for m in view.messages if m.role != "tool" and m.state not in ("pending", "lost")]
    shown = [
        block
        for block in folded.blocks()
        if isinstance(block, Said | Answer) and block.state != "streaming"
    ]
    with_text = [message.seq for message in spoken if message.text or message.role == "user"]
    assert [block.seq for block in shown if block.text or isinstance(block, Said)] == with_text
    assert [said.seq for said in folded.waiting()] == [
        m.seq for m in view.messages if m.state == "pending"
    ]


@given(journals(), st.integers(1, 40))
def test_pages_put_one_before_the_other_give_the_screen_of_the_whole(
    journal: object, facts_min: int
) -> None:
    records: list[Record] = journal.records  # type: ignore[attr-defined]
    pages = asyncio.run(paged(records, facts_min))
    whole, last = Folded.empty(), Folded.empty()
    whole.take(records)
    last.take([*pages[0].waited, *pages[0].records])
    found, reaching = last.blocks(), pages[0].reaching()
    for earlier, later in zip(pages[1:], pages, strict=False):
        shown = frozenset(record.seq for record in later.waited)
        found = earlier_blocks(earlier, reaching, shown) + found
        reaching = earlier.reaching() + reaching
    assert _spoken(found) == _spoken(whole.blocks())


def _spoken(found: list[Block]) -> list[tuple[object, ...]]:
    return [
        (block.key, block.text, block.state, block.hidden, block.undone)
        for block in found
        if isinstance(block, Said | Answer)
    ]


def test_a_piece_replaces_one_block_and_leaves_the_others_as_they_were() -> None:
    started = [*CALLED, ToolStarted(3, "a")]
    for facts, stream, shown in (
        ([*started], Stream(5, "output"), "output"),
        (
            [*started, ToolSettled(3, "a", Unknown(), 5), StepStarted("m")],
            Stream(7, "text"),
            "text",
        ),
    ):
        folded = Folded.empty()
        folded.take(in_place(facts))
        folded.piece(Piece(stream, 0, "so"))
        before = list(folded.blocks())
        folded.piece(Piece(stream, 2, " it"))
        folded.piece(Piece(stream, 5, " goes"))
        after = folded.blocks()
        changed = [new for old, new in zip(before, after, strict=True) if old is not new]
        assert [getattr(block, shown) for block in changed] == ["so it goes"]


@given(journals(), st.data())
def test_blocks_that_are_kept_are_those_of_a_fold_from_the_beginning(
    journal: Journal, data: st.DataObject
) -> None:
    kept = Folded.empty()
    told: list[Record | Piece] = []
    for record in journal.records:
        told.append(record)
        kept.apply(record)
        if data.draw(st.booleans()):
            kept.blocks()
        if isinstance(record.fact, StepStarted | ToolStarted):
            step = isinstance(record.fact, StepStarted)
            stream = Stream(record.seq, "text" if step else "output")
            for at in range(data.draw(st.integers(0, 3))):
                piece = Piece(stream, at, "x")
                told.append(piece)
                kept.piece(piece)
                if data.draw(st.booleans()):
                    kept.blocks()
    fresh = Folded.empty()
    for one in told:
        (fresh.apply if isinstance(one, Record) else fresh.piece)(one)  # type: ignore[arg-type]
    assert kept.blocks() == fresh.blocks()
    assert kept.asked() == fresh.asked()
