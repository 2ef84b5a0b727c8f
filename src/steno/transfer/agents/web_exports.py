"""The exports of two web chats, as zip files or as the JSON inside: ChatGPT's `conversations.json`
and Claude.ai's. Written from what is publicly known of their shapes: neither can be made offline.

ChatGPT keeps a talk as a tree of nodes: an edited prompt and a repeated answer are branches. The
talk leads to `current_node`; each other leaf is a branch. Its pictures are files of the zip, whose
names begin with the id that a message names. Claude.ai keeps a list; of a file that was attached it
keeps the text, which stands in front of the prompt.
"""

import mimetypes
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from steno.journal.facts import StepEnding
from steno.journal.parts import (
    Content,
    Failed,
    Opaque,
    Reasoning,
    Returned,
    Text,
    ToolCall,
)
from steno.transfer.agents.reading import (
    ATTACHMENT_BYTES_MAX,
    Unreadable,
    anthropic_parts,
    as_json,
    attachment,
    list_at,
    ms_of,
    objects,
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
    Talk,
    ToolResult,
    branch,
    line_to,
)

CHATGPT, CLAUDE_AI = "chatgpt", "claude.ai"
BRANCHES_MAX = 200
NODES_MAX = 100_000
_FILE_ID = re.compile(r"(file[-_][A-Za-z0-9]+)")


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
                        where = f"{short(path)}:{name}"
                        yield from _of(cast(BinaryIO, file), where, Beside(archive))
        return
    with path.open("rb") as file:
        yield from _of(file, short(path), Beside(None))


class Beside:
    """The files that came with the conversations, by the ids that their names begin with."""

    def __init__(self, archive: zipfile.ZipFile | None) -> None:
        self._archive = archive
        self._names: dict[str, str] = {}
        for name in [] if archive is None else archive.namelist():
            if found := _FILE_ID.match(name.rsplit("/", 1)[-1]):
                self._names.setdefault(found[1], name)

    def at(self, pointer: str) -> tuple[Content, tuple[Attached, ...]] | None:
        """The file that a message points to; None if it did not come along."""
        name = self._names.get(pointer.rsplit("/", 1)[-1])
        if self._archive is None or name is None:
            return None
        with self._archive.open(name) as file:
            body = file.read(ATTACHMENT_BYTES_MAX + 1)
        leaf = name.rsplit("/", 1)[-1]
        kind = mimetypes.guess_type(leaf)[0] or "application/octet-stream"
        return attachment(body, kind, _FILE_ID.sub("", leaf).lstrip("-"))


READERS: dict[str, Callable[[dict[str, Any], str, Beside], Iterator[Talk]]]


def _of(file: BinaryIO, where: str, beside: Beside) -> Iterator[Talk]:
    for n, conversation in enumerate(objects(file, where), 1):
        program = recognised(conversation)
        if program:
            yield from READERS[program](conversation, f"{where}#{n}", beside)
        else:
            raise Unreadable(f"{where}#{n}", "it is no conversation of a known kind")


def _chatgpt(
    conversation: dict[str, Any], where: str, beside: Beside
) -> Iterator[Talk]:
    nodes: dict[str, Any] = conversation["mapping"]
    id = text_at(conversation, "conversation_id") or text_at(conversation, "id")
    if not id or len(nodes) > NODES_MAX:
        raise Unreadable(where, "it has no id" if not id else "it has too many nodes")
    parents = {key: text_at(node, "parent") for key, node in nodes.items()}
    leaves = [key for key, node in nodes.items() if not list_at(node, "children")]
    current = text_at(conversation, "current_node")
    main = line_to(current if current in nodes else (leaves or [""])[-1], parents)
    known = [one for key in main for one in _chatgpt_entries(nodes[key], beside)]
    title = text_at(conversation, "title")
    talk = Talk(program=CHATGPT, id=id, where=where, entries=known, title=title)
    if known:
        yield talk
    for leaf in [one for one in leaves if one not in main][:BRANCHES_MAX]:
        line = line_to(leaf, parents)
        entries = [
            one for key in line for one in _chatgpt_entries(nodes[key], beside)
        ]
        if (other := branch(talk, leaf, known, entries)) is not None:
            yield other


