"""The tools of MCP servers as tools of ours.

What must be true:

- A tool is called SERVER__TOOL, in letters that every provider takes. Its spec is the same text
  whenever the server says the same, whatever the order, so that the bytes of requests stay equal.
- A call is sent once. If the server goes away, does not answer in time, or answers with what cannot
  be read, the outcome is unknown: it may have had effects.
- If a server cannot be started, the tools that the session was told of stay in the context, and
  calls of them fail.
"""

import asyncio
import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from steno.journal.facts import ContextSet, ToolSpec
from steno.journal.parts import (
    Content,
    Failed,
    File,
    Hash,
    Image,
    Interrupted,
    Outcome,
    Returned,
    Text,
    Unknown,
)
from steno.tools.mcp import Connection, McpServer, ServerFailed, ServerSettings, warn
from steno.tools.protocol import BadArguments, Output, Prepared, Tool
from steno.tools.sandbox import Scrub

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as ListedTool

TOOLS_MAX = 128
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 4_000
SCHEMA_CHARS_MAX = 32_000
TEXT_CHARS_MAX = 10_000_000
BINARY_BYTES_MAX = 16 * 1024 * 1024
BLOCKS_MAX = 1_000

_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]")
_ERROR_STATUS = "Server returned an error response"
"""How the SDK words an HTTP status that carries no answer: whether the call took effect is not
known."""

Keep = Callable[[bytes], Awaitable[Hash]]
"""Stores bytes for the session; returns when they are durable."""


class Servers:
    """All that are configured, by name."""

    def __init__(
        self, settings: Mapping[str, ServerSettings], folder: Path, scrub: Scrub
    ) -> None:
        self._servers = {
            name: McpServer(name, settings[name], folder, scrub)
            for name in sorted(settings)
        }

    async def tools(self, before: ContextSet | None, keep: Keep) -> dict[str, Tool]:
        """By name, sorted. All servers start at once; one that cannot holds up no other."""
        told = () if before is None else before.tools
        found = await asyncio.gather(
            *(self._of(server, told) for server in self._servers.values())
        )
        tools = [
            RemoteTool(server, spec, name, keep)
            for server, specs in found
            for spec, name in specs
        ]
        return {
            tool.spec.name: tool
            for tool in sorted(tools, key=lambda tool: tool.spec.name)
        }

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _of(
        self, server: McpServer, told: Iterable[ToolSpec]
    ) -> "tuple[McpServer, list[tuple[ToolSpec, str]]]":
        try:
            return server, specs_of(
                server.name, server.settings, await server.listed()
            )
        except ServerFailed as error:
            warn(str(error))
            mine = [spec for spec in told if spec.name.startswith(f"{server.name}__")]
            return server, [(spec, "") for spec in mine]


def specs_of(
    server: str, settings: ServerSettings, listed: "Iterable[ListedTool]"
) -> list[tuple[ToolSpec, str]]:
    """Specs, each with the name that the server knows the tool by."""
    specs: dict[str, tuple[ToolSpec, str]] = {}
    for tool in sorted(listed, key=lambda tool: tool.name):
        if settings.only and tool.name not in settings.only:
            continue
        schema = schema_text(tool.input_schema)
        if len(schema) > SCHEMA_CHARS_MAX:
            warn(
                f"the tool {tool.name!r} of the MCP server {server!r} is left out: its schema is "
                "too long"
            )
            continue
        repeat: Literal["never", "safe"] = (
            "safe" if {tool.name, "*"} & settings.safe else "never"
        )
        spec = ToolSpec(
            tool_name(server, tool.name), _description(tool), schema, repeat
        )
        specs.setdefault(spec.name, (spec, tool.name))
    if len(specs) > TOOLS_MAX:
        warn(
            f"the MCP server {server!r} has {len(specs)} tools; only the first {TOOLS_MAX} by "
            "name are offered"
        )
    return [specs[name] for name in sorted(specs)][:TOOLS_MAX]


def tool_name(server: str, tool: str) -> str:
    """In letters that every provider takes. A name that must be changed gets a part that no other
    tool has."""
    plain = f"{server}__{_NOT_NAME.sub('_', tool)}"
    if plain == f"{server}__{tool}" and tool and len(plain) <= NAME_CHARS_MAX:
        return plain
    mark = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: NAME_CHARS_MAX - 9]}_{mark}"


def schema_text(schema: Mapping[str, Any]) -> str:
    """The same text for the same schema. Every provider wants an object with properties."""
    kept = {key: value for key, value in schema.items() if key != "$schema"}
    return json.dumps(
        {"properties": {}, **kept, "type": "object"},
        sort_keys=True,
        separators=(",", ":"),
    )


def _description(tool: "ListedTool") -> str:
    text = (tool.description or tool.title or tool.name).strip()
    return (
        text
        if len(text) <= DESCRIPTION_CHARS_MAX
        else f"{text[:DESCRIPTION_CHARS_MAX]} [cut]"
    )


class RemoteTool:
    """One tool of a server. `name` is the server's own for it, empty if the server could not be
    asked."""

    approval: Literal["none", "ask"] = "ask"

    def __init__(
        self, server: McpServer, spec: ToolSpec, name: str, keep: Keep
    ) -> None:
        self.spec = spec
        self._server = server
        self._name = name
        self._keep = keep

    async def prepare(self, arguments: str) -> Prepared:
        try:
            asked = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise BadArguments(f"the arguments cannot be used: {error}") from error
        try:
            connection, client = await self._server.connected()
            name = self._name or await self._asked_name()
        except ServerFailed as error:
            raise BadArguments(f"not run: {error}") from error
        return RemoteCall(
            connection,
            client,
            name,
            asked,
            self._server.settings.time_limit_s,
            self._keep,
        )

    async def _asked_name(self) -> str:
        for spec, name in specs_of(
            self._server.name, self._server.settings, await self._server.listed()
        ):
            if spec.name == self.spec.name:
                return name
        raise BadArguments(
            f"not run: the MCP server {self._server.name!r} no longer has this tool"
        )


