"""What commands print: for people by default, as JSON on request."""

from datetime import datetime
from typing import Any

from steno.cli.printers import to_json
from steno.cli.screen import show
from steno.journal.transcript import Message
from steno.service import Summary, View
from steno.store.protocol import Report


def sessions(found: list[Summary], as_json: bool) -> int:
    if as_json:
        show(to_json([_listed(one) for one in found]))
        return 0
    if not found:
        show('no sessions yet; steno run "hello" makes one')
    for one in found:
        row = one.listed.row
        when = datetime.fromtimestamp(row.updated_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
        state = "waiting" if one.waits else "running" if one.listed.owner else row.last_turn or "pending"
        show(f"{one.listed.id}  {when}  {row.messages:>5}  {state:<11}  {' '.join(row.title.split())}")
    return 0


def _listed(one: Summary) -> dict[str, Any]:
    row = one.listed.row
    return {
        "id": one.listed.id,
        "title": row.title,
        "name": row.name,
        "model": row.model,
        "platform": row.platform,
        "messages": row.messages,
        "turns": row.turns,
        "last_turn": row.last_turn,
        "running": one.listed.owner is not None,
        "waiting": one.waits,
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
        "forked_from": None
        if row.forked_from is None
        else {"session": row.forked_from.session, "seq": row.forked_from.seq},
    }


def transcript(id: str, view: View, as_json: bool) -> int:
    seen, undone = view.transcript, view.turns.undone()
    if as_json:
        turns = [
            {"id": turn.seq, "outcome": turn.outcome, "cause": turn.cause, "undone": turn.seq in undone}
            for turn in seen.turns
        ]
        said = [_message(message) for message in seen.messages]
        show(to_json({"id": id, "title": seen.title, "turns": turns, "messages": said}))
        return 0
    show(f"{id}  {seen.title}")
    for message in seen.messages:
        mark = "" if message.state == "complete" else f" ({message.state})"
        mark += " (hidden)" if message.hidden else ""
        mark += " (undone)" if message.turn in undone else ""
        show(f"\n#{message.seq} {message.role}{mark}")
        show(message.text)
        for call in message.tool_calls:
            show(f"  → {call.name} {call.arguments}")
    for turn in seen.turns[-1:]:
        if turn.outcome not in (None, "done"):
            why = f"{turn.cause}: {turn.detail}" if turn.detail else turn.cause
            show(f"\nthe last turn {'failed' if turn.outcome == 'failed' else 'was interrupted'} ({why})")
    if view.waits():
        show("\nthe last turn waits for approval")
    if view.owner is not None:
        show(f"\nrunning in {view.owner}")
    return 0


def _message(message: Message) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    return {
        "seq": message.seq,
        "turn": message.turn,
        "role": message.role,
        "text": message.text,
        "state": message.state,
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
        "hidden": message.hidden,
    }


def report(found: Report, as_json: bool) -> int:
    if as_json:
        damage = [{"where": one.where, "what": one.what} for one in found.damage]
        show(to_json({"sessions": found.sessions, "facts": found.facts, "damage": damage}))
    else:
        show(f"{found.sessions} sessions, {found.facts} facts: {'no damage' if not found.damage else 'DAMAGED'}")
        for one in found.damage:
            show(f"  {one.where}: {one.what}")
        if found.damage:
            show("nothing was changed; restore a backup with steno restore FILE")
    return 1 if found.damage else 0
