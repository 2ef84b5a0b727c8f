"""A stream of pieces at a given pace, as a model sends them: it does not wait for us.

A piece's time runs from the moment it is due, so a stall counts against every piece that it delays.
Pieces that come during a commit go out with the next one; how many may be under way at once has a
bound.
"""

import asyncio
import time
from collections import deque

from bench.building import AsyncWriter
from bench.timing import bounded

PIECE = "word"
IN_FLIGHT_MAX = 200

Wait = tuple[float, float]
"""When a piece was due, and when it was durable (monotonic)."""


async def paced(writer: AsyncWriter, start_s: float, count: int, per_second: int) -> list[Wait]:
    """Write so many pieces, each when it is due; return when all are durable."""
    waits: list[Wait] = []
    flying: deque[asyncio.Task[None]] = deque()
    for i in bounded(count):
        due_s = start_s + i / per_second
        await asyncio.sleep(due_s - time.monotonic())
        while flying and (flying[0].done() or len(flying) >= IN_FLIGHT_MAX):
            await flying.popleft()
        flying.append(asyncio.create_task(_write(writer, due_s, waits)))
    while flying:
        await flying.popleft()
    return waits


async def _write(writer: AsyncWriter, due_s: float, waits: list[Wait]) -> None:
    await writer.draft(PIECE)
    waits.append((due_s, time.monotonic()))