class RemoteCall:
    def __init__(
        self,
        connection: Connection,
        client: "Client",
        name: str,
        arguments: dict[str, Any],
        time_limit_s: float,
        keep: Keep,
    ) -> None:
        self.group: int | None = connection.group
        self._connection = connection
        self._client = client
        self._name = name
        self._arguments = arguments
        self._time_limit_s = time_limit_s
        self._keep = keep
        self._stopped = asyncio.Event()

    async def run(self, output: Output) -> Outcome:
        if self._stopped.is_set():
            return Interrupted()
        if self._connection.lost.is_set():
            return Failed(
                (Text("not run: the MCP server ended before the call was sent"),)
            )
        call = asyncio.create_task(
            self._client.session.call_tool(self._name, self._arguments)
        )
        signs = [
            asyncio.create_task(event.wait())
            for event in (self._stopped, self._connection.lost)
        ]
        try:
            await asyncio.wait(
                {call, *signs},
                timeout=self._time_limit_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not call.done() and self._connection.lost.is_set():
                await asyncio.wait(
                    {call}, timeout=0.2
                )  # An answer that came before the end may be on its way.
            if call.done() and not call.cancelled():
                return await self._outcome(call)
            return self._unanswered()
        finally:
            for task in (call, *signs):
                task.cancel()
            await asyncio.gather(call, *signs, return_exceptions=True)

    async def stop(self) -> None:
        self._stopped.set()

    def _unanswered(self) -> Outcome:
        if self._stopped.is_set():
            return Interrupted(
                (Text("[stopped; the MCP server was told to cancel the call]"),)
            )
        if self._connection.lost.is_set():
            return Unknown((Text("[the MCP server ended before it answered]"),))
        limit = f"{self._time_limit_s:g} s"
        return Unknown(
            (
                Text(
                    f"[no answer within {limit}; the MCP server was told to cancel the call]"
                ),
            )
        )

    async def _outcome(self, call: "asyncio.Task[CallToolResult]") -> Outcome:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT

        try:
            result = call.result()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or error.message in (
                "Session terminated",
                _ERROR_STATUS,
            ):
                await self._connection.close()
            if self._stopped.is_set():
                return Interrupted((Text("[stopped]"),))
            if (
                error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR)
                or error.message == _ERROR_STATUS
            ):
                return Unknown(
                    (Text(f"[the MCP server did not answer: {_cut(error.message)}]"),)
                )
            return Failed((Text(_cut(error.message) or f"error {error.code}"),))
        except (
            RuntimeError,
            ValueError,
        ) as error:  # An answer that is not as the protocol or the tool's schema says.
            return Failed(
                (
                    Text(
                        "the call was carried out, but its answer cannot be used: "
                        f"{_cut(str(error))}"
                    ),
                )
            )
        parts = await self._parts(result)
        return Failed(parts) if result.is_error else Returned(parts)

    async def _parts(self, result: "CallToolResult") -> tuple[Content, ...]:
        """One text, and what is not text after it."""
        texts: list[str] = []
        others: list[Content] = []
        for block in result.content[:BLOCKS_MAX]:
            said = await self._block(block)
            if isinstance(said, str):
                texts.append(said)
            else:
                others.append(said)
        if len(result.content) > BLOCKS_MAX:
            texts.append(
                f"[{len(result.content) - BLOCKS_MAX} more parts of the answer were dropped]"
            )
        if not texts and not others and result.structured_content is not None:
            texts.append(json.dumps(result.structured_content, ensure_ascii=False))
        text = "\n".join(part for part in texts if part)
        if len(text) > TEXT_CHARS_MAX:
            text = (
                f"{text[:TEXT_CHARS_MAX]}\n[{len(text) - TEXT_CHARS_MAX} more characters were "
                "dropped]"
            )
        return ((Text(text),) if text else ()) + tuple(others)

    async def _block(self, block: Any) -> str | Image | File:
        match block.type:
            case "text":
                return str(block.text)
            case "image" | "audio":
                return await self._bytes(block.data, block.mime_type, "")
            case "resource_link":
                return f"[resource {block.name}: {block.uri}]"
            case "resource":
                resource = block.resource
                if getattr(resource, "text", None) is not None:
                    return f"[resource {resource.uri}]\n{resource.text}"
                return await self._bytes(
                    resource.blob,
                    resource.mime_type or "application/octet-stream",
                    resource.uri,
                )
            case kind:
                return f"[a part of kind {str(kind)[:40]} is not shown]"

    async def _bytes(
        self, base64: str, media_type: str, name: str
    ) -> str | Image | File:
        try:
            data = b64decode(base64, validate=True)
        except (NotBase64, ValueError):
            return f"[{media_type} that is not base64 was dropped]"
        if not data or len(data) > BINARY_BYTES_MAX:
            return (
                f"[{media_type} of {len(data)} bytes was dropped: it has none, or more than "
                f"{BINARY_BYTES_MAX}]"
            )
        part = Image if media_type.startswith("image/") else File
        return part(
            await self._keep(data), media_type[:100], len(data), str(name)[:500]
        )


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= DESCRIPTION_CHARS_MAX
        else f"{text[:DESCRIPTION_CHARS_MAX]} [cut]"
    )
