"""Asking plugins before something happens."""

import asyncio

from steno.runtimes.held import HeldSession


async def consult(
    held: HeldSession, hook: str, arguments: dict[str, object]
) -> list[tuple[str, str]]:
    """What plugins have to say before something happens. Nobody who stops waits for them."""
    if not held.plugins.names:
        return []
    turn = None if held.state.turn is None else held.state.turn.seq
    told = {"session_id": held.id, "turn": turn} | arguments
    asking = asyncio.ensure_future(held.plugins.consult(hook, told))
    stopped = asyncio.ensure_future(held.stopped.wait())
    try:
        await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else []
    finally:
        for task in (asking, stopped):
            task.cancel()
        await asyncio.gather(asking, stopped, return_exceptions=True)
