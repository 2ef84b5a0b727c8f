"""`steno.AsyncAgent`: our own loop, with Python functions as tools, over any store.

    model = "openai-chat:gpt-5.6-terra"
    async with steno.AsyncAgent("chats.db", model=model, tools=[weather]) as agent:
        answer = await agent.run("alice", "Will it rain in Oslo?")

It is the loop that `steno` itself runs: what was shown is stored first, a kill loses nothing of it,
and `resume` goes on. Whatever one process began, another one can watch, decide about, stop or
take up, and so can the `steno` command. It runs under asyncio, and under trio with
`steno-agent[trio]`.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.agents import Models, model_settings
from steno.compose import postgres_store
from steno.config import load, place
from steno.engine.action import Limits
from steno.journal.facts import (
    ApprovalAsked,
    ContextSet,
    InputAdmitted,
    InputWithdrawn,
    Record,
    SessionStarted,
    StepSealed,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq, Text, text_of
from steno.journal.transcript import Message
from steno.journal.usage import UsageTotal
from steno.library import SOURCE, AsyncSession
from steno.library.given import a_str, some_settings
from steno.models.protocol import Model
from steno.models.specs import kind_of
from steno.programs.functions import (
    FunctionTool,
    as_tool,
    decoded,
    of_plugins,
    schema_of,
)
from steno.runtimes import loop
from steno.runtimes.dispatch import Dispatch
from steno.service.approvals import Approvals
from steno.service.views import Approval, Views
from steno.session.errors import Refusal
from steno.session.live import Live
from steno.session.load import Sessions
from steno.store.errors import NotAllowed
from steno.store.facade import AsyncStore
from steno.store.memory import MemoryStore, Place
from steno.store.protocol import Admission, Admitted, Event, Piece, Settings
from steno.store.sqlite.store import SqliteStore
from steno.tools.output import KeepingTool
from steno.tools.protocol import Tool
from steno.tools.read_output import ReadOutput

if TYPE_CHECKING:
    from steno.programs.elsewhere import AgentElsewhere

T = TypeVar("T")

MEMORY = ":memory:"
OUTPUT_CHARS_MAX = 30_000
"""Of what a tool gives: more is stored as a payload, and a model is told its head and its tail."""
MENDED_MAX = 2
"""How often a model is told that its answer is not of the type that was asked for."""

Decides = Callable[[Approval], bool | str | Awaitable[bool | str]]
"""Says of a call whether it may run: True, False, or why not."""
Approve = Literal["refuse", "allow", "wait", "leave"] | Decides
Outcome = Literal["done", "failed", "interrupted", "waiting", "withdrawn", "left"]


class Answer(Struct, frozen=True):
    """What came of an input. `waiting`: calls in `asked` need a yes; decide, then resume. `value`
    is what the answer says, where a type was asked for."""

    session: str
    turn: Seq
    text: str
    outcome: Outcome
    cause: str = ""
    detail: str = ""
    usage: UsageTotal = msgspec.field(default_factory=UsageTotal)
    asked: tuple[Approval, ...] = ()
    value: Any = None


class TurnFailed(Exception):
    """The model gave no answer, or none of the type that was asked for. Everything that came is
    stored; `answer` has it."""

    def __init__(self, answer: Answer, why: str) -> None:
        super().__init__(f"{why}; what was said is kept in session {answer.session}")
        self.answer = answer


class AsyncAgent:
    """`store` is a path, ":memory:", or postgresql://… . `model` is KIND:NAME, or a `Model`.

    `approve` decides about calls of tools with approval="ask": "refuse", "allow", "wait" until some
    process decides, "leave" the turn open and return, or a function that is asked. `limits` has the
    budget. `plugins` names those that bring tools. Keys and addresses of models come from the
    environment and steno's configuration.
    """

    def __init__(
        self,
        store: str | PathLike[str],
        model: str | Model = "",
        system: str = "",
        tools: Sequence[Callable[..., Any] | FunctionTool] = (),
        approve: Approve = "refuse",
        limits: Limits | None = None,
        settings: Settings | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        if not (callable(approve) or approve in ("refuse", "allow", "wait", "leave")):
            raise ValueError(
                'approve must be "refuse", "allow", "wait", "leave" or a function'
            )
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(
                f"limits must be steno.Limits, not {type(limits).__name__}"
            )
        if not isinstance(store, str | PathLike):
            raise TypeError(
                f"store must be a str or a path, not {type(store).__name__}"
            )
        if not isinstance(model, str) and not hasattr(model, "spec"):
            raise TypeError(
                f"model must be a str or a Model, not {type(model).__name__}"
            )
        self._at = store
        self._settings = some_settings(settings)
        self._system = a_str("system", system)
        given = [*map(as_tool, tools), *of_plugins(plugins)]
        self._tools = {one.spec.name: one for one in given}
        if len(self._tools) != len(given):
            raise ValueError("two tools have the same name")
        self._approve = approve
        self._limits = limits or Limits()
        self._made = None if isinstance(model, str) else model
        self.model = model if isinstance(model, str) else model.spec
        self._models: Models | None = None
        self._leaving = asyncio.Event()
        self._running: set[asyncio.Future[None]] = set()
        self._elsewhere: AgentElsewhere | None = None

    async def __aenter__(self) -> "AsyncAgent":
        if not _on_asyncio():
            return await self._opened_elsewhere()
        where = place()
        config = await asyncio.to_thread(load, where)
        self.model = self.model or config.model.default
        if self._made is None:
            self._models = Models(model_settings(config, where))
            self._made = self._models.get(self.model)
        self.store = await self._opened()
        self._sessions = Sessions(self.store, self.store.settings.lease_ms)
        native = loop.Native(self.store, self._agent)
        self._live = Live(self._sessions, Dispatch(self._sessions, lambda _: native))
        self.approvals = Approvals(self.store, Views(self._sessions))
        return self

    async def _opened_elsewhere(self) -> "AsyncAgent":
        """One with the same verbs, for the event loop that there is."""
        from steno.programs.elsewhere import AgentElsewhere, Here

        here = Here()
        self._tools = {name: here.tool(tool) for name, tool in self._tools.items()}
        if callable(self._approve):
            self._approve = here.function(self._approve)
        self._elsewhere = AgentElsewhere(self)
        return cast(AsyncAgent, await self._elsewhere.open())

    async def _opened(self) -> AsyncStore:
        address = str(self._at)
        if address == MEMORY:
            return await MemoryStore.open(Place(), self._settings)
        if "://" in address:
            return await postgres_store(address).open(address, self._settings)
        return await SqliteStore.open(Path(self._at), self._settings)

    async def __aexit__(self, *_: object) -> None:
        await (self.close() if self._elsewhere is None else self._elsewhere.close())

    async def close(self) -> None:
        """Turns that run here end as interrupted, in order; `resume` takes them up."""
        self._leaving.set()
        if self._running:
            await asyncio.wait(self._running, timeout=5.0)
        if self._models is not None:
            await asyncio.gather(*(model.close() for model in self._models.all()))
        await self.store.close()

    def _agent(self, before: ContextSet | None) -> loop.Agent:
        if self._made is None:
            raise NotAllowed("this agent is not open: use `async with`")
        kind = kind_of(self.model)
        tools: dict[str, Tool] = (
            dict(self._tools) if kind is None or kind.able else {}
        )
        context = ContextSet(
            self.model,
            self._system,
            tuple(tool.spec for tool in tools.values()),
            folder="" if before is None else before.folder,
        )
        asks = self._approve not in ("refuse", "allow")
        approval: Any = "ask" if asks else self._approve
        session_tools = self._in_session if tools else None
        return loop.Agent(
            context,
            self._made,
            tools,
            approval,
            self._limits,
            session_tools=session_tools,
        )

    async def _in_session(
        self, session: str, before: ContextSet | None
    ) -> dict[str, Tool]:
        async def keep(payload: bytes) -> str:
            return await self.store.put(session, payload)

        own: list[Tool] = [
            *self._tools.values(),
            ReadOutput(self.store, session, OUTPUT_CHARS_MAX),
        ]
        return {
            one.spec.name: KeepingTool(one, OUTPUT_CHARS_MAX, keep) for one in own
        }

    # --- sessions

    async def session(self, session: "str | AsyncSession") -> AsyncSession:
        """The session bound to a name, made if there is none: messages and all else of it."""
        return AsyncSession.over(self.store, await self._id(session))

    async def messages(self, session: Any) -> list[Message]:
        """Everything said in a session so far."""
        return await (await self.session(session)).messages()

    async def _bound(self, name: str) -> str:
        found = await self.store.find(name)
        return found or await self.store.ensure(
            SessionStarted(SOURCE, self.model, name)
        )

    async def _id(self, session: Any) -> str:
        if isinstance(session, str):
            return await self._bound(session)
        return str(a_session(session).id)

    # --- turns

    def stream(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: Any = None,
    ) -> "AsyncTurn":
        """Say something, and have it answered. Iterate over what comes back for the pieces of text,
        each durable before you see it; `await turn.answer()` gives all of it at the end. The
        same `key` is said once: a second time gives the answer that there is."""
        a_session(session)
        instructions = "" if output is None else _asks_for(output)
        words = InputAdmitted(
            (Text(a_str("text", text)),),
            SOURCE,
            None if key is None else a_str("key", key),
            None if author is None else a_str("author", author),
            instructions=instructions or None,
        )

        async def begin(turn: AsyncTurn) -> AsyncGenerator[Event, None]:
            id = turn.session = await self._id(session)
            said = replace(words, source=f"{SOURCE}/{id}")
            if (
                not instructions
                and (await self._sessions.load(id)).state.instructions
            ):
                said = replace(said, instructions="")
            await self._sessions.check(id)
            admitted = await self.store.admit(Admission(input=said, session=id))
            return self._live.answer(admitted, turn.leaving)

        return AsyncTurn(self, begin, output)

    async def run(
        self,
        session: Any,
        text: str,
        key: str | None = None,
        author: str | None = None,
        output: type[T] | None = None,
    ) -> Answer:
        """Say something and wait for the answer. With `output`, a msgspec or pydantic type,
        `answer.value` is of that type; a model whose answer is not is told why, and asked again.
        Raises `TurnFailed` where no such answer came."""
        answer = await self.stream(session, text, key, author, output).answer()
        for attempt in range(1, MENDED_MAX + 1):
            if output is None or answer.outcome != "done" or answer.value is not None:
                break
            again = None if key is None else f"{key}#{attempt}"
            wrong = f"That is not what was asked for: {answer.detail}. Answer with the JSON alone."
            answer = await self.stream(session, wrong, again, output=output).answer()
        return checked(answer, output)

    def resume(self, session: Any) -> "AsyncTurn":
        """Go on with what was cut off, waits for a decision, or was never answered. Raises
        `Refusal` if there is nothing."""

        async def begin(turn: AsyncTurn) -> AsyncGenerator[Event, None]:
            id = turn.session = await self._id(session)
            loaded = await self._sessions.load(id)
            state = loaded.state
            if loaded.owner is not None:
                return self._live.follow(id, None, turn.leaving)
            if state.turn is not None and loaded.waits():
                return self._live.carry_on(id, state.turn.seq, turn.leaving)
            try:
                return self._live.resume(
                    id, self._live.continuation(loaded), turn.leaving
                )
            except Refusal:
                if not state.pending:
                    raise
            return self._live.answer(
                Admitted(id, min(state.pending), True), turn.leaving
            )

        return AsyncTurn(self, begin, None)

    async def interrupt(self, session: Any) -> bool:
        """Ask the running turn to stop, whichever process runs it; whether there is one."""
        return await self._live.interrupt(await self._id(session)) is not None

    async def asked(self, session: Any) -> list[Approval]:
        """The calls that wait for a decision."""
        return await self.approvals.pending(await self._id(session))

    async def decide(self, call: Approval, allow: bool, reason: str = "") -> bool:
        """Say whether a call may run. False if another decided otherwise before."""
        return await self.approvals.decide(
            call.session, call.seq, "allow" if allow else "deny", reason, by=SOURCE
        )

    async def decide_by(self, call: Approval) -> None:
        """Have the function decide that this agent was given, if it was given one. One that fails
        denies."""
        if not callable(self._approve):
            return
        try:
            if inspect.iscoroutinefunction(self._approve):
                said = await self._approve(call)
            else:
                said = await asyncio.to_thread(self._approve, call)
                said = await said if inspect.isawaitable(said) else said
        except Exception as error:  # noqa: BLE001 - whatever it is, the call must not run
            said = f"it could not be decided: {type(error).__name__}: {error}"
        reason = said if isinstance(said, str) else ""
        await self.decide(call, said is True, reason)

    def leaves(self) -> bool:
        """Whether a turn that needs a decision is left open."""
        return self._approve == "leave"

    def closing(self) -> asyncio.Event:
        return self._leaving

    def track(self, turn: "asyncio.Future[None]") -> None:
        self._running.add(turn)
        turn.add_done_callback(self._running.discard)


class AsyncTurn:
    """One turn, as it is stored. Iterate over it for the text, over `events` for everything."""

    def __init__(
        self,
        agent: AsyncAgent,
        begin: "Callable[[AsyncTurn], Awaitable[AsyncGenerator[Event, None]]]",
        output: Any,
    ) -> None:
        self._agent = agent
        self._begin = begin
        self._output = output
        self._shown: dict[Seq, int] = {}
        self._usage = UsageTotal()
        self._ended: TurnEnded | None = None
        self._asking: dict[Seq, asyncio.Task[None]] = {}
        self._open: set[Seq] = set()
        self._reading = self._events()
        self.leaving = asyncio.Event()
        self.session = ""
        self.turn: Seq = 0
        self._text = ""
        self._withdrawn = False
        self._waits = False

    def events(self) -> AsyncIterator[Event]:
        """Every fact and every piece of this turn, each durable before it comes."""
        return self._reading

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self._reading:
            if text := self.text_in(event):
                yield text

    def text_in(self, event: Event) -> str:
        """The text of the answer that an event adds: of a sealed answer, what no piece had."""
        if isinstance(event, Piece):
            if event.stream.kind != "text":
                return ""
            self._shown[event.stream.started] = event.offset + len(event.text)
            return event.text
        fact = event.fact
        if not isinstance(fact, StepSealed):
            return ""
        return text_of(fact.parts)[self._shown.get(fact.step, 0) :]

    async def answer(self) -> Answer:
        """What came of it, once it is over."""
        async for _ in self._reading:
            pass
        ended, asked = self._ended, tuple[Approval, ...]()
        outcome: Outcome = "left" if ended is None else ended.outcome
        if ended is None and self._withdrawn:
            outcome = "withdrawn"
        elif ended is None:
            asked = tuple(await self._agent.approvals.pending(self.session))
            outcome = "waiting" if asked else "left"
        cause, detail = ("", "") if ended is None else (ended.cause, ended.detail)
        value = None
        if outcome == "done" and self._output is not None:
            try:
                value = decoded(_bare(self._text), self._output)
            except (ValueError, msgspec.MsgspecError) as error:
                detail = str(error)
        return Answer(
            self.session,
            self.turn,
            self._text,
            outcome,
            cause,
            detail,
            self._usage,
            asked,
            value,
        )

    async def _events(self) -> AsyncGenerator[Event, None]:
        over = asyncio.get_running_loop().create_future()
        self._agent.track(over)
        told = asyncio.ensure_future(self._until_closing())
        try:
            events = await self._begin(self)
            await self._ask_what_waits()
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Record):
                        self._take(event)
                    yield event
        finally:
            for task in (told, *self._asking.values()):
                task.cancel()
            await asyncio.gather(told, *self._asking.values(), return_exceptions=True)
            over.set_result(None)

    async def _until_closing(self) -> None:
        await self._agent.closing().wait()
        self.leaving.set()

    def _take(self, record: Record) -> None:
        self._usage.apply(record)
        fact = record.fact
        if isinstance(fact, TurnStarted):
            self.turn = record.seq
        elif isinstance(fact, TurnEnded):
            self._ended = fact
        elif isinstance(fact, StepSealed):
            self._text = text_of(fact.parts)
        elif isinstance(fact, ApprovalAsked):
            self._ask(record.seq)
        elif isinstance(fact, ToolStarted):
            self._open.add(record.seq)
        elif isinstance(fact, ToolSettled):
            self._open.discard(fact.started or 0)
        elif isinstance(fact, InputWithdrawn):
            self._withdrawn = True
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        """Leave a turn that needs a decision, once nothing else of it runs."""
        if self._waits and not self._open:
            self.leaving.set()

    async def _ask_what_waits(self) -> None:
        for one in await self._agent.approvals.pending(self.session):
            self._ask(one.seq)

    def _ask(self, asked: Seq) -> None:
        if asked not in self._asking:
            self._asking[asked] = asyncio.create_task(self._decided(asked))

    async def _decided(self, asked: Seq) -> None:
        for one in await self._agent.approvals.pending(self.session):
            if one.seq == asked:
                self._waits = self._agent.leaves()
                self._leave_if_idle()
                await self._agent.decide_by(one)


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def checked(answer: Answer, output: Any) -> Answer:
    """The answer, or `TurnFailed`."""
    if answer.outcome == "failed":
        raise TurnFailed(answer, f"no answer came: {answer.detail or answer.cause}")
    if output is not None and answer.outcome == "done" and answer.value is None:
        raise TurnFailed(
            answer, f"the answer is not of the type asked for: {answer.detail}"
        )
    return answer


def a_session(session: Any) -> Any:
    if not isinstance(session, str) and not isinstance(
        getattr(session, "id", None), str
    ):
        raise TypeError(
            f"session must be a name or a session, not {type(session).__name__}"
        )
    return session


def _asks_for(output: Any) -> str:
    try:
        schema = schema_of(output)
    except TypeError as error:
        raise TypeError(
            f"output must be a msgspec or a pydantic type: {error}"
        ) from error
    return (
        "Answer with one JSON value and nothing else: no words around it, no code fence. "
        f"It must fit this JSON schema: {schema}"
    )


def _bare(text: str) -> str:
    """JSON without a fence that a model put around it all the same."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.partition("\n")[2][:-3].strip()
    return text
