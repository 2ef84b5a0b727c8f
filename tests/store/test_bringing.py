"""A session that is brought from another store: what every store does. Afterwards the store
verifies."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    AnyFact,
    ContextSet,
    ForkPoint,
    HookOwed,
    InputAdmitted,
    ItemAt,
    Record,
    SessionAttended,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.store import import_session
from steno.store.errors import KeyReused, NotAllowed, UnknownPayload, UnknownSession
from steno.store.facade import AsyncStore
from steno.store.import_session import STEP_FACTS
from steno.store.protocol import Admission, Admitted, Carried, Keyed, Payload, Settings, Store
from tests.store.contract import (
    STARTED,
    Clock,
    Place,
    admit,
    begin,
    file_of,
    read_all,
    said,
    texts,
)

BODY = b"a picture"
HASH = "be8ad4d0be85e00eac6bd78b2c2ed4da27fe4b2a0b30ec2b0a4b5eaf2b7dbf36"


def in_place(*facts: AnyFact) -> list[Record]:
    return [Record(seq, 1_000 - seq, fact) for seq, fact in enumerate(facts, start=1)]


OPEN = in_place(
    SessionStarted("chat", name="chat/42"),
    said("hello", "k"),
    TurnStarted(Takes(2)),
    StepStarted("m"),
    HookOwed("e", "h"),
)
HALF = Draft(Stream(4, "text"), "half \ud800\0")


async def has_nothing(store: Store) -> bool:
    """Nothing is there of a session that was refused: the same input and name can be used."""
    again = await store.admit(
        Admission(input=said("other", "k"), create=SessionStarted("chat", name="chat/42"))
    )
    return again.first and len(await store.list()) == 1


@pytest.mark.promise(59)
async def test_a_session_comes_as_it_was(place: Place) -> None:
    async with place.open() as store:
        await store.bring("moved", 0, [*OPEN, HALF, Keyed(5, "owed", 1)])
    async with place.open() as store:
        assert await read_all(store, "moved") == OPEN
        assert await store.drafts("moved") == [HALF]
        assert await store.find("chat/42") == "moved"
        assert await store.keys("moved") == [Keyed(5, "owed", 1)]
        assert ((await store.glance("moved")).imported, (await store.glance("moved")).owner) == (
            5,
            None,
        )
        (listed,) = await store.list()
        assert (listed.id, listed.head, listed.row.title, listed.row.created_ms) == (
            "moved",
            5,
            "hello",
            999,
        )
        assert [one.id for one in await store.list(100, after=0, where="owes")] == ["moved"]


@pytest.mark.promise(16)
async def test_what_came_goes_on_here(place: Place) -> None:
    async with place.open() as store:
        await store.bring("moved", 0, [*OPEN, HALF, Keyed(5, "owed", 1)])
        assert await store.admit(Admission(input=said("hello", "k"), create=STARTED)) == Admitted(
            "moved", 2, False
        )
        assert (await store.add("moved", [HookOwed("e", "h")], "owed")).first == 5
        lease = await store.acquire("moved")
        assert await store.draft(lease, Stream(4, "text"), "!") == len(HALF.text) + 1
        sealed = StepSealed(4, (Text(HALF.text + "!"),))
        await store.append(lease, [sealed, TurnEnded(3, "done")], 5)
        assert await texts(store, "moved") == ["hello", HALF.text + "!"]
        assert (await store.glance("moved")).imported == 5


async def test_a_session_that_began_here_was_not_imported(place: Place) -> None:
    async with place.open() as store:
        assert (await store.glance(await store.create(STARTED))).imported == 0


@pytest.mark.promise(53)
async def test_payloads_come_once_and_go_with_their_session(place: Place) -> None:
    async with place.open() as store:
        other = await store.create(STARTED)
        hash = await store.put(other, BODY)
        seen = in_place(STARTED, InputAdmitted((file_of(hash, len(BODY)),), "test"))
        await store.bring("moved", 0, [Payload(BODY), *seen])
        await store.delete(other)
        assert await store.get(hash) == BODY
        await store.delete("moved")
        with pytest.raises(UnknownPayload):
            await store.get(hash)


@pytest.mark.promise(58)
async def test_a_fork_comes_with_what_it_shares_and_leaves_the_keys_to_its_parent(
    place: Place,
) -> None:
    origin = SessionStarted("test", forked_from=ForkPoint("parent", 2))
    fork = in_place(
        SessionStarted("test", name="n"), said("shared", "k"), origin, said("own", "k2")
    )
    async with place.open() as store:
        await store.bring("fork", 2, fork)
        assert await texts(store, "fork") == ["shared", "own"]
        assert await store.find("n") is None
        assert (await store.list())[0].row.forked_from == ForkPoint("parent", 2)
        assert (await admit(store, "own", key="k2")).session == "fork"
        await store.bring("parent", 0, fork[:2])
        assert await store.find("n") == "parent"
        assert (await admit(store, "shared", key="k")).session == "parent"
        child = await store.fork("fork", 4, STARTED)
        assert await texts(store, child) == ["shared", "own"]


REFUSED: dict[str, Sequence[Carried]] = {
    "nothing at all": [],
    "a gap": [*OPEN[:2], *OPEN[3:]],
    "another beginning": in_place(SessionRenamed("no")),
    "a second beginning": [*OPEN, Record(6, 0, STARTED)],
    "a fork of nothing": in_place(SessionStarted("test", forked_from=ForkPoint("parent", 7))),
    "a payload that did not come": in_place(STARTED, InputAdmitted((file_of(HASH, 9),), "test")),
    "a draft of nothing": [*OPEN[:3], HALF],
    "a draft of another kind": [*OPEN, Draft(Stream(4, "output"), "half")],
    "a draft twice": [*OPEN, HALF, HALF],
    "a fact after a draft": [*OPEN[:4], HALF, OPEN[4]],
    "a key of no fact": [*OPEN, Keyed(6, "owed", 1)],
    "a key of too many": [*OPEN, Keyed(5, "owed", 2)],
    "a key twice": [*OPEN, Keyed(5, "owed", 1), Keyed(5, "owed", 1)],
    "two inputs with one key": in_place(STARTED, said("a", "k"), said("b", "k")),
    "a time beyond numbers": [*OPEN[:4], Record(5, 1 << 63, HookOwed("e", "h"))],
}


@pytest.mark.parametrize("how", REFUSED)
async def test_what_no_store_could_have_held_is_refused_whole(place: Place, how: str) -> None:
    async with place.open() as store:
        with pytest.raises((NotAllowed, KeyReused)):
            await store.bring("moved", 0, REFUSED[how])
        with pytest.raises(UnknownSession):
            await store.glance("moved")
        assert await has_nothing(store)


@pytest.mark.parametrize("id", ["", "a/b", "x" * 513, "line\nbreak"])
async def test_an_id_that_cannot_be_one_is_refused(place: Place, id: str) -> None:
    async with place.open() as store:
        with pytest.raises(NotAllowed):
            await store.bring(id, 0, OPEN)
        assert await has_nothing(store)


async def test_an_id_a_name_and_a_key_are_given_once(place: Place) -> None:
    async with place.open() as store:
        taken = await store.create(STARTED)
        with pytest.raises(KeyReused, match=taken):
            await store.bring(taken, 0, OPEN)
        await store.create(SessionStarted("test", name="chat/42"), "other")
        with pytest.raises(KeyReused, match="chat/42"):
            await store.bring("moved", 0, OPEN)
        await admit(store, "something else", taken, "k")
        with pytest.raises(KeyReused, match="'k'"):
            await store.bring("moved", 0, in_place(STARTED, said("hello", "k")))
        assert {listed.id for listed in await store.list()} == {taken, "other"}
        assert await texts(store, taken) == ["something else"]


def breaking_off(records: list[Record]) -> Iterator[Carried]:
    yield from records
    raise ZeroDivisionError


async def test_what_breaks_off_leaves_nothing(place: Place) -> None:
    many = in_place(STARTED, *(said(f"line {i}", f"k{i}") for i in range(2_000)))
    async with place.open() as store:
        with pytest.raises(ZeroDivisionError):
            await store.bring("moved", 0, breaking_off(many))
        assert await store.list() == []
        assert place.rows() == {}
        await store.bring("moved", 0, many)
        assert await read_all(store, "moved") == many


async def test_nobody_sees_a_session_before_it_is_whole_and_who_comes_first_keeps_the_key(
    place: Place,
) -> None:
    """Another store is opened while it arrives, and sweeps nothing of it; an input that takes a key
    of it wins."""
    many = in_place(STARTED, *(said(f"line {i}", f"k{i}") for i in range(2_000)))
    looked: list[list[str]] = []

    def slowly() -> Iterator[Carried]:
        yield from many[:1_500]
        looked.append(asyncio.run(look()))
        yield from many[1_500:]

    async def look() -> list[str]:
        async with place.open() as other:
            found = [listed.id for listed in await other.list()]
            assert (await other.verify()).damage == ()
            if len(looked) == 1:
                await admit(other, "mine", key="k3")
            return found

    async with place.open() as store:
        await store.bring("moved", 0, slowly())
        assert (looked, len(await read_all(store, "moved"))) == ([[]], 2_001)
        await store.delete("moved")
        with pytest.raises(KeyReused):
            await store.bring("moved", 0, slowly())
        (only,) = await store.list()
        assert (looked[1], await texts(store, only.id)) == ([], ["mine"])


async def test_what_is_written_meanwhile_has_its_own_place_in_lists(place: Place) -> None:
    """What comes after the facts is stored with a step of its own."""
    many = in_place(
        STARTED, TurnStarted(Takes(1)), StepStarted("m"), *[said("more")] * (2 * STEP_FACTS - 3)
    )

    def slowly() -> Iterator[Carried]:
        yield from many
        asyncio.run(elsewhere())
        yield Draft(Stream(3, "text"), "half")

    async def elsewhere() -> None:
        async with place.open() as other:
            await admit(other, "meanwhile")

    async with place.open() as store:
        await store.bring("moved", 0, slowly())
        first = await store.list(1)
        second = await store.list(1, before=first[0].mark)
        assert [one.row.title for one in (*first, *second)] == ["meanwhile", "more"]


async def test_of_two_that_bring_one_session_one_does(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        came = await asyncio.gather(
            *(store.bring("moved", 0, OPEN) for store in (one, two, one, two)),
            return_exceptions=True,
        )
        assert sorted(type(how).__name__ for how in came) == ["KeyReused"] * 3 + ["NoneType"]
        assert await read_all(one, "moved") == OPEN


@pytest.mark.parametrize(
    "by",
    [
        "",
        ".",
        "..",
        "turn",
        "open",
        "/dev/tty",
        "../chats.db",
        "a\0b",
        "x" * 5_000,
        "\ud800",
        "a b",
    ],
)
async def test_a_visitor_with_any_name_at_all_is_not_here(place: Place, by: str) -> None:
    async with place.open() as store:
        await store.bring("moved", 0, in_place(STARTED, SessionAttended(by, "chat")))
        assert not await store.alive(by)
        assert await store.alive(store.owner)


@pytest.mark.parametrize(
    ("place", "network"),
    [("sqlite", False), ("sqlite", True), ("memory", False), ("memory", True), ("postgres", False)],
    indirect=["place"],
)
async def test_what_a_dead_process_was_bringing_is_swept(place: Place, network: bool) -> None:
    """At once, or, where nobody can tell who is dead, after a day."""
    clock = Clock()
    settings = place.expiring(clock) if network else Settings(now_ms=clock)
    async with place.open(settings) as store:
        assert isinstance(store, AsyncStore)
        core = store.core
        core.queue.run(
            lambda tx: import_session.begin(tx, "moved", "host.1.0123abcd", core.moment())
        )
        assert place.rows() == {"imports": 1}
    async with place.open(settings) as store:
        assert place.rows() == ({"imports": 1} if network else {})
    clock.now_ms += 86_400_001
    async with place.open(settings) as store:
        assert place.rows() == {}
        await store.bring("moved", 0, OPEN)


async def test_a_deleted_session_can_be_brought_back(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        records = await read_all(store, running.session)
        await store.delete(running.session)
        await store.bring(running.session, 0, records)
        assert await read_all(store, running.session) == records


async def test_a_session_keeps_what_it_was_told_elsewhere(place: Place) -> None:
    """The session that it was told of never was here, so nothing of it was removed here."""
    told = ContextSet("m", memories=("likes tea",), recalled=(ItemAt("of another store", 7, 0),))
    async with place.open() as store:
        await store.bring("moved", 0, in_place(STARTED, told))
        lease = await store.acquire("moved")
        await store.append(lease, [replace(told, model="another")], 2)
        await store.bring("of another store", 0, in_place(STARTED))
        await store.delete("of another store")
        with pytest.raises(NotAllowed, match="gone"):
            await store.append(lease, [told], 3)


async def test_what_came_is_listed_by_its_time_behind_what_began_here(place: Place) -> None:
    """However many facts came with it, and when the rows of lists are brought up to date, too."""
    async with place.open() as store:
        for id, at_ms in (("old", 1_000), ("new", 9_000), ("also old", 1_000)):
            await store.bring(id, 0, [Record(1, at_ms, STARTED), Record(2, at_ms, said("x"))])
        here = await store.create(SessionStarted("test"))
        order = [here, "new", "old", "also old"]
        assert [one.id for one in await store.list()] == order
        for _ in range(6):  # rows are brought up to date after some hundred facts
            await store.add(here, [SessionRenamed("again")] * 100)
        assert [one.id for one in await store.list()] == order
        marks = [one.mark for one in await store.list()]
        assert [one.id for one in await store.list(before=marks[1])] == order[2:]
        await store.add("old", [SessionRenamed("gone on with")])
        assert (await store.list())[0].id == "old"
        assert not (await store.verify()).damage
