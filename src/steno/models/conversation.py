"""What every wire format says, before any of them says it: entries as messages of three speakers.

Rules that hold for every conversation:

- A message is made from one entry, and the entries before it decide nothing about it but the ids of
  its calls. So appending an entry never changes an earlier message.
- No message and no block is empty. The first message is the user's; so is the last, or it is the
  tools'.
- Every call is followed at once by one result, and every result follows its call. Ids of calls are
  unique.
- Arguments of a call are a JSON object.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Literal, assert_never

from msgspec import Struct

from steno.engine.request import Request
from steno.journal.history import (
    Answered,
    Closed,
    Entry,
    Noted,
    Said,
    Settled,
    Summarised,
)
from steno.journal.parts import (
    Content,
    File,
    Hash,
    Image,
    Opaque,
    Outcome,
    Reasoning,
    Redacted,
    Returned,
    Text,
    ToolCall,
    outcome_parts,
)
from steno.models import wording
from steno.models.wire import json_object

FILE_CHARS_MAX = 200_000
PICTURE_BYTES_MAX = 5 * 2**20 * 3 // 4
"""A request carries an image as base64, which is a third longer, and the strictest provider takes 5
MiB of it."""

_OPENINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

_TEXTUAL = re.compile(
    r"text/|application/(json|xml|yaml|toml|javascript|x-sh|x-yaml|x-ndjson)\b|.*\+(json|xml)\b"
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class Words(Struct, frozen=True, gc=False):
    text: str


class Picture(Struct, frozen=True, gc=False):
    media_type: str
    base64: str


class Thought(Struct, frozen=True, gc=False):
    """Reasoning that goes back to the provider that wrote it. `data` means something there only."""

    text: str
    data: str


class Call(Struct, frozen=True, gc=False):
    """`written` is the id as the model wrote it, `id` the one that this request uses."""

    id: str
    name: str
    arguments: str
    written: str


Shown = tuple[Words | Picture, ...]


class Result(Struct, frozen=True, gc=False):
    call: str
    shown: Shown
    failed: bool


class Plain(Struct, frozen=True, gc=False):
    """A message of one text, as nearly all are: whatever says only that is this."""

    speaker: Literal["user", "assistant"]
    text: str


class FromUser(Struct, frozen=True, gc=False):
    shown: Shown


class FromModel(Struct, frozen=True, gc=False):
    blocks: tuple[Thought | Words | Call, ...]


class FromTools(Struct, frozen=True, gc=False):
    results: tuple[Result, ...]


Message = Plain | FromUser | FromModel | FromTools


class Conversation(Struct, frozen=True):
    """`lasting` is repeated by later requests; `note` stands at the end of this one only."""

    lasting: list[Message]
    note: Plain | None

    def messages(self) -> list[Message]:
        return self.lasting if self.note is None else [*self.lasting, self.note]


def conversation(
    request: Request,
    payloads: Mapping[Hash, bytes],
    provider: str,
    call_id: re.Pattern[str],
) -> Conversation:
    """`call_id` is what the wire accepts as the id of a call; `provider` is whose blobs it
    takes."""
    messages = _Telling(payloads, provider, call_id).tell(request.entries)
    if messages and _is_models(messages[0]):
        messages.insert(0, Plain("user", wording.EARLIER))
    note = request.note
    if not note.strip() and (not messages or _is_models(messages[-1])):
        note = wording.GO_ON
    return Conversation(messages, Plain("user", note) if note.strip() else None)


def _is_models(message: Message) -> bool:
    return isinstance(message, FromModel) or (
        isinstance(message, Plain) and message.speaker == "assistant"
    )


class _Telling:
    """One pass over the entries. Holds the calls whose results are still to come, and every id in
    use."""

    def __init__(
        self, payloads: Mapping[Hash, bytes], provider: str, call_id: re.Pattern[str]
    ) -> None:
        self._payloads, self._provider, self._call_id = payloads, provider, call_id
        self._ids: set[str] = set()
        self._open: list[Call] = []
        self._results: list[Result] = []

    def tell(self, entries: Iterable[Entry]) -> list[Message]:
        """A long session has thousands of entries, nearly all of one text: those take the short
        way."""
        messages: list[Message] = []
        for entry in entries:
            if isinstance(entry, Settled):
                messages.extend(self._settle(entry))
                continue
            if self._open:
                messages.extend(self._missing())
            if isinstance(entry, Answered):
                if entry.ended == "complete" and (text := _only_text(entry.parts)):
                    messages.append(Plain("assistant", text))
                    continue
            elif isinstance(entry, Said) and (text := _only_text(entry.parts)):
                if entry.author or entry.quoted or entry.awaits:
                    text = f"{wording.beside(entry)}{text}"
                messages.append(Plain("user", text))
                continue
            messages.extend(self._message(entry))
        messages.extend(self._missing())
        return messages

    def _message(
        self, entry: Said | Answered | Closed | Noted | Summarised
    ) -> Iterator[Message]:
        match entry:
            case Said():
                beside = wording.beside(entry)
                shown = self._said(entry.parts) or (Words(wording.EMPTY_MESSAGE),)
                yield _from_user(
                    (Words(beside.rstrip()), *shown) if beside else shown
                )
            case Answered():
                blocks = self._answered(entry)
                self._open = [block for block in blocks if isinstance(block, Call)]
                if blocks:
                    yield _from_model(blocks)
            case Closed():
                yield Plain("assistant", wording.closing(entry))
            case Noted():
                yield Plain("user", wording.noted(entry))
            case Summarised():
                yield Plain("user", f"{wording.SUMMARY}\n{entry.summary}".rstrip())
            case unreachable:
                assert_never(unreachable)

    def _missing(self) -> Iterator[FromTools]:
        """Results for calls that have none: a rewind may end between the two."""
        if self._open:
            words = (Words(wording.NO_OUTCOME),)
            self._results += [
                Result(call.id, words, failed=True) for call in self._open
            ]
            self._open = []
            yield self._settled()

    def _settle(self, entry: Settled) -> Iterator[Message]:
        call = next((call for call in self._open if call.written == entry.call), None)
        shown = self._outcome(entry.outcome)
        if call is None:
            yield from self._missing()
            yield _from_user(
                (Words(f"[Outcome of the earlier call {entry.call}]"), *shown)
            )
            return
        self._open.remove(call)
        self._results.append(
            Result(call.id, shown, not isinstance(entry.outcome, Returned))
        )
        if not self._open:
            yield self._settled()

    def _settled(self) -> FromTools:
        results, self._results = tuple(self._results), []
        return FromTools(results)

    def _said(self, parts: tuple[Content, ...]) -> Shown:
        return tuple(
            block
            for part in parts
            if (block := self._block(part, whole_files=True)) is not None
        )

    def _outcome(self, outcome: Outcome) -> Shown:
        """A file among the output stands for text that is too long to show, so it is only named."""
        blocks = (
            self._block(part, whole_files=False) for part in outcome_parts(outcome)
        )
        shown = [block for block in blocks if block is not None]
        if verdict := wording.verdict(outcome):
            shown.append(Words(verdict))
        return tuple(shown) or (Words(wording.NO_OUTPUT),)

    def _block(self, part: Content, whole_files: bool) -> Words | Picture | None:
        match part:
            case Text():
                return Words(part.text) if part.text.strip() else None
            case Redacted():
                return Words(wording.REDACTED)
            case Image():
                data = self._payloads.get(part.hash, b"")
                media_type = picture_type(data)
                if media_type is None or len(data) > PICTURE_BYTES_MAX:
                    return Words(wording.stub(part))
                return Picture(media_type, b64encode(data).decode("ascii"))
            case File():
                text = self._text_of(part) if whole_files else None
                return Words(
                    wording.stub(part)
                    if text is None
                    else wording.file_text(part, text)
                )
            case Opaque():
                return Words(wording.opaque(part))
            case Reasoning() | ToolCall():
                return None
            case unreachable:
                assert_never(unreachable)

    def _text_of(self, part: File) -> str | None:
        data = self._payloads.get(part.hash)
        if data is None or _TEXTUAL.match(part.media_type) is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        return (
            text
            if len(text) <= FILE_CHARS_MAX
            else f"{text[:FILE_CHARS_MAX]}\n[cut here]"
        )

    def _answered(self, entry: Answered) -> tuple[Thought | Words | Call, ...]:
        """Its blocks in order, pieces of one text joined. A thought that nothing follows is worth
        nothing to anyone, and the thoughts of an answer that is not whole may be unsigned, so they
        are left out."""
        blocks: list[Thought | Words | Call] = []
        marker = wording.ending(entry.ended)
        for part in entry.parts:
            match part:
                case ToolCall():
                    if marker:
                        blocks.append(Words(marker))
                        marker = ""
                    blocks.append(self._call(entry, part))
                case Reasoning():
                    if (
                        part.blob is not None
                        and part.blob.provider == self._provider
                        and entry.ended == "complete"
                    ):
                        blocks.append(Thought(part.text, part.blob.data))
                case Text():
                    _join(blocks, part.text)
                case Redacted():
                    _join(blocks, wording.REDACTED)
                case Image() | File():
                    _join(blocks, wording.stub(part))
                case Opaque():
                    _join(blocks, wording.opaque(part))
                case unreachable:
                    assert_never(unreachable)
        said = [
            block
            for block in blocks
            if not isinstance(block, Words) or block.text.strip()
        ]
        if marker:
            said.append(Words(marker))
        while said and isinstance(said[-1], Thought):
            said.pop()
        return tuple(said)

    def _call(self, entry: Answered, part: ToolCall) -> Call:
        name = (
            part.name
            if _NAME.fullmatch(part.name)
            else _NOT_NAME.sub("_", part.name)[:64] or "unnamed"
        )
        return Call(
            self._unique(entry, part.id), name, json_object(part.arguments), part.id
        )

    def _unique(self, entry: Answered, written: str) -> str:
        """The id as written if the wire takes it and no earlier call has it; else one made from its
        place."""
        chosen = written
        while chosen in self._ids or self._call_id.fullmatch(chosen) is None:
            place = f"{entry.seq}.{written}.{chosen}".encode("utf-8", "surrogatepass")
            chosen = f"call_{sha256(place).hexdigest()[:24]}"
        self._ids.add(chosen)
        return chosen


def _only_text(parts: tuple[Content, ...]) -> str:
    """The text of a message that has nothing else; empty if it is blank."""
    if len(parts) == 1 and type(part := parts[0]) is Text and not part.text.isspace():
        return part.text
    return ""


def _from_user(shown: Shown) -> Plain | FromUser:
    if len(shown) == 1 and isinstance(only := shown[0], Words):
        return Plain("user", only.text)
    return FromUser(shown)


def _from_model(blocks: tuple[Thought | Words | Call, ...]) -> Plain | FromModel:
    if len(blocks) == 1 and isinstance(only := blocks[0], Words):
        return Plain("assistant", only.text)
    return FromModel(blocks)


def _join(blocks: list[Thought | Words | Call], text: str) -> None:
    last = blocks[-1] if blocks else None
    if isinstance(last, Words):
        blocks[-1] = Words(last.text + text)
    else:
        blocks.append(Words(text))


def shown_text(shown: Shown) -> str:
    """For wires that carry only text here."""
    return "\n\n".join(
        block.text if isinstance(block, Words) else "[image, not shown]"
        for block in shown
    )


def picture_type(data: bytes) -> str | None:
    """The media type of an image that every provider takes, however large; None if it is none.
    Decided by the bytes: a name or a server may say anything, and a provider refuses a request for
    one image that is not what it is called."""
    for opening, media_type in _OPENINGS:
        if data.startswith(opening):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
