"""What a verb is given, looked at before anything of it is stored.

A fact is stored only if its bytes decode to an equal fact: then whatever was acknowledged can be
read back, whichever caller wrote it.
"""

import os
from base64 import b32encode
from collections.abc import Sequence
from typing import get_args

from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Kind, Stream
from steno.journal.facts import (
    AnyFact,
    DeliveryOwed,
    InputAdmitted,
    ItemKept,
    MessageGiven,
    SessionAttended,
    SessionStarted,
)
from steno.store.errors import NotAllowed, NotStorable
from steno.store.protocol import (
    Admission,
    Cursor,
    Keeping,
    Lease,
    Mark,
    Shares,
    Where,
)

KEY_LEN_MAX = 512
FACT_BYTES_MAX = 64 << 20
STREAM_CHARS_MAX = 10 << 20
"""A stream of this length fits into its sealing fact even if JSON needs six bytes for every
character."""
INT_MAX = (1 << 63) - 1

_KINDS = get_args(Kind)
_MARKS = get_args(Mark)
_Kind = type | tuple[type, ...]


def expect(kind: _Kind, /, **given: object) -> None:
    """Refuse an argument of the wrong type, by its name; and a number that no column can hold."""
    for name, value in given.items():
        if not isinstance(value, kind) or (type(value) is bool and kind is not bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(one.__name__ for one in kinds)
            raise NotAllowed(f"{name} should be {wanted}, not {type(value).__name__}")
        if isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX:
            raise NotAllowed(f"{name} is out of range")


def check_lease(lease: Lease) -> None:
    if (
        type(lease) is Lease
        and type(lease.session) is type(lease.owner) is str
        and type(lease.token) is int
    ):
        return
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


def check_where(where: Where | None) -> None:
    if isinstance(where, Shares):
        expect(int, seq=where.seq)
    elif where is not None and where not in _MARKS:
        raise NotAllowed(f"{where!r} is nothing that sessions are found by")


def check_kinds(kinds: Sequence[str]) -> None:
    expect((list, tuple), kinds=kinds)
    for kind in kinds:
        expect(str, kind=kind)


def check_stream(stream: Stream) -> None:
    if type(stream) is not Stream or type(stream.started) is not int:
        expect(Stream, stream=stream)
        expect(int, started=stream.started)
    if stream.kind not in _KINDS:
        raise NotAllowed(f"{stream.kind!r} is no kind of stream")


def check_new_id(id: str) -> str:
    expect(str, session=id)
    if not id or len(id) > KEY_LEN_MAX or not id.isprintable() or "/" in id:
        raise NotAllowed(f"{id!r} cannot be the id of a session")
    return id


def check_admission(admission: Admission, payload_bytes_max: int) -> None:
    if type(admission) is not Admission or type(admission.input) is not InputAdmitted:
        expect(Admission, admission=admission)
        expect(InputAdmitted, input=admission.input)
    if admission.create is not None:
        check_started(admission.create)
    if admission.session is not None:
        expect(str, session=admission.session)
    if admission.visit is not None:
        expect(SessionAttended, visit=admission.visit)
    if type(admission.payloads) is not tuple or type(admission.owes) is not tuple:
        expect(tuple, payloads=admission.payloads, owes=admission.owes)
    if type(admission.given) is not tuple:
        expect(tuple, given=admission.given)
    for one in admission.given:
        expect(MessageGiven, given=one)
    for owed in admission.owes:
        expect(DeliveryOwed, owes=owed)
        encoded(owed)
    for payload in admission.payloads:
        check_payload(payload, payload_bytes_max)


def check_keeping(keeping: Keeping, payload_bytes_max: int) -> None:
    expect(Keeping, keeping=keeping)
    if keeping.create is not None:
        check_started(keeping.create)
    if keeping.session is not None:
        expect(str, session=keeping.session)
    if keeping.expect is not None:
        expect(int, expect=keeping.expect)
    expect(
        tuple,
        items=keeping.items,
        withdraw=keeping.withdraw,
        payloads=keeping.payloads,
    )
    for item in keeping.items:
        expect(ItemKept, items=item)
    for run in keeping.withdraw:
        expect(tuple, withdraw=run)
        if len(run) != 2:
            raise NotAllowed(
                "a run of items has a first and a last seq; nothing was stored"
            )
        expect(int, first=run[0], last=run[1])
    for payload in keeping.payloads:
        check_payload(payload, payload_bytes_max)
    expect(bool, anywhere=keeping.anywhere)
    if keeping.same not in ("refuse", "first"):
        raise NotAllowed('same must be "refuse" or "first"; nothing was stored')
    if not keeping.items and not keeping.withdraw:
        raise NotAllowed("no item was given, and none to withdraw")


def check_started(started: SessionStarted) -> None:
    expect(SessionStarted, started=started)
    encoded(started)


def check_payload(payload: bytes, bytes_max: int) -> None:
    expect(bytes, payload=payload)
    if len(payload) > bytes_max:
        raise NotAllowed(
            f"a payload may have {bytes_max} bytes at most; nothing was stored"
        )


def encoded(fact: AnyFact) -> bytes:
    """The bytes of a fact, once it is sure that they read back as it."""
    try:
        body = codec.encode(fact)
        again = codec.decode(body)
        if again == fact and len(body) <= FACT_BYTES_MAX:
            return body
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
    raise NotAllowed(
        f"a fact may have {FACT_BYTES_MAX >> 20} MiB at most; put large content as a payload; "
        "nothing was stored"
    )


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


def check_facts(
    facts: Sequence[AnyFact], allowed: frozenset[type], otherwise: str
) -> None:
    """Refuse facts that a verb may not write."""
    if not isinstance(facts, list | tuple):
        raise NotStorable(
            f"facts should be a list or a tuple, not {type(facts).__name__}; nothing was stored"
        )
    if not facts:
        raise NotAllowed("no fact was given")
    for fact in facts:
        if type(fact) not in allowed:
            raise NotAllowed(f"{type(fact).__name__} {otherwise}; nothing was stored")


def new_id() -> str:
    """13 characters, 65 bits of chance: short enough to type the start of, long enough never to
    meet."""
    return b32encode(os.urandom(9)).decode().lower()[:13]


def new_owner() -> str:
    """Names an open store to people and to other processes; never used twice."""
    name = (
        os.uname().nodename
        if hasattr(os, "uname")
        else os.environ.get("COMPUTERNAME", "")
    )
    host = (
        "".join(letter for letter in name if letter.isalnum() or letter in "-.")[:40]
        or "host"
    )
    return f"{host}.{os.getpid()}.{os.urandom(4).hex()}"
