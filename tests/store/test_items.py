"""Items that other programs keep: on every store."""

import pytest
from msgspec.structs import replace

from steno.journal.facts import ItemKept, SessionRenamed, SessionStarted
from steno.store.errors import KeyReused, NotAllowed, Stale, UnknownPayload
from steno.store.protocol import Carried, Keeping
from tests.store.contract import Place

ALICE = SessionStarted("test", name="app:alice")


def items(*texts: str, key: str | None = None) -> tuple[ItemKept, ...]:
    return tuple(ItemKept("test.items", f'"{text}"', key) for text in texts)


async def test_items_are_added_and_withdrawn_in_one_commit(place: Place) -> None:
    async with place.open() as store:
        kept = await store.keep(Keeping(create=ALICE, items=items("a", "b")))
        assert (kept.seqs, kept.items) == ((2, 3), 3)
        changed = await store.keep(
            Keeping(session=kept.session, items=items("c"), withdraw=((2, 3),), expect=3)
        )
        assert (changed.session, changed.seqs, changed.items) == (kept.session, (4,), 5)
        tags = [type(one.fact).__name__ for one in await store.read(kept.session)]
        assert tags == ["SessionStarted", "ItemKept", "ItemKept", "ItemKept", "ItemsWithdrawn"]
        row = (await store.glance(kept.session)).row
        assert (row.items, row.messages, list(row.pending)) == (5, 0, [])


async def test_a_stale_writer_is_refused_and_a_rename_makes_nobody_stale(place: Place) -> None:
    async with place.open() as store:
        kept = await store.keep(Keeping(create=ALICE, items=items("a"), expect=0))
        await store.add(kept.session, [SessionRenamed("A title")])
        again = await store.keep(Keeping(create=ALICE, items=items("b"), expect=kept.items))
        with pytest.raises(Stale) as stale:
            await store.keep(Keeping(create=ALICE, items=items("c"), expect=kept.items))
        assert stale.value.items == again.items
        assert (await store.glance(kept.session)).head == again.items


async def test_the_same_key_is_kept_once(place: Place) -> None:
    async with place.open() as store:
        first = await store.keep(Keeping(create=ALICE, items=items("a", key="1"), expect=0))
        again = await store.keep(Keeping(create=ALICE, items=items("a", key="1"), expect=0))
        assert again == first
        both = await store.keep(Keeping(create=ALICE, items=items("a", key="1") + items("b")))
        assert both.seqs == (2, 3)
        with pytest.raises(KeyReused):
            await store.keep(Keeping(create=ALICE, items=items("x", key="1")))
        same = Keeping(create=ALICE, items=items("x", key="1"), same="first")
        assert (await store.keep(same)).seqs == (2,)
        assert await store.kept(first.session, "test.items", "1") == 2
        assert await store.kept(first.session, "test.items", "2") is None
        bob = Keeping(create=replace(ALICE, name="app:bob"), items=items("x", key="1"))
        assert (await store.keep(bob)).seqs == (2,)


async def test_what_cannot_be_kept_is_refused_whole(place: Place) -> None:
    async with place.open() as store:
        kept = await store.keep(Keeping(create=ALICE, items=items("a")))
        unknown = ItemKept("test.items", "1", payloads=("0" * 64,))
        with pytest.raises(UnknownPayload):
            await store.keep(Keeping(create=ALICE, items=(unknown,)))
        with pytest.raises(NotAllowed):
            await store.keep(Keeping(create=ALICE, withdraw=((2, 9),)))
        with pytest.raises(KeyReused):
            await store.keep(Keeping(create=ALICE, items=items("b", "c", key="k")))
        with pytest.raises(NotAllowed):
            await store.keep(Keeping(create=ALICE))
        with pytest.raises(NotAllowed):
            await store.keep(Keeping(items=items("a")))
        assert (await store.glance(kept.session)).head == kept.items


async def test_payloads_come_with_their_items(place: Place) -> None:
    from hashlib import sha256

    body = b"bytes" * 100
    hash = sha256(body).hexdigest()
    async with place.open() as store:
        item = ItemKept("test.items", "1", payloads=(hash,))
        await store.keep(Keeping(create=ALICE, items=(item,), payloads=(body,)))
        assert await store.get(hash) == body


async def test_sessions_are_found_by_the_beginning_of_their_names(place: Place) -> None:
    async with place.open() as store:
        for name in ("app:b", "app:a", "apt:a", "app", "app:C", "app:ä"):
            await store.keep(Keeping(create=SessionStarted("test", name=name), items=items("x")))
        await store.create(SessionStarted("test"))
        found = [one.row.name for one in await store.named("app:")]
        assert found == ["app:C", "app:a", "app:b", "app:ä"]
        assert [one.row.name for one in await store.named("app:", "app:C", 2)] == ["app:a", "app:b"]
        assert await store.named("none") == []


async def test_several_sessions_are_changed_in_one_commit_or_not_at_all(place: Place) -> None:
    bob = replace(ALICE, name="app:bob")
    async with place.open() as store:
        first = await store.keep(Keeping(create=ALICE, items=items("a")))
        both = [
            Keeping(create=ALICE, items=items("b"), withdraw=((2, 2),), expect=first.items),
            Keeping(create=bob, items=items("c"), expect=0),
        ]
        one, two = await store.keep_all(both)
        assert (one.session, one.seqs, two.seqs) == (first.session, (3,), (2,))
        with pytest.raises(Stale):
            await store.keep_all([Keeping(create=bob, items=items("d")), both[0]])
        assert (await store.glance(two.session)).head == two.items
        for same in (bob, replace(bob, name="app:new")):
            with pytest.raises(NotAllowed):
                await store.keep_all([Keeping(create=same, items=items("d"))] * 2)
        with pytest.raises(NotAllowed):
            await store.keep_all(
                [
                    Keeping(create=bob, items=items("d")),
                    Keeping(session=two.session, items=items("e")),
                ]
            )
        assert await store.find("app:new") is None


async def test_an_item_is_found_by_its_key_in_any_session(place: Place) -> None:
    async with place.open() as store:
        kept = await store.keep(Keeping(create=ALICE, items=items("a", key="1"), anywhere=True))
        assert await store.kept_anywhere("test.items", "1") == (kept.session, 2)
        assert await store.kept_anywhere("test.items", "2") is None
        assert await store.kept(kept.session, "test.items", "1") is None
        bob = replace(ALICE, name="app:bob")
        with pytest.raises(KeyReused):
            await store.keep(Keeping(create=bob, items=items("a", key="1"), anywhere=True))
        [keyed] = await store.keys(kept.session)
        carried: list[Carried] = [*await store.read(kept.session), keyed]
        await store.delete(kept.session)
        assert await store.kept_anywhere("test.items", "1") is None
        await store.bring(kept.session, 0, carried)
        assert await store.kept_anywhere("test.items", "1") == (kept.session, 2)
