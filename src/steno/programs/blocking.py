"""`steno.Agent`: the agent for programs without an event loop.

    agent = steno.Agent("chats.db", model="openai-chat:gpt-5.6-terra")
    print(agent.run("alice", "What is a journal?").text)

The loop runs in a thread of its own; there is no second implementation.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from os import PathLike
from typing import Any, TypeVar

from steno.engine.action import Limits
from steno.journal.transcript import Message
from steno.models.protocol import Model
from steno.programs.agent import Answer, Approve, AsyncAgent, AsyncTurn, checked
from steno.programs.functions import FunctionTool
from steno.service.views import Approval
from steno.store.protocol import Event, Settings

T = TypeVar("T")

STOP_S = 5.0
"""How long Ctrl-C waits until the turn has ended in order."""


class Agent:
    """The verbs of `AsyncAgent`, blocking. Safe to use from many threads."""

    def __init__(
        self,
        store: str | PathLike[str],
        model: str | Model = "",
        system: str = "",
        tools: Sequence[Callable[..., Any] | FunctionTool] = (),
        approve: Approve = "refuse",
        limits: Limits | None = None,
        settings: Settings | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="steno", daemon=True
        )
        self._thread.start()
        self._closed = False
        try:
            self._agent = self._call(
                _opened(
                    AsyncAgent,
                    store,
                    model,
                    system,
                    tools,
                    approve,
                    limits,
                    settings,
                    plugins,
                )
            )
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Turns that run here end as interrupted, in order; `resume` takes them up."""
        if not self._closed:
            try:
                self._call(self._agent.close())
            finally:
                self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: Any = None,
    ) -> Answer:
        work = self._agent.run(session, text, key, author, output)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.interrupt(session)
            _settle(future)
            raise

    def stream(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: Any = None,
    ) -> "Turn":
        return Turn(
            self,
            self._made(
                lambda: self._agent.stream(session, text, key, author, output)
            ),
        )

    def resume(self, session: Any) -> "Turn":
        return Turn(self, self._made(lambda: self._agent.resume(session)))

    def _made(self, make: Callable[[], AsyncTurn]) -> AsyncTurn:
        async def made() -> AsyncTurn:
            return make()

        return self._call(made())

    def interrupt(self, session: Any) -> bool:
        return self._call(self._agent.interrupt(session))

    def asked(self, session: Any) -> list[Approval]:
        return self._call(self._agent.asked(session))

    def decide(self, call: Approval, allow: bool, reason: str = "") -> bool:
        return self._call(self._agent.decide(call, allow, reason))

    def messages(self, session: Any) -> list[Message]:
        """Everything said in a session so far."""
        return self._call(self._agent.messages(session))

    def next_of(self, events: AsyncIterator[T]) -> T | None:
        """The next of an iterator of the loop; None at its end."""

        async def following() -> T | None:
            return await anext(events, None)

        return self._call(following())

    def answer_of(self, turn: AsyncTurn) -> Answer:
        return self._call(turn.answer())

    run.__doc__ = AsyncAgent.run.__doc__
    stream.__doc__ = AsyncAgent.stream.__doc__
    resume.__doc__ = AsyncAgent.resume.__doc__
    interrupt.__doc__ = AsyncAgent.interrupt.__doc__
    asked.__doc__ = AsyncAgent.asked.__doc__
    decide.__doc__ = AsyncAgent.decide.__doc__


class Turn:
    """One turn, as it is stored. Iterate over it for the text, over `events` for everything."""

    def __init__(self, agent: Agent, turn: AsyncTurn) -> None:
        self._agent = agent
        self._turn = turn

    def __iter__(self) -> Iterator[str]:
        for event in self.events():
            if text := self._turn.text_in(event):
                yield text

    def events(self) -> Iterator[Event]:
        """Every fact and every piece of this turn, each durable before it comes. Ctrl-C stops the
        turn; what was shown is kept."""
        reading = self._turn.events()
        try:
            while (event := self._agent.next_of(reading)) is not None:
                yield event
        except KeyboardInterrupt:
            self._agent.interrupt(_Known(self._turn.session))
            self._agent.answer_of(self._turn)
            raise

    def answer(self) -> Answer:
        """What came of it, once it is over. Raises `TurnFailed` if nothing did."""
        return checked(self._agent.answer_of(self._turn), None)


class _Known:
    def __init__(self, id: str) -> None:
        self.id = id


def _settle(future: Any) -> None:
    from concurrent.futures import wait

    wait([future], timeout=STOP_S)


async def _opened(make: type[AsyncAgent], *arguments: Any) -> AsyncAgent:
    return await make(*arguments).__aenter__()
