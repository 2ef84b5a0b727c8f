"""steno acp: an agent for editors that speak the Agent Client Protocol, on standard input and
output.

A client is told what a follower of the store reads, and nothing else: so every update is stored
before it is sent. There is one follower for each session that the client has open. `session/load`
reads from the first fact and answers when everything stored by then was sent; the same follower
then goes on with what comes, whichever process runs the turn.

    prompt       admit the input (stored), run it, answer when its end was told
    permission   asked for each call that waits in the journal: after a kill, again
    cancel       an interrupt for the turn of that prompt, or its input is taken back
"""

import asyncio
import contextlib
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from acp import RequestError, run_agent
from acp import schema as s
from acp.interfaces import Client
from msgspec.structs import replace

from steno.clients.acp_updates import Updates, asked, carried, settled
from steno.compose import Program, Setup
from steno.config import ConfigError
from steno.frontend.wording import ending, problem
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    InputWithdrawn,
    Mode,
    Record,
    StepSealed,
    ToolSettled,
    TurnEnded,
)
from steno.journal.parts import File, Seq, outcome_parts
from steno.model_choice import Terms
from steno.service import Misused, Service
from steno.service.approvals import ALWAYS_DAYS, always
from steno.service.attachments import Attachment, attachment
from steno.service.views import Approval
from steno.store.errors import NotPending, StoreError, UnknownSession
from steno.store.protocol import Cursor, Event

PLATFORM = "acp"
LINE_BYTES_MAX = 32 << 20
LISTED = 50
LEAVE_S = 3.0
MODELS_MAX = 100
INVALID, INTERNAL, NOT_FOUND = -32602, -32603, -32002
MODES = {
    "ask": "Ask before anything but reading",
    "edits": "Change files without asking",
    "plan": "Only read",
    "everything": "Never ask",
}
OPTIONS = (
    s.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    s.PermissionOption(
        option_id="always",
        name=f"Allow for {ALWAYS_DAYS} days in this session",
        kind="allow_always",
    ),
    s.PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
)


@contextlib.asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """What goes wrong is said to the editor in the words that people are told."""
    try:
        yield
    except UnknownSession as error:
        raise RequestError(NOT_FOUND, problem(error)) from error
    except (Misused, ConfigError) as error:
        raise RequestError(INVALID, problem(error)) from error
    except StoreError as error:
        raise RequestError(INTERNAL, problem(error)) from error


