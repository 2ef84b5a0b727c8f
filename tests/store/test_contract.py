"""What every store does. Each test runs over every kind of store; afterwards the store verifies."""

import asyncio
import logging
import random

import pytest
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    AnyFact,
    ContextSet,
    Continues,
    Delivered,
    DeliveryAttempted,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    ForkPoint,
    FreeFact,
    HookDone,
    HookOwed,
    InputAdmitted,
    InputWithdrawn,
    InterruptAsked,
    MessageGiven,
    MessageHidden,
    MessageRedacted,
    Record,
    SessionAttended,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import (
    Content,
    Reasoning,
    Redacted,
    Refused,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
)
from steno.store.errors import (
    ForksRemain,
    KeyReused,
    LeaseLost,
    LeftOpen,
    NotAllowed,
    NotPending,
    SessionBusy,
    ShownTextDropped,
    StoreClosed,
    UnknownPayload,
    UnknownSession,
)
from steno.store.protocol import (
    Admission,
    Admitted,
    Closing,
    Cursor,
    Event,
    Left,
    Piece,
    Settings,
    Shares,
    Store,
)
from tests.store.contract import (
    STARTED,
    Clock,
    Place,
    SqlitePlace,
    admit,
    begin,
    begin_tool,
    file_of,
    follow,
    moved,
    read_all,
    said,
    state_of,
    texts,
    title_of,
    transcript,
)

NO_SESSION = "nobody"
SECRET = "the-word-is-swordfish"
TERMS = pytest.mark.parametrize("place", ["sqlite", "memory"], indirect=True)
"""Where the term of a lease may have to say whether its owner is gone."""

# --- admission ------------------------------------------------------------------------------------


async def test_an_input_makes_the_session_that_is_bound_to_its_name(place: Place) -> None:
    started = SessionStarted("chat", name="chat/42")
    async with place.open() as store:
        admitted = await store.admit(Admission(input=said("hello"), create=started))
        assert await store.find("chat/42") == admitted.session
        assert [record.fact for record in await store.read(admitted.session)] == [
            started,
            said("hello"),
        ]


async def test_an_input_is_taken_back_only_while_it_waits(place: Place) -> None:
    async with place.open() as store:
        id = await store.create(STARTED)
        one, two = [
            (await store.admit(Admission(input=said(text), session=id))).seq
            for text in ("one", "two")
        ]
        lease = await store.acquire(id)
        await store.append(lease, [TurnStarted(Takes(one))], two)
        with pytest.raises(NotPending):
            await store.add(id, [InputWithdrawn(one)])
        await store.add(id, [InputWithdrawn(two)], key="again")
        await store.add(id, [InputWithdrawn(two)], key="again")
        with pytest.raises(NotPending):
            await store.add(id, [InputWithdrawn(two)])
        facts = [record.fact for record in await read_all(store, id)]
        assert facts[3:] == [TurnStarted(Takes(one)), InputWithdrawn(two)]
        assert (await store.glance(id)).row.pending == []


async def test_nobody_takes_an_input_that_was_taken_back_since_they_looked(place: Place) -> None:
    async with place.open() as store:
        id = await store.create(STARTED)
        one, two = [
            (await store.admit(Admission(input=said(text), session=id))).seq
            for text in ("one", "two")
        ]
        lease = await store.acquire(id)
        await store.add(id, [InputWithdrawn(one)])
        with pytest.raises(NotPending):
            await store.append(lease, [TurnStarted(Takes(one))], two)
        await store.append(lease, [TurnStarted(Takes(two))], two)
        steering = (await store.admit(Admission(input=said("three"), session=id))).seq
        await store.add(id, [InputWithdrawn(steering)])
        with pytest.raises(NotPending):
            await store.append(lease, [StepStarted("m", takes=(steering,))], steering)
        assert not any(isinstance(record.fact, StepStarted) for record in await read_all(store, id))


async def test_a_name_stays_bound_to_its_session(place: Place) -> None:
    started = SessionStarted("chat", name="chat/42")
    async with place.open() as store:
        first = await store.admit(Admission(input=said("one"), create=started))
    async with place.open() as store:
        second = await store.admit(Admission(input=said("two"), create=started))
        assert second.session == first.session == await store.ensure(started)
        assert await texts(store, first.session) == ["one", "two"]


