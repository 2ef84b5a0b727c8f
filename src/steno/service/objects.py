"""What programs are told, as JSON objects: one vocabulary for `--json`, for ndjson and for HTTP."""

import time
from datetime import datetime
from typing import Any

import msgspec

from steno.journal.facts import (
    ApprovalAsked,
    ContextSet,
    PlanUpdated,
    Record,
    StepLost,
    StepSealed,
    ToolSettled,
    ToolStarted,
    TurnEnded,
)
from steno.journal.parts import File, Image, Opaque, ToolCall, text_of
from steno.journal.state import HeldRule
from steno.journal.transcript import Message, outcome_text
from steno.journal.usage import UsageTotal
from steno.service.views import Approval, Shown, Summary, approvals_of
from steno.session.load import Loaded
from steno.store.protocol import Event, Piece

Object = dict[str, Any]

_PIECES = {"text": "text", "reasoning": "reasoning", "output": "tool_output"}


def rule_object(rule: str, one: HeldRule) -> Object:
    return {"rule": rule, "verdict": one.verdict, "until_ms": one.until_ms or None}


def rule_line(rule: str, one: HeldRule) -> str:
    """For people: what it says, and how long."""
    if not one.until_ms:
        return f"{one.verdict:<5}  {rule}"
    over = one.over(time.time_ns() // 1_000_000)
    return f"{one.verdict:<5}  {rule}  ({'ended' if over else 'until'} {day(one.until_ms)})"


def day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1_000).astimezone():%Y-%m-%d}"


class Objects:
    """The objects of events, in order. It remembers the calls of answers, because later facts only
    name them."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}

    def of(self, event: Event) -> list[Object]:
        if isinstance(event, Piece):
            at = {
                "seq": event.stream.started,
                "offset": event.offset,
                "text": event.text,
            }
            return [{"type": _PIECES[event.stream.kind], **at}]
        return self._of_fact(event)

    def _of_fact(self, record: Record) -> list[Object]:
        fact, seq = record.fact, record.seq
        if isinstance(fact, StepLost):
            return [
                {
                    "type": "lost",
                    "seq": fact.step,
                    "cause": fact.cause,
                    "detail": fact.detail,
                }
            ]
        if isinstance(fact, ContextSet) and fact.instead_of:
            by = {"model": fact.model, "instead_of": fact.instead_of}
            return [{"type": "fallback", "seq": seq, **by}]
        if isinstance(fact, PlanUpdated):
            return [{"type": "plan", "seq": seq} | plan_object(fact)]
        if isinstance(fact, StepSealed):
            return self._sealed(fact)
        if isinstance(fact, ApprovalAsked):
            called = self._called(fact.call)
            return [
                {
                    "type": "approval_asked",
                    "seq": seq,
                    **called,
                    "reason": fact.reason,
                }
            ]
        if isinstance(fact, ToolStarted):
            return [{"type": "tool_started", "seq": seq, **self._called(fact.call)}]
        if isinstance(fact, ToolSettled):
            outcome = type(fact.outcome).__name__.lower()
            text = text_of(outcome_text(fact.outcome))
            came = {"call": fact.call, "outcome": outcome, "text": text}
            return [{"type": "tool_settled", "seq": seq, **came}]
        return [ending_object(fact)] if isinstance(fact, TurnEnded) else []

    def _sealed(self, sealed: StepSealed) -> list[Object]:
        self._calls.update(calls_in(sealed))
        items = [
            {
                "type": "item",
                "seq": sealed.step,
                "runtime": one.runtime,
                "kind": one.kind,
                "json": one.json,
            }
            for one in sealed.parts
            if isinstance(one, Opaque)
        ]
        return [*items, {"type": "sealed", "seq": sealed.step, "ended": sealed.ended}]

    def _called(self, call: str) -> Object:
        found = self._calls.get(call)
        name, arguments = ("", "") if found is None else (found.name, found.arguments)
        return {"call": call, "name": name, "arguments": arguments}


def ending_object(ending: TurnEnded) -> Object:
    return {
        "type": "turn_ended",
        "outcome": ending.outcome,
        "cause": ending.cause,
        "detail": ending.detail,
    }


def plan_object(plan: PlanUpdated) -> Object:
    steps = [{"step": one.step, "status": one.status} for one in plan.steps]
    return {"explanation": plan.explanation, "steps": steps}


def calls_in(sealed: StepSealed) -> dict[str, ToolCall]:
    return {part.id: part for part in sealed.parts if isinstance(part, ToolCall)}


def to_json(value: object) -> str:
    """JSON in ASCII where the text has lone surrogates, which UTF-8 cannot carry."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(value)


