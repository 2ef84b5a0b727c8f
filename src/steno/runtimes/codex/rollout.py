"""The end of the file that codex keeps of a thread.

Codex's hooks do not say in which folder and with which rights a command is to run; the file does,
and codex writes it before it runs a hook. Codex writes what was said to it twice: for its model,
and then as an item that it lists. If it is killed in between, its model is told what it does not
list, and only the file says so. The file is codex's own and may look otherwise one day: what cannot
be read here says nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from steno.runtimes.codex.naming import client_ids

TAIL_BYTES_MAX = 32 * 1024 * 1024
_arguments = msgspec.json.Decoder(dict[str, Any])


def unlisted(path: str, answered: frozenset[str]) -> list[list[str]]:
    """The texts of each message of a user that the model is told and that is not listed, the oldest
    first. What stands before an input that was answered does not count."""
    found: list[list[str]] = []
    listed = False
    for line in _from_the_end(path):
        match _read(line):
            case str(client_id):
                if not answered.isdisjoint(client_ids(client_id)):
                    break
                listed = True
            case list(texts):
                found += [] if listed else [texts]
                listed = False
            case None:
                pass
    return found[::-1]


def folder_asked(path: str | None, call: str) -> str | None:
    """The folder in which a command is to run, as its model asked for; "" if it did not. None if
    nobody knows."""
    folders = {str(arguments.get("workdir") or "") for arguments in arguments_of(path, call)}
    return folders.pop() if len(folders) == 1 else None


def arguments_of(path: str | None, call: str) -> list[dict[str, Any]]:
    """What a command was called with: each call of the last turn that has this id, since nobody
    could tell them apart. None of them if the file says nothing of it, or something that cannot be
    read: then nobody knows."""
    found: list[dict[str, Any]] = []
    for line in () if path is None else _from_the_end(path):
        if b'"function_call"' not in line and b'"task_started"' not in line:
            continue
        try:
            match msgspec.json.decode(line):
                case {"type": "event_msg", "payload": {"type": "task_started"}}:
                    break
                case {
                    "payload": {"type": "function_call", "call_id": id, "arguments": str(arguments)}
                } if id == call:
                    found.append(_arguments.decode(arguments))
        except (msgspec.DecodeError, RecursionError):
            return []
    return found


def _from_the_end(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(end - TAIL_BYTES_MAX, 0))
            yield from reversed(file.read(TAIL_BYTES_MAX).split(b"\n"))
    except OSError:
        return


def _read(line: bytes) -> str | list[str] | None:
    """The id of an input that is listed, the texts of one that the model is told, or None for
    anything else."""
    if b'"UserMessage"' not in line and b'"user.' not in line:
        return None
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    match entry:
        case {"payload": {"type": "item_completed", "item": {"type": "UserMessage", **item}}}:
            return str(item.get("client_id") or "")
        case {"payload": {"type": "message", "role": "user", "content": [*blocks], **rest}}:
            return (
                [str(one["text"]) for one in blocks if isinstance(one, dict) and "text" in one]
                if _is_said(rest)
                else None
            )
        case _:
            return None


def _is_said(message: dict[Any, Any]) -> bool:
    """Whether a person said it: codex tells its model other things in the same way."""
    match message.get("internal_chat_message_metadata_passthrough"):
        case {"content_item_kinds": [*kinds]}:
            return any(str(kind).startswith("user.") for kind in kinds)
        case _:
            return False
