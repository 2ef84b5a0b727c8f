"""No asynchronous verb keeps an event loop for longer in a longer session. What one step of the
loop does is counted in calls of functions, so the test says the same on a busy machine."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import steno
from steno import items
from steno.store.protocol import read_all

Verb = Callable[[steno.AsyncLibrary, steno.AsyncSession, Path], Awaitable[object]]

PAGE = 50
"""What is read at once, less than it is, so that a step that takes in everything stands out."""
SHORT, LONG = 6 * PAGE, 60 * PAGE
CALLS_MAX = 150
"""For a fact that is taken in, in one step."""
LIGHT = 4
"""For a fact that is only passed over: a list of what there is may be made in one step."""
NAME, FORMAT = "openai:alice", "openai.responses"

VERBS: dict[str, Verb] = {
    "messages": lambda _, chat, __: chat.messages(),
    "history": lambda _, chat, __: chat.history("openai-chat"),
    "markdown": lambda _, chat, __: chat.markdown(),
    "export": lambda _, chat, folder: chat.export(folder / "a.steno", overwrite=True),
    "usage": lambda _, chat, __: chat.usage(),
    "say": lambda _, chat, __: chat.say("one more"),
    "undo": lambda _, chat, __: chat.undo(),
    "hide": lambda _, chat, __: chat.hide(2),
    "fork": lambda _, chat, __: chat.fork(SHORT),
    "search": lambda chats, _, __: chats.search("unheard", limit=10),
    "items": lambda chats, _, __: chats.items(NAME, FORMAT).last(),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_step_of_the_loop_does_not_grow_with_the_session(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_all, "__defaults__", (0, None, PAGE))
    monkeypatch.setattr(items, "PAGE", PAGE)
    short, long = (asyncio.run(longest_step(VERBS[name], many, tmp_path)) for many in (SHORT, LONG))
    assert long < CALLS_MAX * PAGE + LIGHT * LONG
    assert long < 1.2 * short + LIGHT * LONG


async def longest_step(verb: Verb, many: int, folder: Path) -> int:
    async with steno.aopen(":memory:") as chats:
        said = [{"role": "user", "content": f"question {n}"} for n in range(many)]
        await chats.items(NAME, FORMAT).add(said)
        chat = await chats.session(NAME)
        await chat.say("a question")
        async with chat.reply("model") as reply:
            await reply.write("an answer")
        fresh = steno.AsyncSession.over(chats.store, chat.id)
        with counted() as steps:
            await verb(chats, fresh, folder)
        return max(steps)


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many functions each step of the loop calls."""
    steps = [0]
    run = asyncio.Handle._run.__code__

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is run:
            steps.append(0)
        if event in ("call", "c_call"):
            steps[-1] += 1

    sys.setprofile(called)
    try:
        yield steps
    finally:
        sys.setprofile(None)
