"""A session through a file: equal on the other side, or refused."""

import asyncio
import io
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.journal.codec import encode
from steno.journal.facts import InputAdmitted, Record, SessionRenamed, SessionStarted, payloads_of
from steno.journal.parts import File, Redacted, Text
from steno.service.transfers import Transfers
from steno.service.views import Views
from steno.session.load import Sessions
from steno.store import memory
from steno.store.errors import JournalCorrupt, NotAllowed
from steno.store.memory import MemoryStore
from steno.store.protocol import Admission, Carried, Keyed, Payload, Store
from steno.store.sqlite.store import SqliteStore
from steno.transfer import (
    ChangedMeanwhile,
    FileDamaged,
    FileTooNew,
    NotAnExport,
    OtherContent,
    TransferError,
)
from steno.transfer.export import export
from steno.transfer.incoming import Incoming
from tests.journal.author import Journal, journals
from tests.journal.strategies import any_records
from tests.store.contract import begin, read_all, said, texts

SECRET = "the-word-is-swordfish"
BODY = b"\0\xff picture" * 50


@asynccontextmanager
async def a_store() -> AsyncIterator[Store]:
    store = await MemoryStore.open(memory.Place())
    try:
        yield store
        assert (await store.verify()).damage == ()
    finally:
        await store.close()


async def exported(store: Store, session: str) -> bytes:
    return b"".join([line async for line in export(store, session)])


async def bring(store: Store, file: bytes) -> bool:
    """Whether it was stored, and not there already."""
    return (
        await Transfers(store, Views(Sessions(store))).bring(io.BytesIO(file), trust=True)
    ).first


def base_of(records: list[Record]) -> int:
    """Facts up to here are those of the sessions that this one was forked from."""
    return max(record.seq for record in records if isinstance(record.fact, SessionStarted)) - 1


async def everything(store: Store, session: str) -> tuple[object, ...]:
    """All that a reader can tell two sessions apart by."""
    glance = await store.glance(session)
    records = await read_all(store, session)
    payloads = {
        hash: await store.get(hash) for record in records for hash in payloads_of(record.fact)
    }
    return (
        records,
        sorted(glance.drafts, key=str),
        encode(glance.row),
        payloads,
        await store.keys(session),
    )


async def goes_and_comes(session: str, base: int, carried: list[Carried]) -> bytes:
    """Put a session into a store, carry it to another, compare; the file."""
    async with a_store() as here, a_store() as there:
        await here.bring(session, base, carried)
        file = await exported(here, session)
        assert await bring(there, file)
        assert await everything(there, session) == await everything(here, session)
        assert await exported(there, session) == file
        assert not await bring(there, file)
        return file


@pytest.mark.promise(59)
@given(journals(tidy=False))
def test_any_session_that_was_cut_off_at_any_moment_is_equal_in_another_store(
    journal: Journal,
) -> None:
    carried: list[Carried] = [*journal.records, *(draft for draft in journal.drafts if draft.text)]
    asyncio.run(goes_and_comes("moved", base_of(journal.records), carried))


@pytest.mark.promise(59)
@given(any_records(), st.integers(-(2**63), 2**63 - 1))
def test_facts_of_every_kind_in_any_order_are_equal_in_another_store(
    records: list[Record], at_ms: int
) -> None:
    """A store holds what was said, whether it makes sense or not."""
    facts = [record.fact for record in records if not isinstance(record.fact, SessionStarted)]
    keyless = [
        fact for fact in facts if not isinstance(fact, InputAdmitted) and not payloads_of(fact)
    ]
    placed = [
        Record(seq, at_ms, fact)
        for seq, fact in enumerate([SessionStarted("test"), *keyless], start=1)
    ]
    asyncio.run(goes_and_comes("moved", 0, [*placed]))


async def test_payloads_keys_and_odd_text_come_along() -> None:
    picture = File(sha256(BODY).hexdigest(), "image/png", len(BODY))
    odd = InputAdmitted((Text("\ud800\0\ufdd0 漢"), picture), "so\ud800urce", "ke\0y")
    records = [
        Record(1, 5, SessionStarted("test", name="na\udfffme")),
        Record(2, 4, odd),
        Record(3, 3, odd_named(odd)),
    ]
    file = await goes_and_comes("id 漢", 0, [Payload(BODY), *records, Keyed(3, "k\ud800", 1)])
    assert file.count(b'"type":"payload"') == 1
    assert b64encode(BODY) in file


def odd_named(odd: InputAdmitted) -> InputAdmitted:
    return InputAdmitted(odd.parts, "another")


