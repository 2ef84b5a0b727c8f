"""Output that is too long for a request: stored whole, once, under its hash. A model is told its
head and its tail, a person is shown all of it.

The fact names the payload and repeats none of it, so that the same output stored a thousand times
costs one copy. Head and tail are cut when a request is built. The cut depends on the bytes alone,
so every process builds the same.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeGuard

from msgspec.structs import replace

from steno.engine.request import Request
from steno.engine.tokens import OUTPUT_CHARS_MAX
from steno.journal.history import Entry, Settled
from steno.journal.parts import (
    Content,
    File,
    Hash,
    Outcome,
    Refused,
    Text,
    outcome_parts,
    to_text,
)
from steno.journal.transcript import Message
from steno.tools.protocol import Checks, Output, Prepared, Tool

HEAD_CHARS = 6_000
TAIL_CHARS = OUTPUT_CHARS_MAX - HEAD_CHARS
SHOWN_BYTES_MAX = 50_000_000
MEDIA_TYPE = "text/plain"
_LINE_CHARS = 200
"""How far a cut may move to the end of a line."""

Keep = Callable[[bytes], Awaitable[Hash]]


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- storing --------------------------------------------------------------------------------------


class KeepingTool:
    """A tool whose long output is stored as a payload."""

    def __init__(self, tool: Tool, chars_max: int, keep: Keep) -> None:
        self.spec = tool.spec
        self.approval = tool.approval
        self._tool = tool
        self._chars_max = chars_max
        self._keep = keep

    async def check(self, arguments: str) -> None:
        if isinstance(self._tool, Checks):
            await self._tool.check(arguments)

    async def prepare(self, arguments: str) -> Prepared:
        return _KeepingCall(
            await self._tool.prepare(arguments), self._chars_max, self._keep
        )


class _KeepingCall:
    def __init__(self, prepared: Prepared, chars_max: int, keep: Keep) -> None:
        self.group = prepared.group
        self.stop = prepared.stop
        self._prepared = prepared
        self._chars_max = chars_max
        self._keep = keep

    async def run(self, output: Output) -> Outcome:
        outcome = await self._prepared.run(output)
        return await kept(outcome, self._chars_max, self._keep)


async def kept(outcome: Outcome, chars_max: int, keep: Keep) -> Outcome:
    """The outcome with each text that is too long in a payload. What is short stays in the fact."""
    if isinstance(outcome, Refused) or all(
        _is_short(part, chars_max) for part in outcome.parts
    ):
        return outcome
    parts: list[Content] = []
    for part in outcome.parts:
        if isinstance(part, Text) and not _is_short(part, chars_max):
            payload = to_bytes(part.text)
            parts.append(File(await keep(payload), MEDIA_TYPE, len(payload)))
        else:
            parts.append(part)
    return replace(outcome, parts=tuple(parts))


def _is_short(part: Content, chars_max: int) -> bool:
    return not isinstance(part, Text) or len(part.text) <= chars_max


# --- what a model is told -------------------------------------------------------------------------


def outputs_of(entries: Iterable[Entry]) -> set[Hash]:
    """The payloads that stand for the output of tools."""
    settled = (entry for entry in entries if isinstance(entry, Settled))
    return {
        part.hash
        for entry in settled
        for part in outcome_parts(entry.outcome)
        if is_output(part)
    }


def is_output(part: Content) -> TypeGuard[File]:
    return isinstance(part, File) and part.media_type == MEDIA_TYPE


def excerpted(request: Request, excerpts: Mapping[Hash, str]) -> Request:
    """The request with an excerpt in the place of each output that lies in a payload."""
    if not excerpts:
        return request
    return replace(
        request,
        entries=tuple(_with_excerpt(entry, excerpts) for entry in request.entries),
    )


def _with_excerpt(entry: Entry, excerpts: Mapping[Hash, str]) -> Entry:
    if not isinstance(entry, Settled) or isinstance(entry.outcome, Refused):
        return entry
    parts = entry.outcome.parts
    if not any(is_output(part) for part in parts):
        return entry
    shown = (
        Text(excerpts[part.hash])
        if is_output(part) and part.hash in excerpts
        else part
        for part in parts
    )
    return replace(entry, outcome=replace(entry.outcome, parts=tuple(shown)))


def excerpt(text: str, hash: Hash) -> str:
    """Head and tail, and how to read what is between them."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    head, tail = _to_line_end(text[:HEAD_CHARS]), _from_line_start(text[-TAIL_CHARS:])
    first, last = len(head), len(text) - len(tail)
    between = "" if head.endswith("\n") else "\n"
    return (
        f"{head}{between}[characters {first} to {last} of {len(text)} are left out; "
        f'read_output with output "{hash[:12]}" and an offset reads any part]\n{tail}'
    )


def _to_line_end(text: str) -> str:
    at = text.rfind("\n", len(text) - _LINE_CHARS)
    return text if at < 0 else text[: at + 1]


def _from_line_start(text: str) -> str:
    at = text.find("\n", 0, _LINE_CHARS)
    return text if at < 0 else text[at + 1 :]


# --- what a person is shown -----------------------------------------------------------------------


async def unfold(
    messages: Iterable[Message], get: Callable[[Hash], Awaitable[bytes]]
) -> None:
    """Put outputs that lie in payloads back into the messages, whole, as far as they fit; else say
    where they are."""
    room = SHOWN_BYTES_MAX
    for message in messages:
        if message.role != "tool" or not any(
            is_output(part) for part in message.parts
        ):
            continue
        parts: list[Content] = []
        for part in message.parts:
            if not is_output(part):
                parts.append(part)
            elif part.size <= room:
                room -= part.size
                parts.append(Text(to_text(await get(part.hash))))
            else:
                parts.append(
                    Text(
                        f"[{part.size} bytes of output, stored as {part.hash}, are not shown here]"
                    )
                )
        message.parts = tuple(parts)
