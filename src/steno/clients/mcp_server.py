"""steno mcp: your sessions as tools of another agent, over standard input and output.

It reads only, unless it was started with `--allow-write`: then an input can be sent. A turn is run
by a process of its own, so it does not end with the client. Approvals are listed and never decided
here: what asked for a tool must not be what allows it.

Every answer has a bound. What is cut says so, and how to read on.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from steno.agents import Agents
from steno.frontend.wording import problem
from steno.frontend.worker import folder, start_detached
from steno.gateway.streams import Telling
from steno.journal.transcript import Message, Transcript
from steno.search.searching import PLACE
from steno.service import Misused, Service
from steno.service.objects import (
    Objects,
    approval_object,
    listed_object,
    message_object,
)
from steno.service.searches import LIMIT_MAX, Wanted, found_object
from steno.session.cursors import BadCursor, from_print, to_print
from steno.store.errors import StoreError
from steno.store.protocol import Cursor

PLATFORM = "mcp"
SESSIONS_MAX = 100
MESSAGES_MAX = 200
CHARS_MAX = 60_000
"""Of the texts in one answer. What a model is told in one piece must fit its context."""
TEXT_MAX = 1_000_000
"""Of a prompt that is sent."""
WAIT_S_MAX = 50.0
"""Many clients give up on a call after a minute."""
EVENTS_MAX = 500
GATHER_S = 0.05

INSTRUCTIONS = (
    "steno keeps a person's conversations with agents, word for word. Find a conversation with "
    "session_search or sessions_list, then read it with session_read. Addresses (session ids and "
    "seq numbers) never change."
)
_READS = ToolAnnotations(
    read_only_hint=True, idempotent_hint=True, open_world_hint=False
)
_SENDS = ToolAnnotations(
    read_only_hint=False,
    destructive_hint=False,
    idempotent_hint=True,
    open_world_hint=True,
)

Tool = TypeVar("Tool", bound=Callable[..., Any])


async def serve(service: Service, agents: Agents, allow_write: bool) -> None:
    """Answer one client until it closes our input."""
    await make(service, agents, allow_write).run_stdio_async()


def make(service: Service, agents: Agents, allow_write: bool) -> MCPServer:
    server = MCPServer(
        "steno",
        instructions=INSTRUCTIONS,
        version=version("steno-agent"),
        log_level="ERROR",
    )
    reading = Reading(service)
    for tool in (
        reading.sessions_list,
        reading.session_read,
        reading.session_search,
        reading.session_wait,
        reading.approvals_list,
    ):
        server.add_tool(tool, annotations=_READS, structured_output=True)
    if allow_write:
        sending = Sending(service, agents)
        server.add_tool(
            sending.session_send, annotations=_SENDS, structured_output=True
        )
    server.resource(
        "steno://sessions/{session}",
        name="session",
        title="One session",
        description="The messages of a session as text, the latest if they do not all fit",
        mime_type="text/plain",
    )(reading.as_text)
    return server


@contextlib.asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """What goes wrong is said to the client in the words that people are told."""
    try:
        yield
    except (StoreError, Misused, BadCursor) as error:
        raise ToolError(problem(error)) from error


class Reading:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._views = service.views

    async def sessions_list(
        self, limit: int = 20, before: int | None = None, title: str = ""
    ) -> dict[str, Any]:
        """List conversations, the latest first. `title` keeps those with this text in their title.
        `next` of an answer, given as `before`, reads on; null is the end."""
        limit = _bounded(limit, SESSIONS_MAX)
        async with _told():
            if title:
                found, next_before = await self._views.titled(title, limit), None
            else:
                found = await self._views.sessions(limit, before)
                next_before = found[-1].listed.mark if len(found) == limit else None
        return {
            "sessions": [listed_object(one) for one in found],
            "next": next_before,
        }

    async def session_read(
        self, session: str, after: int = 0, limit: int = 50, last: bool = False
    ) -> dict[str, Any]:
        """Read the messages of a conversation, word for word. Begins after the message `after` (a
        seq; 0: from the first), or with `last` gives the last ones. `next` of an answer, given as
        `after`, reads on; null is the end. `cursor` is where session_wait goes on."""
        limit = _bounded(limit, MESSAGES_MAX)
        async with _told():
            id = await self._views.resolve(session)
            loaded, shown = await self._views.shown(id)
            found = [one for one in shown.transcript.messages if one.seq > after]
            page = _fitting(found[-limit:] if last else found[:limit], last)
            more = bool(page) and not last and page[-1] is not found[-1]
            waiting = await self._service.approvals.pending(id)
        return {
            "session": id,
            "title": shown.transcript.title,
            "messages": [_cut(message_object(one), one) for one in page],
            "next": page[-1].seq if more else None,
            "total": len(shown.transcript.messages),
            "running": loaded.owner is not None,
            "waiting": [one.in_a_line() for one in waiting],
            "cursor": to_print(Cursor(loaded.head)),
        }

    async def session_search(
        self,
        query: str,
        limit: int = 20,
        before: str | None = None,
        all: bool = False,
        session: str | None = None,
        order: Literal["best", "newest"] = "best",
    ) -> dict[str, Any]:
        """Find what was said, in all conversations or in one. Words are all required; "a phrase",
        -without, a OR b, role:user, title:word and since:2026-01-31 narrow it. Gives the best match
        of each conversation, with `all` every match. `seq` of a hit is its message: session_read
        with `after` a little less shows what stands around it."""
        if before is not None and PLACE.fullmatch(before) is None:
            raise ToolError(
                "before must be the `next` of an earlier answer; nothing was searched"
            )
        async with _told():
            id = None if session is None else await self._views.resolve(session)
            wanted = Wanted(
                text=query,
                limit=_bounded(limit, LIMIT_MAX),
                all=all or id is not None,
                order=order,
                before=before,
                session=id,
            )
            return found_object(await self._service.searches.find(wanted))

    async def session_wait(
        self,
        session: str,
        cursor: str = "0",
        until: Literal["anything", "turn_end"] = "turn_end",
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        """Wait for what is stored after a cursor, and give it: pieces of text, tool calls,
        messages, ends of turns. Returns at the end of a turn or when a call waits for approval,
        with until="anything" as soon as there is something, or after `timeout_s`. Give `cursor` of
        the answer to go on: nothing is missed and nothing comes twice."""
        async with _told():
            id = await self._views.resolve(session)
            return await self._wait(id, from_print(cursor), until, timeout_s)

    async def _wait(
        self, session: str, cursor: Cursor, until: str, timeout_s: float
    ) -> dict[str, Any]:
        transcript, objects = Transcript(), Objects()
        for record in await self._views.recent(session, cursor.seq):
            transcript.apply(record)
            objects.of(record)
        telling = Telling(cursor, transcript, objects)
        told = list[dict[str, Any]]()
        room, ended = CHARS_MAX, False
        deadline_s = time.monotonic() + max(0.0, min(timeout_s, WAIT_S_MAX))
        events = self._views.follow(session, cursor)
        coming = asyncio.ensure_future(anext(events))
        try:
            while room > 0 and len(told) < EVENTS_MAX and not ended:
                left_s = deadline_s - time.monotonic()
                if told and until == "anything":
                    left_s = min(left_s, GATHER_S)
                await asyncio.wait({coming}, timeout=max(left_s, 0.0))
                if not coming.done():
                    break
                new = [one.data for one in telling.told(coming.result())]
                coming = asyncio.ensure_future(anext(events))
                room -= sum(len(one.get("text", "")) for one in new)
                told += new
                ended = any(
                    one["type"] in ("turn_ended", "approval_asked") for one in new
                )
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await events.aclose()  # type: ignore[attr-defined]
        reason = (
            "ended"
            if ended
            else "more"
            if room <= 0 or len(told) >= EVENTS_MAX
            else "time"
        )
        if told and until == "anything" and reason == "time":
            reason = "something"
        return {
            "session": session,
            "events": told,
            "cursor": telling.place.id(),
            "returned": reason,
        }

    async def approvals_list(self, session: str | None = None) -> dict[str, Any]:
        """List the tool calls that wait for a person's approval. They cannot be decided here: the
        person runs `steno approve` or `steno deny`."""
        async with _told():
            id = None if session is None else await self._views.resolve(session)
            found = (await self._service.approvals.pending(id))[:SESSIONS_MAX]
        return {
            "approvals": [
                approval_object(one) | {"session": one.session} for one in found
            ]
        }

    async def as_text(self, session: str) -> str:
        async with _told():
            id = await self._views.resolve(session)
            _, shown = await self._views.shown(id)
        page = _fitting(shown.transcript.messages, last=True)
        left = len(shown.transcript.messages) - len(page)
        lines = [f"# {shown.transcript.title or 'untitled'} ({id})"]
        lines += [f"[{left} earlier messages: session_read has them]"] if left else []
        lines += [
            f"## {one.role} {one.seq} ({one.state})\n{one.text[:CHARS_MAX]}"
            for one in page
        ]
        return "\n\n".join(lines)


class Sending:
    def __init__(self, service: Service, agents: Agents) -> None:
        self._service = service
        self._agents = agents

    async def session_send(
        self, text: str, key: str, session: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Say something in a conversation and have it answered: in `session`, in the one bound to
        `name` (made if there is none), or in a new one. When this returns, it is stored. The same
        `key` with the same text is said once, however often it is sent. session_wait with `cursor`
        gives the answer."""
        if len(text) > TEXT_MAX:
            raise ToolError(
                f"text is longer than {TEXT_MAX:,} characters; nothing was stored"
            )
        async with _told():
            id = (
                None
                if session is None
                else await self._service.views.resolve(session)
            )
            model = self._agents.beginning(id).model
            admitted = await self._service.admit(
                text, id, name, key, model, visit=False
            )
            if not await self._service.turns.is_answered(admitted):
                self._run(admitted.session, admitted.seq)
        return {
            "session": admitted.session,
            "seq": admitted.seq,
            "first": admitted.first,
            "cursor": to_print(Cursor(admitted.seq)),
        }

    def _run(self, session: str, input: int) -> None:
        log = folder(self._agents.where) / f"{session}-{input}.log"
        try:
            start_detached(["carry", session, str(input), "--ask", "wait"], log)
        except OSError as error:
            raise ToolError(
                f"the input is stored as {input} in session {session}, but no process could be "
                f"started for it ({error.strerror or error}); steno continue {session} runs it"
            ) from error


def _bounded(limit: int, most: int) -> int:
    return max(1, min(limit, most))


def _fitting(messages: list[Message], last: bool) -> list[Message]:
    """As many as fit one answer, and one at least: the first of them, or the last."""
    found, room = list[Message](), CHARS_MAX
    for one in reversed(messages) if last else messages:
        if found and len(one.text) > room:
            break
        found.append(one)
        room -= len(one.text)
    return found[::-1] if last else found


def _cut(told: dict[str, Any], message: Message) -> dict[str, Any]:
    if len(message.text) <= CHARS_MAX:
        return told
    return told | {"text": message.text[:CHARS_MAX], "cut_from": len(message.text)}
