"""The tool `read_output`: any part of an output that was too long to be told whole."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from steno.journal.facts import Record, ToolSettled, ToolSpec
from steno.journal.parts import Hash, Seq, outcome_parts, to_text
from steno.store.protocol import read_all
from steno.tools.builtin import READ_OUTPUT_SPEC
from steno.tools.output import is_output
from steno.tools.protocol import Prepared, Reading, Unusable, decode_arguments

READ_CHARS_MAX = 20_000
PREFIX_CHARS_MIN = 8
FACTS_MAX = 200_000
_HEX = re.compile(r"[0-9a-f]{8,64}")


class Outputs(Protocol):
    """What reading an output needs of a store."""

    async def read(
        self, session: str, after: Seq = 0, limit: int = 1_000
    ) -> list[Record]: ...
    async def get(self, payload: Hash) -> bytes: ...


class ReadOutputArguments(Struct, frozen=True, forbid_unknown_fields=True):
    output: str
    offset: Annotated[int, Meta(ge=0)] = 0
    length: Annotated[int, Meta(ge=1)] | None = None


class ReadOutput:
    """Reads outputs of one session, and of no other."""

    spec: ToolSpec = READ_OUTPUT_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(self, store: Outputs, session: str, chars_max: int) -> None:
        self._store = store
        self._session = session
        self._chars_max = min(chars_max, READ_CHARS_MAX)

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, ReadOutputArguments)
        return Reading(lambda: self._read(asked))

    async def _read(self, asked: ReadOutputArguments) -> str:
        text = to_text(await self._store.get(await self._found(asked.output)))
        if asked.offset >= len(text):
            raise Unusable(
                f"`offset` is {asked.offset}, but the output has {len(text)} characters"
            )
        end = min(
            asked.offset + min(asked.length or self._chars_max, self._chars_max),
            len(text),
        )
        shown = text[asked.offset : end]
        more = f"; go on with offset {end}" if end < len(text) else ""
        between = "" if shown.endswith("\n") else "\n"
        return f"{shown}{between}[characters {asked.offset} to {end} of {len(text)}{more}]"

    async def _found(self, output: str) -> Hash:
        wanted = output.strip().lower()
        number = (
            int(wanted)
            if wanted.isdecimal() and len(wanted) < PREFIX_CHARS_MIN
            else None
        )
        if number is None and _HEX.fullmatch(wanted) is None:
            raise Unusable(
                f"`output` must be {PREFIX_CHARS_MIN} or more characters of a hash, or a "
                "message's number"
            )
        found: set[Hash] = set()
        async for record in read_all(self._store, self._session, 0, FACTS_MAX):
            found.update(_named(record, number, wanted))
        if len(found) != 1:
            how = "no output" if not found else "more than one output"
            raise Unusable(f"this session has {how} that {output!r} stands for")
        return found.pop()


def _named(record: Record, number: int | None, prefix: str) -> Iterable[Hash]:
    """The outputs in a fact that are meant by a message's number, or else by the beginning of a
    hash."""
    fact = record.fact
    if not isinstance(fact, ToolSettled):
        return
    for part in outcome_parts(fact.outcome):
        if is_output(part):
            meant = (
                part.hash.startswith(prefix)
                if number is None
                else number in (fact.started, record.seq)
            )
            if meant:
                yield part.hash
