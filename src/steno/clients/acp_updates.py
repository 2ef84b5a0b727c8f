"""What is stored, in the words of the Agent Client Protocol. Pure: an event in, updates out.

A message keeps its address: `messageId` is the seq of the input or of the step. A call is known by
its step and its id there, because models reuse ids. Text is told once, in order, however it was
cut: what a seal holds beyond the pieces that came is told before it.
"""

import json
from typing import Any, Literal

from acp import schema as s
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_current_mode,
    update_plan,
    update_tool_call,
)

from steno.gateway.streams import sealed_streams
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    ItemKept,
    MessageGiven,
    ModeSet,
    PlanUpdated,
    Record,
    SessionRenamed,
    SessionTitled,
    StepSealed,
    ToolSettled,
    ToolStarted,
)
from steno.journal.parts import (
    Content,
    File,
    Image,
    Refused,
    Returned,
    Seq,
    ToolCall,
    reasoning_of,
    text_of,
)
from steno.journal.readers import read
from steno.journal.transcript import outcome_text
from steno.service.views import Approval
from steno.session.cursors import Place
from steno.store.protocol import Cursor, Event, Piece

OUTPUT_CHARS_MAX = 20_000
"""Of the output of a call while it runs: an update replaces what the one before it said."""
TITLE_CHARS_MAX = 200

Update = (
    s.UserMessageChunk
    | s.AgentMessageChunk
    | s.AgentThoughtChunk
    | s.ToolCallStart
    | s.ToolCallProgress
    | s.AgentPlanUpdate
    | s.CurrentModeUpdate
    | s.SessionInfoUpdate
)

KINDS: dict[str, s.ToolKind] = {
    "shell": "execute",
    "read_file": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "list_files": "read",
    "find_text": "search",
    "search": "search",
    "read_output": "read",
    "fetch": "fetch",
}
_STEPS: dict[str, s.PlanEntryStatus] = {
    "completed": "completed",
    "inProgress": "in_progress",
}


def call_id(step: Seq, call: str) -> str:
    return f"{step}:{call}"


def carried(text: str) -> str:
    """Text as UTF-8 can carry it: a lone surrogate has a sign in its place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Updates:
    """For one client of one session. `own` are the keys of inputs that the client sent and shows
    itself."""

    def __init__(self, cursor: Cursor) -> None:
        self.place = Place(cursor)
        self.own: set[str] = set()
        self._calls: dict[Seq, str] = {}
        self._outputs: dict[Seq, str] = {}
        self._called_in: dict[str, Seq] = {}

    def of(self, event: Event) -> list[Update]:
        if isinstance(event, Piece):
            return self._piece(event.stream, event.offset, event.text)
        told: list[Update] = []
        for stream, text in sealed_streams(event):
            if stream.kind != "output":
                told += self._piece(stream, 0, text)
        self.place.fact(event)
        return told + self._fact(event)

    def _piece(self, stream: Stream, offset: int, text: str) -> list[Update]:
        _, new = self.place.piece(stream, offset, text)
        if not new:
            return []
        if stream.kind == "output":
            return self._output(stream.started, new)
        return [
            _said(
                "thought" if stream.kind == "reasoning" else "agent",
                stream.started,
                new,
            )
        ]

    def _output(self, started: Seq, new: str) -> list[Update]:
        before = self._outputs.get(started, "")
        if len(before) >= OUTPUT_CHARS_MAX or started not in self._calls:
            return []
        self._outputs[started] = (before + new)[:OUTPUT_CHARS_MAX]
        content = _content(self._outputs[started])
        return [
            update_tool_call(
                self._calls[started], status="in_progress", content=content
            )
        ]

    def _fact(self, record: Record) -> list[Update]:
        fact = record.fact
        if isinstance(fact, InputAdmitted):
            if fact.key in self.own:
                return []
            return _spoken("user", record.seq, fact.parts)
        if isinstance(fact, MessageGiven):
            return _spoken(
                "user" if fact.role == "user" else "agent", record.seq, fact.parts
            )
        if isinstance(fact, ItemKept):
            return self._read(record.seq, fact)
        if isinstance(fact, StepSealed):
            return [
                started(fact.step, one)
                for one in fact.parts
                if isinstance(one, ToolCall)
            ]
        if isinstance(fact, ToolStarted):
            self._calls[record.seq] = call_id(fact.step, fact.call)
            return [update_tool_call(self._calls[record.seq], status="in_progress")]
        if isinstance(fact, ToolSettled):
            self._outputs.pop(fact.started or 0, None)
            return [settled(fact, settled_text(fact))]
        if isinstance(fact, PlanUpdated):
            steps = (
                plan_entry(carried(one.step), status=_step(one.status))
                for one in fact.steps
            )
            return [update_plan(steps)]
        if isinstance(fact, ModeSet):
            return [update_current_mode(fact.mode)]
        if isinstance(fact, SessionRenamed | SessionTitled):
            title = carried(fact.title)
            return [
                s.SessionInfoUpdate(session_update="session_info_update", title=title)
            ]
        return []

    def _read(self, seq: Seq, fact: ItemKept) -> list[Update]:
        """What a reader makes of an item of another program. What it does not know is not told: an
        editor has no place for what is nobody's speech."""
        told: list[Update] = []
        for one in read(fact):
            if one.role == "user":
                told += _spoken("user", seq, one.parts)
            elif one.role == "assistant":
                told += _thought(one.parts, seq) + _spoken("agent", seq, one.parts)
                for part in one.parts:
                    if isinstance(part, ToolCall):
                        self._called_in[part.id] = seq
                        told.append(started(seq, part))
            elif one.role == "tool" and one.call in self._called_in:
                id = call_id(self._called_in[one.call], one.call)
                status: s.ToolCallStatus = "failed" if one.failed else "completed"
                content = _content(text_of(one.parts))
                told.append(update_tool_call(id, status=status, content=content))
        return told


