"""What Google's ADK asks of a session service, over ours and over theirs. It needs google-adk;
`make adapters` runs it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService

from crashkit.checks import CHECKS, run_check
from crashkit.forks import Forks
from steno.adapters.google_adk import StenoSessionService
from steno.adapters.google_adk_state import CHANGES_MAX
from tests.adapters.crash_stores import GoogleADK
from tests.adapters.given import WRONG, comes_back, is_refused_whole, keeps_order

KILLS = 20
ALICE: dict[str, Any] = {"app_name": "app", "user_id": "alice"}
BOB: dict[str, Any] = {"app_name": "app", "user_id": "bob/%"}


@pytest.fixture(params=["steno", "theirs"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "theirs":
        return InMemorySessionService()
    return StenoSessionService(tmp_path / "chats.db")


def event(**state: Any) -> Event:
    delta = {name.replace("__", ":"): value for name, value in state.items()}
    return Event(author="user", actions=EventActions(state_delta=delta))


def test_state_has_three_scopes_that_change_with_the_event(service: Any) -> None:
    async def use() -> None:
        began = {"n": 1, "app:a": 1, "user:u": 1, "temp:t": 1}
        one = await service.create_session(**ALICE, session_id="1", state=began)
        assert one.state == {"n": 1, "app:a": 1, "user:u": 1}
        await service.append_event(one, event(n=2, app__a=2, user__u=2, temp__t=2))
        assert one.state["temp:t"] == 2
        again = await service.get_session(**ALICE, session_id="1")
        assert again.state == {"n": 2, "app:a": 2, "user:u": 2}
        assert "temp:t" not in again.events[0].actions.state_delta
        assert await service.get_user_state(**ALICE) == {"u": 2}
        other = await service.create_session(**BOB, session_id="1")
        assert other.state == {"app:a": 2}
        assert await service.get_user_state(**BOB) == {}

    asyncio.run(use())


def test_sessions_are_made_once_listed_in_order_and_deleted(service: Any) -> None:
    async def use() -> None:
        for id in ("b", "a"):
            await service.create_session(**ALICE, session_id=id)
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**ALICE, session_id="a")
        await service.create_session(**BOB, session_id="c")
        assert (await service.create_session(**BOB)).id
        b = await service.get_session(**ALICE, session_id="b")
        await service.append_event(b, event(n=1))
        listed = (await service.list_sessions(**ALICE)).sessions
        assert [(one.id, one.events) for one in listed] == [("a", []), ("b", [])]
        assert listed[1].state == {"n": 1}
        assert len((await service.list_sessions(app_name="app")).sessions) == 4
        await service.delete_session(**ALICE, session_id="b")
        await service.delete_session(**ALICE, session_id="b")
        assert await service.get_session(**ALICE, session_id="b") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(b, event(n=2))

    asyncio.run(use())


def test_events_are_read_from_the_end(service: Any) -> None:
    async def use() -> None:
        one = await service.create_session(**ALICE, session_id="1")
        events = [await service.append_event(one, event(n=n)) for n in range(5)]
        assert await service.append_event(one, Event(author="user", partial=True))

        async def read(**config: Any) -> list[Event]:
            found = await service.get_session(
                **ALICE, session_id="1", config=GetSessionConfig(**config)
            )
            assert found.state == {"n": 4}
            return list(found.events)

        assert await read() == events
        assert await read(num_recent_events=2) == events[-2:]
        assert await read(num_recent_events=0) == []
        assert await read(after_timestamp=events[3].timestamp) == events[3:]

    asyncio.run(use())


def test_an_event_that_is_sent_again_is_kept_once(service: Any) -> None:
    async def use() -> None:
        one = await service.create_session(**ALICE, session_id="1")
        first = event(n=1)
        await service.append_event(one, first)
        await service.append_event(one, event(n=2))
        await service.append_event(one, first.model_copy(deep=True))
        again = await service.get_session(**ALICE, session_id="1")
        assert [len(one.events), len(again.events), again.state] == [2, 2, {"n": 2}]

    asyncio.run(use())


@pytest.mark.promise(17)
@pytest.mark.promise(18)
def test_a_session_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    async def use() -> None:
        mine, other = (StenoSessionService(tmp_path / "chats.db") for _ in range(2))
        await mine.create_session(**ALICE, session_id="1")
        one = await mine.get_session(**ALICE, session_id="1")
        two = await other.get_session(**ALICE, session_id="1")
        assert one is not None
        assert two is not None
        await mine.append_event(one, event(n=1, app__a=1))
        with pytest.raises(StaleSessionError):
            await other.append_event(two, event(n=2, app__a=2))
        again = await other.get_session(**ALICE, session_id="1")
        assert again is not None
        assert (again.state, len(again.events)) == ({"n": 1, "app:a": 1}, 1)
        await other.append_event(again, event(n=3))

    asyncio.run(use())


def test_changes_of_a_state_are_put_together() -> None:
    async def use() -> None:
        service = StenoSessionService()
        one = await service.create_session(**ALICE, session_id="1")
        for n in range(CHANGES_MAX + 5):
            await service.append_event(one, event(**{f"app__{n}": n, "n": n}))
        again = await service.get_session(**ALICE, session_id="1")
        assert again is not None
        shared = {f"app:{n}": n for n in range(CHANGES_MAX + 5)}
        assert again.state == {"n": CHANGES_MAX + 4, **shared}
        assert len(service.chats.items("adk:app:app", "adk.state").last().items) < 10

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(2)
@pytest.mark.promise(16)
@pytest.mark.promise(48)
@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "check", [one.name for one in CHECKS.values() if one.needs in ("", "keys")]
)
def test_events_stay_through_kills_a_full_disk_and_damage(check: str) -> None:
    with Forks("tests.adapters.crash_stores:GoogleADK") as forks:
        outcome = run_check(CHECKS[check], forks, 1, KILLS)
    assert (outcome.verdict, outcome.detail) == ("passed", "")


@pytest.mark.promise(9)
def test_what_was_given_comes_back_byte_for_byte(tmp_path: Path) -> None:
    comes_back(GoogleADK, tmp_path)


@pytest.mark.promise(75)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_kept_is_refused_with_all_that_came_with_it(
    wrong: str, tmp_path: Path
) -> None:
    is_refused_whole(GoogleADK, tmp_path, WRONG[wrong], WRONG[wrong])


@pytest.mark.promise(47)
def test_a_clock_that_is_set_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_order(GoogleADK, tmp_path, monkeypatch)
