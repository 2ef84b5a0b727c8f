"""Programs that keep their talks in SQLite: hermes-agent (`state.db`), opencode (`opencode.db`),
llm (`logs.db`) and the OpenAI Agents SDK.

A database is opened for reading only. Which program it belongs to is seen from its tables; one of
another shape is refused, never guessed at.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from steno.journal.facts import StepEnding, Usage
from steno.journal.parts import (
    Content,
    Failed,
    Outcome,
    Reasoning,
    Returned,
    Text,
    ToolCall,
)
from steno.transfer.agents.reading import (
    Unreadable,
    as_json,
    attachment,
    list_at,
    ms_of,
    number_at,
    openai_parts,
    short,
    speaks,
    text_at,
)
from steno.transfer.agents.talk import (
    Answer,
    Attached,
    Entry,
    Kept,
    Said,
    Summarised,
    Talk,
)
from steno.transfer.agents.talk import ToolResult as Result

Row = dict[str, Any]
HERMES_SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
HERMES_LIST = "\x00json:"


class _Database:
    def __init__(self, path: Path) -> None:
        try:
            self._connection = apsw.Connection(
                str(path), flags=apsw.SQLITE_OPEN_READONLY
            )
            self.tables = {
                row["name"]: {
                    one["name"]
                    for one in self.all(f"pragma table_info({row['name']})")
                }
                for row in self.all(
                    "select name from sqlite_master where type = 'table'"
                )
                if str(row["name"]).replace("_", "").isalnum()
            }
        except apsw.Error as error:
            raise Unreadable(
                short(path), f"it cannot be read as a database ({error})"
            ) from error

    def all(self, statement: str, *bindings: object) -> Iterator[Row]:
        cursor = self._connection.cursor()
        for values in cursor.execute(statement, bindings):
            names = [column[0] for column in cursor.description]
            yield dict(zip(names, values, strict=True))

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, set())

    def close(self) -> None:
        self._connection.close()


def program_of(path: Path) -> str:
    """Which program wrote a database; "" if none that is known."""
    database = _Database(path)
    try:
        return next(
            (name for name, (knows, _) in PROGRAMS.items() if knows(database)), ""
        )
    finally:
        database.close()


def talks(path: Path) -> Iterator[Talk]:
    database = _Database(path)
    try:
        for knows, read in PROGRAMS.values():
            if knows(database):
                yield from read(database, short(path))
                return
    except apsw.Error as error:
        raise Unreadable(
            short(path), f"its tables cannot be read ({error})"
        ) from error
    finally:
        database.close()


# --- hermes-agent ---------------------------------------------------------------------------------


def _is_hermes(database: _Database) -> bool:
    return database.has(
        "sessions", "source", "started_at", "parent_session_id"
    ) and database.has("messages", "session_id", "role", "content", "timestamp")


def _hermes(database: _Database, where: str) -> Iterator[Talk]:
    """A session that was compressed goes on in a child; both are one talk. A child of another kind
    is a talk of its own."""
    sessions = {
        str(row["id"]): row
        for row in database.all("select * from sessions order by rowid")
    }
    follows: dict[str, str] = {}
    for id, row in sessions.items():
        parent = sessions.get(str(row["parent_session_id"]))
        if parent is not None and parent.get("end_reason") == "compression":
            follows.setdefault(str(parent["id"]), id)
    children = set(follows.values())
    for id, row in sessions.items():
        if id in children:
            continue
        line = [id]
        while follows.get(line[-1], line[0]) not in line:
            line.append(follows[line[-1]])
        titles = [str(sessions[one].get("title") or "") for one in line]
        entries = list(_hermes_entries(database, line, str(row.get("model") or "")))
        if entries:
            title = next(filter(None, reversed(titles)), "")
            yield Talk(
                program="hermes", id=id, where=where, entries=entries, title=title
            )


def _hermes_entries(
    database: _Database, line: list[str], model: str
) -> Iterator[Entry]:
    """After a summary the last rows stand again: those are left out, as one sees from their
    content."""
    seen: list[tuple[object, ...]] = []
    rows = [
        row
        for session in line
        for row in database.all(
            "select * from messages where session_id = ? order by id", session
        )
    ]
    at = 0
    while at < len(rows):
        row = rows[at]
        yield from _hermes_entry(row, model)
        at += 1
        if _hermes_summary(row):
            following = [_hermes_key(one) for one in rows[at : at + len(seen)]]
            at += max(
                (
                    n
                    for n in range(1, len(following) + 1)
                    if seen[-n:] == following[:n]
                ),
                default=0,
            )
        else:
            seen.append(_hermes_key(row))


def _hermes_key(row: Row) -> tuple[object, ...]:
    return row["role"], row["content"], row.get("tool_call_id"), row.get("tool_calls")


def _hermes_summary(row: Row) -> bool:
    return str(row["content"] or "").lstrip().startswith(HERMES_SUMMARY)


def _hermes_entry(row: Row, model: str) -> Iterator[Entry]:
    at_ms, role = ms_of(row["timestamp"]), row["role"]
    content = row["content"] or ""
    parts, attached = openai_parts(_hermes_content(str(content)), "hermes")
    hidden = row.get("active", 1) == 0 and not row.get("compacted")
    if _hermes_summary(row):
        yield Summarised(at_ms, str(content))
    elif role == "user" and speaks(parts):
        yield Said(at_ms, parts, attached=attached, hidden=hidden)
    elif role == "assistant":
        thought = row.get("reasoning") or row.get("reasoning_content")
        spoken = (
            ((Reasoning(str(thought)),) if thought else ())
            + parts
            + _hermes_calls(row)
        )
        cut: StepEnding = (
            "length" if row.get("finish_reason") == "length" else "complete"
        )
        yield Answer(at_ms, spoken, model, None, cut, attached, hidden)
    elif role == "tool" and row.get("tool_call_id"):
        yield Result(
            at_ms, str(row["tool_call_id"]), Returned(parts), attached, hidden
        )
    else:
        yield Kept(
            at_ms, as_json({key: row[key] for key in row if row[key] is not None})
        )


def _hermes_content(content: str) -> object:
    if not content.startswith(HERMES_LIST):
        return content
    return _json(content.removeprefix(HERMES_LIST))


def _hermes_calls(row: Row) -> tuple[Content, ...]:
    return tuple(
        ToolCall(
            text_at(call, "id") or text_at(call, "call_id"),
            text_at(call, "function", "name"),
            text_at(call, "function", "arguments"),
        )
        for call in list_at({"calls": _json(row.get("tool_calls"))}, "calls")
        if text_at(call, "id") or text_at(call, "call_id")
    )


# --- opencode -------------------------------------------------------------------------------------


def _is_opencode(database: _Database) -> bool:
    return database.has("part", "message_id", "data") and database.has(
        "message", "session_id"
    )


def _opencode(database: _Database, where: str) -> Iterator[Talk]:
    for row in database.all(
        "select id, title from session order by time_created, id"
    ):
        entries = list(_opencode_entries(database, str(row["id"])))
        if entries:
            title = str(row["title"] or "")
            yield Talk(
                program="opencode",
                id=str(row["id"]),
                where=where,
                entries=entries,
                title=title,
            )


def _opencode_entries(database: _Database, session: str) -> Iterator[Entry]:
    messages = (
        "select id, data from message where session_id = ? order by time_created, id"
    )
    held = "select id, data from part where message_id = ? order by id"
    for row in list(database.all(messages, session)):
        message = _json(row["data"])
        at_ms = ms_of(number_at(message, "time", "created"))
        parts = [_json(part["data"]) for part in database.all(held, row["id"])]
        if text_at(message, "role") == "user":
            yield from _opencode_said(at_ms, parts)
        elif text_at(message, "role") == "assistant":
            yield from _opencode_answers(at_ms, message, parts)
        else:
            yield Kept(at_ms, as_json(message), str(row["id"]))


def _opencode_said(at_ms: int, parts: list[Any]) -> Iterator[Entry]:
    said, attached = list[Content](), list[Attached]()
    for part in parts:
        kind, made_up = (
            text_at(part, "type"),
            isinstance(part, dict) and part.get("synthetic"),
        )
        head, comma, data = text_at(part, "url").partition(",")
        if kind == "text" and text_at(part, "text") and not made_up:
            said.append(Text(part["text"]))
        elif kind == "file" and comma and head.endswith(";base64"):
            one, brought = attachment(
                data, text_at(part, "mime"), text_at(part, "filename")
            )
            said.append(one)
            attached += brought
        else:
            yield Kept(at_ms, as_json(part))
    if said:
        yield Said(at_ms, tuple(said), attached=tuple(attached))


def _opencode_answers(at_ms: int, message: Any, parts: list[Any]) -> Iterator[Entry]:
    """A message holds several requests, each up to its `step-finish`."""
    said, results, usage = list[Content](), list[Entry](), None
    model = text_at(message, "modelID")
    failed = isinstance(message, dict) and message.get("error") is not None
    for part in [*parts, {"type": "step-finish"}]:
        kind = text_at(part, "type")
        if kind == "text" and text_at(part, "text"):
            said.append(Text(part["text"]))
        elif kind == "reasoning" and text_at(part, "text"):
            said.append(Reasoning(part["text"]))
        elif kind == "tool" and text_at(part, "callID"):
            said.append(_opencode_call(part))
            results += _opencode_result(at_ms, part)
        elif kind == "step-finish":
            usage = _opencode_usage(part) or usage
            if said:
                cut: StepEnding = "incomplete" if failed else "complete"
                yield Answer(at_ms, tuple(said), model, usage, cut)
                yield from results
            said, results, usage = [], [], None
        elif kind != "step-start":
            yield Kept(at_ms, as_json(part))


def _opencode_call(part: Any) -> ToolCall:
    state = part.get("state")
    asked = state.get("input", {}) if isinstance(state, dict) else {}
    return ToolCall(part["callID"], text_at(part, "tool"), as_json(asked))


def _opencode_result(at_ms: int, part: Any) -> list[Entry]:
    status = text_at(part, "state", "status")
    if status not in ("completed", "error"):
        return []
    text = text_at(part, "state", "output") or text_at(part, "state", "error")
    parts = (Text(text),) if text else ()
    outcome: Outcome = Returned(parts) if status == "completed" else Failed(parts)
    return [Result(at_ms, part["callID"], outcome)]


def _opencode_usage(part: Any) -> Usage | None:
    fresh = number_at(part, "tokens", "input")
    cached = number_at(part, "tokens", "cache", "read")
    if fresh is None:
        return None
    written = number_at(part, "tokens", "output")
    return Usage(
        fresh + (cached or 0), written, cached, number_at(part, "tokens", "reasoning")
    )


# --- llm ------------------------------------------------------------------------------------------


def _is_llm(database: _Database) -> bool:
    return database.has("responses", "prompt", "response", "conversation_id")


def _llm(database: _Database, where: str) -> Iterator[Talk]:
    """Older versions keep rows of prompt and response, newer ones threads of messages."""
    for row in database.all("select id, name from conversations order by id"):
        entries = list(_llm_rows(database, str(row["id"])))
        if entries:
            name = str(row["name"] or "")
            yield Talk(
                program="llm",
                id=str(row["id"]),
                where=where,
                entries=entries,
                title=name,
            )
    if not database.has("threads", "tip_message_hash"):
        return
    for row in database.all("select id, name from threads order by id"):
        entries = list(_llm_thread(database, str(row["id"])))
        if entries:
            name = str(row["name"] or "")
            yield Talk(
                program="llm",
                id=str(row["id"]),
                where=where,
                entries=entries,
                title=name,
            )


def _llm_rows(database: _Database, conversation: str) -> Iterator[Entry]:
    rows = (
        "select * from responses where conversation_id = ? order by datetime_utc, id"
    )
    for row in list(database.all(rows, conversation)):
        at_ms = ms_of(row["datetime_utc"])
        if row.get("system"):
            yield Kept(at_ms, as_json({"system": row["system"]}), str(row["id"]))
        yield from _llm_results(database, row["id"], at_ms)
        if row["prompt"]:
            yield Said(at_ms, (Text(str(row["prompt"])),))
        calls = _llm_calls(database, row["id"])
        parts = ((Text(str(row["response"])),) if row["response"] else ()) + calls
        if parts:
            usage = Usage(row.get("input_tokens"), row.get("output_tokens"))
            yield Answer(at_ms, parts, str(row["model"] or ""), usage)


def _llm_calls(database: _Database, response: object) -> tuple[Content, ...]:
    if not database.has("tool_calls", "response_id", "tool_call_id"):
        return ()
    calls = "select name, arguments, tool_call_id from tool_calls where response_id = ? order by id"
    return tuple(
        ToolCall(
            str(one["tool_call_id"]), str(one["name"]), str(one["arguments"] or "{}")
        )
        for one in database.all(calls, response)
        if one["tool_call_id"]
    )


def _llm_results(database: _Database, response: object, at_ms: int) -> list[Entry]:
    if not database.has("tool_results", "response_id", "tool_call_id"):
        return []
    rows = "select output, tool_call_id from tool_results where response_id = ? order by id"
    return [
        Result(
            at_ms,
            str(one["tool_call_id"]),
            Returned((Text(str(one["output"] or "")),)),
        )
        for one in database.all(rows, response)
    ]


def _llm_thread(database: _Database, thread: str) -> Iterator[Entry]:
    turns = "select * from turns where thread_id = ? order by datetime_utc, id"
    told: set[str] = set()
    for turn in list(database.all(turns, thread)):
        at_ms = ms_of(turn["datetime_utc"])
        usage = Usage(turn.get("input_tokens"), turn.get("output_tokens"))
        for message in _llm_way(database, str(turn["tip_message_hash"])):
            if message["hash"] in told:
                continue
            told.add(str(message["hash"]))
            yield from _llm_message(
                database, message, at_ms, str(turn["model"] or ""), usage
            )


def _llm_way(database: _Database, tip: str) -> list[Row]:
    way: list[Row] = []
    seen: set[str] = set()
    while tip and tip not in seen:
        seen.add(tip)
        found = list(database.all("select * from messages where hash = ?", tip))
        way += found[:1]
        tip = str(found[0]["parent_hash"] or "") if found else ""
    return way[::-1]


def _llm_message(
    database: _Database, message: Row, at_ms: int, model: str, usage: Usage
) -> Iterator[Entry]:
    rows = list(
        database.all(
            "select * from parts where message_hash = ? order by position",
            message["hash"],
        )
    )
    said, rest = list[Content](), list[Entry]()
    for row in rows:
        payload = _json(row["payload"])
        call = text_at(payload, "tool_call_id") or text_at(payload, "id")
        if row["type"] == "text" and row["text"]:
            said.append(Text(str(row["text"])))
        elif row["type"] == "reasoning" and row["text"]:
            said.append(Reasoning(str(row["text"])))
        elif row["type"] == "tool_call" and call:
            arguments = (
                payload.get("arguments", {}) if isinstance(payload, dict) else {}
            )
            text = arguments if isinstance(arguments, str) else as_json(arguments)
            said.append(ToolCall(call, str(row["tool_name"] or ""), text))
        elif row["type"] == "tool_result" and call:
            output = str(row["text"] or text_at(payload, "output"))
            rest.append(
                Result(at_ms, call, Returned((Text(output),) if output else ()))
            )
        else:
            rest.append(
                Kept(at_ms, as_json({key: str(row[key]) for key in row if row[key]}))
            )
    yield from rest
    if message["role"] == "user" and said:
        yield Said(at_ms, tuple(said))
    elif message["role"] == "assistant" and said:
        yield Answer(at_ms, tuple(said), model, usage)
    elif said:
        told = "".join(part.text for part in said if isinstance(part, Text))
        yield Kept(at_ms, as_json({"role": message["role"], "text": told}))


# --- OpenAI Agents SDK ----------------------------------------------------------------------------


def _is_openai_agents(database: _Database) -> bool:
    return database.has("agent_messages", "session_id", "message_data")


def _openai_agents(database: _Database, where: str) -> Iterator[Talk]:
    for row in database.all(
        "select session_id from agent_sessions order by created_at, rowid"
    ):
        id = str(row["session_id"])
        items = "select * from agent_messages where session_id = ? order by id"
        entries = list(items_as_entries(_items(database, items, id)))
        if entries:
            yield Talk(
                program="openai-agents", id=id, where=where, entries=entries, title=id
            )


def _items(database: _Database, statement: str, id: str) -> Iterator[tuple[int, Any]]:
    for row in database.all(statement, id):
        yield ms_of(row.get("created_at")), _json(row["message_data"])


def items_as_entries(items: Iterator[tuple[int, Any]]) -> Iterator[Entry]:
    """Items of the Responses API: reasoning, text and calls that follow each other are one
    answer."""
    said, began = list[Content](), 0
    for at_ms, item in items:
        kind, role = text_at(item, "type") or "message", text_at(item, "role")
        if kind == "message" and role == "assistant":
            said += openai_parts(item.get("content"), "openai-agents")[0]
        elif kind == "reasoning":
            told = [text_at(one, "text") for one in list_at(item, "summary")]
            said += [Reasoning("\n".join(told))] if any(told) else []
        elif kind == "function_call" and text_at(item, "call_id"):
            arguments = text_at(item, "arguments")
            said.append(ToolCall(item["call_id"], text_at(item, "name"), arguments))
        else:
            if said:
                yield Answer(began, tuple(said))
                said, began = [], 0
            yield _other_item(at_ms, item, kind, role)
            continue
        began = began or at_ms
    if said:
        yield Answer(began, tuple(said))


def _other_item(at_ms: int, item: Any, kind: str, role: str) -> Entry:
    if kind == "message" and role == "user":
        parts, attached = openai_parts(item.get("content"), "openai-agents")
        if speaks(parts):
            return Said(at_ms, parts, attached=attached)
    if kind == "function_call_output" and text_at(item, "call_id"):
        parts, attached = openai_parts(item.get("output"), "openai-agents")
        return Result(at_ms, item["call_id"], Returned(parts), attached)
    return Kept(at_ms, as_json(item))


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str | bytes) and text else None
    except (ValueError, RecursionError):
        return None


PROGRAMS: dict[
    str,
    tuple[Callable[[_Database], bool], Callable[[_Database, str], Iterator[Talk]]],
] = {
    "hermes": (_is_hermes, _hermes),
    "opencode": (_is_opencode, _opencode),
    "llm": (_is_llm, _llm),
    "openai-agents": (_is_openai_agents, _openai_agents),
}