@pytest.mark.promise(60)
async def test_a_redacted_secret_is_in_no_export() -> None:
    async with a_store() as store:
        running = await begin(store, f"it is {SECRET}")
        assert SECRET.encode() in await exported(store, running.session)
        await store.redact(running.session, 2)
        assert SECRET.encode() not in await exported(store, running.session)


@pytest.mark.promise(60)
@pytest.mark.parametrize("target", [2, 3], ids=["text", "payload"])
async def test_a_secret_that_is_redacted_while_it_is_exported_ends_the_export(target: int) -> None:
    """In the fork's parent, which holds it: no fact of the fork says so."""
    async with a_store() as store:
        parent = await store.create(SessionStarted("test"))
        picture = File(sha256(BODY).hexdigest(), "image/png", len(BODY))
        await store.admit(Admission(input=said(SECRET), session=parent))
        await store.admit(
            Admission(input=InputAdmitted((picture,), "test"), session=parent, payloads=(BODY,))
        )
        fork = await store.fork(parent, 3, SessionStarted("test"))
        lines = export(store, fork)
        seen = [await anext(lines) for _ in range(3)]
        assert SECRET.encode() in seen[-1]
        await store.redact(parent, target)
        with pytest.raises(ChangedMeanwhile):
            seen += [line async for line in lines]
        assert not any(b'"type":"end"' in line for line in seen)


async def test_what_is_added_meanwhile_is_not_in_the_export() -> None:
    async with a_store() as store, a_store() as there:
        running = await begin(store)
        await running.write("half")
        lines = export(store, running.session)
        first = await anext(lines)
        await running.write(" and more")
        await store.add(running.session, [SessionRenamed("later")], "key")
        file = first + b"".join([line async for line in lines])
        await bring(there, file)
        assert [record.seq for record in await read_all(there, running.session)] == [1, 2, 3, 4]
        assert [draft.text for draft in await there.drafts(running.session)] == ["half"]
        assert await there.keys(running.session) == []
        assert not await bring(store, file), "the session has gone on since"


async def test_a_session_that_is_another_one_is_refused_and_stays() -> None:
    async with a_store() as store, a_store() as there:
        for which, text in ((store, "one"), (there, "two")):
            await which.bring(
                "id", 0, [Record(1, 0, SessionStarted("test")), Record(2, 0, said(text))]
            )
        with pytest.raises(OtherContent):
            await bring(there, await exported(store, "id"))
        assert await texts(there, "id") == ["two"]


async def test_a_session_that_knows_less_than_the_file_is_another_one() -> None:
    async with a_store() as store, a_store() as there:
        records = [Record(1, 0, SessionStarted("test")), Record(2, 0, said("one"))]
        await store.bring("id", 0, records)
        await there.bring("id", 0, records[:1])
        with pytest.raises(OtherContent):
            await bring(there, await exported(store, "id"))


async def test_open_text_that_differs_makes_another_session() -> None:
    async with a_store() as store, a_store() as there:
        running = await begin(store)
        await running.write("half")
        file = await exported(store, running.session)
        await bring(there, file)
        lease = await there.acquire(running.session)
        assert not await bring(there, file)
        await there.draft(lease, (await there.drafts(running.session))[0].stream, " more")
        with pytest.raises(OtherContent):
            await bring(there, file)


# --- files that are not as they were written ------------------------------------------------------


async def a_file() -> bytes:
    async with a_store() as store:
        running = await begin(store)
        picture = File(await store.put(running.session, BODY), "image/png", len(BODY))
        await store.admit(
            Admission(input=InputAdmitted((picture,), "test", "k"), session=running.session)
        )
        await store.add(running.session, [SessionRenamed("title")], "key")
        await running.write("half")
        return await exported(store, running.session)


def resealed(lines: list[bytes]) -> bytes:
    """The same counts, and a sum that fits: as somebody would write it who knows how."""
    body, end = b"".join(lines[:-1]), lines[-1]
    return (
        body + end[: end.index(b'"sha256"')] + f'"sha256":"{sha256(body).hexdigest()}"}}\n'.encode()
    )


async def refused(file: bytes) -> Exception:
    async with a_store() as store:
        with pytest.raises((TransferError, NotAllowed)) as error:
            await bring(store, file)
        assert await store.list() == []
        assert "Traceback" not in str(error.value)
        return error.value


@pytest.mark.promise(50)
async def test_a_file_that_was_cut_anywhere_is_refused() -> None:
    file = await a_file()
    for end in (0, 1, *range(100, len(file), 97), len(file) - 2, len(file) - 1):
        error = await refused(file[:end])
        assert isinstance(error, NotAnExport | FileDamaged), end


