"""An answer in the words of OpenAI's API, made from facts: the numbers of its events are places."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from openai._streaming import SSEDecoder

from steno.gateway.openai import chat, routes, turns
from steno.gateway.openai.reply import Reply, Told, after, id_of, place_of
from steno.journal.drafts import Stream
from steno.journal.facts import (
    AnyFact,
    ApprovalAsked,
    ApprovalDecided,
    Continues,
    InputAdmitted,
    InputWithdrawn,
    MessageGiven,
    Record,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from steno.journal.parts import Content, Returned, Text, ToolCall
from steno.journal.transcript import Transcript
from steno.store.protocol import Event, Piece

TEXT = "αβγδ🙂 five and more, to be cut anywhere"
SAID = InputAdmitted((Text("hi"),), "http")


def step(seq: int, text: str, *calls: str, ended: Any = "complete") -> StepSealed:
    parts: tuple[Content, ...] = (Text(text), *(ToolCall(call, "look", "{}") for call in calls))
    return StepSealed(seq, parts if text else parts[1:], ended, Usage(3, 4))


def numbered(facts: Sequence[AnyFact], first: int = 3) -> list[Event]:
    return [Record(first + i, 1_000, fact) for i, fact in enumerate(facts)]


def with_pieces(events: list[Event], seq: int, text: str, size: int) -> list[Event]:
    """The same live: the text of a step in pieces, the last of them with everything that came
    before its seal."""
    at = next(
        i
        for i, one in enumerate(events)
        if isinstance(one, Record) and isinstance(one.fact, StepSealed) and one.fact.step == seq
    )
    begun = next(i for i, one in enumerate(events) if isinstance(one, Record) and one.seq == seq)
    pieces = [Piece(Stream(seq, "text"), i, text[i : i + size]) for i in range(0, len(text), size)]
    return [*events[: begun + 1], *pieces, *events[begun + 1 : at], *events[at:]]


def told_by(events: list[Event]) -> list[Told]:
    reply = Reply("s", 3)
    return [*(one for event in events for one in reply.take(event)), *reply.finish()]


def points(told: list[Told]) -> list[tuple[int, str, str]]:
    """Each place with what stands there."""
    fine = after(told, -1, fine=True)
    return [(one.at, one.type, one.text) for one in fine]


SIMPLE = numbered(
    [SAID, TurnStarted(Takes(3)), StepStarted("m"), step(5, TEXT), TurnEnded(4, "done")]
)
OVERLAPPING = numbered(
    [
        SAID,
        TurnStarted(Takes(3)),
        StepStarted("m"),
        step(5, "I look.", "a"),
        ApprovalAsked(5, "a"),
        ApprovalDecided(7, "allow", "me"),
        ToolStarted(5, "a"),
        StepStarted("m"),
        ToolSettled(5, "a", Returned((Text("seen"),)), 9),
        step(10, TEXT),
        TurnEnded(4, "done"),
    ]
)


@pytest.mark.parametrize("events", [SIMPLE, OVERLAPPING], ids=["simple", "overlapping"])
def test_every_place_is_the_same_however_the_text_was_cut(events: list[Event]) -> None:
    seq = 5 if events is SIMPLE else 10
    whole = points(told_by(events))
    assert [at for at, _, _ in whole] == list(range(len(whole)))
    for size in (1, 7, 11, 100):
        assert points(told_by(with_pieces(events, seq, TEXT, size))) == whole


def test_a_reader_that_goes_on_at_any_place_has_everything_once() -> None:
    live = told_by(with_pieces(SIMPLE, 5, TEXT, 7))
    later = told_by(with_pieces(SIMPLE, 5, TEXT, 11))
    for place in range(-1, live[-1].at + 1):
        seen = [one for one in points(live) if one[0] <= place]
        assert seen + points(after(later, place)) == points(live), place


def test_what_was_cut_off_and_taken_up_keeps_its_places() -> None:
    cut: list[AnyFact] = [
        SAID,
        TurnStarted(Takes(3)),
        StepStarted("m"),
        step(5, "Hel", ended="interrupted"),
        TurnEnded(4, "interrupted", "killed"),
    ]
    first = told_by(numbered(cut))
    assert first[-1].type == "response.incomplete"
    more: list[AnyFact] = [
        TurnStarted(Continues(4)),
        StepStarted("m"),
        step(9, "lo"),
        TurnEnded(8, "done"),
    ]
    reply = Reply("s", 3)
    whole = [one for event in numbered([*cut, *more]) for one in reply.take(event)]
    assert reply.is_over()
    whole += reply.finish()
    assert [one.at for one in whole if one.at <= first[-2].at] == [one.at for one in first[:-1]]
    assert first[-1].at not in [one.at for one in whole]
    assert (reply.text(), reply.status()) == ("Hello", "completed")


def test_the_answer_of_another_input_is_not_told() -> None:
    events = numbered(
        [
            SAID,
            SAID,
            TurnStarted(Takes(4)),
            StepStarted("m"),
            step(6, "for the other"),
            TurnEnded(5, "done"),
        ]
    )
    reply = Reply("s", 3)
    assert [one.type for event in events for one in reply.take(event)] == [
        "response.created",
        "response.queued",
    ]
    assert reply.status() == "queued"
    reply.take(Record(9, 1, InputWithdrawn(3)))
    assert (reply.status(), reply.is_over()) == ("cancelled", True)


def test_usage_is_the_sum_of_the_requests_and_unknown_if_one_is() -> None:
    reply = Reply("s", 3)
    for event in OVERLAPPING:
        reply.take(event)
    assert (reply.object()["usage"] or {})["total_tokens"] == 14
    silent = numbered([SAID, TurnStarted(Takes(3)), StepStarted("m"), StepSealed(5, (Text("a"),))])
    reply = Reply("s", 3)
    for event in silent:
        reply.take(event)
    assert reply.object()["usage"] is None


def test_an_id_says_where_a_response_is() -> None:
    assert place_of(id_of("3luo7j7d6epfe", 41)) == ("3luo7j7d6epfe", 41)
    assert [place_of(id) for id in ("resp_x", "x_3", "resp_a_b", "resp_A_3", "resp__3")] == [
        None
    ] * 5


def test_a_heartbeat_is_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(hub: Any, reply: Reply) -> AsyncGenerator[list[Told] | None, None]:
        yield None

    monkeypatch.setattr(turns, "follow", silent)
    hub: Any = None

    async def read() -> tuple[list[bytes], list[bytes]]:
        events = [one async for one in routes._events(hub, Reply("s", 3), -1)]
        return events, [one async for one in routes._chunks(hub, Reply("s", 3), False)]

    events, chunks = asyncio.run(read())
    assert events == [b": ping\n\n"]
    assert chunks[0] == b": ping\n\n"
    assert list(SSEDecoder().iter_bytes(iter(events))) == [], "an SDK's user does not see it"


def test_a_client_agrees_with_the_whole_or_with_the_end_of_what_was_said() -> None:
    transcript = Transcript()
    facts: list[AnyFact] = [
        InputAdmitted((Text("one"),), "http"),
        TurnStarted(Takes(3)),
        StepStarted("m"),
        step(5, "I look. ", "a"),
        ToolSettled(5, "a", Returned((Text("seen"),))),
        StepStarted("m"),
        step(8, "Done."),
        TurnEnded(4, "done"),
        InputAdmitted((Text("lost"),), "http"),
        TurnStarted(Takes(11)),
        TurnEnded(12, "failed", "provider"),
    ]
    for event in numbered(facts):
        transcript.apply(event)  # type: ignore[arg-type]

    def says(*said: tuple[Any, str]) -> bool:
        return chat.agrees([MessageGiven(role, (Text(text),)) for role, text in said], transcript)

    one, answer = ("user", "one"), ("assistant", "I look. Done.")
    assert says()
    assert says(one, answer)
    assert says(answer)
    assert says(one, answer, ("user", "lost"))
    assert not says(one)
    assert not says(one, ("assistant", "Done."))
    assert not says(("user", "zero"), one, answer)