def _thought(parts: tuple[Content, ...], seq: Seq) -> list[Update]:
    thought = reasoning_of(parts)
    return [_said("thought", seq, thought)] if thought else []


def started(step: Seq, call: ToolCall) -> s.ToolCallStart:
    return start_tool_call(
        call_id(step, call.id),
        title(call.name, call.arguments),
        kind=KINDS.get(call.name, "other"),
        status="pending",
        raw_input=_parsed(call.arguments),
    )


def settled_text(fact: ToolSettled) -> str:
    return text_of(outcome_text(fact.outcome) if fact.shown is None else fact.shown)


def settled(fact: ToolSettled, text: str) -> s.ToolCallProgress:
    """How a call ended. One that was refused, stopped or lost has failed."""
    status: s.ToolCallStatus = (
        "completed" if isinstance(fact.outcome, Returned) else "failed"
    )
    if not text and isinstance(fact.outcome, Refused):
        text = fact.outcome.reason
    return update_tool_call(
        call_id(fact.step, fact.call), status=status, content=_content(text)
    )


def asked(one: Approval, step: Seq) -> s.ToolCallUpdate:
    """A call, as a question about it names it."""
    return s.ToolCallUpdate(
        tool_call_id=call_id(step, one.call),
        title=title(one.tool, one.arguments, one.why),
        kind=KINDS.get(one.tool, "other"),
        status="pending",
        raw_input=_parsed(one.arguments),
    )


def title(tool: str, arguments: str, why: str = "") -> str:
    parsed = _parsed(arguments)
    first = next(iter(parsed.values()), "") if isinstance(parsed, dict) else arguments
    line = " ".join(f"{tool} {first}".split())
    because = f" ({' '.join(why.split())})" if why else ""
    return carried((line + because)[:TITLE_CHARS_MAX])


def _said(who: Literal["user", "agent", "thought"], seq: Seq, text: str) -> Update:
    content, id = text_block(carried(text)), str(seq)
    if who == "user":
        return s.UserMessageChunk(
            session_update="user_message_chunk", content=content, message_id=id
        )
    if who == "thought":
        return s.AgentThoughtChunk(
            session_update="agent_thought_chunk", content=content, message_id=id
        )
    return s.AgentMessageChunk(
        session_update="agent_message_chunk", content=content, message_id=id
    )


def _spoken(
    who: Literal["user", "agent"], seq: Seq, parts: tuple[Content, ...]
) -> list[Update]:
    named = "".join(
        f"[attached: {one.name}]\n" for one in parts if isinstance(one, Image | File)
    )
    text = named + text_of(parts)
    return [_said(who, seq, text)] if text else []


def _content(text: str) -> list[Any]:
    return [tool_content(text_block(carried(text)))] if text else []


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(carried(arguments) or "{}")
    except ValueError:
        return carried(arguments)


def _step(status: str) -> s.PlanEntryStatus:
    return _STEPS.get(status, "pending")
