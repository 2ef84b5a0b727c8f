"""Text that is hard to store, and stored bytes that are no longer what they were."""

import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from zlib import crc32

import apsw
import pytest

from steno.journal import codec
from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.listing import TITLE_LEN_MAX
from steno.journal.memory import TURNS_DUE
from steno.journal.parts import Returned, Seq, Text, ToolCall
from steno.store import queries
from steno.store.backend import SessionRow
from steno.store.errors import (
    JournalCorrupt,
    KeyReused,
    StoreError,
    UnknownPayload,
    UnknownSession,
)
from steno.store.protocol import Admission, Mark
from steno.store.rows import columns_of, fact_crc, session_crc
from steno.store.sqlite.database import SqliteSettings, checked_pages
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.store import BlockingStore
from steno.store.verify import marks_hold

STARTED = SessionStarted("test")
SETTINGS = SqliteSettings(durability="process", lock_wait_ms=500)
PAYLOAD = b"payload " * 700
PAYLOAD_HASH = sha256(PAYLOAD).hexdigest()
PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def admit(
    store: BlockingStore, session: str, text: str, key: str | None = None, source: str = "test"
) -> Seq:
    said = InputAdmitted((Text(text),), source, key)
    return store.admit(Admission(input=said, session=session)).seq


# --- text that is hard to store -------------------------------------------------------------------

DIFFICULT = {
    "a lone high surrogate": "before \ud800 after",
    "a lone low surrogate": "\udfff",
    "surrogates the wrong way round": "\udc00\ud800",
    "a pair that was never joined": "\ud83e\udd91",
    "NUL": "\0 in front and behind \0",
    "the mark of the escape": "\ufdd0",
    "what looks escaped": "\ufdd0d800 \ufdd00000 \\ud800 \\u0000",
    "marks and surrogates": "\ufdd0\ud800\ufdd0fdd0\udfff",
    "mixed scripts": "English Ελληνικά עברית العربية हिन्दी 漢字 かな 한글 ไทย 🦑👩‍👩‍👧 e\u0301",
    "controls": "".join(map(chr, range(32))) + "\x7f\x80\x85\u2028\u2029\ufeff\ufffe\uffff",
    "one line of 5 MB": "long " * 1_048_576,
}


@pytest.mark.promise(7)
@pytest.mark.parametrize("name", DIFFICULT)
def test_any_text_comes_back_exactly_and_later_turns_are_stored_as_usual(
    path: Path, name: str
) -> None:
    text = DIFFICULT[name]
    with BlockingStore(path, SETTINGS) as store:
        session = store.create(STARTED)
        for _ in range(2):
            converse(store, session, text)
        converse(store, session, "plain")
    with BlockingStore(path, SETTINGS) as store:
        assert store.verify().damage == ()
        facts = [record.fact for record in store.read_all(session)]
        assert [fact.parts for fact in facts if isinstance(fact, InputAdmitted)] == [
            (Text(said),) for said in (text, text, "plain")
        ]
        sealed = [fact.parts for fact in facts if isinstance(fact, StepSealed)]
        assert sealed == [
            (Text(said), ToolCall("call", said, said)) for said in (text, text, "plain")
        ]
        settled = [fact.outcome for fact in facts if isinstance(fact, ToolSettled)]
        assert settled == [Returned((Text(said),)) for said in (text, text, "plain")]
        assert [fact.title for fact in facts if isinstance(fact, SessionRenamed)] == [
            text,
            text,
            "plain",
        ]
        assert store.list()[0].row.title == "plain"


