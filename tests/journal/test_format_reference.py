"""The format reference is true: its tables against the declarations, its prose against a reader
made from it alone."""

import contextlib
import json
import re
import sqlite3
import struct
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from steno.journal import facts as f
from steno.journal.codec import TAGS
from steno.journal.drafts import Stream
from steno.journal.facts import FREE_FACTS, TURN_FACTS
from steno.journal.parts import Content, Outcome, Text
from steno.library import open as open_library
from steno.store.protocol import Admission
from steno.store.sqlite.database import APPLICATION_ID, VERSION
from tests.journal.declarations import name_of, structs

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "journal-format.md"
UNTAGGED = {
    "ForkPoint": "fork point",
    "ToolSpec": "tool spec",
    "Usage": "usage",
    "Blob": "blob",
    "SpentSoFar": "spent",
    "PlanStep": "plan step",
    "Label": "label",
    "AwaitedFile": "awaited file",
    "FileVersions": "file versions",
    "Item": "item",
    "ItemAt": "item's place",
}
UNIONS = {frozenset(get_args(Content)): "part", frozenset(get_args(Outcome)): "outcome"}
ALIASES = {"seq": "integer", "hash": "string"}


def sections() -> dict[str, list[list[str]]]:
    """The rows of the table under each heading of the fourth level."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^#### ", REFERENCE.read_text(), flags=re.MULTILINE)[1:]:
        heading, *lines = re.split(r"^##+ ", section, maxsplit=1, flags=re.MULTILINE)[
            0
        ].splitlines()
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines
            if line.startswith("| `")
        ]
        found[heading.strip("`")] = rows
    return found


def title_of(kind: type[msgspec.Struct]) -> str:
    return UNTAGGED.get(kind.__name__, name_of(kind))


def type_words(annotation: Any) -> str:
    """A type in the words of the reference."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{json.dumps(word)}`" for word in arguments)
    if get_origin(annotation) is tuple:
        return f"array of {type_words(arguments[0])}"
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = frozenset(arguments)
        if types.NoneType in kinds:
            rest, *others = [kind for kind in arguments if kind is not types.NoneType]
            assert others == []
            return f"{type_words(rest)} or null"
        return UNIONS.get(kinds) or ", ".join(f"`{name_of(kind)}`" for kind in arguments)
    plain = {str: "string", int: "integer", bool: "boolean"}
    return plain.get(annotation) or title_of(annotation)


def declared(kind: type[msgspec.Struct]) -> list[list[str]]:
    hints = get_type_hints(kind)
    return [
        [
            f"`{field.name}`",
            type_words(hints[field.name]),
            "—" if field.required else f"`{json.dumps(field.default)}`",
        ]
        for field in msgspec.structs.fields(kind)
    ]


def test_every_fact_part_and_outcome_is_described_and_nothing_else() -> None:
    assert sorted(sections()) == sorted(title_of(kind) for kind in structs().values())


@pytest.mark.parametrize("kind", structs().values(), ids=title_of)
def test_fields_types_and_defaults_are_as_declared(kind: type[msgspec.Struct]) -> None:
    described = [row[:3] for row in sections()[title_of(kind)]]
    for row in described:
        row[1] = re.sub(r"\b(seq|hash)\b", lambda word: ALIASES[word[0]], row[1])
    assert described == declared(kind)


def test_who_may_write_a_fact_is_as_declared() -> None:
    rows = re.findall(
        r"^\| `([a-z._]+)` \| (lease|anyone|store) \|", REFERENCE.read_text(), re.MULTILINE
    )
    kinds = {tag: structs()[tag] for tag in TAGS}
    expected = {
        tag: "lease" if kind in TURN_FACTS else "anyone" if kind in FREE_FACTS else "store"
        for tag, kind in kinds.items()
    }
    assert dict(rows) == expected


# --- a reader that knows the reference and nothing of steno ---------------------------------------


def crc_of_fact(session: int, seq: int, at_ms: int, body: bytes) -> int:
    return zlib.crc32(struct.pack(">qq", session * 2**32 + seq, at_ms) + body)


def crc_of_draft(session: int, started: int, kind: str, start: int, text: bytes) -> int:
    return zlib.crc32(
        struct.pack(">qq", session * 2**32 + started, start) + kind.encode("ascii") + text
    )