class Watch:
    """One session while a client has it open: what is stored of it goes out in order."""

    def __init__(self, editors: "Editors", session: str, cursor: Cursor) -> None:
        self.id = session
        self.updates = Updates(cursor)
        self.inputs: list[Seq] = []
        """Prompts of this client that are not answered yet."""
        self._editors = editors
        self._service = editors.service
        self._cursor = cursor
        self._moved = asyncio.Condition()
        self._asking: dict[Seq, asyncio.Task[None]] = {}
        self._asks = False
        self._following = asyncio.create_task(self._follow())

    async def caught_up(self) -> None:
        """Return when everything was sent that is stored at this moment; then ask what waits."""
        glance = await self._service.views.glance(self.id)
        ends = {draft.stream: len(draft.text) for draft in glance.drafts}

        def there() -> bool:
            place = self.updates.place.cursor()
            if place.seq != glance.head:
                return place.seq > glance.head
            seen = dict(place.offsets)
            return all(seen.get(stream, 0) >= end for stream, end in ends.items())

        await self._until(there)
        for record in (await self._service.views.load(self.id)).closing:
            if isinstance(
                record.fact, ToolSettled
            ):  # the next runner stores the same
                await self._send_settled(record.fact)

    async def reached(self, seq: Seq) -> None:
        await self._until(lambda: self.updates.place.seq >= seq)

    async def _until(self, holds: Any) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: holds() or self._following.done())
        if self._following.done():
            self._following.result()

    async def _follow(self) -> None:
        try:
            async for event in self._service.views.follow(self.id, self._cursor):
                await self._tell(event)
                async with self._moved:
                    self._moved.notify_all()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                async with self._moved:
                    self._moved.notify_all()

    async def _tell(self, event: Event) -> None:
        fact = event.fact if isinstance(event, Record) else None
        long = isinstance(fact, ToolSettled) and _is_long(fact)
        for update in self.updates.of(event):
            if not (long and isinstance(update, s.ToolCallProgress)):
                await self._editors.client.session_update(
                    session_id=self.id, update=update
                )
        if long and isinstance(fact, ToolSettled):
            await self._send_settled(fact)
        if isinstance(fact, ApprovalAsked) and self._asks:
            await self.ask()
        elif isinstance(fact, ApprovalDecided) and fact.asked in self._asking:
            self._asking[fact.asked].cancel()

    async def _send_settled(self, fact: ToolSettled) -> None:
        """The outcome of a call, with all of a long output."""
        text = ""
        if fact.started is not None:
            with contextlib.suppress(Misused):
                text = (await self._service.views.message(self.id, fact.started)).text
        await self._editors.client.session_update(
            session_id=self.id, update=settled(fact, text)
        )

    # --- permission

    async def ask(self) -> None:
        """Ask about each call that waits and that the client was not asked about yet."""
        self._asks = True
        for one in await self._service.approvals.pending(self.id):
            if one.seq not in self._asking:
                self._asking[one.seq] = asyncio.create_task(self._ask(one))

    async def _ask(self, one: Approval) -> None:
        [record] = await self._service.views.facts(self.id, one.seq)
        step = record.fact.step if isinstance(record.fact, ApprovalAsked) else one.seq
        answer = await self._editors.client.request_permission(
            session_id=self.id, tool_call=asked(one, step), options=list(OPTIONS)
        )
        if not isinstance(answer.outcome, s.AllowedOutcome):
            return  # the turn was cancelled; an interrupt says so
        # a task of its own: the follower ends this one when it reads the decision
        self._editors.beside(self._decide(one, answer.outcome.option_id))

    async def _decide(self, one: Approval, chosen: str) -> None:
        """Store what the person chose, and go on with the turn if no process runs it."""
        rules = always(one) if chosen == "always" else ()
        decision: Literal["allow", "deny"] = (
            "allow" if chosen in ("allow", "always") else "deny"
        )
        await self._service.approvals.decide(self.id, one.seq, decision, rules=rules)
        if await self._service.views.owner(self.id) is None:
            await self._service.turns.run_pending(self.id, self._editors.leaving)

    async def close(self) -> None:
        tasks = [self._following, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Editors:
    """The agent, for one client. `terms` are what the command asked for: a new session begins with
    their model, and with `mode`; after that each has its own."""

    client: Client

    def __init__(
        self, program: Program, setup: Setup, terms: Terms, mode: Mode | None = None
    ) -> None:
        self.leaving = asyncio.Event()
        self._program = program
        self._setup = setup
        self._mode = mode
        self._asked = program.agents(terms)
        self._terms = replace(terms, model=None, runtime=None)
        self._agents = program.agents(self._terms)
        self.service = program.service(PLATFORM, self._terms)
        self._watches: dict[str, Watch] = {}
        self._beside: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer until the client closes our input; then end in order what runs here."""
        try:
            await run_agent(
                self,  # type: ignore[arg-type] # what is not used is in **_
                use_unstable_protocol=True,
                stdio_buffer_limit_bytes=LINE_BYTES_MAX,
            )
        finally:
            self.leaving.set()
            if self._beside:
                await asyncio.wait(self._beside, timeout=LEAVE_S)
            await asyncio.gather(*(one.close() for one in self._watches.values()))

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that no request waits for."""
        task = asyncio.create_task(_quietly(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    # --- sessions

    async def initialize(
        self, protocol_version: int, **_: Any
    ) -> s.InitializeResponse:
        return s.InitializeResponse(
            protocol_version=1,
            agent_info=s.Implementation(
                name="steno", title="steno", version=version("steno-agent")
            ),
            agent_capabilities=s.AgentCapabilities(
                load_session=True,
                prompt_capabilities=s.PromptCapabilities(
                    image=True, embedded_context=True
                ),
                session_capabilities=s.SessionCapabilities(
                    list=s.SessionListCapabilities(),
                    resume=s.SessionResumeCapabilities(),
                    fork=s.SessionForkCapabilities(),
                    close=s.SessionCloseCapabilities(),
                ),
            ),
        )

    async def authenticate(
        self, method_id: str, **_: Any
    ) -> s.AuthenticateResponse | None:
        return None  # keys come from the configuration and the environment

    async def new_session(self, cwd: str, **_: Any) -> s.NewSessionResponse:
        async with _told():
            self._asked.check()
            begun = self._in_folder(cwd)
            id = await begun.begin(self._asked.model_spec())
            if self._mode is not None:
                await self.service.edits.set_mode(id, self._mode)
            await self._open(id, Cursor((await self.service.views.glance(id)).head))
            return s.NewSessionResponse(session_id=id, **await self._settings(id))

    async def load_session(
        self, cwd: str, session_id: str, **_: Any
    ) -> s.LoadSessionResponse:
        async with _told():
            id = await self.service.views.resolve(session_id)
            watch = await self._open(id, Cursor())
            await watch.caught_up()
            settings = await self._settings(id)
        self.beside(watch.ask())
        return s.LoadSessionResponse(**settings)

    async def resume_session(
        self, session_id: str, cwd: str, **_: Any
    ) -> s.ResumeSessionResponse:
        async with _told():
            id = await self.service.views.resolve(session_id)
            glance = await self.service.views.glance(id)
            offsets = tuple(
                (draft.stream, len(draft.text)) for draft in glance.drafts
            )
            watch = await self._open(id, Cursor(glance.head, offsets))
            settings = await self._settings(id)
        self.beside(watch.ask())
        return s.ResumeSessionResponse(**settings)

    async def fork_session(
        self, session_id: str, cwd: str, **_: Any
    ) -> s.ForkSessionResponse:
        async with _told():
            id = await self.service.views.resolve(session_id)
            _loaded, shown = await self.service.views.shown(id)
            if not shown.transcript.messages:
                raise Misused(
                    f"session {id!r} has no message to fork at; nothing was changed"
                )
            fork = await self.service.edits.fork(
                id, shown.transcript.messages[-1].seq
            )
            await self.service.edits.move(fork, str(Path(cwd)))
            await self._open(
                fork, Cursor((await self.service.views.glance(fork)).head)
            )
            return s.ForkSessionResponse(
                session_id=fork, **await self._settings(fork)
            )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> s.ListSessionsResponse:
        if cursor is not None and not (cursor.isdecimal() and len(cursor) < 20):
            raise RequestError(
                INVALID, "cursor must be the nextCursor of an earlier answer"
            )
        before = None if cursor is None else int(cursor)
        async with _told():
            found = await self.service.views.sessions(
                LISTED, before, folder=cwd or ""
            )
        elsewhere = cwd or str(self._setup.where.folder or self._setup.where.home)
        return s.ListSessionsResponse(
            sessions=[
                s.SessionInfo(
                    session_id=one.listed.id,
                    cwd=one.listed.row.folder or elsewhere,
                    title=carried(one.listed.row.title) or None,
                    updated_at=datetime.fromtimestamp(
                        one.listed.row.updated_ms / 1000, UTC
                    ).isoformat(),
                )
                for one in found
                if one.listed.row.messages
            ],
            next_cursor=str(found[-1].listed.mark) if len(found) == LISTED else None,
        )

    async def close_session(
        self, session_id: str, **_: Any
    ) -> s.CloseSessionResponse | None:
        watch = self._watches.pop(session_id, None)
        if watch is not None:
            await self._stop(watch)
            await watch.close()
        return None

    async def _open(self, session: str, cursor: Cursor) -> Watch:
        before = self._watches.pop(session, None)
        if before is not None:
            await before.close()
        self._watches[session] = Watch(self, session, cursor)
        return self._watches[session]

    async def _watch(self, session: str) -> Watch:
        if session not in self._watches:
            raise RequestError(
                NOT_FOUND, f"session {session!r} is not open here; load it first"
            )
        return self._watches[session]

    def _in_folder(self, cwd: str) -> Service:
        folder = Path(cwd)
        if not folder.is_absolute():
            raise Misused("cwd must be an absolute path; nothing was stored")
        return self._program.service(PLATFORM, replace(self._terms, folder=folder))

    # --- modes and options

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> s.SetSessionModeResponse | None:
        if mode_id not in get_args(Mode):
            raise RequestError(
                INVALID, f"there is no mode {mode_id!r}: {', '.join(MODES)}"
            )
        async with _told():
            await self.service.edits.set_mode(session_id, mode_id)  # type: ignore[arg-type]
        return s.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> s.SetSessionConfigOptionResponse | None:
        if config_id == "mode":
            await self.set_session_mode(session_id, str(value))
        elif config_id == "model":
            async with _told():
                self._program.agents(replace(self._terms, model=str(value))).check()
                await self.service.edits.choose_model(session_id, str(value))
        else:
            raise RequestError(
                INVALID, f"there is no option {config_id!r}: mode, model"
            )
        async with _told():
            settings = await self._settings(session_id)
        return s.SetSessionConfigOptionResponse(
            config_options=settings["config_options"]
        )

    async def _settings(self, session: str) -> dict[str, Any]:
        loaded = await self.service.views.load(session)
        mode, model = loaded.state.mode, self._agents.model_spec(loaded.context)
        known = list(dict.fromkeys([model, *self._agents.known_models()]))[
            :MODELS_MAX
        ]
        return {
            "modes": s.SessionModeState(
                current_mode_id=mode,
                available_modes=[
                    s.SessionMode(id=id, name=id.capitalize(), description=text)
                    for id, text in MODES.items()
                ],
            ),
            "config_options": [
                _select("mode", "Mode", mode, {id: id.capitalize() for id in MODES}),
                _select("model", "Model", model, {one: one for one in known}),
            ],
        }

    # --- turns

    async def prompt(
        self, session_id: str, prompt: list[Any], **_: Any
    ) -> s.PromptResponse:
        watch = await self._watch(session_id)
        async with _told():
            text, attachments = said(prompt)
            context = (await self.service.views.load(session_id)).context
            self._agents.check(context)
            key = uuid4().hex
            watch.updates.own.add(key)  # the follower may be faster than we are
            admitted = await self.service.admit(
                text, session_id, None, key, "", attachments=attachments
            )
            watch.inputs.append(admitted.seq)
            await watch.ask()
            try:
                answer = self.service.turns.answer(admitted, self.leaving)
                return await self._answered(watch, answer)
            finally:
                watch.inputs.remove(admitted.seq)

    async def _answered(
        self, watch: Watch, events: AsyncIterator[Event]
    ) -> s.PromptResponse:
        """How a turn ended, once all of it was sent."""
        cut = False
        async for event in events:
            if not isinstance(event, Record):
                continue
            fact = event.fact
            if isinstance(fact, StepSealed):
                cut = fact.ended == "length"
            elif isinstance(fact, InputWithdrawn):
                await watch.reached(event.seq)
                return s.PromptResponse(stop_reason="cancelled")
            elif isinstance(fact, TurnEnded):
                await watch.reached(event.seq)
                if fact.outcome == "done":
                    return s.PromptResponse(
                        stop_reason="max_tokens" if cut else "end_turn"
                    )
                if fact.outcome == "interrupted" and fact.cause == "user":
                    return s.PromptResponse(stop_reason="cancelled")
                raise await self._failed(watch.id, fact)
        raise RequestError(
            INTERNAL, f"the turn was left; everything is kept in session {watch.id}"
        )

    async def _failed(self, session: str, ended: TurnEnded) -> RequestError:
        model = self._agents.model_spec(
            (await self.service.views.load(session)).context
        )
        said = ending(ended, session, model, self._agents.provider(model))
        return RequestError(
            INTERNAL, said, {"session": session, "cause": ended.cause}
        )

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._watches:
            async with _told():
                await self._stop(self._watches[session_id])

    async def _stop(self, watch: Watch) -> None:
        """Stop the turns of the client's own prompts, or take those back that wait. A turn that no
        prompt of this client waits for is stopped only if there is no such prompt."""
        turns = self.service.turns
        for input in list(watch.inputs):
            try:
                await self.service.withdraw(watch.id, input)
            except NotPending:
                await turns.interrupt(watch.id, input=input)
        if not watch.inputs and await turns.interrupt(watch.id) is not None:
            self.beside(turns.run_pending(watch.id, self.leaving))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return None


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """What fails beside a request has failed in the journal, too, or is asked for again."""
    with contextlib.suppress(
        StoreError, Misused, ConfigError, RequestError, ConnectionError
    ):
        await work


def _select(
    id: str, name: str, current: str, values: dict[str, str]
) -> s.SessionConfigOptionSelect:
    return s.SessionConfigOptionSelect(
        type="select",
        id=id,
        name=name,
        category=id,  # type: ignore[arg-type]
        current_value=current,
        options=[
            s.SessionConfigSelectOption(value=value, name=shown)
            for value, shown in values.items()
        ],
    )


def _is_long(fact: ToolSettled) -> bool:
    return any(isinstance(one, File) for one in outcome_parts(fact.outcome))


# --- what a client says ---------------------------------------------------------------------------


def said(blocks: Sequence[Any]) -> tuple[str, list[Attachment]]:
    """The text of a prompt, and what comes with it."""
    texts, attachments = list[str](), list[Attachment]()
    for number, block in enumerate(blocks, start=1):
        match block:
            case s.TextContentBlock():
                texts.append(block.text)
            case s.ResourceContentBlock():
                texts.append(f"[{block.name}]({block.uri})")
            case s.ImageContentBlock():
                attachments.append(attachment(f"image-{number}", _bytes(block.data)))
            case s.EmbeddedResourceContentBlock():
                held = block.resource
                name = _name(held.uri) or f"resource-{number}"
                text = (
                    held.text.encode()
                    if isinstance(held, s.TextResourceContents)
                    else None
                )
                texts.append(f"[{name}]({held.uri})")
                if text is None or text:
                    data = text if text is not None else _bytes(held.blob)
                    attachments.append(attachment(name, data))
            case _:
                raise Misused(
                    "a prompt takes text, images and resources; nothing was stored"
                )
    return "".join(texts), attachments


def _name(uri: str) -> str:
    return unquote(urlsplit(uri).path.rsplit("/", 1)[-1])


def _bytes(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (NotBase64, ValueError) as error:
        raise Misused("an attachment is not base64; nothing was stored") from error
