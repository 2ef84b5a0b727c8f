"""What every wire format says, before any of them says it: entries as messages of three speakers.

Rules that hold for every conversation:

- A message is made from one entry, and the entries before it decide nothing about it but the ids of its calls. So
  appending an entry never changes an earlier message.
- No message and no block is empty. The first message is the user's; so is the last, or it is the tools'.
- Every call is followed at once by one result, and every result follows its call. Ids of calls are unique.
- Arguments of a call are a JSON object.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import assert_never

from msgspec import Struct

from steno.engine.request import Request
from steno.journal.history import Answered, Closed, Entry, Said, Settled, Summarised
from steno.journal.parts import (
    Content,
    File,
    Hash,
    Image,
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
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_TEXTUAL = re.compile(r"text/|application/(json|xml|yaml|toml|javascript|x-sh|x-yaml|x-ndjson)\b|.*\+(json|xml)\b")
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


class Result(Struct, frozen=True):
    call: str
    shown: Shown
    failed: bool


class FromUser(Struct, frozen=True):
    shown: Shown


class FromModel(Struct, frozen=True):
    blocks: tuple[Thought | Words | Call, ...]


class FromTools(Struct, frozen=True):
    results: tuple[Result, ...]


Message = FromUser | FromModel | FromTools


class Conversation(Struct, frozen=True):
    """`lasting` is repeated by later requests; `note` stands at the end of this one only."""

    lasting: list[Message]
    note: FromUser | None

    def messages(self) -> list[Message]:
        return self.lasting if self.note is None else [*self.lasting, self.note]


def conversation(
    request: Request, payloads: Mapping[Hash, bytes], provider: str, call_id: re.Pattern[str]
) -> Conversation:
    """`call_id` is what the wire accepts as the id of a call; `provider` is whose blobs it takes."""
    told = _Telling(payloads, provider, call_id)
    messages: list[Message] = []
    for entry in request.entries:
        messages.extend(told.entry(entry))
    messages.extend(told.missing())
    if messages and isinstance(messages[0], FromModel):
        messages.insert(0, FromUser((Words(wording.EARLIER),)))
    note = request.note
    if not note.strip() and (not messages or isinstance(messages[-1], FromModel)):
        note = wording.GO_ON
    return Conversation(messages, FromUser((Words(note),)) if note.strip() else None)


class _Telling:
    """One pass over the entries. Holds the calls whose results are still to come, and every id in use."""

    def __init__(self, payloads: Mapping[Hash, bytes], provider: str, call_id: re.Pattern[str]) -> None:
        self._payloads, self._provider, self._call_id = payloads, provider, call_id
        self._ids: set[str] = set()
        self._open: list[Call] = []
        self._results: list[Result] = []

    def entry(self, entry: Entry) -> Iterator[Message]:
        if isinstance(entry, Settled):
            yield from self._settle(entry)
            return
        yield from self.missing()
        match entry:
            case Said():
                yield FromUser(self._said(entry.parts) or (Words(wording.EMPTY_MESSAGE),))
            case Answered():
                blocks = self._answered(entry)
                self._open = [block for block in blocks if isinstance(block, Call)]
                if blocks:
                    yield FromModel(blocks)
            case Closed():
                yield FromModel((Words(wording.closing(entry)),))
            case Summarised():
                yield FromUser((Words(f"{wording.SUMMARY}\n{entry.summary}".rstrip()),))
            case unreachable:
                assert_never(unreachable)

    def missing(self) -> Iterator[FromTools]:
        """Results for calls that have none: a rewind may end between the two."""
        if self._open:
            words = (Words(wording.NO_OUTCOME),)
            self._results += [Result(call.id, words, failed=True) for call in self._open]
            self._open = []
            yield self._settled()

    def _settle(self, entry: Settled) -> Iterator[Message]:
        call = next((call for call in self._open if call.written == entry.call), None)
        shown = self._outcome(entry.outcome)
        if call is None:
            yield from self.missing()
            yield FromUser((Words(f"[Outcome of the earlier call {entry.call}]"), *shown))
            return
        self._open.remove(call)
        self._results.append(Result(call.id, shown, not isinstance(entry.outcome, Returned)))
        if not self._open:
            yield self._settled()

    def _settled(self) -> FromTools:
        results, self._results = tuple(self._results), []
        return FromTools(results)

    def _said(self, parts: tuple[Content, ...]) -> Shown:
        return tuple(block for part in parts if (block := self._block(part, whole_files=True)) is not None)

    def _outcome(self, outcome: Outcome) -> Shown:
        """A file among the output stands for text that is too long to show, so it is only named."""
        blocks = (self._block(part, whole_files=False) for part in outcome_parts(outcome))
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
                data = self._payloads.get(part.hash)
                if data is None or part.media_type not in PICTURES:
                    return Words(wording.stub(part))
                return Picture(part.media_type, b64encode(data).decode("ascii"))
            case File():
                text = self._text_of(part) if whole_files else None
                return Words(wording.stub(part) if text is None else wording.file_text(part, text))
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
        return text if len(text) <= FILE_CHARS_MAX else f"{text[:FILE_CHARS_MAX]}\n[cut here]"

    def _answered(self, entry: Answered) -> tuple[Thought | Words | Call, ...]:
        """Its blocks in order, pieces of one text joined. A thought that nothing follows is worth nothing to anyone,
        and the thoughts of an answer that is not whole may be unsigned, so they are left out."""
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
                    if part.blob is not None and part.blob.provider == self._provider and entry.ended == "complete":
                        blocks.append(Thought(part.text, part.blob.data))
                case Text():
                    _join(blocks, part.text)
                case Redacted():
                    _join(blocks, wording.REDACTED)
                case Image() | File():
                    _join(blocks, wording.stub(part))
                case unreachable:
                    assert_never(unreachable)
        said = [block for block in blocks if not isinstance(block, Words) or block.text.strip()]
        if marker:
            said.append(Words(marker))
        while said and isinstance(said[-1], Thought):
            said.pop()
        return tuple(said)

    def _call(self, entry: Answered, part: ToolCall) -> Call:
        name = part.name if _NAME.fullmatch(part.name) else _NOT_NAME.sub("_", part.name)[:64] or "unnamed"
        return Call(self._unique(entry, part.id), name, json_object(part.arguments), part.id)

    def _unique(self, entry: Answered, written: str) -> str:
        """The id as written if the wire takes it and no earlier call has it; else one made from its place."""
        chosen = written
        while chosen in self._ids or self._call_id.fullmatch(chosen) is None:
            place = f"{entry.seq}.{written}.{chosen}".encode("utf-8", "surrogatepass")
            chosen = f"call_{sha256(place).hexdigest()[:24]}"
        self._ids.add(chosen)
        return chosen


def _join(blocks: list[Thought | Words | Call], text: str) -> None:
    last = blocks[-1] if blocks else None
    if isinstance(last, Words):
        blocks[-1] = Words(last.text + text)
    else:
        blocks.append(Words(text))


def shown_text(shown: Shown) -> str:
    """For wires that carry only text here."""
    return "\n\n".join(block.text if isinstance(block, Words) else "[image, not shown]" for block in shown)
