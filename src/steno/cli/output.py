"""What commands print: for people by default, as JSON on request."""

import sys
from datetime import datetime
from typing import Any

from steno.cli.turns import to_json, writable
from steno.journal.transcript import Message
from steno.service import View
from steno.store.protocol import Listed, Report


def complain(text: str) -> None:
    print(f"steno: {writable(text)}", file=sys.stderr)


def sessions(found: list[Listed], as_json: bool) -> int:
    if as_json:
        print(to_json([_listed(one) for one in found]))
        return 0
    if not found:
        print('no sessions yet; steno run "hello" makes one')
    for one in found:
        when = datetime.fromtimestamp(one.row.updated_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
        state = "running" if one.owner else one.row.last_turn or "pending"
        print(f"{one.id}  {when}  {one.row.messages:>5}  {state:<11}  {writable(one.row.title)}")
    return 0


def _listed(one: Listed) -> dict[str, Any]:
    row = one.row
    return {
        "id": one.id,
        "title": row.title,
        "name": row.name,
        "model": row.model,
        "platform": row.platform,
        "messages": row.messages,
        "turns": row.turns,
        "last_turn": row.last_turn,
        "running": one.owner is not None,
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
        "forked_from": None
        if row.forked_from is None
        else {"session": row.forked_from.session, "seq": row.forked_from.seq},
    }


def show(id: str, view: View, as_json: bool) -> int:
    transcript = view.transcript
    if as_json:
        turns = [{"id": turn.seq, "outcome": turn.outcome, "cause": turn.cause} for turn in transcript.turns]
        said = [_message(message) for message in transcript.messages]
        print(to_json({"id": id, "title": transcript.title, "turns": turns, "messages": said}))
        return 0
    print(f"{id}  {writable(transcript.title)}")
    for message in transcript.messages:
        mark = "" if message.state == "complete" else f" ({message.state})"
        hidden = " (hidden)" if message.hidden else ""
        print(f"\n#{message.seq} {message.role}{mark}{hidden}")
        print(writable(message.text))
        for call in message.tool_calls:
            print(f"  → {call.name} {writable(call.arguments)}")
    for turn in transcript.turns[-1:]:
        if turn.outcome not in (None, "done"):
            print(f"\nthe last turn was {turn.outcome} ({turn.cause})")
    if view.owner is not None:
        print(f"\nrunning in {view.owner}")
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
        print(to_json({"sessions": found.sessions, "facts": found.facts, "damage": damage}))
    else:
        print(f"{found.sessions} sessions, {found.facts} facts: {'no damage' if not found.damage else 'DAMAGED'}")
        for one in found.damage:
            print(f"  {writable(one.where)}: {writable(one.what)}")
        if found.damage:
            print("nothing was changed; restore a backup with steno restore FILE")
    return 1 if found.damage else 0
