"""What a model is offered in a session: our own tools, those that know the session, those of MCP
servers, and excerpts of output that is too long to be told."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import ContextSet, SessionStarted
from steno.journal.history import Settled
from steno.journal.listing import DELEGATED
from steno.journal.parts import Hash, Outcome, to_text
from steno.race import first_of
from steno.runtimes.protocol import Runtime
from steno.session.lease import HeldSession
from steno.session.load import Sessions
from steno.store.protocol import Store
from steno.tools.builtin import (
    DELEGATE_SPEC,
    READ_OUTPUT_SPEC,
    SEARCH_SPEC,
    Offered,
    builtin,
)
from steno.tools.output import KeepingTool, excerpt, excerpted, outputs_of
from steno.tools.protocol import Tool, Workspace
from steno.workspace.commands import skills

if TYPE_CHECKING:
    from steno.search.keeper import Search
    from steno.tools.mcp import ServerSettings
    from steno.tools.mcp_tools import Keep, Servers

SLACK_CHARS = 1_000
"""What our own lines may add to output that is just short enough."""
EXCERPTS_MAX = 500

SessionTools = Callable[[str, ContextSet | None], Awaitable[Mapping[str, Tool]]]
"""All tools of a session, given its id and its context so far. Servers that it needs are started
here."""


async def tools_of(
    held: HeldSession, session_tools: SessionTools
) -> Mapping[str, Tool] | None:
    """None if we were told to leave first: servers that must be started can take long."""
    return await first_of(session_tools(held.id, held.state.context), held.going)


class ToolboxSettings(Struct, frozen=True, kw_only=True):
    servers: "Mapping[str, ServerSettings]" = {}
    home: Path
    search: bool = True
    delegate: bool = True
    delegate_limit_s: float = 600.0
    jobs: bool = False


class Toolbox:
    """Shared by all sessions of a process; servers of tools run once for each folder."""

    def __init__(
        self,
        sessions: Sessions,
        settings: ToolboxSettings,
        search: "Callable[[], Search]",
    ) -> None:
        self._sessions = sessions
        self._search = search
        self._store = sessions.store
        self._settings = settings
        self._servers: dict[Path, Servers] = {}

    async def of(
        self,
        workspace: Workspace,
        helpers: Runtime,
        session: str,
        before: ContextSet | None,
    ) -> dict[str, Tool]:
        """By name, in the order in which a model is told of them: the same whenever the same is
        there. `helpers` runs the sessions that are delegated to."""

        async def keep(payload: bytes) -> Hash:
            return await self._store.put(session, payload)

        chars_max = workspace.output_chars_max + SLACK_CHARS
        theirs = (
            await self._of_servers(workspace, before, keep)
            if self._settings.servers
            else {}
        )
        own = await self._knowing(session, workspace, helpers, before)
        if self._settings.jobs:
            from steno.session.jobs import (
                JobBook,
                JobsForModel,
            )  # it loads what knows time zones
            from steno.tools.planning.jobs import ChangeJob, ListJobs

            jobs = JobsForModel(JobBook(self._store), session)
            own += [ListJobs(jobs), ChangeJob(jobs)]
        known = skills(workspace.folder, self._settings.home)
        if known:
            from steno.tools.looking.skill import ReadSkill

            own.append(ReadSkill(known))
        tools = builtin(workspace) | {tool.spec.name: tool for tool in own} | theirs
        return {
            name: KeepingTool(tool, chars_max, keep) for name, tool in tools.items()
        }

    async def _knowing(
        self,
        session: str,
        workspace: Workspace,
        helpers: Runtime,
        before: ContextSet | None,
    ) -> list[Tool]:
        """Those that know the session; loaded with the first call, as what comes with steno is."""

        def read_output() -> Tool:
            from steno.tools.read_output import ReadOutput

            return ReadOutput(self._store, session, workspace.output_chars_max)

        def search() -> Tool:
            from steno.tools.search import SearchSessions

            return SearchSessions(self._search, self._store, session)

        def delegate() -> Tool:
            from steno.runtimes.delegated import ChildSessions
            from steno.tools.delegate import Delegate

            model = "" if before is None else before.own_model
            children = ChildSessions(self._sessions, helpers, model)
            return Delegate(children, session, self._settings.delegate_limit_s)

        tools: list[Tool] = [Offered(READ_OUTPUT_SPEC, "none", read_output)]
        if self._settings.search:
            tools.append(Offered(SEARCH_SPEC, "none", search))
        if self._settings.delegate and not await self._is_child(session):
            tools.append(Offered(DELEGATE_SPEC, "ask", delegate))
        return tools

    async def _of_servers(
        self, workspace: Workspace, before: ContextSet | None, keep: "Keep"
    ) -> dict[str, Tool]:
        from steno.tools.mcp_tools import (
            Servers,
        )  # it and the SDK are loaded where there are servers

        folder = workspace.folder
        if folder not in self._servers:
            self._servers[folder] = Servers(
                self._settings.servers, folder, workspace.scrub
            )
        return await self._servers[folder].tools(before, keep)

    async def close(self) -> None:
        """End the servers."""
        await asyncio.gather(*(servers.close() for servers in self._servers.values()))

    async def _is_child(self, session: str) -> bool:
        first = (await self._store.read(session, 0, 1))[0].fact
        return isinstance(first, SessionStarted) and first.platform == DELEGATED


class Excerpts:
    """Cuts head and tail of outputs that lie in payloads. Keeps some: a session asks for the same
    ones again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cut: OrderedDict[Hash, str] = OrderedDict()

    async def put_into(self, request: Request) -> Request:
        return excerpted(
            request,
            {
                hash: await self._of(hash)
                for hash in sorted(outputs_of(request.entries))
            },
        )

    async def of_outcome(self, outcome: Outcome) -> Outcome:
        """The outcome with an excerpt in the place of each text that lies in a payload."""
        entries = await self.put_into(Request("", "", (), (Settled(0, "", outcome),)))
        [entry] = entries.entries
        return entry.outcome if isinstance(entry, Settled) else outcome

    async def _of(self, hash: Hash) -> str:
        if hash not in self._cut:
            self._cut[hash] = excerpt(to_text(await self._store.get(hash)), hash)
            if len(self._cut) > EXCERPTS_MAX:
                self._cut.popitem(last=False)
        self._cut.move_to_end(hash)
        return self._cut[hash]