def converse(store: BlockingStore, session: str, text: str) -> None:
    """A turn in which everybody says the same; each draft is read back before it is sealed."""
    head = admit(store, session, text)
    lease = store.acquire(session)
    turn = store.append(lease, [TurnStarted(Takes(head))], head).last
    step = store.append(lease, [StepStarted("model")], turn).last
    for piece in (text[:3], text[3:]):
        store.draft(lease, Stream(step, "text"), piece)
    assert store.drafts(session) == [Draft(Stream(step, "text"), text)]
    store.append(lease, [StepSealed(step, (Text(text), ToolCall("call", text, text)))], step)
    tool = store.append(lease, [ToolStarted(step, "call")], step + 1).last
    store.draft(lease, Stream(tool, "output"), text)
    assert store.drafts(session) == [Draft(Stream(tool, "output"), text)]
    store.append(lease, [ToolSettled(step, "call", Returned((Text(text),)), tool)], tool)
    head = store.append(lease, [TurnEnded(turn, "done", text[:100], text)], tool + 1).last
    head = store.add(session, [SessionRenamed(text)]).last
    assert store.release(lease, head).released


@pytest.mark.promise(7, 16)
@pytest.mark.parametrize("name", [name for name, text in DIFFICULT.items() if len(text) < 512])
def test_any_text_may_be_a_key_a_source_a_name_or_a_title(path: Path, name: str) -> None:
    text = DIFFICULT[name]
    with BlockingStore(path, SETTINGS) as store:
        session = store.ensure(SessionStarted("test", name=text))
        seq = admit(store, session, text, key=text, source=text)
        store.add(session, [SessionRenamed("title")], key=text)
    with BlockingStore(path, SETTINGS) as store:
        assert store.find(text) == session == store.ensure(SessionStarted("test", name=text))
        assert admit(store, session, text, key=text, source=text) == seq
        with pytest.raises(KeyReused):
            admit(store, session, "other", key=text, source=text)
        with pytest.raises(KeyReused):
            store.add(session, [SessionRenamed("other")], key=text)
        assert store.list()[0].row.name == text
        assert store.verify().damage == ()


@pytest.mark.parametrize("name", [name for name, text in DIFFICULT.items() if len(text) < 512])
def test_an_id_that_no_session_can_have_is_unknown(path: Path, name: str) -> None:
    with BlockingStore(path, SETTINGS) as store:
        for verb in (store.read, store.drafts, store.running, store.acquire, store.delete):
            with pytest.raises(UnknownSession):
                verb(DIFFICULT[name])
        with pytest.raises(UnknownPayload):
            store.get(DIFFICULT[name])
        assert store.find(DIFFICULT[name]) is None


def test_a_title_made_of_a_long_line_is_cut(path: Path) -> None:
    with BlockingStore(path, SETTINGS) as store:
        admit(store, store.create(STARTED), "\ud800" * 1_000)
        assert store.list()[0].row.title == "\ud800" * (TITLE_LEN_MAX - 1) + "…"


# --- rows that are no longer what they were -------------------------------------------------------


