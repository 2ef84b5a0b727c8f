"""Tools in this process that write down each run, and do as they are told."""

import asyncio
from typing import TYPE_CHECKING, Literal

from steno.journal.facts import ToolSpec
from steno.journal.parts import Interrupted, Outcome, Returned, Text
from steno.tools.protocol import Output

if TYPE_CHECKING:
    from tests.world.world import Process


class FakeTool:
    """Says `pieces`, one by one, each followed by a pause, then returns, or hangs until it is
    stopped."""

    def __init__(
        self,
        process: "Process",
        name: str,
        pieces: tuple[str, ...] = ("out ", "put"),
        approval: Literal["none", "ask"] = "none",
        hangs: bool = False,
        pause_s: float = 0.0,
        repeat: Literal["never", "safe"] = "never",
    ) -> None:
        self.spec = ToolSpec(name, f"does {name}", '{"type":"object"}', repeat)
        self.approval: Literal["none", "ask"] = approval
        self.pieces, self.hangs, self.pause_s = pieces, hangs, pause_s
        self._process = process

    async def prepare(self, arguments: str) -> "_Prepared":
        await asyncio.sleep(0)
        return _Prepared(self, self._process, arguments)


class _Prepared:
    group: int | None = None

    def __init__(self, tool: FakeTool, process: "Process", arguments: str) -> None:
        self._tool, self._process, self._arguments = tool, process, arguments
        self._stopped = asyncio.Event()

    async def run(self, output: Output) -> Outcome:
        self._process.check_alive()
        self._process.world.ran(f"{self._tool.spec.name} {self._arguments}")
        for piece in self._tool.pieces:
            await output(piece)
            await asyncio.sleep(self._tool.pause_s)
        if self._tool.hangs:
            await self._stopped.wait()
        text = (Text("".join(self._tool.pieces)),)
        return Interrupted(text) if self._stopped.is_set() else Returned(text)

    async def stop(self) -> None:
        self._stopped.set()
