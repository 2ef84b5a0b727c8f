"""Files as other agents write them, in small: the shapes are those of the real programs (Claude
Code 2.1, codex 0.169, pi 0.73, hermes-agent 0.19, opencode 1.18, llm 0.36, OpenAI Agents 0.24), run
against a model server on this machine; ChatGPT's and Claude.ai's are from what is known of them."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

SESSION = "4ba50d20-21c0-4793-8022-17fe0ac20531"


def at(second: int) -> str:
    return f"2026-11-18T13:25:{second:02d}.000Z"


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def line(uuid: str, parent: str | None, second: int, **more: Any) -> dict[str, Any]:
    """A line of Claude Code."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "uuid": uuid,
        "timestamp": at(second),
        "cwd": "/somewhere",
        "sessionId": SESSION,
        "version": "2.1.197",
    } | more


def said(uuid: str, parent: str | None, second: int, text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return line(uuid, parent, second, type="user", message=message, **more)


def answered(
    uuid: str, parent: str, second: int, id: str, block: dict[str, Any], stop: str = "end_turn"
) -> dict[str, Any]:
    message = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "content": [block],
        "stop_reason": stop,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 7},
    }
    return line(uuid, parent, second, type="assistant", message=message)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def called(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "ls"}}


def result(uuid: str, parent: str, second: int, call: str, output: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": output}
    return line(uuid, parent, second, type="user", message={"role": "user", "content": [block]})


def claude_code() -> list[dict[str, Any]]:
    """A question; an answer with two calls side by side, a line each; an end; what is no speech."""
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION},
        said("u1", None, 1, "list the files"),
        answered("a1", "u1", 2, "m1", text("I will look."), "tool_use"),
        answered("a2", "a1", 3, "m1", called("t1"), "tool_use"),
        answered("a3", "a2", 4, "m1", called("t2"), "tool_use"),
        result("r1", "a2", 5, "t1", "notes.txt"),
        result("r2", "a3", 6, "t2", "more.txt"),
        answered("a4", "r2", 7, "m2", text("Two files.")),
        said("x1", "a4", 8, "<command-name>/cost</command-name>"),
        {"type": "ai-title", "aiTitle": "Files here", "sessionId": SESSION},
        {"type": "last-prompt", "leafUuid": "a4", "sessionId": SESSION},
    ]


