"""The agent under an event loop that is not asyncio's, such as trio's: what `steno.AsyncAgent` is
there.

Our loop runs in a thread of its own. What is called waits for it through anyio; one that is
cancelled cancels what runs there, and waits until that has ended. Functions that are awaited, tools
and the one that approves, run in the caller's loop.
"""

import asyncio
import copy
import functools
import inspect
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from steno.journal.transcript import Message
from steno.programs.functions import FunctionTool
from steno.service.views import Approval
from steno.store.protocol import Event

if TYPE_CHECKING:
    from steno.programs.agent import Answer, AsyncAgent, AsyncTurn

T = TypeVar("T")


class AgentElsewhere:
    """The verbs of `AsyncAgent`."""

    def __init__(self, agent: "AsyncAgent") -> None:
        self._agent = agent
        self._limiter = anyio.CapacityLimiter(math.inf)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="steno", daemon=True
        )

    async def open(self) -> "AgentElsewhere":
        self._thread.start()
        try:
            await self.call(self._agent.__aenter__())
        except BaseException:
            await self._end()
            raise
        return self

    async def close(self) -> None:
        """Turns that run here end as interrupted, in order; `resume` takes them up."""
        with anyio.CancelScope(shield=True):
            try:
                await self.call(self._agent.close())
            finally:
                await self._end()

    async def _end(self) -> None:
        def end() -> None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(end)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in our loop; it has ended when this returns or raises."""
        over = threading.Event()

        async def begin() -> asyncio.Task[T]:
            task = asyncio.ensure_future(work)
            task.add_done_callback(lambda _: over.set())
            return task

        task = asyncio.run_coroutine_threadsafe(begin(), self._loop).result()
        try:
            await anyio.to_thread.run_sync(
                over.wait, abandon_on_cancel=True, limiter=self._limiter
            )
        except anyio.get_cancelled_exc_class():
            self._loop.call_soon_threadsafe(task.cancel)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(over.wait, limiter=self._limiter)
            raise
        return task.result()

    # --- turns

    def stream(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: Any = None,
    ) -> "TurnElsewhere":
        return TurnElsewhere(
            self, self._agent.stream(session, text, key, author, output)
        )

    async def run(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: Any = None,
    ) -> "Answer":
        return await self.call(self._agent.run(session, text, key, author, output))

    def resume(self, session: Any) -> "TurnElsewhere":
        return TurnElsewhere(self, self._agent.resume(session))

    async def interrupt(self, session: Any) -> bool:
        return await self.call(self._agent.interrupt(session))

    async def asked(self, session: Any) -> list[Approval]:
        return await self.call(self._agent.asked(session))

    async def decide(self, call: Approval, allow: bool, reason: str = "") -> bool:
        return await self.call(self._agent.decide(call, allow, reason))

    async def messages(self, session: Any) -> list[Message]:
        return await self.call(self._agent.messages(session))


class TurnElsewhere:
    """The verbs of `AsyncTurn`."""

    def __init__(self, agent: AgentElsewhere, turn: "AsyncTurn") -> None:
        self._agent = agent
        self._turn = turn

    @property
    def session(self) -> str:
        return self._turn.session

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self.events():
            if text := self._turn.text_in(event):
                yield text

    async def events(self) -> AsyncIterator[Event]:
        """Every fact and every piece of this turn, each durable before it comes."""
        reading = self._turn.events()

        async def following() -> Event | None:
            return await anext(reading, None)

        while (event := await self._agent.call(following())) is not None:
            yield event

    async def answer(self) -> "Answer":
        return await self._agent.call(self._turn.answer())


class Here:
    """The loop of the caller, for the functions that it gave."""

    def __init__(self) -> None:
        self._token = anyio.lowlevel.current_token()

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is awaited as one that blocks a thread until it ran here."""
        if not inspect.iscoroutinefunction(function):
            return function

        @functools.wraps(function)
        def from_a_thread(*given: Any, **named: Any) -> Any:
            work = functools.partial(function, *given, **named)
            return anyio.from_thread.run(work, token=self._token)

        return from_a_thread

    def tool(self, tool: FunctionTool) -> FunctionTool:
        here = copy.copy(tool)
        here.function = self.function(tool.function)
        return here
