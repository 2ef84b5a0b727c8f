"""A session is read and folded once, and what memory has is what is stored."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from steno.journal.facts import (
    Continues,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.journal.transcript import Transcript
from steno.session.lease import HeldSession, hold
from steno.session.load import Sessions, tail
from steno.store.errors import UnknownSession
from tests.session.rooms import Room, folds_counted, room


def run(test: Callable[[Room], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with room() as here:
            await test(here)

    asyncio.run(whole())


async def killed(here: Room, session: str) -> int:
    """Leave an answer open, as a process does that is killed; the turn."""
    admitted = await here.service.admit("and?", session, None, None, "scripted:echo")
    held = await HeldSession.open(Sessions(here.store), session)
    turn = await held.record(TurnStarted(Takes(admitted.seq)))
    await held.record(StepStarted("scripted:echo"))
    await held.leave()
    return turn


def test_an_input_to_an_old_session_folds_it_once() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        head = (await here.store.glance(session)).head
        late = Room(here.store)
        with folds_counted() as counted:
            await late.say("two", session)
        assert {seq: counted[seq] for seq in range(1, head + 1)} == dict.fromkeys(
            range(1, head + 1), 1
        )

    run(test)


def test_a_later_input_in_the_same_process_folds_only_what_is_new() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        head = (await here.store.glance(session)).head
        with folds_counted() as counted:
            await here.say("two", session)
        assert not [seq for seq in counted if seq <= head]

    run(test)


def test_continuing_a_turn_that_was_killed_folds_the_session_once() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        turn = await killed(here, session)
        head = (await here.store.glance(session)).head
        late = Room(here.store)
        with folds_counted() as counted:
            opening = late.service.turns.continuation(await late.sessions.load(session))
            assert opening == TurnStarted(Continues(turn))
            events = late.service.turns.resume(session, opening, asyncio.Event())
            facts = [getattr(event, "fact", None) async for event in events]
        assert isinstance(facts[-1], TurnEnded)
        assert {seq: counted[seq] for seq in range(1, head + 1)} == dict.fromkeys(
            range(1, head + 1), 1
        )

    run(test)


def test_a_session_as_it_stands_is_closed_in_memory_and_not_in_the_store() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        turn = await killed(here, session)
        head = (await here.store.glance(session)).head
        loaded = await here.sessions.load(session)
        assert loaded.head == head
        assert loaded.state.turn is None
        assert loaded.state.last_turn is not None
        assert loaded.state.last_turn.ending == TurnEnded(turn, "interrupted", "killed")
        assert (await here.store.glance(session)).head == head
        assert (await tail(here.store, session, head)).turn is not None

    run(test)


def test_what_closes_a_session_in_memory_is_what_its_next_runner_stores() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        await killed(here, session)
        loaded = await here.sessions.load(session)
        async with hold(here.sessions, session) as held:
            await held.close()
        stored = await here.store.read(session, loaded.head)
        assert [record.fact for record in stored] == [record.fact for record in loaded.closing]

    run(test)


def test_a_state_that_was_handed_out_does_not_change_when_the_session_goes_on() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        loaded = await here.sessions.load(session)
        head = loaded.state.head
        await here.say("two", session)
        assert loaded.state.head == head

    run(test)


def test_folding_all_of_a_session_and_loading_it_give_the_same_state() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        await killed(here, session)
        transcript = Transcript()
        whole = await here.sessions.whole(session, transcript)
        assert whole.state == (await here.sessions.load(session)).state
        assert [message.text for message in transcript.messages] == ["one", "one", "and?", ""]

    run(test)


def test_text_that_was_redacted_meanwhile_is_not_kept_in_memory() -> None:
    async def test(here: Room) -> None:
        session = await here.say("secret")
        await here.sessions.load(session)
        await here.store.redact(session, 3)
        async with hold(here.sessions, session) as held:
            told = [
                part for entry in held.history.entries() for part in getattr(entry, "parts", ())
            ]
            assert Text("secret") not in told[:1]
            await held.close()

    run(test)


def test_a_session_that_another_process_went_on_with_is_caught_up_with() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        await here.sessions.load(session)
        await Room(here.store).say("two", session)
        async with hold(here.sessions, session) as held:
            answers = [
                record.fact
                for record in await here.store.read(session)
                if isinstance(record.fact, StepSealed)
            ]
            told = [entry for entry in held.history.entries() if type(entry).__name__ == "Answered"]
            assert len(told) == len(answers) == 2
            await held.close()

    run(test)


def test_what_is_known_of_a_session_that_was_deleted_is_not_told() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        await here.sessions.load(session)
        await here.store.delete(session)
        with pytest.raises(UnknownSession):
            await here.sessions.load(session)

    run(test)
