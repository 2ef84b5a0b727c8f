"""The models that tests are written with."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from steno.engine.request import Request
from steno.journal.facts import Usage
from steno.journal.history import Entry
from steno.journal.parts import Reasoning, Text, ToolCall
from steno.models.protocol import Finished, Model, ModelError, ModelEvent, ReasoningDelta, TextDelta
from steno.models.specs import make
from tests.models.samples import EVERYTHING, SETTINGS, answered, last, request, said, shown


def ask(model: Model, asked: Request) -> list[ModelEvent]:
    async def run() -> list[ModelEvent]:
        return [event async for event in model.stream(model.to_wire(asked, {}))]

    return asyncio.run(run())


def scripted(folder: Path, *replies: dict[str, Any]) -> Model:
    script = folder / "script.json"
    script.write_text(json.dumps(replies))
    return make(f"scripted:{script}", SETTINGS)


@pytest.mark.parametrize("text", ["Grüße, 世界", "a", "half \ud83d, \ufdd0d83d, \0 and \ufdd0"])
def test_echo_says_the_last_message_back(text: str) -> None:
    events = ask(
        make("scripted:echo", SETTINGS), request(said(1, "before"), answered(2, "x"), said(3, text))
    )
    assert shown(events)[0] == text
    assert last(events) == Finished((Text(text),), "complete")


def test_echo_takes_any_request() -> None:
    assert shown(ask(make("scripted:echo", SETTINGS), EVERYTHING))[0] == "Now?"
    assert last(ask(make("scripted:echo", SETTINGS), request())).ended == "complete"


def test_pieces_are_numbered() -> None:
    events = ask(make("scripted:pieces?n=12&size=4", SETTINGS), request(said(1, "a")))
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        f"{n:4}" for n in range(12)
    ]
    assert last(events) == Finished(
        (Text("".join(f"{n:4}" for n in range(12))),), "complete", Usage(output=12)
    )


def test_pieces_come_at_their_rate() -> None:
    began = time.monotonic()
    assert len(ask(make("scripted:pieces?n=20&rate=100", SETTINGS), request())) == 21
    assert 0.18 < time.monotonic() - began < 2


@pytest.mark.parametrize("name", ["pieces?n=many", "pieces?speed=1", "/no/such/script.json"])
def test_a_script_that_is_none_is_an_error(name: str) -> None:
    with pytest.raises(ModelError) as error:
        ask(make(f"scripted:{name}", SETTINGS), request(said(1, "a")))
    assert (error.value.cause, error.value.sent) == ("unknown_model", "no")


def test_a_field_that_means_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="txet"):
        ask(scripted(tmp_path, {"txet": "a"}), request(said(1, "a")))


def test_a_reply_has_reasoning_text_calls_and_usage(tmp_path: Path) -> None:
    reply = {
        "reasoning": "Hm.",
        "text": "I look.",
        "pieces": 4,
        "tool_calls": [
            {"name": "shell", "arguments": {"command": "ls"}},
            {"name": "shell", "id": "mine"},
        ],
        "usage": {"input": 3, "output": 2},
    }
    assert ask(scripted(tmp_path, reply), request(said(1, "a"))) == [
        ReasoningDelta("Hm."),
        TextDelta("I lo"),
        TextDelta("ok."),
        Finished(
            (
                Reasoning("Hm."),
                Text("I look."),
                ToolCall("call_0_0", "shell", '{"command":"ls"}'),
                ToolCall("mine", "shell", "{}"),
            ),
            "complete",
            Usage(3, 2),
        ),
    ]


def test_a_new_process_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    replies = ({"text": "one"}, {"text": "two"}, {"text": "three"})
    entries: list[Entry] = [said(1, "a"), answered(2, "one"), answered(3, "two")]
    assert shown(ask(scripted(tmp_path, *replies), request(*entries, said(4, "b"))))[0] == "three"
    with pytest.raises(ModelError, match="over"):
        ask(scripted(tmp_path, *replies), request(*entries, answered(5, "three"), said(6, "c")))


def test_replies_that_are_lost_come_before_the_one_that_is_not(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        {"text": "one"},
        {"then": "error:rate_limited"},
        {"then": "drop"},
        {"text": "two"},
        {"text": "three"},
    )
    entries: list[Entry] = [said(1, "a"), answered(2, "one"), said(3, "b")]
    for cause in ("rate_limited", "dropped"):
        with pytest.raises(ModelError) as error:
            ask(model, request(*entries))
        assert error.value.cause == cause
    assert shown(ask(model, request(*entries)))[0] == "two"
    assert shown(ask(model, request(*entries, answered(4, "two"), said(5, "c"))))[0] == "three"


@pytest.mark.parametrize("then", ["drop", "error:overloaded"])
def test_a_reply_that_breaks_off_after_its_text_is_incomplete_and_has_no_calls(
    tmp_path: Path, then: str
) -> None:
    model = scripted(tmp_path, {"text": "Once", "tool_calls": [{"name": "shell"}], "then": then})
    assert last(ask(model, request(said(1, "a")))) == Finished((Text("Once"),), "incomplete")


def test_a_reply_that_hangs_does_so_until_it_is_stopped(tmp_path: Path) -> None:
    seen: list[ModelEvent] = []

    async def run() -> None:
        model = scripted(tmp_path, {"text": "Once", "then": "hang"})
        events = model.stream(model.to_wire(request(said(1, "a")), {}))
        seen.append(await anext(events))
        await asyncio.wait_for(anext(events), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert seen == [TextDelta("Once")]