def _chatgpt_entries(node: Any, beside: Beside) -> Iterator[Entry]:
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return
    role, at_ms = (
        text_at(message, "author", "role"),
        ms_of(message.get("create_time")),
    )
    parts, attached = _chatgpt_parts(message, beside)
    hidden = isinstance(message.get("metadata"), dict) and message["metadata"].get(
        "is_visually_hidden_from_conversation"
    )
    if hidden or not speaks(parts) or role not in ("user", "assistant"):
        yield Kept(at_ms, as_json(message), text_at(message, "id") or None)
    elif role == "user":
        yield Said(at_ms, parts, attached=attached)
    else:
        cut: StepEnding = (
            "incomplete"
            if text_at(message, "status") == "in_progress"
            else "complete"
        )
        model = text_at(message, "metadata", "model_slug")
        yield Answer(at_ms, parts, model, ended=cut, attached=attached)


def _chatgpt_parts(
    message: dict[str, Any], beside: Beside
) -> tuple[tuple[Content, ...], tuple[Attached, ...]]:
    kind = text_at(message, "content", "content_type")
    if kind not in ("text", "multimodal_text"):
        return _chatgpt_other(message, kind), ()
    parts, attached = list[Content](), list[Attached]()
    for one in filter(None, list_at(message, "content", "parts")):
        if isinstance(one, str):
            parts.append(Text(one))
        elif (found := beside.at(text_at(one, "asset_pointer"))) is not None:
            parts.append(found[0])
            attached += found[1]
        else:
            parts.append(Opaque(CHATGPT, kind, as_json(one)))
    return tuple(parts), tuple(attached)


def _chatgpt_other(message: dict[str, Any], kind: str) -> tuple[Content, ...]:
    content = message.get("content")
    if kind in ("code", "execution_output") and text_at(content, "text"):
        recipient = text_at(message, "recipient")
        if recipient not in (
            "",
            "all",
        ):  # a call of a tool; its output is a message of its own
            return (Opaque(CHATGPT, kind, as_json(message)),)
        return (Text(text_at(content, "text")),)
    if kind == "thoughts":
        told = [text_at(one, "content") for one in list_at(content, "thoughts")]
        return (Reasoning("\n".join(filter(None, told))),) if any(told) else ()
    return (Opaque(CHATGPT, kind or "unknown", as_json(content)),) if content else ()


def _claude(
    conversation: dict[str, Any], where: str, beside: Beside
) -> Iterator[Talk]:
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
    blocks = (
        content if isinstance(content, list) else [{"type": "text", "text": content}]
    )
    results = [one for one in blocks if text_at(one, "type") == "tool_result"]
    rest = [
        one
        for one in blocks
        if text_at(one, "type") not in ("tool_result", "token_budget")
    ]
    parts = _with_ids(anthropic_parts(rest, CLAUDE_AI)[0])
    texts = tuple(_claude_attached(message))
    if sender == "human" and (speaks(parts) or texts):
        yield Said(at_ms, texts + parts)
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


def _claude_attached(message: dict[str, Any]) -> Iterator[Text]:
    """The texts of attached files, each by itself; also of what was pasted, which has no name."""
    for one in list_at(message, "attachments"):
        name, text = text_at(one, "file_name"), text_at(one, "extracted_content")
        if text:
            yield Text(f"[{name}]\n{text}\n\n" if name else f"{text}\n\n")


def _with_ids(parts: tuple[Content, ...]) -> tuple[Content, ...]:
    return tuple(part for part in parts if not isinstance(part, ToolCall) or part.id)


READERS = {CHATGPT: _chatgpt, CLAUDE_AI: _claude}
