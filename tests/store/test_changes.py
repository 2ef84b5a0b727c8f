"""The feed of changes: every commit of every session once, in order, from a mark on. Afterwards the
store verifies."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from steno.journal.facts import (
    AnyFact,
    Distilled,
    ForkPoint,
    InputAdmitted,
    InterruptAsked,
    Item,
    MessageHidden,
    MessageRedacted,
    Record,
    RewindWithdrawn,
    Rewound,
    SessionRenamed,
    SessionStarted,
    TurnEnded,
)
from steno.journal.parts import Seq, Text
from steno.store.errors import NotAllowed, StoreClosed, UnknownMark, UnknownSession
from steno.store.protocol import (
    Admission,
    Carried,
    Change,
    FactAdded,
    FeedMark,
    SessionDeleted,
    Store,
    TextRemoved,
)
from tests.chance import chance_of
from tests.store.contract import STARTED, Place, admit, begin, read_all, said
from tests.store.index import Index

SECRET = "sesame open"


async def told(store: Store, after: FeedMark = 0, limit: int = 1_000) -> list[Change]:
    """All that there is after a mark, page by page."""
    found: list[Change] = []
    while True:
        page = await store.changes(after, limit)
        assert len(page.changes) <= limit
        found += page.changes
        if page.mark == after:
            return found
        after = page.mark


def in_short(changes: list[Change]) -> list[tuple[object, ...]]:
    return [
        (one.session, one.record.seq)
        if isinstance(one, FactAdded)
        else (type(one).__name__, *(getattr(one, field) for field in one.__struct_fields__[1:]))
        for one in changes
    ]


def facts_of(changes: list[Change]) -> list[AnyFact]:
    return [one.record.fact for one in changes if isinstance(one, FactAdded)]


# --- facts ----------------------------------------------------------------------------------------


@pytest.mark.promise(47)
@pytest.mark.parametrize("limit", [1, 2, 1_000])
async def test_facts_of_all_sessions_come_once_in_the_order_of_their_commits(
    place: Place, limit: int
) -> None:
    async with place.open() as store:
        one = (await admit(store, "hello")).session
        two = (await admit(store, "good day")).session
        await admit(store, "and more", one)
        changes = await told(store, limit=limit)
    assert in_short(changes) == [(one, 1), (one, 2), (two, 1), (two, 2), (one, 3)]
    assert facts_of(changes)[-1] == said("and more")
    marks = [one.mark for one in changes]
    assert marks == sorted(set(marks))
    assert min(marks) > 0


async def test_who_goes_on_from_a_mark_gets_only_what_came_since(place: Place) -> None:
    async with place.open() as store:
        one = (await admit(store, "hello")).session
        now = (await store.changes(None)).mark
        assert await told(store, now) == []
        assert (await store.changes(now)).mark == now
        await admit(store, "more", one)
        assert in_short(await told(store, now)) == [(one, 3)]
    async with place.open() as again:
        assert in_short(await told(again, now)) == [(one, 3)]


async def test_text_that_is_streamed_and_leases_are_no_changes(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        now = (await store.changes(None)).mark
        await running.write("said piece by piece")
        await store.renew(running.lease)
        await running.release()
        assert await told(store, now) == []


async def test_what_is_refused_is_no_change(place: Place) -> None:
    async with place.open() as store:
        one = (await admit(store, "hello", key="k")).session
        now = (await store.changes(None)).mark
        assert not (await admit(store, "hello", one, key="k")).first
        with pytest.raises(NotAllowed):
            await store.add(one, [TurnEnded(1, "done")])  # type: ignore[list-item]
        with pytest.raises(UnknownSession):
            await store.redact("nowhere", 1)
        assert await store.changes(now) == await store.changes(None)


async def test_hiding_rewinding_and_taking_it_back_are_facts_of_their_own(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.record(TurnEnded(3, "done"))
        now = (await store.changes(None)).mark
        hidden, shown = MessageHidden(2), MessageHidden(2, hidden=False)
        await store.add(running.session, [hidden])
        await store.add(running.session, [shown])
        rewound = Rewound(3)
        withdrawn = RewindWithdrawn(await running.record(rewound))
        await running.record(withdrawn)
        assert facts_of(await told(store, now)) == [hidden, shown, rewound, withdrawn]


async def test_a_fork_begins_with_a_fact_that_names_its_parent(place: Place) -> None:
    async with place.open() as store:
        parent = (await admit(store, "hello")).session
        now = (await store.changes(None)).mark
        fork = await store.fork(parent, 2, STARTED)
        await admit(store, "elsewhere", fork)
        changes = await told(store, now)
    assert in_short(changes) == [(fork, 3), (fork, 4)]
    assert facts_of(changes)[0] == SessionStarted("test", forked_from=ForkPoint(parent, 2))


async def test_a_mark_that_was_not_given_is_refused(place: Place) -> None:
    async with place.open() as store:
        await admit(store, "hello")
        now = (await store.changes(None)).mark
        for mark in (now + 1, -1):
            with pytest.raises(UnknownMark):
                await store.changes(mark)
        with pytest.raises(NotAllowed):
            await store.changes(0, 0)


# --- removals -------------------------------------------------------------------------------------


@pytest.mark.promise(60)
async def test_a_redaction_is_told_and_its_text_is_not(place: Place) -> None:
    """Also to a reader that was there before, and that comes from any mark."""
    async with place.open() as store:
        parent = (await admit(store, SECRET)).session
        fork = await store.fork(parent, 2, STARTED)
        now = (await store.changes(None)).mark
        seq = await store.redact(fork, 2)
        changes = await told(store, now)
        assert in_short(changes) == [("TextRemoved", parent, 2), (fork, seq)]
        assert facts_of(changes) == [MessageRedacted(2, "user")]
        assert SECRET not in repr(await told(store))
        await store.redact(fork, 2)
        assert await told(store, now) == changes


@pytest.mark.promise(60)
async def test_what_was_made_of_a_redacted_text_is_told_as_removed(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store, SECRET)
        await running.record(TurnEnded(3, "done"))
        item = Item("decision", SECRET, (2,))
        seq = await running.record(Distilled(0, running.head, "title", "summary", (item,), "model"))
        await running.release()
        now = (await store.changes(None)).mark
        await store.redact(running.session, 2)
        changes = await told(store, now)
        removed = {one.seq for one in changes if isinstance(one, TextRemoved)}
        assert removed == {2, seq}
        assert SECRET not in repr(await told(store))


@pytest.mark.promise(55)
async def test_a_deletion_is_told_and_marks_never_go_back(place: Place) -> None:
    """The newest session goes, and with it the facts that had the last marks."""
    async with place.open() as store:
        kept = (await admit(store, "kept")).session
        gone = (await admit(store, SECRET)).session
        await store.redact(gone, 2)
        now = (await store.changes(None)).mark
        await store.delete(gone)
        assert in_short(await told(store, now)) == [("SessionDeleted", gone)]
        assert in_short(await told(store)) == [(kept, 1), (kept, 2), ("SessionDeleted", gone)]
        later = (await store.changes(None)).mark
        assert later > now
    async with place.open() as store:
        await admit(store, "more", kept)
        (change,) = await told(store, later)
        assert (change.mark > later, in_short([change])) == (True, [(kept, 3)])


async def test_forks_are_deleted_one_by_one_before_their_parent(place: Place) -> None:
    async with place.open() as store:
        parent = (await admit(store, "hello")).session
        fork = await store.fork(parent, 2, STARTED)
        now = (await store.changes(None)).mark
        await store.delete(parent, with_forks=True)
        assert in_short(await told(store, now)) == [
            ("SessionDeleted", fork),
            ("SessionDeleted", parent),
        ]


# --- sessions of other stores ---------------------------------------------------------------------


def in_place(count: int) -> list[Record]:
    facts: tuple[AnyFact, ...] = (STARTED, *(said(f"line {i}") for i in range(count)))
    return [Record(seq, 1_000 + seq, fact) for seq, fact in enumerate(facts, start=1)]


async def test_an_imported_session_comes_when_it_becomes_a_session(place: Place) -> None:
    many = in_place(1_200)

    def slowly() -> Iterator[Carried]:
        yield from many[:1_100]
        asyncio.run(look())
        yield from many[1_100:]

    seen: list[Change] = []

    async def look() -> None:
        async with place.open() as other:
            await admit(other, "meanwhile", here)
            seen.extend(await told(other, now))

    async with place.open() as store:
        here = (await admit(store, "hello")).session
        now = (await store.changes(None)).mark
        await store.bring("moved", 0, slowly())
        assert in_short(seen) == [(here, 3)]
        await admit(store, "and more", "moved")
        after = [(here, 3), ("SessionImported", "moved", 1_201), ("moved", 1_202)]
        assert in_short(await told(store, now)) == after
        assert in_short(await told(store, seen[-1].mark)) == after[1:]
        assert in_short(await told(store, limit=3)) == [(here, 1), (here, 2), *after]


async def test_an_import_that_fails_is_no_change_and_marks_do_not_go_back(place: Place) -> None:
    def breaking_off() -> Iterator[Carried]:
        yield from in_place(700)
        asyncio.run(look())
        raise ZeroDivisionError

    marks: list[FeedMark] = []

    async def look() -> None:
        async with place.open() as other:
            marks.append((await other.changes(None)).mark)

    async with place.open() as store:
        here = (await admit(store, "hello")).session
        now = (await store.changes(None)).mark
        with pytest.raises(ZeroDivisionError):
            await store.bring("moved", 0, breaking_off())
        assert await told(store, now) == []
        await admit(store, "more", here)
        assert in_short(await told(store, marks[0])) == [(here, 3)]


async def test_a_session_can_go_and_come_back(place: Place) -> None:
    async with place.open() as store:
        await store.bring("moved", 0, in_place(2))
        await store.delete("moved")
        await store.bring("moved", 0, in_place(3))
        assert in_short(await told(store)) == [
            ("SessionDeleted", "moved"),
            ("SessionImported", "moved", 4),
        ]


# --- waiting --------------------------------------------------------------------------------------


async def test_who_waits_is_told_what_this_and_other_stores_commit(place: Place) -> None:
    async with place.open() as store, place.open() as other:
        one = (await admit(store, "hello")).session
        async with aclosing(store.follow_changes()) as changes:
            assert [(await anext(changes)).mark for _ in range(2)] == [
                change.mark for change in await told(store)
            ]
            for i, writer in enumerate((store, other, other, store), start=3):
                waiting = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                await admit(writer, "more", one)
                assert in_short([await asyncio.wait_for(waiting, 5)]) == [(one, i)]
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0.05)
            await other.delete(one)
            assert isinstance(await asyncio.wait_for(waiting, 5), SessionDeleted)


async def test_who_waits_when_the_store_is_closed_is_told(place: Place) -> None:
    async with place.open() as store:
        waiting = asyncio.ensure_future(anext(store.follow_changes()))
        await asyncio.sleep(0.05)
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(waiting, 5)


# --- what lives on it -----------------------------------------------------------------------------


class Reader:
    """Keeps an index by the feed, some changes at a time."""

    def __init__(self) -> None:
        self.index = Index()
        self.mark: FeedMark = 0

    async def go_on(self, store: Store, limit: int) -> bool:
        """Take one page; whether there was anything new."""
        page = await store.changes(self.mark, limit)
        for change in page.changes:
            at = change.session if not hasattr(change, "record") else ""  # type: ignore[union-attr]
            facts = await _facts(store, at) if at else []
            self.index.apply(change, lambda _, after, n, facts=facts: facts[after : after + n])  # type: ignore[misc]
        moved, self.mark = page.mark != self.mark, page.mark
        return moved


async def _facts(store: Store, session: str) -> list[Record]:
    try:
        return await read_all(store, session)
    except UnknownSession:
        return []


@pytest.mark.promise(47, 55, 60)
@pytest.mark.parametrize("n", range(4))
async def test_an_index_that_lives_on_the_feed_equals_the_store(place: Place, n: int) -> None:
    """Whatever is done, by two stores in turn, and wherever its reader stops in between."""
    chance = chance_of("changes", n)
    readers = [Reader(), Reader()]
    async with place.open() as one, place.open() as two:
        for i in range(120):
            store = chance.choice((one, two))
            await act(store, chance.randrange(100), [listed.id for listed in await store.list()], i)
            if chance.random() < 0.3:
                await chance.choice(readers).go_on(store, chance.randrange(1, 6))
        late = Reader()
        for reader in (*readers, late):
            while await reader.go_on(one, chance.randrange(1, 50)):
                pass
            assert reader.index.facts == await contents(one)


async def act(store: Store, what: int, ids: list[str], i: int) -> None:
    id = ids[what % len(ids)] if ids else None
    if id is None or what < 25:
        await admit(store, f"begin {i}")
    elif what < 65:
        await store.add(id, [SessionRenamed(f"title {i}"), InterruptAsked(1)])
    elif what < 75:
        await store.fork(id, 1 + what % 2, STARTED)
    elif what < 82:
        await store.delete(id, with_forks=True)
    elif what < 90:
        await store.bring(f"moved {i}", 0, in_place(what % 4))
    else:
        said_at = [
            one.seq for one in await read_all(store, id) if isinstance(one.fact, InputAdmitted)
        ]
        if said_at:
            await store.redact(id, said_at[-1])


async def contents(store: Store) -> dict[str, dict[Seq, AnyFact]]:
    """Each session's own facts."""
    found = {}
    for listed in await store.list(1_000):
        records = await read_all(store, listed.id)
        parent = listed.row.forked_from
        base = 0 if parent is None or (await store.glance(listed.id)).imported else parent.seq
        found[listed.id] = {one.seq: one.fact for one in records if one.seq > base}
    return found


async def test_payloads_and_inputs_with_visits_are_told_as_facts(place: Place) -> None:
    async with place.open() as store:
        admission = Admission(
            input=InputAdmitted((Text("hello"),), "test"), create=STARTED, payloads=(b"body",)
        )
        session = (await store.admit(admission)).session
        assert in_short(await told(store)) == [(session, 1), (session, 2)]