@pytest.mark.promise(50)
@given(st.data())
def test_a_file_in_which_any_byte_was_changed_is_refused(data: st.DataObject) -> None:
    file = bytearray(asyncio.run(a_file()))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] ^= data.draw(
        st.sampled_from([1, 1, 2, 4, 255])
    )  # a digit to a digit, a letter to a letter, most often
    asyncio.run(refused(bytes(file)))


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a line twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "a line left out": lambda lines: [*lines[:3], *lines[4:]],
    "two lines in another order": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "a second header": lambda lines: [lines[0], *lines],
    "an empty line": lambda lines: [*lines[:2], b"\n", *lines[2:]],
    "something else at the end": lambda lines: [*lines, b"{}\n"],
    "another session after it": lambda lines: [*lines, *lines],
    "a line of another kind": lambda lines: [*lines[:2], b'{"type":"note"}\n', *lines[2:]],
    "deep nesting": lambda lines: [
        *lines[:2],
        b'{"type":"fact","seq":2,"at_ms":1,"body":' + b"[" * 5000,
        *lines[2:],
    ],
    "a number beyond numbers": lambda lines: [
        *lines[:2],
        b'{"type":"fact","seq":1e999,"at_ms":1,"body":{}}\n',
    ],
}


@pytest.mark.promise(50)
@pytest.mark.parametrize("how", CHANGES)
async def test_a_file_that_was_put_together_otherwise_is_refused(how: str) -> None:
    await refused(b"".join(CHANGES[how]((await a_file()).splitlines(keepends=True))))


FORGED: dict[str, tuple[bytes, bytes]] = {
    "a payload": (b64encode(BODY), b64encode(BODY[:-2] + b"!!")),
    "a fact that is none": (b'"title":"title"', b'"title":12345'),
    "a field that is unknown": (b'"title":"title"', b'"title":"t","more":1'),
    "a gap": (b'"seq":2,', b'"seq":3,'),
    "an open text of nothing": (b'"started":4', b'"started":3'),
    "a key of nothing": (b'"type":"key","seq":6', b'"type":"key","seq":9'),
    "an id that cannot be one": (b'"session":"', b'"session":"a/'),
    "a base": (b'"base":0', b'"base":2'),
    "a base before all": (b'"base":0', b'"base":-1'),
    "a count": (b'"facts":6', b'"facts":7'),
}


@pytest.mark.promise(50)
@pytest.mark.parametrize("what", FORGED)
async def test_a_forged_file_with_a_sum_that_fits_is_refused(what: str) -> None:
    file = await a_file()
    assert resealed(file.splitlines(keepends=True)) == file
    forged = resealed([line.replace(*FORGED[what]) for line in file.splitlines(keepends=True)])
    assert forged != file
    await refused(forged)


async def test_a_file_of_a_newer_steno_says_so() -> None:
    file = await a_file()
    for old, new in ((b'"version":1', b'"version":2'), (b"session.renamed", b"session.praised")):
        forged = resealed([line.replace(old, new) for line in file.splitlines(keepends=True)])
        assert isinstance(await refused(forged), FileTooNew)


async def test_something_else_is_not_an_export() -> None:
    for file in (
        b"",
        b"\n",
        b"{}\n",
        b"# hello\n",
        b"\x89PNG\n",
        b'{"type":"end"}\n',
        b"[" * 100_000 + b"\n",
    ):
        assert isinstance(await refused(file), NotAnExport | FileDamaged), file[:9]


async def test_a_line_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steno.transfer.incoming.LINE_BYTES_MAX", 1_000)
    with pytest.raises(FileDamaged, match="longer than any line"):
        Incoming(io.BytesIO(b"x" * 10_000))


async def test_what_could_not_be_imported_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steno.transfer.export.LINE_BYTES_MAX", 1_000)
    async with a_store() as store:
        running = await begin(store, "x" * 1_000)
        with pytest.raises(TransferError, match="too large"):
            await exported(store, running.session)


@pytest.mark.promise(50)
async def test_a_damaged_store_gives_no_export(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "chats.db") as store:
        running = await begin(store)
        writer = store.backend.connection
        writer.execute(
            "update facts set body = replace(body, 'hello', 'hallo') where seq = 2"
        ).fetchall()
        with pytest.raises(JournalCorrupt, match="fact 2"):
            await exported(store, running.session)


async def test_a_redaction_here_makes_the_file_another_session() -> None:
    async with a_store() as store:
        running = await begin(store, SECRET)
        file = await exported(store, running.session)
        await store.redact(running.session, 2)
        with pytest.raises(OtherContent):
            await bring(store, file)
        fact = (await read_all(store, running.session))[1].fact
        assert isinstance(fact, InputAdmitted)
        assert fact.parts == (Redacted(len(SECRET)),)
