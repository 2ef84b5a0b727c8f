"""Codex in this process, without a program: what it keeps of its threads outlives each child, and
what it does is what a script says. A child is dropped with the process of the world that started
it, as a real one is ended with its group.

As with the real one, a thread has what was completed: it keeps nothing of an item in which its
child was dropped, and it has an input from its echo on.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import Struct

from steno.journal.facts import ContextSet
from steno.runtimes.codex.driver import Codex
from steno.runtimes.codex.turn import CodexAgent
from steno.tools.child import Child, Command
from steno.tools.protocol import Tool
from tests.world.world import Process, World, current

NOWHERE = Path("/none")


class Say(Struct, frozen=True):
    """A message, in pieces."""

    pieces: tuple[str, ...]
    thought: str = ""


class Run(Struct, frozen=True):
    """A command that codex asks about; what it says, piece by piece."""

    command: str
    pieces: tuple[str, ...] = ("out ", "put")
    hangs: bool = False


class Change(Struct, frozen=True):
    """A file that is added, asked about or not."""

    path: str
    asks: bool = True


class Use(Struct, frozen=True):
    """A call of one of our own tools."""

    tool: str
    arguments: str = '{"n":1}'


class Fail(Struct, frozen=True):
    message: str


Deed = Say | Run | Change | Use | Fail


class FakeCodex:
    """`choose` says what it does in a turn, given what was said last. `threads` holds the items of
    each thread, `told` the parameters of each turn. A child ends by itself after `dies_after`
    messages, if that is set."""

    def __init__(self, world: World, *deeds: Deed) -> None:
        self.world = world
        self.choose: Callable[[str], Sequence[Deed]] = lambda _: deeds
        self.threads: dict[str, list[dict[str, Any]]] = {}
        self.told: list[dict[str, Any]] = []
        self.dies_after: int | None = None
        self.calls = 0

    def __call__(self, process: Process) -> Codex:
        """What drives the sessions of a process."""

        async def tools(session: str, _: ContextSet | None) -> Mapping[str, Tool]:
            return process.tools

        agent = CodexAgent(
            command=Command(("codex",), {"HOME": str(NOWHERE)}, NOWHERE),
            version="1",
            context=ContextSet("codex:fake", "Be brief."),
            approval=self.world.approval,
            limits=self.world.limits,
            sandbox="danger-full-access",
            session_tools=tools,
        )
        return Codex(process.store, lambda _: agent)

    def ids(self) -> list[str]:
        """The ids of the inputs that its threads have."""
        said = (item.get("clientId") for thread in self.threads.values() for item in thread)
        return [id for message in said if message for id in message.split("+")]


def codex_of(world: World) -> FakeCodex:
    assert isinstance(world.drive, FakeCodex)
    return world.drive


async def spawn(_: Command) -> "FakeChild":
    return FakeChild(codex_of(current().world))


@contextmanager
def no_program() -> Iterator[None]:
    """No codex is started: it is the one of the world."""
    with patch.object(Child, "spawn", spawn):
        yield


class FakeChild:
    """Satisfies what the server needs of a `Child`."""

    group = None

    def __init__(self, codex: FakeCodex) -> None:
        self._codex = codex
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._said = 0
        self._gone = asyncio.Event()
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._turn: asyncio.Task[None] | None = None
        self._steered: list[dict[str, Any]] = []
        self._threads = codex.threads

    # --- as a child

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._out.get()) is not None:
            yield line

    async def send(self, line: bytes) -> None:
        self.put(line)

    def put(self, line: bytes) -> None:
        if self._gone.is_set():
            raise ConnectionError
        message = json.loads(line)
        if "method" not in message:
            answer = self._answers.pop(message["id"], None)
            if answer is not None and not answer.done():
                answer.set_result(dict(message["result"]))
        elif "id" in message:
            self._serve(message["id"], message["method"], message["params"])

    async def exited(self) -> None:
        await self._gone.wait()

    def complaint(self) -> str:
        return ""

    def forget(self) -> None: ...

    async def end(self) -> None:
        self._die()

    def _die(self) -> None:
        self._gone.set()
        if self._turn is not None:
            self._turn.cancel()
        self._out.put_nowait(None)

    # --- as an app-server

    def _serve(self, id: int, method: str, params: dict[str, Any]) -> None:
        answer: dict[str, Any] = {}
        match method:
            case "initialize":
                answer = {"userAgent": "codex/0.163.0"}
            case "thread/start":
                thread = f"thread-{len(self._threads) + 1}"
                self._threads[thread] = []
                answer = {"thread": {"id": thread}, "model": "fake"}
            case "thread/resume":
                answer = {"thread": {"id": params["threadId"]}, "model": "fake"}
            case "thread/items/list":
                items = reversed(self._threads[params["threadId"]])
                answer = {"data": [{"item": item} for item in items]}
            case "turn/start":
                self._codex.told.append(params)
                turn = f"turn-{len(self._codex.told)}"
                answer = {"turn": {"id": turn}}
                self._turn = asyncio.create_task(self._carry_out(turn, params))
            case "turn/steer":
                self._steered.append(params)
            case "turn/interrupt" if self._turn is not None:
                self._turn.cancel()
                completed = {"id": params["turnId"], "status": "interrupted"}
                self._write({"method": "turn/completed", "params": {"turn": completed}})
        self._write({"id": id, "result": answer})

    def _write(self, message: dict[str, Any]) -> None:
        self._said += "method" in message
        self._out.put_nowait(json.dumps(message).encode())
        if self._said == self._codex.dies_after:
            self._codex.dies_after = None
            self._die()

    async def _tell(self, method: str, **params: Any) -> None:
        await asyncio.sleep(0)
        self._write({"method": method, "params": params})

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        id = f"asked-{self._said}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[id] = answer
        self._write({"id": id, "method": method, "params": params})
        return await answer

    async def _carry_out(self, turn: str, params: dict[str, Any]) -> None:
        thread = self._threads[params["threadId"]]
        await self._hear(turn, thread, params)
        text = params["input"][-1]["text"]
        for deed in self._codex.choose(text):
            match deed:
                case Say():
                    await self._say(turn, thread, deed)
                case Run():
                    await self._run(turn, thread, deed)
                case Change():
                    await self._change(turn, thread, deed)
                case Use():
                    await self._use(turn, thread, deed)
                case Fail(message=message):
                    error = {"message": message}
                    failed = {"id": turn, "status": "failed", "error": error}
                    await self._tell("turn/completed", turn=failed)
                    return
        await self._tell("turn/completed", turn={"id": turn, "status": "completed"})

    async def _hear(self, turn: str, thread: list[Any], params: dict[str, Any]) -> None:
        item = {"type": "userMessage", "id": "u", "clientId": params.get("clientUserMessageId")}
        thread.append(item)
        await self._tell("item/started", item=item, turnId=turn)
        await self._tell("item/completed", item=item, turnId=turn)

    async def _say(self, turn: str, thread: list[Any], deed: Say) -> None:
        self._codex.calls += 1
        id = f"m{self._codex.calls}"
        if deed.thought:
            thought = {"itemId": f"r{id}", "delta": deed.thought, "turnId": turn}
            await self._tell("item/reasoning/summaryTextDelta", **thought)
            summary = {"type": "reasoning", "id": f"r{id}", "summary": [deed.thought]}
            await self._tell("item/completed", item=summary, turnId=turn)
        begun = {"type": "agentMessage", "id": id, "text": ""}
        await self._tell("item/started", item=begun, turnId=turn)
        for piece in deed.pieces:
            if await self._cut_by_steering(turn, thread):
                return
            await self._tell("item/agentMessage/delta", itemId=id, delta=piece, turnId=turn)
            await asyncio.sleep(1.0)
        whole = {"type": "agentMessage", "id": id, "text": "".join(deed.pieces)}
        thread.append(whole)
        await self._tell("item/completed", item=whole, turnId=turn)

    async def _cut_by_steering(self, turn: str, thread: list[Any]) -> bool:
        if not self._steered:
            return False
        for params in self._steered:
            await self._hear(turn, thread, params)
        texts = [params["input"][-1]["text"] for params in self._steered]
        self._steered.clear()
        for deed in self._codex.choose(texts[-1]):
            assert isinstance(deed, Say)
            await self._say(turn, thread, deed)
        return True

    async def _run(self, turn: str, thread: list[Any], deed: Run) -> None:
        self._codex.calls += 1
        id = f"c{self._codex.calls}"
        item = {"type": "commandExecution", "id": id, "command": deed.command}
        await self._waits("waitingOnApproval")
        await self._tell("item/started", item=item | {"status": "inProgress"}, turnId=turn)
        method = "item/commandExecution/requestApproval"
        allowed = (await self._ask(method, itemId=id))["decision"] == "accept"
        await self._waits()
        said = ""
        if allowed:
            self._codex.world.runs.append(deed.command)
            for piece in deed.pieces:
                said += piece
                delta = {"itemId": id, "delta": piece, "turnId": turn}
                await self._tell("item/commandExecution/outputDelta", **delta)
                await asyncio.sleep(1.0)
            if deed.hangs:
                await asyncio.Event().wait()
        ended = {"status": "completed", "exitCode": 0, "aggregatedOutput": said}
        done = item | (ended if allowed else {"status": "declined"})
        thread.append(done)
        await self._tell("item/completed", item=done, turnId=turn)

    async def _change(self, turn: str, thread: list[Any], deed: Change) -> None:
        self._codex.calls += 1
        id = f"p{self._codex.calls}"
        changes = [{"path": deed.path, "kind": {"type": "add"}, "diff": "x"}]
        item = {"type": "fileChange", "id": id, "changes": changes}
        await self._tell("item/started", item=item | {"status": "inProgress"}, turnId=turn)
        allowed = True
        if deed.asks:
            answer = await self._ask("item/fileChange/requestApproval", itemId=id)
            allowed = answer["decision"] == "accept"
        if allowed:
            self._codex.world.runs.append(deed.path)
        done = item | {"status": "completed" if allowed else "declined"}
        thread.append(done)
        await self._tell("item/completed", item=done, turnId=turn)

    async def _use(self, turn: str, thread: list[Any], deed: Use) -> None:
        self._codex.calls += 1
        id = f"t{self._codex.calls}"
        arguments = json.loads(deed.arguments)
        item = {"type": "dynamicToolCall", "id": id, "tool": deed.tool, "arguments": arguments}
        await self._tell("item/started", item=item, turnId=turn)
        await self._ask("item/tool/call", callId=id, tool=deed.tool)
        thread.append(item)
        await self._tell("item/completed", item=item, turnId=turn)

    async def _waits(self, *flags: str) -> None:
        status = {"type": "active", "activeFlags": list(flags)}
        await self._tell("thread/status/changed", status=status)