class Written:
    """A store with something of every kind in it, closed; and what a reader found there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with BlockingStore(path, SETTINGS) as store:
            self.session = store.create(SessionStarted("test", name="name"), "session")
            for i in range(5):
                self.say_again(store, i)
            self.other = store.create(SessionStarted("test", name="other name"), "other")
            admit(store, self.other, "said elsewhere " * 50, key="other key")
            self.fork = store.fork(self.session, 4, STARTED)
            lease = store.acquire(self.session)
            self.step = store.append(lease, [TurnStarted(Takes(2)), StepStarted("model")], 6).last
            for word in ("one ", "two ", "three "):
                store.draft(lease, Stream(self.step, "text"), word * 30)
            store.release(lease, self.step)
            for i in range(40):
                extra = store.create(SessionStarted("test", name=f"extra {i}"), f"extra-{i:02}")
                admit(store, extra, f"extra {i}", key=f"extra key {i}")
            store.put(self.session, PAYLOAD)
        self.bytes = path.read_bytes()
        with BlockingStore(path, SETTINGS) as store:
            self.found = {name: read(store) for name, read in self.reads().items()}

    def say_again(self, store: BlockingStore, i: int) -> Seq:
        return admit(store, "session", f"said {i} " + "lorem ipsum " * 40, key=f"key {i}")

    def reads(self) -> dict[str, Callable[[BlockingStore], object]]:
        return {
            "read": lambda store: store.read("session"),
            "read fork": lambda store: store.read(self.fork),
            "read other": lambda store: store.read("other"),
            "read extra": lambda store: [store.read(f"extra-{i:02}") for i in range(0, 40, 3)],
            "drafts": lambda store: store.drafts("session"),
            "list": lambda store: store.list(100),
            "find": lambda store: [
                store.find(name) for name in ("name", "other name", "extra 7", "extra 33")
            ],
            "get": lambda store: store.get(PAYLOAD_HASH),
        }

    def alter(self, statement: str, *values: object) -> None:
        """Change rows behind the store's back, in pages whose own checksums are right."""
        connection = apsw.Connection(str(self.path), vfs=checked_pages())
        connection.execute(statement, values)
        assert connection.changes()
        connection.close()

    def n(self, session: str) -> int:
        connection = apsw.Connection(str(self.path), vfs=checked_pages())
        try:
            return int(connection.execute("select n from sessions where id = ?", (session,)).get)
        finally:
            connection.close()

    def put_body(self, seq: Seq, body: str) -> None:
        """Put other bytes in the place of a fact, with the right checksum."""
        n = self.n("session")
        crc = fact_crc(n, seq, 7, body.encode())
        self.alter(
            "update facts set body = ?, crc = ?, at_ms = 7 where session = ? and seq = ?",
            body,
            crc,
            n,
            seq,
        )


@pytest.fixture
def written(path: Path) -> Written:
    return Written(path)


def assert_damaged(written: Written, *names: str, match: str | None = None) -> None:
    """Reads that meet the damage say so, others find what was there, and verify tells."""
    with BlockingStore(written.path, SETTINGS) as store:
        for name, read in written.reads().items():
            if name in names:
                with pytest.raises(JournalCorrupt, match=match):
                    read(store)
            else:
                assert read(store) == written.found[name]
        assert store.verify().damage
        admit(store, "other", "still stored")
        assert len(store.read("other")) == 3


@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '{"type":7}', '{"type":"input.admitted"}', "[" * 5_000]
)
def test_a_row_that_is_no_fact_is_damage(written: Written, body: str) -> None:
    written.put_body(3, body)
    assert_damaged(written, "read", "read fork", match="fact 3")


@pytest.mark.promise(50)
def test_a_row_with_an_unknown_tag_is_named(written: Written) -> None:
    written.put_body(3, '{"type":"telepathy.received"}')
    assert_damaged(written, "read", "read fork", match=r"fact 3.*telepathy\.received")


@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "change",
    [
        "update facts set body = replace(body, 'lorem', 'lirem') where",
        "update facts set at_ms = at_ms + 1 where",
        "update facts set crc = crc + 1 where",
        "update facts set body = (select body from facts g where g.id = facts.id + 1) where",
        "delete from facts where",
    ],
)
def test_a_fact_that_was_changed_or_lost_is_damage(written: Written, change: str) -> None:
    written.alter(f"{change} session = ? and seq = ?", written.n("session"), 3)
    assert_damaged(written, "read", "read fork", match="'session'.*fact 3|fact 3")


def test_a_read_that_met_damage_does_not_keep_later_reads_in_the_past(written: Written) -> None:
    """Whoever keeps the error keeps the statement that raised it, half read."""
    written.alter(
        "update facts set at_ms = at_ms + 1 where session = ? and seq = ?", written.n("session"), 3
    )
    with BlockingStore(written.path, SETTINGS) as store:
        with pytest.raises(JournalCorrupt) as kept:
            store.read("session")
        seq = admit(store, "other", "stored")
        assert store.read("other")[-1].seq == seq
        del kept


