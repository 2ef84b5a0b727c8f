"""The exports of two web chats, as zip files or as the JSON inside: ChatGPT's `conversations.json`
and Claude.ai's. Written from what is publicly known of their shapes: neither can be made offline.

ChatGPT keeps a talk as a tree of nodes: an edited prompt and a repeated answer are branches. The
talk leads to `current_node`; each other leaf is a branch. Claude.ai keeps a list.
"""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from steno.journal.parts import Content, Failed, Opaque, Reasoning, Returned, Text, ToolCall
from steno.transfer.agents.reading import (
    Unreadable,
    anthropic_parts,
    as_json,
    list_at,
    ms_of,
    objects,
    short,
    speaks,
    text_at,
)
from steno.transfer.agents.talk import Answer, Entry, Kept, Said, Talk, ToolResult, branch, line_to

CHATGPT, CLAUDE_AI = "chatgpt", "claude.ai"
BRANCHES_MAX = 200
NODES_MAX = 100_000


def recognised(first: dict[str, Any]) -> str:
    """Which of the two wrote a conversation; "" if neither."""
    if isinstance(first.get("mapping"), dict):
        return CHATGPT
    return CLAUDE_AI if isinstance(first.get("chat_messages"), list) else ""


def talks(path: Path) -> Iterator[Talk]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                leaf = name.rsplit("/", 1)[-1]
                if leaf.startswith("conversations") and leaf.endswith(".json"):
                    with archive.open(name) as file:
                        yield from _of(cast(BinaryIO, file), f"{short(path)}:{name}")
        return
    with path.open("rb") as file:
        yield from _of(file, short(path))


READERS: dict[str, Callable[[dict[str, Any], str], Iterator[Talk]]]


def _of(file: BinaryIO, where: str) -> Iterator[Talk]:
    for n, conversation in enumerate(objects(file, where), 1):
        program = recognised(conversation)
        if program:
            yield from READERS[program](conversation, f"{where}#{n}")
        else:
            raise Unreadable(f"{where}#{n}", "it is no conversation of a known kind")


def _chatgpt(conversation: dict[str, Any], where: str) -> Iterator[Talk]:
    nodes: dict[str, Any] = conversation["mapping"]
    id = text_at(conversation, "conversation_id") or text_at(conversation, "id")
    if not id or len(nodes) > NODES_MAX:
        raise Unreadable(where, "it has no id" if not id else "it has too many nodes")
    parents = {key: text_at(node, "parent") for key, node in nodes.items()}
    leaves = [key for key, node in nodes.items() if not list_at(node, "children")]
    current = text_at(conversation, "current_node")
    main = line_to(current if current in nodes else (leaves or [""])[-1], parents)
    known = [one for key in main for one in _chatgpt_entries(nodes[key])]
    title = text_at(conversation, "title")
    talk = Talk(program=CHATGPT, id=id, where=where, entries=known, title=title)
    if known:
        yield talk
    for leaf in [one for one in leaves if one not in main][:BRANCHES_MAX]:
        line = line_to(leaf, parents)
        entries = [one for key in line for one in _chatgpt_entries(nodes[key])]
        if (other := branch(talk, leaf, known, entries)) is not None:
            yield other


def _chatgpt_entries(node: Any) -> Iterator[Entry]:
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return
    role, at_ms = text_at(message, "author", "role"), ms_of(message.get("create_time"))
    parts = _chatgpt_parts(message)
    hidden = isinstance(message.get("metadata"), dict) and message["metadata"].get(
        "is_visually_hidden_from_conversation"
    )
    if hidden or not speaks(parts) or role not in ("user", "assistant"):
        yield Kept(at_ms, as_json(message), text_at(message, "id") or None)
    elif role == "user":
        yield Said(at_ms, parts)
    else:
        cut = text_at(message, "status") == "in_progress"
        model = text_at(message, "metadata", "model_slug")
        yield Answer(at_ms, parts, model, ended="incomplete" if cut else "complete")


def _chatgpt_parts(message: dict[str, Any]) -> tuple[Content, ...]:
    kind, content = text_at(message, "content", "content_type"), message.get("content")
    if kind in ("text", "multimodal_text"):
        return tuple(
            Text(one) if isinstance(one, str) else Opaque(CHATGPT, kind, as_json(one))
            for one in list_at(content, "parts")
            if one
        )
    if kind in ("code", "execution_output") and text_at(content, "text"):
        recipient = text_at(message, "recipient")
        if recipient not in ("", "all"):  # a call of a tool; its output is a message of its own
            return (Opaque(CHATGPT, kind, as_json(message)),)
        return (Text(text_at(content, "text")),)
    if kind == "thoughts":
        told = [text_at(one, "content") for one in list_at(content, "thoughts")]
        return (Reasoning("\n".join(filter(None, told))),) if any(told) else ()
    return (Opaque(CHATGPT, kind or "unknown", as_json(content)),) if content else ()


def _claude(conversation: dict[str, Any], where: str) -> Iterator[Talk]:
    id = text_at(conversation, "uuid")
    if not id:
        raise Unreadable(where, "it has no id")
    entries = [
        entry
        for message in list_at(conversation, "chat_messages")
        if isinstance(message, dict)
        for entry in _claude_entries(message)
    ]
    if entries:
        name = text_at(conversation, "name")
        yield Talk(program=CLAUDE_AI, id=id, where=where, entries=entries, title=name)


def _claude_entries(message: dict[str, Any]) -> Iterator[Entry]:
    at_ms, sender = ms_of(message.get("created_at")), text_at(message, "sender")
    content = list_at(message, "content") or text_at(message, "text")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    results = [one for one in blocks if text_at(one, "type") == "tool_result"]
    rest = [one for one in blocks if text_at(one, "type") not in ("tool_result", "token_budget")]
    parts = _with_ids(anthropic_parts(rest, CLAUDE_AI)[0])
    texts = [text_at(one, "extracted_content") for one in list_at(message, "attachments")]
    if sender == "human" and (speaks(parts) or any(texts)):
        yield Said(at_ms, (*(Text(text) for text in texts if text), *parts))
    elif sender == "assistant" and speaks(parts):
        yield Answer(at_ms, parts)
        for block in results:
            told = anthropic_parts(block.get("content"), CLAUDE_AI)[0]
            failed = block.get("is_error") is True
            call = text_at(block, "tool_use_id")
            yield ToolResult(at_ms, call, Failed(told) if failed else Returned(told))
    else:
        yield Kept(at_ms, as_json(message), text_at(message, "uuid") or None)
    for one in list_at(message, "files"):
        yield Kept(at_ms, as_json(one))


def _with_ids(parts: tuple[Content, ...]) -> tuple[Content, ...]:
    return tuple(part for part in parts if not isinstance(part, ToolCall) or part.id)


READERS = {CHATGPT: _chatgpt, CLAUDE_AI: _claude}
