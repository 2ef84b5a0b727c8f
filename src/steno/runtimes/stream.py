"""From a model's stream to the journal: each piece is committed, then shown.

What arrives while a commit is under way goes out with the next one, so a fast stream coalesces by
itself and a slow one is shown at once. The text that is sealed is exactly the text that was
committed.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal

from steno.models.protocol import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
)

Kind = Literal["text", "reasoning"]
Commit = Callable[[Kind, str], Awaitable[None]]

WAITING_CHARS_MAX = 1 << 20
DETAIL_MAX = 500


class Streamed:
    """What came of a stream. `finished` is None if it was stopped or lost; `error` says why it was
    lost."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.finished: Finished | None = None
        self.error: ModelError | None = None


async def stream_to(
    commit: Commit, events: AsyncGenerator[ModelEvent, None], stopped: asyncio.Event
) -> Streamed:
    """Run a stream to its end, or until `stopped` is set."""
    inbox = _Inbox()
    tasks = (
        asyncio.create_task(inbox.fill(events)),
        asyncio.create_task(inbox.rouse_when(stopped)),
    )
    streamed = Streamed()
    try:
        while not stopped.is_set():
            await inbox.arrived.wait()
            for kind, text in inbox.take():
                await commit(kind, text)
                if kind == "text":
                    streamed.text += text
                else:
                    streamed.reasoning += text
            if inbox.over():
                streamed.finished, streamed.error = inbox.finished, inbox.error
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return streamed


class _Inbox:
    """Pieces that were received and not committed yet, joined where they are of one kind."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.finished: Finished | None = None
        self.error: ModelError | None = None
        self._runs: list[tuple[Kind, list[str]]] = []
        self._chars = 0
        self._room = asyncio.Event()

    async def fill(self, events: AsyncGenerator[ModelEvent, None]) -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    self._take_in(event)
                    while self._chars > WAITING_CHARS_MAX:
                        self._room.clear()
                        await self._room.wait()
            if self.finished is None:
                self.error = ModelError(
                    "dropped", "the stream ended without an answer", sent="yes"
                )
        except ModelError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - whatever it is, none may wait for what does not come
            detail = f"the answer cannot be read: {type(error).__name__}: {error}"[
                :DETAIL_MAX
            ]
            self.error = ModelError("server_error", detail, sent="yes")
        self.arrived.set()

    def _take_in(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self._put("text", event.text)
            case ReasoningDelta():
                self._put("reasoning", event.text)
            case Finished():
                self.finished = event

    async def rouse_when(self, stopped: asyncio.Event) -> None:
        await stopped.wait()
        self.arrived.set()

    def take(self) -> list[tuple[Kind, str]]:
        runs, self._runs, self._chars = self._runs, [], 0
        self.arrived.clear()
        self._room.set()
        return [(kind, "".join(pieces)) for kind, pieces in runs]

    def over(self) -> bool:
        """Whether nothing more will come and nothing is left."""
        return not self._runs and (
            self.finished is not None or self.error is not None
        )

    def _put(self, kind: Kind, text: str) -> None:
        if not text:
            return
        if not self._runs or self._runs[-1][0] != kind:
            self._runs.append((kind, []))
        self._runs[-1][1].append(text)
        self._chars += len(text)
        self.arrived.set()
