"""What a session is told of the folder that it belongs to: the files with instructions, and what is
found around it.

It is looked at when a turn begins with an input. A turn that is taken up, or that waited for an
answer, goes on with what it was told: its requests repeat those before it byte for byte.

    3 input · 4 turn.started (takes 3) · 5 context.set (Monday, branch main) · kill -9
    9 turn.started (continues 4)                    goes on with 5, also on Tuesday
    20 input · 21 turn.started (takes 20) · 22 context.set (Tuesday, branch main)
    30 input · 31 turn.started (takes 30)           nothing changed: 22 holds
"""

import asyncio
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from steno.journal.facts import ContextSet
from steno.session.lease import HeldSession
from steno.workspace.instructions import instructions
from steno.workspace.surroundings import surroundings


class InFolder:
    """`home` is where steno keeps things; it may hold instructions, too."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home

    async def tell(self, held: HeldSession, context: ContextSet) -> ContextSet:
        before = held.state.context
        if before is not None and held.state.turn is not None:
            return replace(
                context, guidance=before.guidance, surroundings=before.surroundings
            )
        known = "" if before is None else before.surroundings
        today = date.today()  # noqa: DTZ011 - the day where the person is
        said, around = await asyncio.gather(
            asyncio.to_thread(instructions, self._folder, self._home),
            asyncio.to_thread(surroundings, self._folder, today, known),
        )
        return replace(context, guidance=said, surroundings=around)
