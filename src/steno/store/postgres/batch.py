"""What the verbs of a batch add to a store in PostgreSQL, until it is written, and as arguments."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.parts import Seq
from steno.store.backend import Saved, SessionRow
from steno.store.postgres.arrays import Ints, Texts
from steno.store.protocol import tenant_of
from steno.store.rows import columns_of, draft_crc, session_crc


class State(Struct):
    """What is stored of a session in `heads`."""

    head: Seq
    token: int
    owner: str | None
    stamp: int


class Batch:
    """What the verbs of a batch add, until it is written."""

    def __init__(self) -> None:
        self.facts: list[tuple[int, Seq, int, int, str]] = []
        self.drafts: dict[tuple[int, Stream], tuple[int, list[str]]] = {}
        self.undrafts: list[tuple[int, Seq]] = []
        self.rows: dict[int, Saved] = {}
        self.touched: dict[int, None] = {}
        """The sessions that it changes."""

    def __bool__(self) -> bool:
        return bool(self.touched)

    def take_draft(self, n: int, started: Seq) -> None:
        for key in [
            key for key in self.drafts if key[0] == n and key[1].started == started
        ]:
            del self.drafts[key]

    def pieces(self) -> list[tuple[int, Seq, str, int, int, str]]:
        """The text that was added, as rows of `drafts`."""
        rows: list[tuple[int, Seq, str, int, int, str]] = []
        for (n, stream), (start, texts) in self.drafts.items():
            text = codec.escape("".join(texts))
            crc = draft_crc(n, stream, start, text.encode())
            rows.append((n, stream.started, stream.kind, start, crc, text))
        return rows


def saved_row(saved: Saved) -> tuple[Any, ...]:
    row = saved.row
    plain = SessionRow(row.n, row.id, row.name, row.parent, row.base, 0, None, 0, 0, row.listed,
                       row.list_row, row.marks, row.head)  # fmt: skip
    owes, memory = columns_of(row.marks)
    tenant = codec.escape(tenant_of(saved.listing))
    return (
        row.n,
        row.list_row.decode(),
        row.listed,
        session_crc(plain),
        owes,
        memory,
        tenant,
    )


_NONE: dict[str, Ints | Texts] = {"n": Ints.of(()), "t": Texts.of(())}


def columns(rows: Sequence[tuple[Any, ...]], kinds: str) -> list[Ints | Texts]:
    """Rows as arrays, one a column: `n` of numbers, `t` of texts."""
    if not rows:
        return [_NONE[kind] for kind in kinds]
    by_column = zip(*rows, strict=True)
    return [
        Ints.of(column) if kind == "n" else Texts.of(column)
        for kind, column in zip(kinds, by_column, strict=True)
    ]
