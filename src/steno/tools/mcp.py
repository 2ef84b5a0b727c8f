"""MCP servers: started when a session needs their tools, started again after they died, ended with
us.

ServerFailed   a server cannot be started, reached or understood; its tools cannot be used at the
               moment

What must be true:

- A connection belongs to one task, which opens and closes it: the SDK's scopes must be left by the
  task that entered them.
- Nothing here repeats a call. A server is started again for the next call, never for one that was
  under way.
- Every wait has a limit, and everything a server says has a bound.
"""

import asyncio
import importlib
import importlib.util
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from steno.race import first_of
from steno.tools import mcp_http, mcp_stdio
from steno.tools.child import Child, Command
from steno.tools.sandbox import Scrub

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import Tool as ListedTool

SDK_MISSING = (
    "the package `mcp` is not installed; MCP servers need it: "
    "pip install 'steno-agent[mcp]'"
)
PAGES_MAX = 50
_CLOSE_WAIT_S = 6.0


class ServerFailed(Exception):
    pass


class ServerSettings(Struct, frozen=True, kw_only=True):
    """One server: a command to run, or a URL to reach. Tools in `safe` may be repeated; "*" stands
    for all of them. If `only` is not empty, the server's other tools are not offered."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    pass_env: tuple[str, ...] = ()
    url: str = ""
    headers: Mapping[str, str] = {}
    safe: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    start_limit_s: float = 30.0
    time_limit_s: float = 120.0


def has_sdk() -> bool:
    return importlib.util.find_spec("mcp") is not None


class Connection:
    """One life of a server, from its start to the moment it is lost. `changed` if it says that its
    tools are others."""

    def __init__(
        self, name: str, settings: ServerSettings, folder: Path, scrub: Scrub
    ) -> None:
        self.group: int | None = None
        self.lost = asyncio.Event()
        self.changed = False
        self._name = name
        self._settings = settings
        self._folder = folder
        self._scrub = scrub
        self._child: Child | None = None
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Client] = (
            asyncio.get_running_loop().create_future()
        )
        self._keeper = asyncio.create_task(self._keep())

    async def client(self) -> "Client":
        """The client, once the server has said hello."""
        try:
            async with asyncio.timeout(self._settings.start_limit_s):
                return await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            limit = f"{self._settings.start_limit_s:g} s"
            raise ServerFailed(
                f"the MCP server {self._name!r} did not start within {limit}{self._said()}"
            ) from None

    async def close(self) -> None:
        self.lost.set()
        self._closing.set()
        if not self._opened.done():
            self._keeper.cancel()
        done, _ = await asyncio.wait({self._keeper}, timeout=_CLOSE_WAIT_S)
        if not done:
            self._keeper.cancel()

    async def _keep(self) -> None:
        """The task that owns the connection. Whatever goes wrong in it is raised where the client
        is waited for."""
        try:
            await self._live()
        except Exception as error:  # noqa: BLE001 the SDK raises groups of whatever its transports raise
            self._fail(_first_cause(error))
        except asyncio.CancelledError:
            self._fail(ServerFailed("it was ended"))
        finally:
            self.lost.set()
            if self._child is not None:
                await self._child.end()

    async def _live(self) -> None:
        if not self._settings.url:
            self._child = await Child.spawn(self._command())
            self.group = self._child.group
        await asyncio.to_thread(
            importlib.import_module, "mcp.client"
        )  # takes a second: others must not wait for it
        from mcp.client import Client
        from mcp_types import Implementation

        for name in (
            "mcp",
            "client",
        ):  # The SDK's loggers: what matters of them reaches the person as an outcome.
            logging.getLogger(name).addHandler(logging.NullHandler())
        streams = (
            mcp_http.transport(self._address())
            if self._child is None
            else mcp_stdio.transport(self._child)
        )
        about = Implementation(name="steno", version="1")
        async with Client(
            streams, client_info=about, cache=None, message_handler=self._heard
        ) as client:
            self._opened.set_result(client)
            await self._until_over()

    async def _until_over(self) -> None:
        ends = () if self._child is None else (self._child.ended,)
        try:
            await first_of(self._closing.wait(), *ends)
        finally:
            self.lost.set()

    def _address(self) -> mcp_http.Address:
        settings = self._settings
        limit_s = settings.start_limit_s
        return mcp_http.Address(
            settings.url, settings.headers, limit_s, settings.time_limit_s + limit_s
        )

    async def _heard(self, message: object) -> None:
        self.changed = (
            self.changed or type(message).__name__ == "ToolListChangedNotification"
        )

    def _command(self) -> Command:
        passed = {
            name: os.environ[name]
            for name in self._settings.pass_env
            if name in os.environ
        }
        environment = (
            self._scrub.clean(os.environ) | passed | dict(self._settings.env)
        )
        return Command(
            (self._settings.command, *self._settings.args), environment, self._folder
        )

    def _fail(self, error: BaseException) -> None:
        if not self._opened.done():
            what = str(error) or type(error).__name__
            self._opened.set_exception(
                ServerFailed(
                    f"the MCP server {self._name!r} cannot be used: {what}{self._said()}"
                )
            )
            self._opened.exception()  # Looked at, in case no task waits for it.

    def _said(self) -> str:
        complaint = "" if self._child is None else self._child.complaint()
        return f"; it said: {complaint}" if complaint else ""


class McpServer:
    """A configured server. It has one connection at a time, or none."""

    def __init__(
        self, name: str, settings: ServerSettings, folder: Path, scrub: Scrub
    ) -> None:
        self.name = name
        self.settings = settings
        self._folder = folder
        self._scrub = scrub
        self._connection: Connection | None = None
        self._listed: tuple[Connection, list[ListedTool]] | None = None
        self._starting = asyncio.Lock()

    async def connected(self) -> "tuple[Connection, Client]":
        """A live connection. Started if there is none, or the last one was lost. Raises
        `ServerFailed`."""
        async with self._starting:
            connection = self._connection
            if connection is None or connection.lost.is_set():
                if connection is not None:
                    await connection.close()
                connection = self._connection = Connection(
                    self.name, self.settings, self._folder, self._scrub
                )
            return connection, await connection.client()

    async def listed(self) -> "list[ListedTool]":
        """What the server says its tools are. Asked once in each of its lives, and when it says
        that they changed."""
        connection, client = await self.connected()
        if (
            self._listed is None
            or self._listed[0] is not connection
            or connection.changed
        ):
            connection.changed = False
            try:
                async with asyncio.timeout(self.settings.start_limit_s):
                    self._listed = connection, await _all_tools(client)
            except TimeoutError:
                limit = f"{self.settings.start_limit_s:g} s"
                raise ServerFailed(
                    f"the MCP server {self.name!r} did not list its tools within {limit}"
                ) from None
            except (
                Exception
            ) as error:  # The SDK raises its own, pydantic's, the transport's.
                raise ServerFailed(
                    f"the MCP server {self.name!r} cannot list its tools: {error}"
                ) from error
        return self._listed[1]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


async def _all_tools(client: "Client") -> "list[ListedTool]":
    from mcp_types import PaginatedRequestParams

    found: list[ListedTool] = []
    cursor = None
    for _ in range(PAGES_MAX):
        page = await client.session.list_tools(
            params=PaginatedRequestParams(cursor=cursor) if cursor else None
        )
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def warn(message: str) -> None:
    logging.getLogger("steno.tools").warning(message)