def test_a_write_that_met_damage_does_not_keep_later_writes_out(written: Written) -> None:
    with BlockingStore(written.path, SETTINGS) as store:
        at, *_ = (admit(store, "session", f"behind its row {i}") for i in range(3))
    written.alter(
        "update facts set at_ms = at_ms + 1 where session = ? and seq = ?", written.n("session"), at
    )
    with (
        BlockingStore(written.path, SETTINGS) as store,
        BlockingStore(written.path, SETTINGS) as another,
    ):
        with pytest.raises(JournalCorrupt) as kept:
            admit(store, "session", "refused")
        seq = admit(another, "other", "stored")
        assert admit(store, "other", "stored too") == seq + 1
        del kept


@pytest.mark.promise(50)
def test_a_lost_last_fact_is_damage(written: Written) -> None:
    written.alter(
        "delete from facts where session = ? and seq = ?", written.n("session"), written.step
    )
    assert_damaged(written, "read", "read fork", "drafts", "list", match=f"fact {written.step}")


@pytest.mark.promise(50)
def test_all_facts_lost_is_damage_not_an_empty_list(written: Written) -> None:
    written.alter("delete from facts where session = ?", written.n("session"))
    assert_damaged(written, "read", "read fork", "drafts", "list", match="fact 1")


@pytest.mark.promise(50)
def test_a_row_that_was_set_back_is_damage_and_takes_no_new_fact(written: Written) -> None:
    written.alter("update sessions set listed = 3 where id = 'session'")
    with BlockingStore(written.path, SETTINGS) as store:
        assert store.verify().damage
        for write in (
            lambda: admit(store, "session", "lost"),
            lambda: store.add("session", [SessionRenamed("lost")]),
            lambda: store.append(store.acquire("session"), [TurnStarted(Takes(2))], 3),
        ):
            with pytest.raises(JournalCorrupt):
                write()
        assert admit(store, "other", "stored") == 3


@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "change",
    [
        "update drafts set text = replace(text, 'two', 'too')",
        "update drafts set start = start + 1 where start > 0",
        "update drafts set kind = 'reasoning'",
        "update drafts set kind = 'telepathy'",
        "delete from drafts where start = 120",
        "delete from drafts where start = 0",
    ],
)
def test_a_draft_that_was_changed_or_lost_in_part_is_damage(written: Written, change: str) -> None:
    written.alter(change)
    assert_damaged(written, "drafts")


@pytest.mark.promise(50)
def test_a_payload_that_was_changed_is_damage(written: Written) -> None:
    written.alter("update payloads set body = ?", PAYLOAD[:-1] + b"?")
    assert_damaged(written, "get", match=PAYLOAD_HASH)


@pytest.mark.promise(50)
def test_a_payload_that_was_lost_is_damage_not_unknown(written: Written) -> None:
    written.alter("delete from payloads")
    assert_damaged(written, "get", match=PAYLOAD_HASH)


@pytest.mark.promise(50)
@pytest.mark.parametrize("listing", ["", "{", '{"messages":"many"}', "[]"])
def test_a_row_of_a_session_that_is_damaged_says_so_everywhere(
    written: Written, listing: str
) -> None:
    written.alter("update sessions set listing = ? where id = 'session'", listing)
    with BlockingStore(written.path, SETTINGS) as store:
        with pytest.raises(JournalCorrupt, match="session"):
            store.list(100)
        with pytest.raises(JournalCorrupt, match="session"):
            store.read("session")
        assert store.verify().damage


def stored_row(written: Written) -> SessionRow:
    with BlockingStore(written.path, SETTINGS) as store, store.core.snapshot() as view:
        return queries.session(view, "session")


def store_row(written: Written, row: SessionRow) -> None:
    """A row that is as it was written, and yet not true."""
    written.alter(
        "update sessions set listing = ?, crc = ?, owes = ?, memory = ? where n = ?",
        row.list_row.decode(),
        session_crc(row),
        *columns_of(row.marks),
        row.n,
    )


@pytest.mark.promise(50)
def test_a_row_for_lists_that_lies_is_found_by_verify(written: Written) -> None:
    row = stored_row(written)
    row.list_row = row.list_row.replace(b"said 0", b"said 9")
    store_row(written, row)
    with BlockingStore(written.path, SETTINGS) as store:
        assert [damage.where for damage in store.verify().damage] == ["session 'session'"]