def listed_object(one: Summary) -> Object:
    row = one.listed.row
    return {
        "id": one.listed.id,
        "title": row.title,
        "name": row.name,
        "model": row.model,
        "fallback": row.fallback or None,
        "platform": row.platform,
        "folder": row.folder or None,
        "messages": row.messages,
        "turns": row.turns,
        "last_turn": row.last_turn,
        "running": one.listed.owner is not None,
        "ended": row.ended,
        "waiting": one.waits,
        "context_tokens": row.context,
        "usage": None if row.usage is None else usage_object(row.usage),
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
        "forked_from": None
        if row.forked_from is None
        else {"session": row.forked_from.session, "seq": row.forked_from.seq},
    }


def usage_object(usage: UsageTotal) -> dict[str, int | None]:
    return {
        "calls": usage.calls,
        "unreported": usage.unreported,
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
    }


def transcript_object(loaded: Loaded, shown: Shown, context_max: int) -> Object:
    undone = shown.turns.undone()
    turns = [
        {
            "id": turn.seq,
            "outcome": turn.outcome,
            "cause": turn.cause,
            "undone": turn.seq in undone,
        }
        for turn in shown.transcript.turns
    ]
    return {
        "id": loaded.id,
        "title": shown.transcript.title,
        "ended": None if loaded.state.ended is None else loaded.state.ended.reason,
        "visitors": list(loaded.state.attending.values()),
        "delegated_by": shown.delegated_by,
        "goal": loaded.state.goal or None,
        "plan": None
        if shown.transcript.plan is None
        else plan_object(shown.transcript.plan),
        "rules": [rule_object(rule, one) for rule, one in loaded.state.rules.items()],
        "memories": memories_told(loaded),
        "distillates": [
            {
                "seq": seq,
                "after": made.after,
                "upto": made.upto,
                "title": made.title,
                "summary": made.summary,
            }
            for seq, made in shown.distillates.items()
        ],
        "turns": turns,
        "messages": [
            message_object(message) | {"model": shown.asked.get(message.seq)}
            for message in shown.transcript.messages
        ],
        "approvals": [
            approval_object(one) | {"decision": one.decision}
            for one in waiting_approvals(loaded, shown)
        ],
        "context": {"tokens": shown.context_tokens(), "max": context_max or None},
        "usage": usage_object(shown.usage),
    }


def memories_told(loaded: Loaded) -> list[str]:
    """What the session was told of earlier ones."""
    return [] if loaded.state.context is None else list(loaded.state.context.memories)


def waiting_approvals(loaded: Loaded, shown: Shown) -> list[Approval]:
    return approvals_of(loaded.id, loaded.state, shown.asked_ms)


def approval_object(one: Approval) -> Object:
    return {
        "seq": one.seq,
        "call": one.call,
        "tool": one.tool,
        "arguments": one.arguments,
        "since_ms": one.since_ms,
        "reason": one.why,
    }


def message_object(message: Message) -> Object:
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {
        "seq": message.seq,
        "turn": message.turn,
        "role": message.role,
        "text": message.text,
        "state": message.state,
        "tool_calls": calls,
        "attachments": [attachment_object(part) for part in message.attachments],
        "tool_call_id": message.tool_call_id,
        "hidden": message.hidden,
    }


def attachment_object(part: Image | File) -> Object:
    kind = "image" if isinstance(part, Image) else "file"
    return {
        "type": kind,
        "name": part.name,
        "media_type": part.media_type,
        "size": part.size,
        "hash": part.hash,
    }
