"""What commands print: for people by default, as JSON on request."""

from datetime import datetime
from typing import Any

from msgspec import to_builtins

from steno.cli.printers import plan_fields, to_json
from steno.cli.stdio import show
from steno.journal.parts import File, Image
from steno.journal.transcript import Message
from steno.journal.usage import UsageTotal
from steno.service import Approval, Delivery, Loaded, Shown, Summary
from steno.service.approvals import asked_about
from steno.service.views import approvals_of
from steno.store.protocol import Report


def sessions(found: list[Summary], as_json: bool, tree: bool) -> int:
    if as_json:
        show(to_json([_listed(one) for one in found]))
        return 0
    if not found:
        show('no sessions yet; steno run "hello" makes one')
    for one, depth in _as_tree(found) if tree else ((one, 0) for one in found):
        row = one.listed.row
        state = (
            "waiting"
            if one.waits
            else "running"
            if one.listed.owner
            else row.last_turn or "pending"
        )
        title = " ".join(row.title.split())
        origin = (
            ""
            if row.forked_from is None
            else f" (fork of {row.forked_from.session} at {row.forked_from.seq})"
        )
        lead = "    " * (depth - 1) + "└── " if depth else ""
        numbers = f"{row.messages:>5}  {_short_count(row.context):>6}"
        show(
            f"{lead}{one.listed.id}  {when(row.updated_ms)}  {numbers}  {state:<11}  "
            f"{title}{origin if tree else ''}"
        )
    return 0


def _as_tree(found: list[Summary]) -> list[tuple[Summary, int]]:
    """Each with its depth, forks after the session that they come from. One whose parent is not
    listed stands alone."""
    listed = {one.listed.id for one in found}
    forks: dict[str | None, list[Summary]] = {}
    for one in found:
        origin = one.listed.row.forked_from
        parent = origin.session if origin is not None and origin.session in listed else None
        forks.setdefault(parent, []).append(one)
    waiting = [(one, 0) for one in reversed(forks.get(None, []))]
    placed: list[tuple[Summary, int]] = []
    while waiting:
        one, depth = waiting.pop()
        placed.append((one, depth))
        waiting += [(fork, depth + 1) for fork in reversed(forks.get(one.listed.id, []))]
    return placed


def deliveries(found: list[Delivery], as_json: bool) -> int:
    if as_json:
        show(to_json([to_builtins(one) for one in found]))
        return 0
    if not found:
        show("nothing is owed to a channel; steno run PROMPT --deliver NAME owes it the answer")
    for one in found:
        tries = "" if one.tries is None else f"  tried {one.tries} times"
        why = f"  {one.cause}" if one.cause else ""
        where = f"{one.channel} ({one.address})"
        show(f"{one.session} {one.input}  {when(one.at_ms)}  {one.state:<9}  {where}{tries}{why}")
    return 0


def when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def _short_count(count: int | None) -> str:
    """A number in at most six letters; unknown is not 0."""
    if count is None:
        return "?"
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _listed(one: Summary) -> dict[str, Any]:
    row = one.listed.row
    return {
        "id": one.listed.id,
        "title": row.title,
        "name": row.name,
        "model": row.model,
        "fallback": row.fallback or None,
        "platform": row.platform,
        "messages": row.messages,
        "turns": row.turns,
        "last_turn": row.last_turn,
        "running": one.listed.owner is not None,
        "ended": row.ended,
        "waiting": one.waits,
        "context_tokens": row.context,
        "usage": None if row.usage is None else _usage(row.usage),
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
        "forked_from": None
        if row.forked_from is None
        else {"session": row.forked_from.session, "seq": row.forked_from.seq},
    }


def _usage(usage: UsageTotal) -> dict[str, int | None]:
    return {
        "calls": usage.calls,
        "unreported": usage.unreported,
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "reasoning": usage.reasoning,
    }


def transcript(loaded: Loaded, shown: Shown, context_max: int, as_json: bool) -> int:
    """`context_max` is what the model takes; 0 if nobody said."""
    seen, undone = shown.transcript, shown.turns.undone()
    if as_json:
        show(to_json(_transcript(loaded, shown, context_max)))
        return 0
    show(f"{loaded.id}  {seen.title}")
    if shown.delegated_by:
        show(f"helper of session {shown.delegated_by}")
    if loaded.state.goal:
        show(f"goal: {loaded.state.goal}")
    own = "" if loaded.state.context is None else loaded.state.context.own_model
    for message in seen.messages:
        mark = "" if message.state == "complete" else f" ({message.state})"
        mark += " (hidden)" if message.hidden else ""
        mark += " (undone)" if message.turn in undone else ""
        mark += f" ({model})" if (model := shown.asked.get(message.seq, own)) != own else ""
        show(f"\n#{message.seq} {message.role}{mark}")
        for part in message.attachments:
            show(f"  + {part.name or part.media_type} ({part.media_type}, {part.size} bytes)")
        show(message.text)
        for call in message.tool_calls:
            show(f"  → {call.name} {call.arguments}")
    for turn in seen.turns[-1:]:
        if turn.outcome not in (None, "done"):
            why = f"{turn.cause}: {turn.detail}" if turn.detail else turn.cause
            show(
                f"\nthe last turn {'failed' if turn.outcome == 'failed' else 'was interrupted'} "
                f"({why})"
            )
    if seen.plan is not None:
        show("\n".join((f"\n{seen.plan.title()}", *(f"  {line}" for line in seen.plan.lines()))))
    if loaded.waits():
        show("\nthe last turn waits for approval")
        for one in _approvals(loaded, shown):
            decided = "" if one.decision is None else f" ({one.decision})"
            show(f"  #{one.seq} {asked_about(one)}{decided}")
    if loaded.state.rules:
        show("\nrules of this session")
        for rule, verdict in loaded.state.rules.items():
            show(f"  {verdict:<5}  {rule}")
    if loaded.state.ended is not None:
        show(f"\nended ({loaded.state.ended.reason})")
    if (told := _told(loaded)) or shown.distillates:
        show(
            f"\n{len(told)} memories told, {len(shown.distillates)} distillates: steno memory "
            f"--session {loaded.id}"
        )
    if loaded.owner is not None:
        show(f"\nrunning in {loaded.owner}")
    show(f"\n{_spent(shown, context_max)}")
    return 0


