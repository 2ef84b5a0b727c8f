"""A file as a session that can be imported into a store, and whether the store has it already.

Nothing in the file is trusted: a line that is not ours, a payload that does not match its hash, a
count or a sum that differs end the reading, with the number of the line.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from steno.journal import codec
from steno.journal.drafts import Draft
from steno.journal.facts import InputAdmitted, Record
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.store.protocol import Carried, Keyed, Payload, Store
from steno.transfer import FileDamaged, FileTooNew, NotAnExport, OtherContent, Permits
from steno.transfer.lines import (
    LINE_BYTES_MAX,
    VERSION,
    AnyLine,
    DraftLine,
    EndLine,
    FactLine,
    HeaderLine,
    KeyLine,
    PayloadLine,
    from_bytes,
    to_draft,
    to_keyed,
    to_record,
)

PAGE = 100


class Incoming:
    """An export that is read once, from its header on. `header` says which session it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0
        self._sum = hashlib.sha256()
        self._counts = {PayloadLine: 0, FactLine: 0, DraftLine: 0, KeyLine: 0}
        self.header = self._header()

    def carried(self) -> Iterator[Carried]:
        """What the session is made of. Only at the end it is known that all of it is as it was
        written."""
        while True:
            raw = self._raw()
            line = self._line(raw)
            if isinstance(line, EndLine):
                self._check_end(line)
                return
            self._sum.update(raw)
            yield self._carried(line)

    def _header(self) -> HeaderLine:
        raw = self._raw()
        self._sum.update(raw)
        try:
            header = from_bytes(raw)
        except ValueError:
            header = None
        if not isinstance(header, HeaderLine):
            raise NotAnExport(
                "it is not a session that steno has exported; nothing was stored"
            )
        if header.version != VERSION:
            raise FileTooNew(
                f"a newer steno wrote it (format {header.version}, this one knows {VERSION}); "
                "upgrade steno"
            )
        return header

    def _raw(self) -> bytes:
        self._at += 1
        raw = self._file.readline(LINE_BYTES_MAX + 1)
        if len(raw) > LINE_BYTES_MAX:
            raise self._damaged("is longer than any line can be")
        if not raw.endswith(b"\n"):
            raise self._damaged(
                "is cut off" if raw else "is missing: the file is cut off"
            )
        return raw

    def _line(self, raw: bytes) -> AnyLine:
        try:
            return from_bytes(raw)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"is not a line of an export ({error})") from error

    def _carried(self, line: AnyLine) -> Carried:
        if isinstance(line, HeaderLine | EndLine):
            raise self._damaged("is a second header")
        self._counts[type(line)] += 1
        try:
            match line:
                case FactLine():
                    return to_record(line)
                case DraftLine():
                    return to_draft(line)
                case KeyLine():
                    return to_keyed(line)
        except codec.UnknownFact as error:
            raise FileTooNew(
                f"line {self._at}: {error}; nothing was stored"
            ) from error
        except codec.DecodeError as error:
            raise self._damaged(f"does not decode ({error})") from error
        if hashlib.sha256(line.data).hexdigest() != line.hash:
            raise self._damaged(f"is not the payload {line.hash}")
        return Payload(line.data)

    def _check_end(self, end: EndLine) -> None:
        if (end.payloads, end.facts, end.drafts, end.keys) != tuple(
            self._counts.values()
        ):
            raise self._damaged("counts other lines than there are")
        if end.sha256 != self._sum.hexdigest():
            raise FileDamaged(
                "its checksum differs: the file was altered; nothing was stored"
            )
        if self._file.read(1):
            raise self._damaged("is not the last one")

    def _damaged(self, what: str) -> FileDamaged:
        return FileDamaged(f"line {self._at} {what}; nothing was stored")


def permitting_nothing(carried: Iterator[Carried]) -> Iterator[Carried]:
    """The same, refused at its end if it would let calls run that were not allowed here: by a rule
    of the session, or because a call that has not begun was allowed where the session was."""
    state = State()
    for one in carried:
        # However many inputs wait, none is held in memory.
        if isinstance(one, Record) and not isinstance(one.fact, InputAdmitted):
            state.apply(one)
        yield one
    if permitted := permissions(state):
        raise Permits(permitted)


def permissions(state: State) -> list[str]:
    """What may run without another question, as far as the session says."""
    calls = () if state.turn is None else state.turn.calls.values()
    given = [
        call.call.name
        for call in calls
        if call.decision == "allow" and call.started is None
    ]
    return [
        rule for rule, one in state.rules.items() if one.verdict == "allow"
    ] + given


async def facts_since(store: Store, incoming: Incoming) -> Seq:
    """How many facts the session has here beyond those in the file. `OtherContent` if they are not
    the same up to there. The file is read to its end in any case: a damaged one says so."""
    session = incoming.header.session
    glance = await store.glance(session)
    origin = glance.row.forked_from
    same = incoming.header.base == (0 if origin is None else origin.seq)
    after, drafts = 0, list[Draft]()
    # The same hash is the same payload.
    carried = (one for one in incoming.carried() if not isinstance(one, Payload))
    while some := await asyncio.to_thread(_take, carried):
        records = [one for one in some if isinstance(one, Record)]
        drafts += [one for one in some if isinstance(one, Draft)]
        same = same and await _has(store, session, after, records)
        after = records[-1].seq if records else after
    if after == glance.head:
        same = same and {(one.stream, one.text) for one in drafts} == {
            (one.stream, one.text) for one in glance.drafts
        }
    if not same:
        raise OtherContent(
            f"there is a session {session!r} already, and it is another one; nothing was changed"
        )
    return glance.head - after


def _take(carried: Iterator[Record | Draft | Keyed]) -> list[Record | Draft | Keyed]:
    return list(islice(carried, PAGE))


async def _has(store: Store, session: str, after: Seq, records: list[Record]) -> bool:
    return not records or await store.read(session, after, len(records)) == records
