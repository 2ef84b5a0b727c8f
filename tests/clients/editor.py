"""An editor for tests: the client of the protocol's own package, in front of a real `steno acp`. It
remembers what it was shown and every line that went over the wire."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from acp import schema as s
from acp import spawn_agent_process
from acp.client.connection import ClientSideConnection

from tests.clients.process import LIMIT_S, Home


class Editor:
    """`answers` are the options it chooses when it is asked; without one it never answers."""

    agent: ClientSideConnection
    process: asyncio.subprocess.Process

    def __init__(self, *answers: str) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.wire: list[tuple[str, dict[str, Any]]] = []
        self._answers = list(answers)
        self._came = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        async with self._came:
            self.updates.append(update)
            self._came.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> s.RequestPermissionResponse:
        async with self._came:
            self.asked.append(tool_call)
            self._came.notify_all()
        if not self._answers:
            await asyncio.Event().wait()
        chosen = s.AllowedOutcome(outcome="selected", option_id=self._answers.pop(0))
        return s.RequestPermissionResponse(outcome=chosen)

    def on_connect(self, conn: Any) -> None:
        pass

    async def until(self, holds: Callable[["Editor"], bool]) -> None:
        async with self._came:
            await self._came.wait_for(lambda: holds(self))

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.updates if one.session_update == kind)

    def calls(self) -> dict[str, list[str]]:
        """The states that each call went through."""
        found: dict[str, list[str]] = {}
        for one in self.updates:
            if one.session_update in ("tool_call", "tool_call_update"):
                found.setdefault(one.tool_call_id, []).append(one.status)
        return found

    def kill(self) -> None:
        self.process.kill()

    def observe(self, event: Any) -> None:
        self.wire.append((event.direction.value, event.message))


@asynccontextmanager
async def editing(home: Home, *answers: str) -> AsyncIterator[Editor]:
    editor = Editor(*answers)
    command, *args = home.words("acp")
    async with (
        asyncio.timeout(LIMIT_S),
        spawn_agent_process(
            editor,  # type: ignore[arg-type]
            command,
            *args,
            env=home.environment,
            cwd=home.work,
            use_unstable_protocol=True,
            observers=[editor.observe],
        ) as (agent, process),
    ):
        editor.agent, editor.process = agent, process
        await agent.initialize(protocol_version=1)
        yield editor
