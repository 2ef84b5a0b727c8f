"""An answer while it comes in.

There is one copy of its text: what goes out as deltas is what the parts hold, whatever happens to
the stream.
"""

from hashlib import sha256
from typing import Literal, Protocol

from msgspec import Struct

from steno.journal.facts import StepEnding, Usage
from steno.journal.parts import Blob, Content, Reasoning, Text, ToolCall
from steno.models.protocol import Finished, ModelError, ReasoningDelta, TextDelta

Delta = TextDelta | ReasoningDelta
Kind = Literal["text", "reasoning"]


class _Run(Struct):
    kind: Kind
    pieces: list[str] = []
    blob: Blob | None = None


class CallInProgress(Struct):
    id: str
    name: str
    pieces: list[str] = []
    blob: Blob | None = None

    def arguments(self) -> str:
        return "".join(self.pieces)


class Answer:
    """Parts in the order they began. A piece joins the part before it if that is of its kind and
    still open."""

    def __init__(self) -> None:
        self._items: list[_Run | CallInProgress] = []
        self._open: _Run | None = None
        self._held: tuple[Kind, str] | None = None

    def say(self, piece: str) -> list[Delta]:
        return self._add("text", piece)

    def think(self, piece: str, blob: Blob | None = None) -> list[Delta]:
        deltas = self._add("reasoning", piece)
        if (
            blob is not None
            and self._open is not None
            and self._open.kind == "reasoning"
        ):
            self._open.blob = blob
        return deltas

    def call(self, id: str, name: str) -> CallInProgress:
        self._open = None
        call = CallInProgress(id, name)
        self._items.append(call)
        return call

    def bind(self, blob: Blob) -> None:
        """Bind the open reasoning, or an empty one, to its provider; it is whole then."""
        run = (
            self._open
            if self._open is not None and self._open.kind == "reasoning"
            else self._begin("reasoning")
        )
        run.blob, self._open = blob, None

    def close_part(self) -> None:
        """The next piece begins a part of its own."""
        self._open = None

    def rest(self) -> list[Delta]:
        """What was held back. Nothing comes after it."""
        if self._held is None:
            return []
        (kind, half), self._held = self._held, None
        return self._put(kind, half)

    @property
    def visible(self) -> bool:
        """Whether a person was shown anything."""
        return any(isinstance(item, _Run) and item.pieces for item in self._items)

    def parts(self, ended: StepEnding, unique: str = "") -> tuple[Content, ...]:
        """Calls belong to an answer that is whole, and to no other. `unique` makes ids where the
        provider gave none."""
        parts: list[Content] = []
        ids: set[str] = set()
        for item in self._items:
            if isinstance(item, CallInProgress):
                if ended == "complete":
                    parts += _call_parts(item, _free_id(item.id, ids, unique))
            elif item.kind == "text":
                if item.pieces:
                    parts.append(Text("".join(item.pieces)))
            elif item.pieces or item.blob is not None:
                parts.append(Reasoning("".join(item.pieces), item.blob))
        return tuple(parts)

    def _add(self, kind: Kind, piece: str) -> list[Delta]:
        """Servers that cut text by UTF-16 units send half of a character at a time: the first half
        waits."""
        if not piece:
            return []
        deltas: list[Delta] = []
        if self._held is not None:
            if self._held[0] == kind:
                piece, self._held = _paired(self._held[1] + piece), None
            else:
                deltas = self.rest()
        if "\ud800" <= piece[-1] <= "\udbff":
            self._held, piece = (kind, piece[-1]), piece[:-1]
        return deltas + self._put(kind, piece) if piece else deltas

    def _put(self, kind: Kind, piece: str) -> list[Delta]:
        run = (
            self._open
            if self._open is not None and self._open.kind == kind
            else self._begin(kind)
        )
        run.pieces.append(piece)
        return [TextDelta(piece) if kind == "text" else ReasoningDelta(piece)]

    def _begin(self, kind: Kind) -> _Run:
        self._open = _Run(kind)
        self._items.append(self._open)
        return self._open


class AnswerReader(Protocol):
    """Reads the events of one stream. `ended` is None until the provider says that the answer is
    whole."""

    answer: Answer
    ended: StepEnding | None

    @property
    def usage(self) -> Usage | None: ...

    def read(self, data: str) -> list[Delta]:
        """Raises `ModelError` for an error that the provider reports and for what cannot be
        read."""
        ...

    def parts(self, ended: StepEnding) -> tuple[Content, ...]: ...


def finished(reader: AnswerReader, broken: ModelError | None = None) -> Finished:
    """How a stream that is over ended. Raises if nothing of an answer was shown."""
    if reader.ended is not None:
        return Finished(reader.parts(reader.ended), reader.ended, reader.usage)
    if reader.answer.visible:
        return Finished(reader.parts("incomplete"), "incomplete", reader.usage)
    raise broken or ModelError("dropped", "the stream ended without an answer", "yes")


def _call_parts(call: CallInProgress, id: str) -> list[Content]:
    """The call, after what its provider wants back with it. A call without parameters may come
    without arguments."""
    arguments = call.arguments()
    part = ToolCall(id, call.name, arguments if arguments.strip() else "{}")
    return [part] if call.blob is None else [Reasoning("", call.blob), part]


def _paired(text: str) -> str:
    """Two halves of a character, side by side, become it."""
    return text.encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "surrogatepass"
    )


def _free_id(id: str, taken: set[str], unique: str) -> str:
    """The id as given; where it is missing or given twice, one made from the answer's own id and
    the call's place."""
    stem = sha256(unique.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    place = len(taken)
    while not id or id in taken:
        id, place = f"call_{stem}_{place}", place + 1
    taken.add(id)
    return id
