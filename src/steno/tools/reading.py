"""A call that only looks at what is stored: it has no process, and can be cut off at any moment."""

import asyncio
from collections.abc import Awaitable, Callable

from steno.journal.parts import Failed, Interrupted, Outcome, Returned, Text
from steno.tools.files import Unusable
from steno.tools.protocol import Output


class Reading:
    def __init__(self, look: Callable[[], Awaitable[str]]) -> None:
        self.group: int | None = None
        self._look = look
        self._stopped = asyncio.Event()

    async def run(self, output: Output) -> Outcome:
        looking = asyncio.ensure_future(self._look())
        stop = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({looking, stop}, return_when=asyncio.FIRST_COMPLETED)
            return self._outcome(looking) if looking.done() else Interrupted()
        finally:
            for task in (looking, stop):
                task.cancel()
            await asyncio.gather(looking, stop, return_exceptions=True)

    async def stop(self) -> None:
        self._stopped.set()

    def _outcome(self, looking: "asyncio.Future[str]") -> Outcome:
        try:
            return Returned((Text(looking.result()),))
        except Unusable as error:
            return Failed((Text(str(error)),))
