"""The chat without a terminal: keys go in, and what is on the screen is read back as text."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from textual.pilot import Pilot

from steno import config as configuration
from steno.compose import Setup
from steno.journal.facts import Mode
from steno.model_choice import Terms
from steno.service import Service
from steno.tui.app import Chat
from steno.tui.composer import GUARD_S, Composer
from steno.tui.painting.palette import Shade
from steno.tui.scroll import Scroll
from tests.program.world import Program, World

WAIT_S = 20.0
LOOK_S = 0.02
STEPS_MAX = 10_000


async def still(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """Until the loop has nothing left to do but to wait: for a timer, a thread or another process.
    Textual's own wait is for a process that has used no CPU for a while, which costs each key forty
    milliseconds, and a second where anything else runs."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(STEPS_MAX):
        await asyncio.sleep(0)
        if not ready:
            return
    raise AssertionError("the chat never comes to rest")


class Person:
    """Somebody at the chat."""

    def __init__(self, chat: Chat, pilot: "Pilot[int]") -> None:
        self.chat = chat
        self.pilot = pilot

    @property
    def service(self) -> Service:
        return self.chat.service

    @property
    def session(self) -> str:
        assert self.chat.watched.id is not None
        return self.chat.watched.id

    def screen(self) -> str:
        """Everything that is on the screen, line by line; nothing while it is being laid out."""
        width, height = self.chat.size
        lines = self.chat.screen._compositor.render_strips(self.chat.screen.size)
        if len(lines) != height:
            return ""
        return "\n".join(strip.crop(0, width).text.rstrip() for strip in lines)

    def status(self) -> str:
        return (self.screen().splitlines() or [""])[-1]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        self.chat.query_one(Composer).insert(text)
        await self.pilot.pause()

    async def say(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def is_asked(self, tool: str) -> None:
        """A question is on the screen, and has been for long enough to be answered."""
        await self.sees(f"Allow {tool}?")
        self.chat.query_one(Composer)._question_s -= GUARD_S

    async def allow(self, tool: str) -> None:
        await self.is_asked(tool)
        await self.press("right", "enter")

    async def deny(self, tool: str) -> None:
        await self.is_asked(tool)
        await self.press("left", "enter")

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while not holds():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"{what} did not come; the screen:\n{self.screen()}")
            await self.pilot.pause(LOOK_S)

    def shows(self, text: str) -> bool:
        """Whether it is on the screen, broken into lines or not."""
        screen = self.screen()
        return text in screen or " ".join(text.split()) in " ".join(screen.split())

    async def sees(self, *texts: str) -> None:
        for text in texts:
            await self.until(lambda text=text: self.shows(text), repr(text))  # type: ignore[misc]

    async def sees_no_more(self, text: str) -> None:
        await self.until(lambda: text not in (self.screen() or text), f"that {text!r} goes")

    async def rests(self) -> None:
        """Nothing goes on, and nothing that was said is still on its way to the runner."""

        def rests() -> bool:
            chat, watched = self.chat, self.chat.watched
            under_way = chat._jobs and len(chat.screen_stack) == 1
            return "ready" in self.status() and not (under_way or watched.driving)

        await self.until(rests, "rest")

    @property
    def scroll(self) -> Scroll:
        return self.chat.query_one(Scroll)


@contextmanager
def elsewhere(world: World, *words: str) -> Iterator[Program]:
    """Another process of the program."""
    program = world.start(*words)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.kill()
        program.process.wait(WAIT_S)
        for pipe in (program.process.stdout, program.process.stderr):
            if pipe is not None:
                pipe.close()


ASKING = Terms(approval="ask")


def setup_of(world: World, **changes: Any) -> Setup:
    place = replace(configuration.place(world.environment), folder=world.work)
    configuration.prepare_home(place)
    config = configuration.load(place, world.environment)
    for section, values in changes.items():
        config = replace(config, **{section: replace(getattr(config, section), **values)})
    return Setup(config, place)


@asynccontextmanager
async def chatting(
    world: World,
    session: str | None = None,
    size: tuple[int, int] = (80, 24),
    shade: Shade = "dark",
    setup: Setup | None = None,
    terms: Terms = ASKING,
    at: int | None = None,
    mode: Mode | None = None,
) -> AsyncIterator[Person]:
    own = replace(terms, model=None, runtime=None)
    async with (setup or setup_of(world)).open() as program:
        beginning = replace(program.agents(terms).beginning(session), at=at, mode=mode)
        chat = Chat(program.service("chat", own), program.agents(own), beginning, shade)
        with patch("textual.app.wait_for_idle", still), patch("textual.pilot.wait_for_idle", still):
            async with chat.run_test(size=size, notifications=True) as pilot:
                yield Person(chat, pilot)
                await chat.watched.leave(2.0)


def chat_with(
    world: World, talk: Callable[[Person], Awaitable[None]], session: str | None = None, **how: Any
) -> None:
    """Run a whole talk."""

    async def whole() -> None:
        async with chatting(world, session, **how) as person:
            await talk(person)

    asyncio.run(whole())