def codex() -> list[dict[str, Any]]:
    def row(second: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": at(second), "type": kind, "payload": payload}

    def message(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    call = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
    tokens = {"last_token_usage": {"input_tokens": 9, "output_tokens": 4}}
    return [
        row(1, "session_meta", {"id": "rollout-1", "cwd": "/somewhere"}),
        row(2, "turn_context", {"model": "gpt-x"}),
        row(3, "response_item", message("user", "<environment_context>…</environment_context>")),
        row(4, "response_item", message("user", "what is here?")),
        row(4, "event_msg", {"type": "user_message", "message": "what is here?"}),
        row(5, "response_item", {"type": "reasoning", "summary": [{"text": "I look."}]}),
        row(6, "response_item", call),
        row(6, "event_msg", {"type": "token_count", "info": tokens}),
        row(
            7,
            "response_item",
            {"type": "function_call_output", "call_id": "c1", "output": "a file"},
        ),
        row(8, "event_msg", {"type": "agent_message", "message": "One file."}),
        row(8, "response_item", message("assistant", "One file.")),
        row(9, "event_msg", {"type": "task_complete"}),
    ]


def pi() -> list[dict[str, Any]]:
    def entry(id: str, parent: str | None, second: int, **message: Any) -> dict[str, Any]:
        return {
            "type": "message",
            "id": id,
            "parentId": parent,
            "timestamp": at(second),
            "message": message,
        }

    def answer(words: str) -> list[dict[str, Any]]:
        return [text(words)]

    return [
        {"type": "session", "version": 3, "id": "pi-1", "timestamp": at(0), "cwd": "/somewhere"},
        entry("e1", None, 1, role="user", content=[text("first")]),
        entry("e2", "e1", 2, role="assistant", content=answer("one"), model="m", stopReason="stop"),
        entry("e3", "e2", 3, role="user", content=[text("left")]),
        entry("e4", "e3", 4, role="assistant", content=answer("gone"), stopReason="stop"),
        entry("e5", "e2", 5, role="user", content=[text("instead")]),
        entry("e6", "e5", 6, role="assistant", content=answer("cut"), stopReason="aborted"),
        {"type": "session_info", "id": "e7", "parentId": "e6", "timestamp": at(7), "name": "Named"},
    ]


def chatgpt() -> dict[str, Any]:
    """A prompt with two pictures and two answers, the second of which is the current one."""

    def node(
        id: str, parent: str | None, children: list[str], role: str, words: str
    ) -> dict[str, Any]:
        message = {
            "id": id,
            "author": {"role": role},
            "create_time": 1795008350.5,
            "content": {"content_type": "text", "parts": [words]},
            "metadata": {"model_slug": "gpt-x"} if role == "assistant" else {},
            "status": "finished_successfully",
        }
        return {"id": id, "parent": parent, "children": children, "message": message}

    nodes = [
        node("n1", "root", ["n2", "n3"], "user", "name a river"),
        node("n2", "n1", [], "assistant", "The Nile."),
        node("n3", "n1", [], "assistant", "The Rhine."),
    ]
    asked: Any = nodes[0]["message"]
    asked["content"] = {
        "content_type": "multimodal_text",
        "parts": [
            _pointer("file-service://file-a1"),
            _pointer("sediment://file_b2"),
            "name a river",
        ],
    }
    root = {"id": "root", "parent": None, "children": ["n1"], "message": None}
    return {
        "conversation_id": "chatgpt-1",
        "title": "Rivers",
        "create_time": 1795008350.5,
        "current_node": "n3",
        "mapping": {"root": root} | {str(one["id"]): one for one in nodes},
    }


def _pointer(to: str) -> dict[str, str]:
    return {"content_type": "image_asset_pointer", "asset_pointer": to}


def claude_ai() -> dict[str, Any]:
    def message(id: str, sender: str, words: str, **more: Any) -> dict[str, Any]:
        return {
            "uuid": id,
            "sender": sender,
            "created_at": at(1),
            "text": words,
            "content": [text(words)],
        } | more

    notes = [{"file_name": "notes.txt", "extracted_content": "the notes"}]
    return {
        "uuid": "claude-ai-1",
        "name": "Seas",
        "chat_messages": [
            message("c1", "human", "name a sea", attachments=notes),
            message("c2", "assistant", "The Baltic."),
        ],
    }


def zipped(path: Path, *conversations: dict[str, Any], **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
        archive.writestr("conversations.json", json.dumps(list(conversations)))
        archive.writestr("users.json", "[]")
    return path


def database(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    """A database with these tables and rows."""
    held: dict[str, list[list[Any]]] = {}
    for table, rows in tables.items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        held[table] = [list(names), *([row.get(name) for name in names] for row in rows)]
    return tables_of(path, held)


def tables_of(path: Path, tables: dict[str, list[list[Any]]]) -> Path:
    """The same; the first row of each table names its columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, (columns, *rows) in tables.items():
            connection.execute(f"create table {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"insert into {table} values ({marks})", rows)
    return path


def hermes(path: Path) -> Path:
    """A session that was compressed into a child, whose last rows stand in both; and a row that
    was taken back."""

    def session(id: str, parent: str | None, ended: str | None) -> dict[str, Any]:
        return {
            "id": id,
            "source": "cli",
            "model": "m",
            "parent_session_id": parent,
            "started_at": 1795008350.0,
            "end_reason": ended,
            "title": None,
        }

    def row(id: int, session: str, role: str, content: str, active: int = 1) -> dict[str, Any]:
        return {
            "id": id,
            "session_id": session,
            "role": role,
            "content": content,
            "tool_call_id": None,
            "tool_calls": None,
            "timestamp": 1795008350.0 + id,
            "active": active,
            "compacted": 0,
        }

    summary = "[CONTEXT COMPACTION — REFERENCE ONLY] They spoke of tea."
    return database(
        path,
        {
            "sessions": [session("h1", None, "compression"), session("h2", "h1", None)],
            "messages": [
                row(1, "h1", "user", "do you like tea?"),
                row(2, "h1", "assistant", "Very much."),
                row(3, "h1", "user", "taken back", active=0),
                row(4, "h1", "user", "which one?"),
                row(5, "h1", "assistant", "Green."),
                row(6, "h2", "user", summary),
                row(7, "h2", "user", "which one?"),
                row(8, "h2", "assistant", "Green."),
                row(9, "h2", "user", "thanks"),
                row(10, "h2", "assistant", "Gladly."),
            ],
        },
    )


def opencode(path: Path) -> Path:
    def data(**value: Any) -> str:
        return json.dumps(value)

    tool = {"status": "completed", "input": {"filePath": "a"}, "output": "its text"}
    return database(
        path,
        {
            "session": [{"id": "ses_1", "title": "Reading", "time_created": 1795008350000}],
            "message": [
                {
                    "id": "m1",
                    "session_id": "ses_1",
                    "time_created": 1,
                    "data": data(role="user", time={"created": 1795008350000}),
                },
                {
                    "id": "m2",
                    "session_id": "ses_1",
                    "time_created": 2,
                    "data": data(role="assistant", modelID="m", time={"created": 1795008351000}),
                },
            ],
            "part": [
                {"id": "p1", "message_id": "m1", "data": data(type="text", text="read a")},
                {"id": "p2", "message_id": "m2", "data": data(type="step-start")},
                {
                    "id": "p3",
                    "message_id": "m2",
                    "data": data(type="tool", callID="c1", tool="read", state=tool),
                },
                {
                    "id": "p4",
                    "message_id": "m2",
                    "data": data(type="step-finish", tokens={"input": 5, "output": 2}),
                },
                {"id": "p5", "message_id": "m2", "data": data(type="text", text="It says so.")},
                {"id": "p6", "message_id": "m2", "data": data(type="patch", hash="1")},
            ],
        },
    )


def llm(path: Path) -> Path:
    """A conversation of an older version, and a thread of a newer one."""
    return database(
        path,
        {
            "conversations": [{"id": "old", "name": "old talk", "model": "m"}],
            "responses": [
                {
                    "id": "1",
                    "model": "m",
                    "prompt": "hello",
                    "response": "hi",
                    "conversation_id": "old",
                    "datetime_utc": "2026-11-18T13:25:49",
                    "input_tokens": 1,
                    "output_tokens": 1,
                }
            ],
            "threads": [{"id": "new", "name": "new talk", "tip_message_hash": "b2"}],
            "turns": [
                {
                    "id": "t",
                    "thread_id": "new",
                    "tip_message_hash": "b2",
                    "model": "m",
                    "datetime_utc": "2026-11-18T13:25:50+00:00",
                }
            ],
            "messages": [
                {"hash": "b1", "parent_hash": None, "role": "user"},
                {"hash": "b2", "parent_hash": "b1", "role": "assistant"},
            ],
            "parts": [
                _llm_part("b1", "good morning"),
                _llm_part("b2", "and to you"),
            ],
        },
    )


def _llm_part(hash: str, words: str) -> dict[str, Any]:
    return {
        "message_hash": hash,
        "position": 0,
        "type": "text",
        "tool_name": None,
        "text": words,
        "payload": None,
    }


def openai_agents(path: Path) -> Path:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a file"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "one file"}],
        },
        {"type": "something_new", "x": 1},
    ]
    return database(
        path,
        {
            "agent_sessions": [{"session_id": "alice", "created_at": "2026-11-18 13:25:52"}],
            "agent_messages": [
                {
                    "id": n,
                    "session_id": "alice",
                    "message_data": json.dumps(item),
                    "created_at": "2026-11-18 13:25:52",
                }
                for n, item in enumerate(items, 1)
            ],
        },
    )


AIDER = """
# aider chat started at 2026-11-18 10:00:00

> Aider v0.86
> Model: m

#### add a greeting
#### to the file

I added it.

```python
print("hello")
```

> Applied edit to hello.py

#### thanks

You are welcome.
"""


def aider(path: Path, text: str = AIDER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