@pytest.mark.promise(50)
def test_a_mark_that_lies_about_what_a_session_owes_is_found_by_verify(written: Written) -> None:
    row = stored_row(written)
    row.marks ^= {"owes"}
    store_row(written, row)
    with BlockingStore(written.path, SETTINGS) as store:
        assert [damage.where for damage in store.verify().damage] == ["session 'session'"]


@pytest.mark.promise(50)
def test_a_mark_that_lies_about_what_there_is_to_remember_is_found_by_verify(
    written: Written,
) -> None:
    """That it is due may be missing in a row of an earlier steno, which did not distil sessions of
    programs."""
    row = stored_row(written)
    listing = row.listing()
    listing.memory.answered = TURNS_DUE
    assert listing.due()
    row.list_row = codec.encode(listing)
    found = []
    marks: list[list[Mark]] = [["due"], [], ["remembers"], ["due", "remembers"]]
    others = row.marks & {"owes", "unfinished"}
    for some in marks:
        row.marks = others | frozenset(some)
        store_row(written, row)
        again = stored_row(written)
        found.append(marks_hold(again, again.listing()))
    assert found == [True, True, False, False]


@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "change",
    ["update keys set key = 'kex 3' where key = 'key 3'", "delete from keys where key = 'key 3'"],
)
def test_a_key_that_was_changed_or_lost_is_found_by_verify(written: Written, change: str) -> None:
    written.alter(change)
    with BlockingStore(written.path, SETTINGS) as store:
        [damage] = store.verify().damage
        assert (damage.where, "key 3" in damage.what) == ("session 'session'", True)


@pytest.mark.promise(50)
def test_a_fork_whose_parent_was_lost_is_damage(written: Written) -> None:
    written.alter("delete from sessions where id = 'session'")
    with BlockingStore(written.path, SETTINGS) as store:
        with pytest.raises(JournalCorrupt, match="parent"):
            store.read(written.fork)
        assert store.verify().damage


# --- files that are no longer what they were ------------------------------------------------------


