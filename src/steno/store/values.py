"""What a verb is given, looked at before anything of it is stored.

A fact is stored only if its bytes decode to an equal fact: then whatever was acknowledged can be
read back, whichever caller wrote it.
"""

from collections.abc import Iterable

from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import AnyFact
from steno.store.errors import NotAllowed, NotStorable
from steno.store.protocol import Cursor, Lease

FACT_BYTES_MAX = 64 << 20
STREAM_CHARS_MAX = 10 << 20
"""A stream of this length fits into its sealing fact even if JSON needs six bytes for every
character."""
INT_MAX = (1 << 63) - 1

_Kind = type | tuple[type, ...]


def expect(kind: _Kind, /, **given: object) -> None:
    """Refuse an argument of the wrong type, by its name. A subclass of `str` or `int` is wrong: it
    would come back as something else. So is a number that no column can hold."""
    for name, value in given.items():
        if type(value) is kind or (isinstance(kind, tuple) and type(value) in kind):
            if type(value) is int and not -INT_MAX <= value <= INT_MAX:
                raise NotStorable(f"{name} is out of range; nothing was stored")
            continue
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if any(not issubclass(one, str | int | bytes) and isinstance(value, one) for one in kinds):
            continue
        wanted = " or ".join(one.__name__ for one in kinds)
        raise NotStorable(
            f"{name} should be {wanted}, not {type(value).__name__}; nothing was stored"
        )


def check_lease(lease: Lease) -> None:
    expect(Lease, lease=lease)
    expect(str, session=lease.session, owner=lease.owner)
    expect(int, token=lease.token)


def check_cursor(cursor: Cursor) -> None:
    expect(Cursor, cursor=cursor)
    expect(int, seq=cursor.seq)
    expect(tuple, offsets=cursor.offsets)
    for seen in cursor.offsets:
        expect(tuple, offsets=seen)
        if len(seen) != 2:
            raise NotAllowed("an offset is a stream and a number")
        check_stream(seen[0])
        expect(int, offset=seen[1])


def check_stream(stream: Stream) -> None:
    expect(Stream, stream=stream)
    expect(int, started=stream.started)
    if stream.kind not in ("text", "reasoning", "output"):
        raise NotAllowed(f"{stream.kind!r} is no kind of stream")


def encoded(fact: AnyFact) -> bytes:
    """The bytes of a fact, once it is sure that they read back as it."""
    try:
        body = codec.encode(fact)
        again = codec.decode(body)
    except codec.DecodeError as error:
        raise NotStorable(f"{error}; nothing was stored") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotStorable(
            f"{_place(fact)} cannot be stored: {error}; nothing was stored"
        ) from error
    if again != fact:
        raise NotStorable(
            f"{_place(fact, again)} would read back as something else; nothing was stored"
        )
    if len(body) > FACT_BYTES_MAX:
        raise NotAllowed(
            f"a fact may have {FACT_BYTES_MAX >> 20} MiB at most; put large content as a payload; "
            "nothing was stored"
        )
    return body


def _place(fact: object, again: object = None) -> str:
    """The first field of a fact that cannot be encoded, or that differs from what it reads back
    as."""
    name = type(fact).__name__
    if not isinstance(fact, Struct):
        return name
    for field in fact.__struct_fields__:
        value = getattr(fact, field)
        if type(again) is type(fact):
            if getattr(again, field) != value:
                return f"{name}.{field}"
        elif not _encodes(value):
            return f"{name}.{field}"
    return name


def _encodes(value: object) -> bool:
    try:
        codec.encode(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def facts_of(facts: Iterable[AnyFact], allowed: frozenset[type], otherwise: str) -> list[AnyFact]:
    """The facts that a verb was given, once it is sure that it may write facts of their types."""
    if not isinstance(facts, list | tuple):
        raise NotStorable(
            f"facts should be a list or a tuple, not {type(facts).__name__}; nothing was stored"
        )
    if not facts:
        raise NotAllowed("no fact was given")
    for fact in facts:
        if type(fact) not in allowed:
            raise NotAllowed(f"{type(fact).__name__} {otherwise}; nothing was stored")
    return list(facts)
