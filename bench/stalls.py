"""How long the asynchronous library keeps an event loop from other tasks, at most: a task that
wants to run each millisecond beside every verb on a long session. Beside nothing, in the same run,
it says how busy the machine is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import steno
from bench.result import Plan, Result, at_most, noted

NAME = "library: stalls"
LIMIT_MS = 30.0
REST_S = 0.2


def run(plan: Plan) -> list[Result]:
    many = plan.pick(10_000, 500)
    path = Path(plan.folder) / "stalls.db"
    with steno.open(path) as chats:
        chat = chats.session("alice")
        for n in range(many // 2):
            chat.say(f"question {n} " + "word " * 60)
            with chat.reply("model") as reply:
                reply.write("answer " * 70)
        chats.items("kept", "text").add(["item " * 60] * many)
    return asyncio.run(_stalls(path, many))


async def _stalls(path: Path, many: int) -> list[Result]:
    found: list[Result] = []
    quiet = await _longest(lambda: asyncio.sleep(REST_S))
    found.append(noted(NAME, "beside nothing", quiet, "ms", f"{REST_S:g} s"))
    for name, verb in _VERBS.items():
        async with steno.aopen(path) as chats:
            chat = await chats.session("alice")

            async def work(
                verb: Callable[..., Awaitable[object]] = verb,
                chats: steno.AsyncLibrary = chats,
                chat: steno.AsyncSession = chat,
            ) -> object:
                return await verb(chats, chat)

            longest = await _longest(work)
        found.append(at_most(NAME, name, longest, LIMIT_MS, "ms", f"{many} messages, cold"))
    return found


def _beside(chats: steno.AsyncLibrary) -> Path:
    return Path(str(getattr(chats.store, "path", "stalls"))).with_suffix(".steno")


_VERBS: dict[str, Callable[..., Awaitable[object]]] = {
    "messages": lambda _, chat: chat.messages(),
    "history": lambda _, chat: chat.history("openai-chat"),
    "markdown": lambda _, chat: chat.markdown(),
    "export": lambda chats, chat: chat.export(_beside(chats), overwrite=True),
    "usage": lambda _, chat: chat.usage(),
    "say": lambda _, chat: chat.say("one more"),
    "undo": lambda _, chat: chat.undo(),
    "hide": lambda _, chat: chat.hide(2),
    "search": lambda chats, _: chats.search("question", limit=10),
    "items": lambda chats, _: chats.items("kept", "text").last(),
}


async def _longest(work: Callable[[], Awaitable[object]]) -> float:
    """The longest wait of a task that wants to run each millisecond, in ms."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.01)
    longest = 0.0
    await work()
    await asyncio.sleep(0.005)
    watching.cancel()
    return longest * 1e3