def third_things(written: Written, folder: Path) -> list[str]:
    """What a damaged copy answers that is neither what was there nor an error that says so."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = folder / "chats.db"
    copy.write_bytes(written.bytes)
    try:
        store = BlockingStore(copy, SETTINGS)
    except StoreError:
        return []
    with store:
        wrong = [
            name
            for name, read in written.reads().items()
            if wrongly(read, store, written.found[name])
        ]
        equal = [name for name, read in written.reads().items() if not fails(read, store)] == list(
            written.reads()
        )
        if not equal and not fails(find_damage, store):
            wrong.append("verify")
        wrong += [
            f"key {i} again"
            for i in range(5)
            if wrongly(lambda store, i=i: written.say_again(store, i), store, 2 + i)  # type: ignore[misc]
        ]
        if wrongly(lambda store: admit(store, "session", "one more"), store, written.step + 1):
            wrong.append("admit")
    return wrong


def find_damage(store: BlockingStore) -> None:
    if damage := store.verify().damage:
        raise JournalCorrupt(damage[0].what)


def wrongly(act: Callable[[BlockingStore], object], store: BlockingStore, expected: object) -> bool:
    try:
        return act(store) != expected
    except (UnknownSession, UnknownPayload):
        return True
    except StoreError:
        return False


def fails(act: Callable[[BlockingStore], object], store: BlockingStore) -> bool:
    try:
        act(store)
    except StoreError:
        return True
    return False


@pytest.mark.promise(50)
@pytest.mark.parametrize("part", [0.999, 0.75, 0.5, 0.25, 0.05, 0.001])
def test_a_file_that_was_cut_short_is_damage(written: Written, tmp_path: Path, part: float) -> None:
    os.truncate(written.path, int(len(written.bytes) * part))
    written.bytes = written.path.read_bytes()
    assert third_things(written, tmp_path / "copy") == []


@pytest.mark.promise(50)
def test_a_file_that_was_emptied_is_not_a_new_store(written: Written) -> None:
    os.truncate(written.path, 0)
    with pytest.raises(StoreError):
        BlockingStore(written.path, SETTINGS)


def pages(written: Written, *owners: str) -> list[int]:
    """The pages of some tables or indexes."""
    connection = apsw.Connection(str(written.path), vfs=checked_pages())
    try:
        rows = connection.execute("select name, pageno from dbstat").fetchall()
    finally:
        connection.close()
    return [int(str(page)) for name, page in rows if name in owners]


def flips(page: bytes, chance: Random, bits: int) -> Iterator[bytes]:
    """A page with a bit flipped where something is written, or with a run of bytes overwritten."""
    used = [i for i, byte in enumerate(page) if byte]
    for _ in range(bits):
        flipped = bytearray(page)
        flipped[chance.choice(used)] ^= 1 << chance.randrange(8)
        yield bytes(flipped)
    for length in (4, 64, 512):
        flipped = bytearray(page)
        start = chance.randrange(len(page) - length)
        flipped[start : start + length] = chance.randbytes(length)
        yield bytes(flipped)
    yield bytes(len(page))


OWNERS: dict[str, tuple[str, ...]] = {
    "facts": ("facts", "facts_by_session"),
    "drafts": ("drafts",),
    "payloads": ("payloads",),
    "schema": ("sqlite_schema",),
    "sessions": ("sessions",),
    "indexes": (
        "sqlite_autoindex_sessions_1",
        "sqlite_autoindex_sessions_2",
        "sqlite_autoindex_payloads_1",
        "sessions_by_touch",
        "lists",
    ),
    "keys": ("keys", "keys_by_session", "payload_owners", "payload_owners_by_session"),
    "rest": ("deletions", "deletions_unswept", "sqlite_sequence", "sessions_by_parent"),
}


@pytest.mark.promise(50)
def test_a_store_that_is_too_damaged_to_open_is_let_go_of(written: Written) -> None:
    """Else it would count as open as long as this process lives, and no backup could be restored
    over it."""
    damaged = bytearray(written.bytes)
    for page in pages(written, "deletions", "deletions_unswept"):
        damaged[(page - 1) * PAGE_BYTES] ^= 1
    written.path.write_bytes(damaged)
    with pytest.raises(JournalCorrupt):
        BlockingStore(written.path, SETTINGS)
    locks = Locks(written.path, "somebody.1.else")
    locks.hold_open(exclusive=True)
    locks.close()


SUITE_BITS, TORTURE_BITS = 10, 500


def wrong_answers(written: Written, folder: Path, owner: str, bits: int) -> set[str]:
    """What was answered wrongly and without a word, over all flips in the pages of some tables."""
    chance = Random(crc32(owner.encode()))
    whole = written.bytes
    wrong: set[str] = set()
    found = pages(written, *OWNERS[owner])
    assert found
    for page in found:
        start = (page - 1) * PAGE_BYTES
        for flipped in flips(whole[start : start + PAGE_BYTES], chance, bits):
            written.bytes = whole[:start] + flipped + whole[start + PAGE_BYTES :]
            wrong.update(third_things(written, folder))
    return wrong


@pytest.mark.promise(50)
@pytest.mark.parametrize("owner", OWNERS)
def test_a_damaged_page_is_never_read_as_something_else(
    written: Written, tmp_path: Path, owner: str
) -> None:
    assert wrong_answers(written, tmp_path / "copy", owner, SUITE_BITS) == set()


@pytest.mark.torture
@pytest.mark.promise(50)
@pytest.mark.parametrize("owner", OWNERS)
def test_a_page_damaged_in_hundreds_of_ways_is_never_read_as_something_else(
    written: Written, tmp_path: Path, owner: str
) -> None:
    assert wrong_answers(written, tmp_path / "copy", owner, TORTURE_BITS) == set()