def unescaped(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("\ufdd0([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), value)
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    return (
        {name: unescaped(item) for name, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def read_facts(connection: sqlite3.Connection, id: str) -> list[dict[str, Any]]:
    row = connection.execute("select n, parent, base from sessions where id = ?", (id,)).fetchone()
    found: list[dict[str, Any]] = []
    [last] = connection.execute("select max(seq) from facts where session = ?", row[:1]).fetchone()
    while row is not None:
        n, parent, base = row
        found = list(read_own(connection, n, base, last)) + found
        last = base
        row = connection.execute(
            "select n, parent, base from sessions where n = ?", (parent,)
        ).fetchone()
    return found


def read_own(
    connection: sqlite3.Connection, n: int, base: int, last: int
) -> Iterator[dict[str, Any]]:
    rows = connection.execute(
        (
            "select seq, at_ms, crc, body from facts where session = ? and seq > ? and seq <= ? "
            "order by seq"
        ),
        (n, base, last),
    )
    for expected, (seq, at_ms, crc, body) in enumerate(rows, start=base + 1):
        assert seq == expected
        assert crc == crc_of_fact(n, seq, at_ms, body.encode())
        yield unescaped(json.loads(body))


def read_drafts(connection: sqlite3.Connection, n: int) -> dict[tuple[int, str], str]:
    streams: dict[tuple[int, str], str] = {}
    for started, kind, start, crc, text in connection.execute(
        (
            "select started, kind, start, crc, text from drafts where session = ? order by "
            "started, kind, start"
        ),
        (n,),
    ):
        assert crc == crc_of_draft(n, started, kind, start, text.encode())
        so_far = streams.get((started, kind), "")
        assert start == len(so_far)
        streams[started, kind] = so_far + unescaped(text)
    return streams


def test_the_worked_examples_are_right() -> None:
    text = REFERENCE.read_text()
    body = b'{"type":"session.renamed","title":"Build"}'
    assert crc_of_fact(7, 3, 1735689600000, body) == 2312558745
    assert crc_of_draft(7, 3, "text", 5, "hé".encode()) == 2520042252
    for number in (30064771075, 1735689600000, 2312558745, 2520042252, APPLICATION_ID):
        assert str(number) in text
    assert f"is the version of the layout and is {VERSION}" in text


def test_a_reader_made_from_the_reference_alone_reads_a_store(tmp_path: Path) -> None:
    difficult = "a\ud800\0\ufdd0漢"
    path = tmp_path / "store.db"
    with open_library(path) as library:
        store = library.store
        parent = store.create(f.SessionStarted("test"))
        store.admit(
            Admission(input=f.InputAdmitted((Text(difficult),), "test", "k"), session=parent)
        )
        fork = store.fork(parent, 2, f.SessionStarted("test"))
        store.admit(Admission(input=f.InputAdmitted((), "test"), session=parent))
        grandchild = store.fork(
            store.fork(fork, 3, f.SessionStarted("test")), 2, f.SessionStarted("test")
        )
        store.add(grandchild, [f.SessionRenamed("mine")])
        lease = store.acquire(parent)
        store.append(lease, [f.TurnStarted(f.Takes(2)), f.StepStarted("m")], 3)
        for piece in ("one ", difficult, "漢"):
            store.draft(lease, Stream(5, "text"), piece)
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            shared, own = read_facts(connection, grandchild), read_facts(connection, parent)
            n, *_ = connection.execute("select n from sessions where id = ?", (parent,)).fetchone()
            drafts = read_drafts(connection, n)
            by_hand = connection.execute(
                "select seq from journal where session = ? order by seq", (parent,)
            ).fetchall()
            keys = connection.execute(
                "select source, key, session, seq, count from keys"
            ).fetchall()
    started, said = (
        {"type": "session.started", "platform": "test"},
        {
            "type": "input.admitted",
            "parts": [{"type": "text", "text": difficult}],
            "source": "test",
            "key": "k",
        },
    )
    assert own[:2] == [started, said]
    assert [fact["type"] for fact in own[2:]] == ["input.admitted", "turn.started", "step.started"]
    point = shared[2].pop("forked_from")
    assert point["seq"] == 2
    assert shared == [started, said, started, {"type": "session.renamed", "title": "mine"}]
    assert drafts == {(5, "text"): "one " + difficult + "漢"}
    assert by_hand == [(1,), (2,), (3,), (4,), (5,)]
    assert keys == [("test", "k", n, 2, 1)]
