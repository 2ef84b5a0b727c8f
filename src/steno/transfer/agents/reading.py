"""What the readers of other programs' files share: lines, times, JSON of unknown shape, and the
parts that both large providers' messages are made of.

Nothing here trusts a file: a line, a list and a text have bounds, and a value of another type than
expected is treated as if it were not there.
"""

import codecs
import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from steno.journal.facts import Usage
from steno.journal.parts import (
    Content,
    File,
    Image,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    hash_of,
)
from steno.transfer.agents.talk import Attached

LINE_BYTES_MAX = 64 << 20
ATTACHMENT_BYTES_MAX = 24 << 20
_PIECE_BYTES = 1 << 16
"""Larger ones leave holes in the memory of the process, which then grows with the file."""
_BETWEEN = re.compile(r"[, \t\r\n]*")


class Unreadable(Exception):
    """A place in a file that cannot be read: `where` it is and `why`."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where, self.why = where, why


class Line(Struct, frozen=True):
    number: int
    offset: int
    value: dict[str, Any]
    raw: str


def lines(file: BinaryIO, where: str, bad: list[tuple[str, str]]) -> Iterator[Line]:
    """The JSON objects of a file, one a line. What is none is named in `bad`. A last line without
    its end is one that is still being written: it comes with the next import."""
    number = offset = 0
    while raw := file.readline(LINE_BYTES_MAX + 1):
        number, at, offset = number + 1, offset, offset + len(raw)
        if len(raw) > LINE_BYTES_MAX:
            raise Unreadable(f"{where}:{number}", "the line is longer than 64 MiB")
        text = raw.decode("utf-8", "surrogateescape").strip()
        if not text:
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if raw.endswith(b"\n"):
                bad.append((f"{where}:{number}", "this line is not JSON"))
            continue
        if isinstance(value, dict):
            yield Line(number, at, value, text)
        else:
            bad.append((f"{where}:{number}", "this line is not a JSON object"))


def line_at(file: BinaryIO, offset: int) -> Line:
    """A line that was read before, by its place."""
    file.seek(offset)
    text = file.readline(LINE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()
    return Line(0, offset, json.loads(text), text)


def objects(file: BinaryIO, where: str) -> Iterator[dict[str, Any]]:
    """The objects of a file that is one JSON array, one at a time: the array may be large, each
    object of it fits in memory. An array without its end is named as such, after its objects."""
    letters = codecs.getincrementaldecoder("utf-8")(
        "replace"
    )  # a letter may stand across a cut
    decoder, held, at = json.JSONDecoder(), "", 0
    begun = ended = False
    while not ended:
        more = file.read(
            max(_PIECE_BYTES, len(held) - at)
        )  # an entry is tried again a few times
        ended = not more
        held, at = held[at:] + letters.decode(more, ended), 0
        if not begun:
            held = held.lstrip("\ufeff \t\r\n")
            if held and not held.startswith("["):
                yield from _single(held, file, letters, where)
                return
            begun, at = bool(held), 1
        while (at := _BETWEEN.match(held, at).end()) < len(held):  # type: ignore[union-attr]
            if held[at] == "]":
                return
            try:
                value, at = decoder.raw_decode(held, at)
            except (ValueError, RecursionError) as error:
                if ended:
                    raise Unreadable(
                        where, f"it is not whole JSON ({error})"
                    ) from error
                break
            if isinstance(value, dict):
                yield value
        if len(held) - at > 4 * LINE_BYTES_MAX:
            raise Unreadable(where, "one entry of it is larger than 256 MiB")
    if begun:
        raise Unreadable(where, "it ends in the middle of its list")


def _single(
    text: str, file: BinaryIO, letters: codecs.IncrementalDecoder, where: str
) -> Iterator[dict[str, Any]]:
    rest = letters.decode(file.read(4 * LINE_BYTES_MAX), True)
    try:
        value = json.loads(text + rest)
    except (ValueError, RecursionError) as error:
        raise Unreadable(where, f"it is not whole JSON ({error})") from error
    if isinstance(value, dict):
        yield value


def text_at(value: object, *path: str) -> str:
    """The string at a path of keys; "" if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def list_at(value: object, *path: str) -> list[Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def number_at(value: object, *path: str) -> int | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return (
        int(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else None
    )


def ms_of(value: object) -> int:
    """A time as other programs write it, in milliseconds: ISO 8601, seconds or milliseconds since
    1970. 0 if it is none."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float):
        return int(value) if value > 1e11 else int(value * 1000)
    if not isinstance(value, str) or not value:
        return 0
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return 0
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def attachment(
    data: str | bytes, media_type: str, name: str = ""
) -> tuple[Content, tuple[Attached, ...]]:
    """Bytes, or base64 of them, as a part with its payload."""
    if isinstance(data, str):
        try:
            data = b64decode(data, validate=False)
        except (NotBase64, ValueError):
            return Text(f"[{media_type or 'file'} {name} that cannot be decoded]"), ()
    if len(data) > ATTACHMENT_BYTES_MAX:
        return Text(
            f"[{media_type or 'file'} {name} of {len(data)} bytes, too large to keep]"
        ), ()
    kind = Image if media_type.startswith("image/") else File
    hash = hash_of(data)
    part = kind(hash, media_type or "application/octet-stream", len(data), name[:200])
    return part, (Attached(part, data),)


def anthropic_parts(
    content: object, program: str
) -> tuple[tuple[Content, ...], tuple[Attached, ...]]:
    """Content blocks as Anthropic's messages have them, but for tool results."""
    if isinstance(content, str):
        return ((Text(content),) if content else ()), ()
    parts, attached = list[Content](), list[Attached]()
    for block in content if isinstance(content, list) else []:
        kind = text_at(block, "type")
        if kind == "text":
            parts += [Text(block["text"])] if text_at(block, "text") else []
        elif kind == "thinking":
            parts += (
                [Reasoning(block["thinking"])] if text_at(block, "thinking") else []
            )
        elif kind == "tool_use" and text_at(block, "id"):
            arguments = as_json(block.get("input", {}))
            parts.append(ToolCall(block["id"], text_at(block, "name"), arguments))
        elif kind in ("image", "document") and text_at(block, "source", "data"):
            source = block["source"]
            part, brought = attachment(source["data"], text_at(source, "media_type"))
            parts.append(part)
            attached += brought
        else:
            parts.append(Opaque(program, kind or "unknown", as_json(block)))
    return tuple(parts), tuple(attached)


def anthropic_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    fresh, cached = (
        number_at(usage, "input_tokens"),
        number_at(usage, "cache_read_input_tokens"),
    )
    made = number_at(usage, "cache_creation_input_tokens")
    whole = None if fresh is None else fresh + (cached or 0) + (made or 0)
    return Usage(whole, number_at(usage, "output_tokens"), cached)


def openai_parts(
    content: object, program: str
) -> tuple[tuple[Content, ...], tuple[Attached, ...]]:
    """Content of a message as OpenAI's Chat Completions and Responses have it."""
    if isinstance(content, str):
        return ((Text(content),) if content else ()), ()
    parts, attached = list[Content](), list[Attached]()
    for block in content if isinstance(content, list) else []:
        kind = text_at(block, "type")
        if kind in ("text", "input_text", "output_text", "summary_text"):
            parts += [Text(block["text"])] if text_at(block, "text") else []
        elif kind in ("image_url", "input_image"):
            url = text_at(block, "image_url") or text_at(block, "image_url", "url")
            head, comma, data = url.partition(",")
            if comma and head.startswith("data:") and head.endswith(";base64"):
                part, brought = attachment(data, head[5:-7])
                parts.append(part)
                attached += brought
            else:
                parts.append(Opaque(program, kind, as_json(block)))
        elif kind == "refusal":
            parts += [Text(block["refusal"])] if text_at(block, "refusal") else []
        else:
            parts.append(Opaque(program, kind or "unknown", as_json(block)))
    return tuple(parts), tuple(attached)


def speaks(parts: tuple[Content, ...]) -> bool:
    """Whether there is anything in it that a person would read or a model was asked with."""
    return any(not isinstance(part, Opaque) for part in parts)


def short(path: Path, places: int = 2) -> str:
    """A file's name and the folders that tell it apart, for a report."""
    return "/".join(path.parts[-places - 1 :])
