"""What a message is made of.

A part is a frozen, tagged value. Bytes (images, files, long tool output) are never inside a part:
the part names them by the SHA-256 of their content and the store keeps each content once.
"""

from msgspec import Struct

Seq = int
"""The place of a fact in its session. Turns, steps, inputs and messages are all addressed by
one."""

Hash = str
"""SHA-256 of a payload, in lower-case hex."""


def hash_of(body: bytes) -> Hash:
    """The name of a payload: one way of making it for whoever stores, reads or moves bytes."""
    from hashlib import sha256  # it loads OpenSSL, and most commands hash nothing

    return sha256(body).hexdigest()


GONE = "[redacted]"
"""Stands where a plain string was removed on request."""


class Part(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Base of all parts: strict when read, compact when written."""


class Text(Part, frozen=True, tag="text"):
    text: str


class Blob(Part, frozen=True):
    """Bytes that mean something to one provider only (a signature, an encrypted item)."""

    provider: str
    data: str


class Reasoning(Part, frozen=True, tag="reasoning"):
    """What the model thought aloud. The blob goes back to its provider and to no other."""

    text: str
    blob: Blob | None = None


class Image(Part, frozen=True, tag="image"):
    hash: Hash
    media_type: str
    size: int
    name: str = ""


class File(Part, frozen=True, tag="file"):
    hash: Hash
    media_type: str
    size: int
    name: str = ""


class ToolCall(Part, frozen=True, tag="tool_call"):
    """The model asks for a tool. `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


class Redacted(Part, frozen=True, tag="redacted"):
    """Something was said here and was removed on request. `chars` is how long it was."""

    chars: int


class Opaque(Part, frozen=True, tag="opaque"):
    """Something that an external runtime said and that we do not understand: kept as it came.
    `json` is JSON text."""

    runtime: str
    kind: str
    json: str


Content = Text | Reasoning | Image | File | ToolCall | Redacted | Opaque


class Returned(Part, frozen=True, tag="returned"):
    parts: tuple[Content, ...] = ()


class Failed(Part, frozen=True, tag="failed"):
    """The tool ran and reports an error."""

    parts: tuple[Content, ...] = ()


class Refused(Part, frozen=True, tag="refused"):
    """The tool never ran: a policy or a person said no."""

    reason: str


class Interrupted(Part, frozen=True, tag="interrupted"):
    """Stopped while it ran, by us. It may have had effects; `parts` is what it had said by then."""

    parts: tuple[Content, ...] = ()


class Unknown(Part, frozen=True, tag="unknown"):
    """Its process ended before the outcome was stored. It may have had effects and is never re-run
    on its own."""

    parts: tuple[Content, ...] = ()


Outcome = Returned | Failed | Refused | Interrupted | Unknown


def text_of(parts: tuple[Content, ...]) -> str:
    """The visible text of some parts: what a person was shown, without reasoning."""
    return "".join(part.text for part in parts if type(part) is Text)


def reasoning_of(parts: tuple[Content, ...]) -> str:
    return "".join(part.text for part in parts if type(part) is Reasoning)


def outcome_parts(outcome: Outcome) -> tuple[Content, ...]:
    return () if isinstance(outcome, Refused) else outcome.parts


def chars_of(parts: tuple[Content, ...]) -> int:
    """How much text some parts hold in memory."""
    chars = 0
    for part in parts:
        match part:
            case Text():
                chars += len(part.text)
            case Reasoning():
                chars += len(part.text) + (
                    0 if part.blob is None else len(part.blob.data)
                )
            case ToolCall():
                chars += len(part.arguments)
            case Opaque():
                chars += len(part.json)
            case _:
                pass
    return chars


def to_text(payload: bytes) -> str:
    """A payload as text."""
    try:
        return payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # A file that a server calls text.
        return payload.decode("utf-8", "replace")
