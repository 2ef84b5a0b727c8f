"""Arrays as the server takes them, made by hand: the driver looks at each element, which costs more
than the statement."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack

from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format

_INT8, _TEXT = 20, 25
_length = Struct(">i").pack


@lru_cache(1_000)
def _ints(count: int) -> Struct:
    """Each with its length in bytes before it."""
    return Struct(">5i" + "iq" * count)


class Ints(bytes):
    """`bigint[]`."""

    @classmethod
    def of(cls, values: Sequence[int]) -> "Ints":
        count = len(values)
        if not count:
            return cls(pack(">iii", 0, 0, _INT8))
        flat = [8] * (2 * count)
        flat[1::2] = values
        return cls(_ints(count).pack(1, 0, _INT8, count, 1, *flat))


class Texts(bytes):
    """`text[]`; None is null."""

    @classmethod
    def of(cls, values: Sequence[str | None]) -> "Texts":
        count = len(values)
        if not count:
            return cls(pack(">iii", 0, 0, _TEXT))
        parts = [pack(">5i", 1, int(None in values), _TEXT, count, 1)]
        for value in values:
            if value is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                encoded = value.encode()
                parts.append(_length(len(encoded)))
                parts.append(encoded)
        return cls(b"".join(parts))


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class _IntsDumper(_AsItIs):
    oid = 1016


class _TextsDumper(_AsItIs):
    oid = 1009


adapters.register_dumper(Ints, _IntsDumper)
adapters.register_dumper(Texts, _TextsDumper)