def _transcript(loaded: Loaded, shown: Shown, context_max: int) -> dict[str, Any]:
    undone = shown.turns.undone()
    turns = [
        {"id": turn.seq, "outcome": turn.outcome, "cause": turn.cause, "undone": turn.seq in undone}
        for turn in shown.transcript.turns
    ]
    return {
        "id": loaded.id,
        "title": shown.transcript.title,
        "ended": None if loaded.state.ended is None else loaded.state.ended.reason,
        "visitors": list(loaded.state.attending.values()),
        "delegated_by": shown.delegated_by,
        "goal": loaded.state.goal or None,
        "plan": None if shown.transcript.plan is None else plan_fields(shown.transcript.plan),
        "rules": [
            {"rule": rule, "verdict": verdict} for rule, verdict in loaded.state.rules.items()
        ],
        "memories": _told(loaded),
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
            _message(message) | {"model": shown.asked.get(message.seq)}
            for message in shown.transcript.messages
        ],
        "approvals": [
            _approval(one) | {"decision": one.decision} for one in _approvals(loaded, shown)
        ],
        "context": {"tokens": shown.context_tokens(), "max": context_max or None},
        "usage": _usage(shown.usage),
    }


def _told(loaded: Loaded) -> list[str]:
    """What the session was told of earlier ones."""
    return [] if loaded.state.context is None else list(loaded.state.context.memories)


def _spent(shown: Shown, context_max: int) -> str:
    """The context and what was used so far, in a line."""
    tokens = shown.context_tokens()
    context = (
        "unknown"
        if tokens is None
        else f"about {tokens}{f' of {context_max}' if context_max else ''} tokens"
    )
    usage = shown.usage
    known = [
        f"{n} {word}" for n, word in ((usage.input, "in"), (usage.output, "out")) if n is not None
    ]
    used = ", ".join(known) if known else "unknown"
    gaps = f", {usage.unreported} without a count" if usage.unreported else ""
    return (
        f"context: {context}; tokens used: {used} ({usage.calls} "
        f"call{'' if usage.calls == 1 else 's'}{gaps})"
    )


def _approvals(loaded: Loaded, shown: Shown) -> list[Approval]:
    return approvals_of(loaded.id, loaded.state, shown.asked_ms)


def approvals(waiting: list[Approval], as_json: bool) -> int:
    if as_json:
        show(to_json([{"session": one.session} | _approval(one) for one in waiting]))
        return 0
    if not waiting:
        show("nothing waits for approval")
    for one in waiting:
        show(f"{one.session}  #{one.seq}  since {when(one.since_ms)}  {asked_about(one)}")
    if waiting:
        show(
            f"\nsteno approve {waiting[0].session} {waiting[0].seq} lets the first run; steno "
            "deny refuses it"
        )
    return 0


def _approval(one: Approval) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "call": one.call,
        "tool": one.tool,
        "arguments": one.arguments,
        "since_ms": one.since_ms,
        "reason": one.why,
    }


def _message(message: Message) -> dict[str, Any]:
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
        "attachments": [_attachment(part) for part in message.attachments],
        "tool_call_id": message.tool_call_id,
        "hidden": message.hidden,
    }


def _attachment(part: Image | File) -> dict[str, Any]:
    kind = "image" if isinstance(part, Image) else "file"
    return {
        "type": kind,
        "name": part.name,
        "media_type": part.media_type,
        "size": part.size,
        "hash": part.hash,
    }


def report(found: Report, as_json: bool) -> int:
    if as_json:
        damage = [{"where": one.where, "what": one.what} for one in found.damage]
        show(to_json({"sessions": found.sessions, "facts": found.facts, "damage": damage}))
    else:
        show(
            f"{found.sessions} sessions, {found.facts} facts: "
            f"{'no damage' if not found.damage else 'DAMAGED'}"
        )
        for one in found.damage:
            show(f"  {one.where}: {one.what}")
        if found.damage:
            show(
                "nothing was changed; if another program wrote to the store, steno verify --adopt "
                "puts it right; else restore a backup with steno restore FILE"
            )
    return 1 if found.damage else 0
