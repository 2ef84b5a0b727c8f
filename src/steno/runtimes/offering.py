"""What a model is offered: tools that know their session or must be asked for, and excerpts of long
output."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steno.engine.request import Request
from steno.journal.facts import ContextSet
from steno.journal.history import Settled
from steno.journal.parts import Hash, Outcome
from steno.race import first_of
from steno.session.lease import HeldSession
from steno.store.protocol import Store
from steno.tools.output import excerpt, excerpted, outputs_of, to_text
from steno.tools.protocol import Tool

if TYPE_CHECKING:
    from steno.runtimes.native import Agent

EXCERPTS_MAX = 500

SessionTools = Callable[[str, ContextSet | None], Awaitable[Mapping[str, Tool]]]
"""All tools of a session, given its id and its context so far. Servers that it needs are started
here."""


async def with_session_tools(held: HeldSession, agent: "Agent") -> "Agent":
    """The agent with the tools of this session. If we are told to leave meanwhile, nothing is
    waited for."""
    tools = None if agent.session_tools is None else await tools_of(held, agent.session_tools)
    if tools is None:
        return agent
    specs = tuple(tool.spec for tool in tools.values())
    return replace(agent, tools=tools, context=replace(agent.context, tools=specs))


async def tools_of(held: HeldSession, session_tools: SessionTools) -> Mapping[str, Tool] | None:
    """None if we were told to leave first."""
    return await first_of(session_tools(held.id, held.state.context), held.going)


class Excerpts:
    """Cuts head and tail of outputs that lie in payloads. Keeps some: a session asks for the same
    ones again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cut: OrderedDict[Hash, str] = OrderedDict()

    async def put_into(self, request: Request) -> Request:
        return excerpted(
            request, {hash: await self._of(hash) for hash in sorted(outputs_of(request.entries))}
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