@pytest.mark.promise(16)
async def test_the_same_key_gives_the_first_answer(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k")
        again = await admit(store, "hello", key="k")
        assert (first.first, again) == (True, replace(first, first=False))
        assert await texts(store, first.session) == ["hello"]


@pytest.mark.promise(16)
async def test_the_same_key_gives_the_first_answer_after_a_restart_and_two_days(
    place: Place,
) -> None:
    clock = Clock()
    async with place.open(Settings(now_ms=clock)) as store:
        first = await admit(store, "hello", key="k")
    clock.now_ms += 2 * 86_400_000
    async with place.open(Settings(now_ms=clock)) as store:
        assert await admit(store, "hello", key="k") == replace(first, first=False)


@pytest.mark.promise(16)
async def test_the_same_key_many_times_at_once_is_one_input(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        session = await one.create(STARTED)
        answers = await asyncio.gather(
            *(admit(store, "hello", session, "k") for store in (one, two) * 20)
        )
        assert sum(answer.first for answer in answers) == 1
        assert {answer.seq for answer in answers} == {2}
        assert await texts(one, session) == ["hello"]


async def test_an_input_is_found_by_its_key(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k", source="one")
        assert await store.admitted("one", "k") == replace(first, first=False)
        assert await store.admitted("two", "k") is None
        assert await store.admitted("one", "other") is None


async def test_a_session_may_begin_with_what_was_said_elsewhere_and_only_begin(
    place: Place,
) -> None:
    given = (MessageGiven("user", (Text("a"),)), MessageGiven("assistant", (Text("b"),)))
    visit = SessionAttended("someone", "test")
    async with place.open() as store:
        asked = Admission(input=said("c"), create=STARTED, given=given, visit=visit)
        first = await store.admit(asked)
        assert (first.seq, first.visit) == (5, 4)
        records = await store.read(first.session)
        assert [record.fact for record in records[1:3]] == list(given)
        with pytest.raises(NotAllowed):
            await store.admit(Admission(input=said("d"), session=first.session, given=given))
        assert len(await store.read(first.session)) == 5


@pytest.mark.promise(16)
async def test_the_same_key_with_other_text_is_refused(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k")
        with pytest.raises(KeyReused):
            await admit(store, "goodbye", first.session, key="k")
        assert await texts(store, first.session) == ["hello"]


@pytest.mark.promise(16)
async def test_a_key_is_unique_in_its_source_whatever_the_session(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k")
        other = await store.create(STARTED)
        assert await admit(store, "hello", other, key="k") == replace(first, first=False)
        assert await texts(store, other) == []


async def test_the_same_key_from_another_source_is_another_input(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k", source="one")
        second = await admit(store, "hello", first.session, key="k", source="two")
        assert second.first
        assert await texts(store, first.session) == ["hello", "hello"]


@pytest.mark.promise(22)
async def test_a_queued_input_is_still_pending_after_a_restart(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        queued = await admit(store, "and another thing", running.session)
    async with place.open() as store:
        pending = (await state_of(store, running.session)).pending
        assert pending == {queued.seq: said("and another thing")}


@pytest.mark.promise(21)
async def test_inputs_during_a_turn_are_kept_in_order_each_by_itself(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store, "start")
        for i in range(5):
            await admit(store, f"more {i}", running.session)
        await running.record(StepSealed(running.step, (Text("done"),)), TurnEnded(3, "done"))
        messages = transcript(await read_all(store, running.session)).messages
        assert [message.text for message in messages if message.role == "user"] == [
            "start",
            *(f"more {i}" for i in range(5)),
        ]


@pytest.mark.promise(42)
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t leading and trailing \r\n",
        "e\u0301 is not \u00e9",
        "\ufeff\u200b\u2028",
        '{"type":"input.admitted"}',
        "🦑" * 9,
    ],
)
async def test_user_text_comes_back_as_typed(place: Place, text: str) -> None:
    async with place.open() as store:
        session = (await admit(store, text)).session
    async with place.open() as store:
        assert (await store.read(session))[-1].fact == said(text)


async def test_an_input_that_goes_nowhere_is_refused(place: Place) -> None:
    async with place.open() as store:
        with pytest.raises(UnknownSession):
            await admit(store, "hello", NO_SESSION)
        with pytest.raises(NotAllowed):
            await store.admit(Admission(input=said("hello")))
        assert await store.list() == []


async def test_an_input_brings_its_payloads_with_it(place: Place) -> None:
    async with place.open() as store:
        hash = await store.put(await store.create(STARTED), b"bytes")
        await store.delete((await store.list())[0].id)
        photo = InputAdmitted((file_of(hash, 5),), "test")
        with pytest.raises(UnknownPayload):
            await store.admit(Admission(input=photo, create=STARTED))
        await store.admit(Admission(input=photo, create=STARTED, payloads=(b"bytes",)))
        assert await store.get(hash) == b"bytes"


async def test_an_id_or_a_name_is_given_once(place: Place) -> None:
    async with place.open() as store:
        await store.create(SessionStarted("test", name="name"), "id")
        for started, id in ((STARTED, "id"), (SessionStarted("test", name="name"), "other")):
            with pytest.raises(KeyReused):
                await store.create(started, id)
        assert len(await store.list()) == 1


# --- facts that need no lease ---------------------------------------------------------------------


async def test_anyone_may_add_free_facts_while_a_turn_runs(place: Place) -> None:
    facts: list[FreeFact] = [InterruptAsked(3), MessageHidden(2), SessionEnded("left")]
    async with place.open() as runner, place.open() as other:
        running = await begin(runner)
        added = await other.add(running.session, facts)
        assert [
            record.fact for record in await runner.read(running.session, after=added.first - 1)
        ] == facts
        assert (added.first, added.last) == (running.head + 1, running.head + 3)


async def test_facts_added_under_one_key_are_added_once(place: Place) -> None:
    hooks = [HookOwed("end", "a"), HookOwed("end", "b")]
    async with place.open() as store:
        session = await store.create(STARTED)
        first = await store.add(session, hooks, "k")
    async with place.open() as store:
        assert await store.add(session, hooks, "k") == first
        for other in ([HookOwed("end", "c")], [*hooks, HookOwed("end", "c")]):
            with pytest.raises(KeyReused):
                await store.add(session, other, "k")
        assert len(await store.read(session)) == 3


async def test_a_key_of_added_facts_belongs_to_its_session(place: Place) -> None:
    async with place.open() as store:
        one, two = await store.create(STARTED), await store.create(STARTED)
        await store.add(one, [SessionRenamed("one")], "k")
        await store.add(two, [SessionRenamed("two")], "k")
        assert [await title_of(store, session) for session in (one, two)] == ["one", "two"]


@pytest.mark.parametrize(
    "fact", [TurnStarted(Takes(1)), TurnEnded(1, "done"), said("hi"), STARTED, MessageRedacted(1)]
)
async def test_no_other_fact_may_be_added(place: Place, fact: AnyFact) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        with pytest.raises(NotAllowed):
            await store.add(session, [SessionRenamed("title"), fact])  # type: ignore[list-item]
        assert len(await store.read(session)) == 1


@pytest.mark.parametrize("fact", [SessionRenamed("title"), said("hi"), STARTED, MessageRedacted(1)])
async def test_only_turn_facts_are_appended_under_a_lease(place: Place, fact: AnyFact) -> None:
    async with place.open() as store:
        lease = await store.acquire(await store.create(STARTED))
        with pytest.raises(NotAllowed):
            await store.append(lease, [ContextSet("model"), fact], 1)  # type: ignore[list-item]
        with pytest.raises(NotAllowed):
            await store.append(lease, [], 1)
        assert len(await store.read(lease.session)) == 1


# --- leases ---------------------------------------------------------------------------------------


async def test_a_session_has_one_runner(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        lease = await one.acquire(await one.create(STARTED))
        for store in (one, two):
            with pytest.raises(SessionBusy, match=lease.owner):
                await store.acquire(lease.session)
            assert await store.running(lease.session) == lease.owner


@pytest.mark.promise(18)
@TERMS
async def test_a_new_lease_fences_out_the_old_holder(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    settings = place.expiring(clock)
    async with place.open(settings) as old, place.open(settings) as new:
        running = await begin(old)
        await running.write("shown")
        clock.now_ms += 1_000
        assert (await new.acquire(running.session)).token > running.lease.token
        before = await read_all(new, running.session)
        caplog.set_level(logging.WARNING, "steno.store")
        for write in (
            running.record(StepSealed(running.step, (Text("shown"),))),
            running.write(" more"),
            old.renew(running.lease),
            old.release(running.lease, running.head),
        ):
            caplog.clear()
            with pytest.raises(LeaseLost):
                await write
            assert [running.session in record.getMessage() for record in caplog.records] == [True]
        assert await read_all(new, running.session) == before
        assert await new.drafts(running.session) == [Draft(Stream(running.step, "text"), "shown")]


@TERMS
async def test_a_refused_write_fails_alone(place: Place) -> None:
    clock = Clock()
    settings = place.expiring(clock)
    async with place.open(settings) as old, place.open(settings) as new:
        stale = await begin(old)
        clock.now_ms += 1_000
        await new.acquire(stale.session)
        sound = [await begin(old) for _ in range(5)]
        writes = [running.write("text") for running in (*sound[:3], stale, *sound[3:])]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(answer) for answer in answers] == [int, int, int, LeaseLost, int, int]


@TERMS
async def test_a_renewed_lease_lasts(place: Place) -> None:
    clock = Clock()
    settings = place.expiring(clock)
    async with place.open(settings) as one, place.open(settings) as two:
        lease = await one.acquire(await one.create(STARTED))
        for _ in range(3):
            clock.now_ms += 900
            lease = await one.renew(lease)
        with pytest.raises(SessionBusy):
            await two.acquire(lease.session)
        clock.now_ms += 1_000
        assert await two.running(lease.session) is None
        await two.acquire(lease.session)


async def test_a_live_owner_on_this_host_keeps_its_lease_however_late_it_is(place: Place) -> None:
    clock = Clock()
    settings = Settings(now_ms=clock, lease_ms=1_000)
    async with place.open(settings) as one, place.open(settings) as two:
        running = await begin(one)
        clock.now_ms += 86_400_000
        with pytest.raises(SessionBusy):
            await two.acquire(running.session)
        await running.write("still here")


async def test_an_abandoned_lease_may_be_taken_again_at_once(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await store.abandon(running.lease)
        assert await store.running(running.session) is None
        assert (await store.acquire(running.session)).token > running.lease.token
        with pytest.raises(LeaseLost):
            await running.write("text")


async def test_what_is_remembered_of_a_session_is_never_older_than_the_session(
    place: Place,
) -> None:
    async with place.open() as store:
        id = await store.create(STARTED)
        first = await store.admit(Admission(input=said(SECRET), session=id))
        for n in range(40):
            await store.admit(Admission(input=said(f"{n}"), session=id))
        glance = await store.glance(id)
        assert (glance.row.messages, glance.row.title) == (41, SECRET)
        glance.row.title, glance.row.waiting[0] = "changed by who was given it", (0, 0)
        async with place.open() as other:
            await other.admit(Admission(input=said("from elsewhere"), session=id))
        again = (await store.glance(id)).row
        assert (again.messages, again.title) == (42, SECRET)
        assert again.waiting == [(2, 43)]
        await store.redact(id, first.seq)
        assert SECRET not in str((await store.glance(id)).row)


@pytest.mark.promise(34)
async def test_why_a_lease_was_abandoned_is_known_until_the_session_is_released(
    place: Place,
) -> None:
    async with place.open() as store:
        running = await begin(store)
        assert (await store.glance(running.session)).left is None
        await store.abandon(running.lease, Left(3, "store_full"))
        glance = await store.glance(running.session)
        assert glance.left == Left(3, "store_full")
        assert glance.cause(3) == "store_full"
        assert glance.cause(4) == "killed", "of another turn nothing was said"
        async with place.open() as other:
            assert (await other.glance(running.session)).left == glance.left
        lease = await store.acquire(running.session)
        assert (await store.glance(running.session)).left == glance.left, "for its next runner"
        await store.release(lease, glance.head)
        assert (await store.glance(running.session)).left is None
        await store.abandon(running.lease, Left(3, "late"))
        assert (await store.glance(running.session)).left is None, "the lease was another's by then"


async def test_a_closed_store_leaves_its_sessions_free(place: Place) -> None:
    async with place.open() as store:
        old = await store.acquire(await store.create(STARTED))
    async with place.open() as store:
        assert await store.running(old.session) is None
        assert (await store.acquire(old.session)).token > old.token


@pytest.mark.promise(34)
async def test_a_killed_store_leaves_its_sessions_free_and_what_it_had_written(
    place: Place,
) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("so far")
        place.kill(store)
        async with place.open() as other:
            assert not await other.alive(store.owner)
            glance = await other.glance(running.session)
            assert (glance.owner, [draft.text for draft in glance.drafts]) == (None, ["so far"])
            assert (await other.acquire(running.session)).token == running.lease.token + 1


@pytest.mark.promise(34)
async def test_what_a_dead_owner_left_open_is_closed_by_the_commit_that_takes_the_lease(
    place: Place,
) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("so far")
        unseen = await admit(store, "wait", running.session)
        place.kill(store)
        async with place.open() as other:
            ended = TurnEnded(running.step - 1, "interrupted", "killed")
            lost = StepLost(running.step, "killed", sent="unknown")
            closes = StepSealed(running.step, (Text("so far"),), "interrupted"), ended
            for head in (0, unseen.seq - 1):
                with pytest.raises(LeftOpen):
                    await other.acquire(running.session, Closing(head, closes))
            glance = await other.glance(running.session)
            assert (glance.head, glance.owner, len(glance.drafts)) == (unseen.seq, None, 1)
            with pytest.raises(ShownTextDropped):
                await other.acquire(running.session, Closing(glance.head, (lost, ended)))
            lease = await other.acquire(running.session, Closing(glance.head, closes))
            assert lease.token == running.lease.token + 1
            stored = await read_all(other, running.session)
            assert tuple(record.fact for record in stored[-2:]) == closes
            assert await other.drafts(running.session) == []
            await other.release(lease, stored[-1].seq)
            lease = await other.acquire(running.session, Closing(1, closes))
            assert await read_all(other, running.session) == stored, "nothing is open"


async def test_a_released_lease_is_over(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.release()
        assert await store.running(running.session) is None
        with pytest.raises(LeaseLost):
            await running.write("text")
        assert (await store.acquire(running.session)).token > running.lease.token


async def test_a_lease_is_not_released_while_an_input_is_unseen(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        unseen = await admit(store, "wait", running.session)
        answer = await store.release(running.lease, running.head)
        assert not answer.released
        assert [(record.seq, record.fact) for record in answer.foreign] == [
            (unseen.seq, said("wait"))
        ]
        assert await store.running(running.session) == running.lease.owner
        assert (await store.release(running.lease, unseen.seq)).released


async def test_an_append_returns_what_others_added_since_the_callers_head(place: Place) -> None:
    async with place.open() as runner, place.open() as other:
        running = await begin(runner)
        await other.add(running.session, [InterruptAsked(3)])
        await admit(other, "wait", running.session)
        appended = await runner.append(
            running.lease, [StepLost(running.step, "user", "no")], running.head
        )
        assert [record.fact for record in appended.foreign] == [InterruptAsked(3), said("wait")]
        assert appended.first == appended.last == running.head + 3


async def test_many_writers_at_once_get_each_seq_once(place: Place) -> None:
    async with place.open() as one, place.open() as two:
        session = await one.create(STARTED)
        answers = await asyncio.gather(
            *(
                store.add(session, [HookOwed("end", str(i))] * 3)
                for i in range(20)
                for store in (one, two)
            )
        )
        taken = sorted(seq for answer in answers for seq in range(answer.first, answer.last + 1))
        assert taken == list(range(2, 122))
        assert [record.seq for record in await read_all(two, session)] == list(range(1, 122))


# --- drafts ---------------------------------------------------------------------------------------


@pytest.mark.promise(5)
async def test_a_piece_is_readable_by_others_when_it_may_be_shown(place: Place) -> None:
    async with place.open() as runner, place.open() as reader:
        running = await begin(runner)
        for i, piece in enumerate(("Some", "thing ", "to say"), start=1):
            await running.write(piece)
            shown = "".join(("Some", "thing ", "to say")[:i])
            assert await reader.drafts(running.session) == [
                Draft(Stream(running.step, "text"), shown)
            ]
    async with place.open() as store:
        assert (await store.drafts(running.session))[0].text == "Something to say"


async def test_an_offset_counts_code_points(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        pieces = ("aé", "漢字", "🦑", "\ud83e", "\0\ufdd0", "z")
        assert [await running.write(piece) for piece in pieces] == [2, 4, 5, 6, 8, 9]
        await running.release()
    async with place.open() as store:
        lease = await store.acquire(running.session)
        assert await store.draft(lease, Stream(running.step, "text"), "!") == 10
        assert (await store.drafts(running.session))[0].text == "".join(pieces) + "!"


async def test_an_empty_piece_changes_nothing(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        assert [await running.write(piece) for piece in ("", "", "text", "", " goes on")] == [
            0,
            0,
            4,
            4,
            12,
        ]
        assert [draft.text for draft in await store.drafts(running.session)] == ["text goes on"]


async def test_several_streams_grow_at_once(place: Place) -> None:
    async with place.open() as store:
        running, tool = await begin_tool(store)
        step = await running.record(StepStarted("model"))
        streams = (Stream(step, "text"), Stream(step, "reasoning"), Stream(tool, "output"))
        for i in range(3):
            await asyncio.gather(
                *(store.draft(running.lease, stream, f"{stream.kind}{i} ") for stream in streams)
            )
        drafts = {draft.stream: draft.text for draft in await store.drafts(running.session)}
        assert drafts == {
            stream: "".join(f"{stream.kind}{i} " for i in range(3)) for stream in streams
        }


async def test_a_seal_takes_the_place_of_its_streams_only(place: Place) -> None:
    async with place.open() as store:
        running, tool = await begin_tool(store)
        step = await running.record(StepStarted("model"))
        running.step = step
        await running.write("answer")
        await store.draft(running.lease, Stream(tool, "output"), "output")
        await running.record(StepSealed(step, (Text("answer"),)))
        assert await store.drafts(running.session) == [Draft(Stream(tool, "output"), "output")]
        await running.record(ToolSettled(3, "call", Unknown((Text("output"),)), tool))
        assert await store.drafts(running.session) == []


def _sealing(kind: str, step: Seq, parts: tuple[Content, ...]) -> StepSealed | ToolSettled:
    return (
        ToolSettled(step, "call", Returned(parts), step)
        if kind == "output"
        else StepSealed(step, parts)
    )


@pytest.mark.promise(5, 9)
@pytest.mark.parametrize(
    ("kind", "kept", "dropped"),
    [
        ("text", Text("shown, and more"), Text("show")),
        ("text", Text("shown"), Reasoning("shown")),
        ("reasoning", Reasoning("shown"), Text("shown")),
        ("output", Text("shown"), Text("Shown")),
    ],
)
async def test_a_seal_that_drops_shown_text_is_refused(
    place: Place, kind: str, kept: Content, dropped: Content
) -> None:
    async with place.open() as store:
        if kind == "output":
            running, started = await begin_tool(store)
        else:
            running = await begin(store)
            started = running.step
        stream = Stream(started, kind)  # type: ignore[arg-type]
        await store.draft(running.lease, stream, "shown")
        for parts in ((dropped,), (), (ToolCall("c", "shown", "{}"),)):
            with pytest.raises(ShownTextDropped):
                await running.record(_sealing(kind, started, parts))
        with pytest.raises(ShownTextDropped):
            await running.record(StepLost(started, "provider", "yes"))
        assert await store.drafts(running.session) == [Draft(stream, "shown")]
        await running.record(_sealing(kind, started, (kept,)))
        assert await store.drafts(running.session) == []


async def test_what_was_shown_may_be_kept_beside_what_was_meant(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("shown")
        with pytest.raises(ShownTextDropped):
            await running.record(StepSealed(running.step, (Text("meant"),)))
        await running.record(StepSealed(running.step, (Text("meant"),), shown=(Text("shown"),)))


@pytest.mark.promise(53)
async def test_long_output_may_be_sealed_as_a_payload_of_exactly_that_text(place: Place) -> None:
    async with place.open() as store:
        running, tool = await begin_tool(store)
        output = "line of output\n" * 20_000
        await store.draft(running.lease, Stream(tool, "output"), output)
        short = await store.put(running.session, output[:-1].encode())
        whole = await store.put(running.session, output.encode())
        with pytest.raises(ShownTextDropped):
            await running.record(ToolSettled(3, "call", Returned((file_of(short, 9),)), tool))
        await running.record(
            ToolSettled(3, "call", Returned((Text("line of…"), file_of(whole, 10))), tool)
        )
        assert (await store.get(whole)).decode() == output


async def test_a_stream_that_is_sealed_takes_no_more(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("all")
        await running.record(StepSealed(running.step, (Text("all"),)))
        with pytest.raises(NotAllowed):
            await running.write(" and more")
        assert await store.drafts(running.session) == []


async def test_a_sealed_stream_stays_sealed_when_others_write(place: Place) -> None:
    async with place.open() as store, place.open() as other:
        running = await begin(store)
        await running.record(StepSealed(running.step, (Text("all"),)))
        await other.create(STARTED)
        with pytest.raises(NotAllowed):
            await running.write(" and more")


async def test_a_sealed_stream_stays_sealed_for_the_next_runner(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.record(StepSealed(running.step, (Text("all"),)))
        await running.release()
    async with place.open() as store:
        lease = await store.acquire(running.session)
        with pytest.raises(NotAllowed):
            await store.draft(lease, Stream(running.step, "text"), " and more")


async def test_a_stream_starts_at_a_fact_of_the_session(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        for nowhere in (0, running.head + 1):
            with pytest.raises(NotAllowed):
                await store.draft(running.lease, Stream(nowhere, "text"), "text")


# --- reading --------------------------------------------------------------------------------------


async def test_pages_of_any_size_join_to_the_whole(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        await store.add(session, [HookOwed("end", str(i)) for i in range(20)])
        fork = await store.fork(session, 7, STARTED)
        await store.add(fork, [HookOwed("end", str(i)) for i in range(9)])
        for id, count in ((session, 21), (fork, 17)):
            whole = await store.read(id)
            assert [record.seq for record in whole] == list(range(1, count + 1))
            for page in (1, 3, 7, 8, 100):
                assert await read_all(store, id, page) == whole
            assert [await store.read(id, after) for after in (count, count + 9)] == [[], []]


async def test_a_glance_shows_what_is_under_way(place: Place) -> None:
    async with place.open() as runner, place.open() as reader:
        running = await begin(runner)
        await running.write("text")
        glance = await reader.glance(running.session)
        assert (glance.head, glance.owner) == (running.head, running.lease.owner)
        assert glance.drafts == (Draft(Stream(running.step, "text"), "text"),)
        await runner.close()
        assert (await reader.glance(running.session)).owner is None


async def test_a_session_that_does_not_exist_is_unknown_to_every_verb(place: Place) -> None:
    async with place.open() as store:
        for verb in (
            store.read(NO_SESSION),
            store.drafts(NO_SESSION),
            store.acquire(NO_SESSION),
            store.running(NO_SESSION),
            store.glance(NO_SESSION),
            store.add(NO_SESSION, [SessionRenamed("title")]),
            store.fork(NO_SESSION, 1, STARTED),
            store.put(NO_SESSION, b""),
            store.redact(NO_SESSION, 1),
            store.delete(NO_SESSION),
            follow(store, NO_SESSION, 1),
        ):
            with pytest.raises(UnknownSession, match=NO_SESSION):
                await verb
        assert await store.find(NO_SESSION) is None


async def test_no_verb_works_once_the_store_is_closed(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await store.close()
        for verb in (
            admit(store, "hello"),
            running.write("text"),
            store.read(running.session),
            store.list(),
        ):
            with pytest.raises(StoreClosed):
                await verb


# --- forks ----------------------------------------------------------------------------------------


@pytest.mark.promise(58)
async def test_a_fork_has_its_parents_history_up_to_a_message_and_goes_its_own_way(
    place: Place,
) -> None:
    async with place.open() as store:
        parent = (await admit(store, "one")).session
        for text in ("two", "three"):
            await admit(store, text, parent)
        fork = await store.fork(parent, 3, SessionStarted("fork"))
        await admit(store, "parent goes on", parent)
        await admit(store, "fork goes on", fork)
        records = await read_all(store, fork)
        assert records[:3] == (await read_all(store, parent))[:3]
        assert records[3].fact == SessionStarted("fork", forked_from=ForkPoint(parent, 3))
        assert [record.seq for record in records] == [1, 2, 3, 4, 5]
        assert await texts(store, fork) == ["one", "two", "fork goes on"]
        assert await texts(store, parent) == ["one", "two", "three", "parent goes on"]


@pytest.mark.promise(58)
@pytest.mark.parametrize(
    ("at", "expected"), [(6, ["one", "two", "fork"]), (4, ["one", "two"]), (2, ["one"]), (1, [])]
)
async def test_a_fork_of_a_fork_may_start_anywhere_in_it(
    place: Place, at: Seq, expected: list[str]
) -> None:
    async with place.open() as store:
        parent = (await admit(store, "one")).session
        await admit(store, "two", parent)
        await admit(store, "three", parent)
        fork = await store.fork(parent, 3, STARTED)
        await admit(store, "fork", fork)
        await admit(store, "later", fork)
        child = await store.fork(fork, at if at < 6 else 5, STARTED)
        await admit(store, "child", child)
        assert await texts(store, child) == [*expected, "child"]
        seqs = [record.seq for record in await read_all(store, child)]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_fork_starts_at_a_fact_that_exists(place: Place) -> None:
    async with place.open() as store:
        session = (await admit(store, "one")).session
        for nowhere in (0, 3):
            with pytest.raises(NotAllowed):
                await store.fork(session, nowhere, STARTED)
        with pytest.raises(NotAllowed):
            await store.fork(session, 1, SessionStarted("test", name="name"))
        assert len(await store.list()) == 1


async def test_what_runs_in_a_session_does_not_run_in_its_fork(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("text")
        fork = await store.fork(running.session, running.head, STARTED)
        assert await store.drafts(fork) == []
        assert await store.running(fork) is None
        lease = await store.acquire(fork)
        for started in (running.step, 99):
            with pytest.raises(NotAllowed):
                await store.draft(lease, Stream(started, "text"), "text")
            with pytest.raises(NotAllowed):
                await store.append(lease, [StepSealed(started, (Text("text"),))], 99)


# --- removing -------------------------------------------------------------------------------------


@pytest.mark.promise(55)
async def test_a_deleted_session_is_gone_without_a_trace_of_its_text(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "steno.store")
    async with place.open() as store:
        kept = (await admit(store, "kept")).session
        session = await store.ensure(SessionStarted("test", name=f"name {SECRET}"))
        running = await begin(store, f"said {SECRET}", session)
        await admit(store, "again", session, key=f"key {SECRET}")
        hash = await store.put(session, f"payload {SECRET}".encode())
        await store.add(session, [SessionRenamed(f"title {SECRET}")])
        await running.write(f"draft {SECRET}")
        assert place.holding(SECRET)

        assert await store.delete(session) == 1
        assert place.holding(SECRET) == []
        assert await store.find(f"name {SECRET}") is None
        assert [listed.id for listed in await store.list()] == [kept]
        assert any(session in record.getMessage() for record in caplog.records)
        for verb in (store.read(session), store.drafts(session), store.delete(session)):
            with pytest.raises(UnknownSession):
                await verb
        with pytest.raises(UnknownPayload):
            await store.get(hash)
        assert await texts(store, kept) == ["kept"]


@pytest.mark.promise(55)
async def test_a_delete_stops_a_running_turn(place: Place) -> None:
    async with place.open() as runner, place.open() as other:
        running = await begin(runner)
        await running.write("text")
        await other.delete(running.session)
        for write in (
            running.write(" more"),
            running.record(TurnEnded(3, "done")),
            runner.renew(running.lease),
        ):
            with pytest.raises(LeaseLost):
                await write


async def test_a_deleted_key_may_be_used_again(place: Place) -> None:
    async with place.open() as store:
        first = await admit(store, "hello", key="k")
        await store.delete(first.session)
        second = await admit(store, "other text", key="k")
        assert second.first
        assert await admit(store, "other text", key="k") == replace(second, first=False)


async def test_a_session_with_forks_is_deleted_with_them_or_not_at_all(place: Place) -> None:
    async with place.open() as store:
        parent = (await admit(store, "one")).session
        fork = await store.fork(parent, 2, STARTED)
        child = await store.fork(fork, 3, STARTED)
        other = await store.create(STARTED)
        with pytest.raises(ForksRemain, match=fork):
            await store.delete(parent)
        assert await texts(store, child) == ["one"]
        assert await store.delete(parent, with_forks=True) == 3
        assert [listed.id for listed in await store.list()] == [other]


async def test_a_payload_goes_with_the_last_session_that_has_it(place: Place) -> None:
    async with place.open() as store:
        one, two = await store.create(STARTED), await store.create(STARTED)
        hash = await store.put(one, b"shared")
        assert await store.put(two, b"shared") == hash
        await store.delete(one)
        assert await store.get(hash) == b"shared"
        await store.delete(two)
        with pytest.raises(UnknownPayload):
            await store.get(hash)


@pytest.mark.promise(60)
async def test_a_redacted_input_is_gone_from_every_file(place: Place) -> None:
    async with place.open() as store:
        session = (await admit(store, f"{SECRET}\nand more", key="k")).session
        fork = await store.fork(session, 2, STARTED)
        await store.redact(session, 2)
        assert place.holding(SECRET) == []
        for id in (session, fork):
            assert (await store.read(id))[1].fact == InputAdmitted(
                (Redacted(len(SECRET) + 9),), "test", "k"
            )
            assert await title_of(store, id) == "[redacted]"
        assert (await store.read(session))[-1].fact == MessageRedacted(2)
        again = await admit(store, f"{SECRET}\nand more", key="k")
        assert (again.session, again.seq, again.first) == (session, 2, False)


@pytest.mark.promise(60)
async def test_an_answer_and_an_output_are_redacted_by_the_address_of_their_message(
    place: Place,
) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write(f"answer {SECRET}")
        call = ToolCall("call", "shell", f'{{"arg":"{SECRET}"}}')
        await running.record(
            StepSealed(running.step, (Reasoning(SECRET), Text(f"answer {SECRET}"), call))
        )
        tool = await running.record(ToolStarted(running.step, "call"))
        hash = await store.put(running.session, SECRET.encode())
        await running.record(
            ToolSettled(4, "call", Returned((Text(SECRET), file_of(hash, 9))), tool)
        )
        refused = await running.record(ToolSettled(4, "other", Refused(SECRET)))
        for message in (running.step, tool, refused):
            await store.redact(running.session, message)
        assert place.holding(SECRET) == []
        with pytest.raises(UnknownPayload):
            await store.get(hash)
        calls = [
            message.tool_call_id
            for message in transcript(await read_all(store, running.session)).messages
        ]
        assert calls == [None, None, "call", "other"]


async def test_a_payload_that_another_fact_names_outlives_a_redaction(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        photo = InputAdmitted((file_of(await store.put(session, b"photo"), 5),), "test")
        seqs = [(await store.admit(Admission(input=photo, session=session))).seq for _ in range(2)]
        await store.redact(session, seqs[0])
        assert await store.get(photo.parts[0].hash) == b"photo"  # type: ignore[union-attr]
        await store.redact(session, seqs[1])
        with pytest.raises(UnknownPayload):
            await store.get(photo.parts[0].hash)  # type: ignore[union-attr]


@pytest.mark.promise(60)
async def test_a_message_of_its_parent_can_be_redacted_through_a_fork(place: Place) -> None:
    async with place.open() as store:
        parent = (await admit(store, SECRET)).session
        fork = await store.fork(parent, 2, STARTED)
        child = await store.fork(fork, 2, STARTED)
        await store.redact(child, 2)
        assert place.holding(SECRET) == []
        assert [await title_of(store, id) for id in (parent, fork, child)] == ["[redacted]"] * 3


async def sharing(store: Store, session: str, seq: Seq) -> list[str]:
    return [one.id for one in await store.list(where=Shares(session, seq))]


async def test_who_shares_a_fact_is_known_from_each_of_them(place: Place) -> None:
    async with place.open() as store:
        parent = (await admit(store, "one")).session
        await admit(store, "two", parent)
        fork = await store.fork(parent, 3, STARTED)
        child = await store.fork(fork, 2, STARTED)
        for session in (parent, fork, child):
            assert tuple(
                [one.id for one in await store.list(1 << 31, where=Shares(session, 2))]
            ) == (parent, fork, child)
        assert await sharing(store, fork, 3) == [
            parent,
            fork,
        ]
        assert await sharing(store, fork, 4) == [
            fork,
        ]


@pytest.mark.promise(55, 60)
@pytest.mark.parametrize("removal", ["redact", "delete"])
async def test_no_copy_of_removed_text_stays_behind_where_the_store_moved_rows_about(
    place: Place, removal: str
) -> None:
    chance = random.Random(1)
    async with place.open(Settings(durability="process")) as store:
        for _ in range(20 if removal == "delete" and isinstance(place, SqlitePlace) else 1):
            sessions = [await store.create(STARTED) for _ in range(6)]
            for _ in range(400):
                session = chance.choice(sessions)
                text = SECRET if session == sessions[0] else "innocent"
                await admit(store, text + "z" * chance.randrange(600), session)
            if removal == "delete":
                await store.delete(sessions[0])
            else:
                for seq in range(2, len(await store.read(sessions[0])) + 1):
                    await store.redact(sessions[0], seq)
            assert place.holding(SECRET) == []


@pytest.mark.parametrize("target", [0, 1, 3, 4, 9])
async def test_what_holds_no_finished_message_cannot_be_redacted(place: Place, target: Seq) -> None:
    async with place.open() as store:
        running = await begin(store)
        await running.write("streaming")
        with pytest.raises(NotAllowed):
            await store.redact(running.session, target)


@pytest.mark.parametrize(
    ("inputs", "target", "title"),
    [
        (["", "second"], 2, "[redacted]"),
        (["same", "same"], 3, "same"),
        (["same", "same"], 2, "[redacted]"),
        (["first", "second"], 3, "first"),
    ],
)
async def test_a_title_goes_with_the_message_it_was_taken_from(
    place: Place, inputs: list[str], target: Seq, title: str
) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        for text in inputs:
            await admit(store, text, session)
        await store.redact(session, target)
        assert await title_of(store, session) == title


@pytest.mark.parametrize(
    ("names", "target", "title"),
    [
        (["one", "one"], 2, "one"),
        (["one", "one"], 3, "[redacted]"),
        (["one", ""], 2, ""),
        (["one"], 4, "one"),
    ],
)
async def test_a_title_that_was_given_goes_with_the_fact_that_gave_it(
    place: Place, names: list[str], target: Seq, title: str
) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        for name in names:
            await store.add(session, [SessionRenamed(name)])
        await admit(store, "said", session)
        await admit(store, "one", session)
        await store.redact(session, target)
        assert await title_of(store, session) == title


@pytest.mark.promise(60)
async def test_no_title_outlives_the_text_it_was_taken_from(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        await store.add(session, [SessionRenamed("")])
        await store.redact(session, (await admit(store, SECRET, session)).seq)
        assert place.holding(SECRET) == []


# --- payloads -------------------------------------------------------------------------------------


async def test_a_payload_comes_back_whole(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        bodies = [b"", b"\0", bytes(range(256)) * 999]
        hashes = [await store.put(session, body) for body in bodies]
    async with place.open() as store:
        assert [await store.get(hash) for hash in hashes] == bodies
        for unknown in ("", "0" * 64):
            with pytest.raises(UnknownPayload):
                await store.get(unknown)


async def test_a_fact_that_names_a_missing_payload_is_refused(place: Place) -> None:
    missing = file_of("0" * 64, 9)
    async with place.open() as store:
        running = await begin(store)
        with pytest.raises(UnknownPayload):
            await store.admit(
                Admission(input=InputAdmitted((missing,), "test"), session=running.session)
            )
        with pytest.raises(UnknownPayload):
            await running.record(StepSealed(running.step, (), shown=(missing,)))
        assert (await store.read(running.session))[-1].seq == running.head


@pytest.mark.promise(53)
async def test_the_same_payload_a_thousand_times_is_stored_once(place: Place) -> None:
    body = bytes(i * i % 251 for i in range(177 * 1024))
    async with place.open() as store:
        session = await store.create(STARTED)
        before = place.size()
        hash = await store.put(session, body)
        photo = InputAdmitted((file_of(hash, len(body)),), "test")
        for _ in range(10):
            await asyncio.gather(
                *(
                    store.admit(Admission(input=photo, session=session, payloads=(body,)))
                    for _ in range(50)
                )
            )
            await asyncio.gather(*(store.put(session, body) for _ in range(50)))
        assert len(await store.read(session)) == 501
    assert place.size() - before < 2 * len(body)


async def test_a_payload_over_the_limit_is_refused(place: Place) -> None:
    async with place.open(Settings(payload_bytes_max=10)) as store:
        session = await store.create(STARTED)
        await store.put(session, b"0123456789")
        with pytest.raises(NotAllowed):
            await store.put(session, b"0123456789+")
        with pytest.raises(NotAllowed):
            await store.admit(
                Admission(input=said("hello"), session=session, payloads=(b"0123456789+",))
            )


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.promise(46)
async def test_a_list_counts_what_the_transcript_shows(place: Place) -> None:
    async with place.open() as store:
        running, tool = await begin_tool(store)
        await running.record(ToolSettled(4, "call", Returned(), tool))
        lost = await running.record(StepStarted("model"))
        await running.record(StepLost(lost, "provider", "yes"), TurnEnded(3, "failed"))
        fork = await store.fork(running.session, 4, STARTED)
        await admit(store, "fork", fork)
        for listed in await store.list():
            messages = transcript(await read_all(store, listed.id)).messages
            assert listed.row.messages == len(messages)
            assert listed.head == (await read_all(store, listed.id))[-1].seq
        assert {listed.row.messages for listed in await store.list()} == {4, 2}


@pytest.mark.promise(47)
async def test_order_is_commit_order_whatever_the_clock_says(place: Place) -> None:
    clock = Clock()
    async with place.open(Settings(now_ms=clock)) as store:
        sessions = []
        for _ in range(4):
            sessions.append((await admit(store, "hello")).session)
            clock.now_ms -= 86_400_000
        await admit(store, "again", sessions[1])
        clock.now_ms -= 86_400_000
        lease = await store.acquire(sessions[1])
        await store.append(lease, [TurnStarted(Takes(2))], 3)
        assert [listed.id for listed in await store.list()] == [sessions[i] for i in (1, 3, 2, 0)]
        records = await store.read(sessions[1])
        assert [record.seq for record in records] == [1, 2, 3, 4]
        assert records[-1].at_ms < records[0].at_ms


async def test_pages_of_a_list_name_every_session_once(place: Place) -> None:
    async with place.open() as store:
        made = [(await admit(store, str(i))).session for i in range(7)]
        for size in (1, 2, 3, 7, 10):
            listed = await store.list(limit=size)
            found = [entry.id for entry in listed]
            while listed:
                listed = await store.list(limit=size, before=listed[-1].mark)
                found += [entry.id for entry in listed]
            assert found == made[::-1]


async def test_a_list_says_who_runs_a_session(place: Place) -> None:
    async with place.open() as store:
        running = await begin(store)
        assert (await store.list())[0].owner == running.lease.owner
        await running.release()
        assert (await store.list())[0].owner is None


# --- visits, and what is owed ---------------------------------------------------------------------


async def visit(store: Store, text: str = "hello", session: str | None = None) -> Admitted:
    """Say something, and attend in the same commit."""
    create = STARTED if session is None else None
    attended = SessionAttended(store.owner, "test")
    return await store.admit(
        Admission(input=said(text), session=session, create=create, visit=attended)
    )


async def ids_owing(store: Store, page: int = 100) -> list[str]:
    found = await store.list(page, after=0, where="owes")
    ids = [one.id for one in found]
    while found:
        found = await store.list(page, after=found[-1].mark, where="owes")
        ids += [one.id for one in found]
    return ids


@pytest.mark.promise(39)
async def test_a_visit_begins_in_the_commit_of_its_input(place: Place) -> None:
    async with place.open() as store:
        admitted = await visit(store)
        assert (admitted.visit, admitted.seq) == (2, 3)
        assert [type(record.fact) for record in await read_all(store, admitted.session)] == [
            SessionStarted,
            SessionAttended,
            InputAdmitted,
        ]
        assert (await state_of(store, admitted.session)).attending == {2: store.owner}


async def test_a_repeated_input_begins_no_second_visit(place: Place) -> None:
    async with place.open() as store:
        one = Admission(
            input=said("x", "k"), create=STARTED, visit=SessionAttended(store.owner, "test")
        )
        first, again = await store.admit(one), await store.admit(one)
        assert (again.seq, again.first, again.visit) == (first.seq, False, None)
        assert list((await state_of(store, first.session)).attending) == [first.visit]


@pytest.mark.promise(39)
async def test_a_session_is_found_as_owing_while_a_visit_or_a_hook_is_open(place: Place) -> None:
    async with place.open() as store:
        await admit(store, "nobody stays")
        admitted = await visit(store)
        assert await ids_owing(store) == [admitted.session]
        ended = SessionEnded("left", "none", admitted.visit)
        hook = HookOwed(
            "on_session_end", "k", plugins=("a",), attended=admitted.visit, by=store.owner
        )
        added = await store.add(admitted.session, [ended, hook], key="ended:2")
        (one,) = await store.list(100, after=0, where="owes")
        assert (one.row.ended, one.row.owed.attending) == ("left", {})
        assert one.row.owed.hooks[added.last].left == ("a",)
        await store.add(admitted.session, [HookDone(added.last, "a")])
        assert await ids_owing(store) == []


@pytest.mark.promise(63)
async def test_a_session_is_found_as_unfinished_while_there_is_something_to_run(
    place: Place,
) -> None:
    async def unfinished() -> list[str]:
        return [one.id for one in await store.list(100, after=0, where="unfinished")]

    async with place.open() as store:
        quiet = await store.create(STARTED)
        waits = await admit(store, "waits")
        assert await unfinished() == [waits.session]
        await store.add(waits.session, [InputWithdrawn(waits.seq)])
        assert await unfinished() == []
        running, tool = await begin_tool(store)
        assert await unfinished() == [running.session]
        await running.record(ToolSettled(running.step, "call", Returned((Text("out"),)), tool))
        turn = running.step - 1
        await running.record(TurnEnded(turn, "interrupted", "terminated"))
        assert await unfinished() == [running.session], "results that no answer came to"
        await running.record(TurnStarted(Continues(turn)))
        step = await running.record(StepStarted("model"))
        await running.record(StepSealed(step, (Text("done"),)), TurnEnded(step - 1, "done"))
        assert await unfinished() == []
        assert quiet not in await unfinished()


@pytest.mark.promise(14)
@pytest.mark.parametrize("visited", [True, False])
@pytest.mark.parametrize("new", [True, False])
async def test_what_an_answer_is_owed_to_is_stored_in_the_commit_of_its_input(
    place: Place, visited: bool, new: bool
) -> None:
    async with place.open() as store:
        session = None if new else (await admit(store, "before")).session
        owes = tuple(DeliveryOwed(0, name, "example.org", name) for name in ("phone", "desk"))
        came = SessionAttended(store.owner, "test") if visited else None
        create = STARTED if new else None
        one = Admission(input=said("x", "k"), session=session, create=create, visit=came, owes=owes)
        first, again = await store.admit(one), await store.admit(one)
        assert (again.seq, again.first) == (first.seq, False)
        *_, third, fourth, fifth = await read_all(store, first.session)
        assert (third.seq, third.fact) == (first.seq, one.input)
        assert [fourth.fact, fifth.fact] == [replace(owed, target=first.seq) for owed in owes]


@pytest.mark.promise(14)
async def test_a_session_is_found_as_owing_while_a_delivery_is_open(place: Place) -> None:
    async with place.open() as store:
        owed = (DeliveryOwed(0, "phone", "example.org", "k"),)
        session = (await admit(store, "before")).session
        admitted = await store.admit(Admission(input=said("x"), session=session, owes=owed))
        busy = (await admit(store, "long")).session
        for settled in (DeliveryRefused("status 503"), Delivered("status 200")):
            for i in range(300):  # enough for the rows of lists to be written anew
                await store.add(busy, [SessionRenamed(str(i))])
            assert await ids_owing(store) == [admitted.session]
            await store.add(admitted.session, [DeliveryAttempted(admitted.seq + 1, store.owner, 4)])
            await store.add(admitted.session, [DeliverySettled(admitted.seq + 1, settled)])
        assert await ids_owing(store) == []
        assert (await store.verify()).damage == ()


@pytest.mark.parametrize("page", [1, 3, 100])
async def test_what_is_owed_is_found_however_many_facts_came_since_and_each_once(
    place: Place, page: int
) -> None:
    async with place.open() as store:
        owing, paid = [], []
        for i in range(8):
            admitted = await visit(store)
            owing.append(admitted.session)
            if i % 2:
                await store.add(admitted.session, [SessionEnded("left", "none", admitted.visit)])
                paid.append(owing.pop())
        assert await ids_owing(store, page) == owing
        busy = (await admit(store, "long")).session
        for i in range(300):  # enough for the rows of lists to be written anew
            await store.add(busy, [SessionRenamed(str(i))])
        assert await ids_owing(store, page) == owing
        await visit(store, "again", paid[0])
        state = await state_of(store, owing[-1])
        await store.add(owing.pop(), [SessionEnded("left", "none", min(state.attending))])
        assert set(await ids_owing(store, page)) == {*owing, paid[0]}
    async with place.open() as store:
        assert set(await ids_owing(store, page)) == {*owing, paid[0]}


async def test_a_deleted_session_owes_nothing(place: Place) -> None:
    async with place.open() as store:
        await store.delete((await visit(store)).session)
        assert await ids_owing(store) == []


async def test_an_owner_is_alive_while_its_store_is_open(place: Place) -> None:
    async with place.open() as store:
        async with place.open() as other:
            owner = other.owner
            assert owner != store.owner
            assert [await store.alive(one) for one in (store.owner, owner)] == [True, True]
        assert not await store.alive(owner)


@TERMS
async def test_where_locks_cannot_be_trusted_everybody_counts_as_alive(place: Place) -> None:
    async with place.open(place.expiring(Clock())) as store:
        assert await store.alive("long.gone.owner")


# --- following ------------------------------------------------------------------------------------


def _heard(events: list[Event]) -> dict[Stream, str]:
    """The text of each stream as a follower got it, each piece where it belongs."""
    streams: dict[Stream, str] = {}
    for event in events:
        if isinstance(event, Piece):
            assert event.offset == len(streams.get(event.stream, ""))
            streams[event.stream] = streams.get(event.stream, "") + event.text
    return streams


async def _converse(store: Store) -> str:
    """A turn with an answer, two streams, a tool and a second step."""
    running = await begin(store)
    for word in ("one ", "two ", "three "):
        await running.write(word)
        await store.draft(running.lease, Stream(running.step, "reasoning"), word.upper())
    parts = (
        Reasoning("ONE TWO THREE "),
        Text("one two three four"),
        ToolCall("call", "shell", "{}"),
    )
    await running.record(StepSealed(running.step, parts))
    tool = await running.record(ToolStarted(running.step, "call"))
    await store.draft(running.lease, Stream(tool, "output"), "out")
    await running.record(ToolSettled(running.step, "call", Returned((Text("output"),)), tool))
    running.step = await running.record(StepStarted("model"))
    await running.write("still ")
    await running.write("open")
    return running.session


SPOKEN = {
    Stream(4, "reasoning"): "ONE TWO THREE ",
    Stream(4, "text"): "one two three four",
    Stream(6, "output"): "output",
    Stream(8, "text"): "still open",
}


@pytest.mark.promise(36)
async def test_a_follower_that_comes_late_gets_every_piece_and_fact_in_order(place: Place) -> None:
    async with place.open() as store:
        session = await _converse(store)
        events, _ = await follow(store, session, 12)
        assert [event for event in events if isinstance(event, Record)] == await read_all(
            store, session
        )
        assert _heard(events) == SPOKEN


@pytest.mark.promise(36)
async def test_a_follower_that_leaves_and_returns_gets_what_it_missed_once(place: Place) -> None:
    async with place.open() as store:
        session = await _converse(store)
        for stay in range(1, 12):
            events, cursor = await follow(store, session, stay)
            missed, _ = await follow(store, session, 12 - stay, cursor)
            assert _heard(events + missed) == SPOKEN
            records = [event for event in events + missed if isinstance(event, Record)]
            assert records == await read_all(store, session)


@pytest.mark.promise(36)
async def test_a_live_follower_gets_each_piece_once_as_it_comes(place: Place) -> None:
    async with place.open() as store, place.open() as elsewhere:
        session = await store.create(STARTED)

        async def listen(at: Store) -> list[Event]:
            events: list[Event] = []
            cursor = Cursor()
            async for event in at.follow(session):
                events.append(event)
                cursor = moved(cursor, event)
                if isinstance(event, Record) and isinstance(event.fact, TurnEnded):
                    break
            assert cursor.seq == events[-1].seq  # type: ignore[union-attr]
            return events

        listeners = [asyncio.create_task(listen(at)) for at in (store, store, elsewhere)]
        running = await begin(store, session=session)
        words = [f"word{i} " for i in range(60)]
        for word in words:
            await running.write(word)
        await running.record(
            StepSealed(running.step, (Text("".join(words)),)), TurnEnded(3, "done")
        )
        for events in await asyncio.wait_for(asyncio.gather(*listeners), 20):
            assert _heard(events) == {Stream(running.step, "text"): "".join(words)}
            assert [event for event in events if isinstance(event, Record)] == await read_all(
                store, session
            )


async def test_a_follower_hears_that_its_session_was_deleted(place: Place) -> None:
    async with place.open() as store, place.open() as other:
        session = await store.create(STARTED)
        listener = asyncio.create_task(follow(store, session, 2))
        await asyncio.sleep(0)
        await other.delete(session)
        with pytest.raises(UnknownSession):
            await asyncio.wait_for(listener, 20)


async def test_a_follower_hears_that_the_store_was_closed(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        heard = asyncio.Event()

        async def listen() -> None:
            async for _ in store.follow(session):
                heard.set()

        listener = asyncio.create_task(listen())
        await heard.wait()
        await store.close()
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(listener, 20)


async def test_a_caller_that_gave_up_finds_its_input_once(place: Place) -> None:
    async with place.open() as store:
        session = await store.create(STARTED)
        for i in range(30):
            giving_up = asyncio.create_task(admit(store, f"text {i}", session, f"key {i}"))
            for _ in range(i % 4):
                await asyncio.sleep(0)
            giving_up.cancel()
            await asyncio.gather(giving_up, return_exceptions=True)
            await admit(store, f"text {i}", session, f"key {i}")
        assert await texts(store, session) == [f"text {i}" for i in range(30)]


async def test_a_full_queue_makes_callers_wait_and_loses_none(place: Place) -> None:
    async with place.open(Settings(queue_bytes_max=2_000)) as store:
        running = await begin(store)
        ends = await asyncio.gather(*(running.write("x" * 500) for _ in range(100)))
        assert ends == [500 * i for i in range(1, 101)]


async def test_output_sealed_as_a_payload_is_never_mixed_with_its_preview(place: Place) -> None:
    async with place.open() as store:
        running, tool = await begin_tool(store)
        await store.draft(running.lease, Stream(tool, "output"), "abcdef")
        events, cursor = await follow(store, running.session, 7)
        hash = await store.put(running.session, b"abcdef")
        await running.record(
            ToolSettled(4, "call", Returned((Text("a… (6 letters)"), file_of(hash, 6))), tool)
        )
        missed, _ = await follow(store, running.session, 1, cursor)
        assert _heard(events + missed) == {Stream(tool, "output"): "abcdef"}
