"""What the step persistence of pydantic-ai's harness asks of a store, over ours and over theirs. It
needs pydantic-ai-harness; `make adapters` runs it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

from crashkit.checks import CHECKS, run_check
from crashkit.forks import Forks
from steno.adapters.pydantic_ai_steps import StenoStepStore
from tests.adapters.crash_stores import PydanticAISteps
from tests.adapters.given import WRONG, comes_back, is_refused_whole, keeps_order

KILLS = 20
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE = {"run_id": "one"}


@pytest.fixture(params=["steno", "in memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "in memory":
        yield InMemoryStepStore()
        return
    if request.param == "sqlite":
        yield SqliteStepStore(database=tmp_path / "steps.db")
        return
    ours = StenoStepStore(tmp_path / "chats.db")
    yield ours
    ours.close()


def history(*texts: str) -> list[ModelMessage]:
    said: list[ModelMessage] = []
    for text in texts:
        said.append(ModelRequest(parts=[UserPromptPart(content=text, timestamp=NOON)]))
        said.append(ModelResponse(parts=[TextPart(content=f"re: {text}")], timestamp=NOON))
    return said


def event(number: int, **given: Any) -> StepEvent:
    return StepEvent(run_id="one", kind="run_started", step_index=number, timestamp=NOON, **given)


def snapshot(step: int, *texts: str, key: str | None = None, state: Any = "complete") -> Any:
    return ContinuableSnapshot(
        run_id="one", step_index=step, messages=history(*texts), timestamp=NOON, state=state,
        idempotency_key=key,
    )  # fmt: skip


def test_a_store_of_ours_is_a_store_of_theirs() -> None:
    assert isinstance(StenoStepStore(), StepStore)


def test_a_run_is_read_back_and_found_by_its_conversation_and_its_parent(store: Any) -> None:
    async def use() -> None:
        assert await store.get_run(**ONE) is None
        assert await store.list_runs() == []
        later = NOON + timedelta(seconds=1)
        two = RunRecord(
            run_id="two/%", conversation_id="c", metadata={"a": "b"}, started_at=later,
            registration_id="r2",
        )  # fmt: skip
        one = RunRecord(run_id="one", conversation_id="c", started_at=NOON, registration_id="r1")
        child = RunRecord(run_id="child", parent_run_id="one", started_at=NOON)
        for run in (two, one, child):
            await store.register_run(run)
        assert await store.get_run(run_id="two/%") == two
        assert await store.list_runs(conversation_id="c") == [one, two]
        assert await store.list_runs(parent_run_id="one") == [child]
        assert await store.list_runs(parent_run_id="one", conversation_id="c") == []

    asyncio.run(use())


@pytest.mark.promise(18)
def test_of_two_runs_with_one_id_the_second_is_refused(store: Any) -> None:
    async def use() -> None:
        if isinstance(store, InMemoryStepStore):
            return  # it takes the second
        first = RunRecord(run_id="one", registration_id="r1", started_at=NOON)
        await store.register_run(first)
        with pytest.raises(Exception, match=r"one|UNIQUE"):
            await store.register_run(replace(first, registration_id="r2"))
        assert await store.get_run(**ONE) == first

    asyncio.run(use())


def test_a_run_that_is_registered_again_by_the_same_is_the_same() -> None:
    async def use() -> None:
        ours = StenoStepStore()
        first = RunRecord(run_id="one", registration_id="r1", started_at=NOON)
        await ours.register_run(first)
        await ours.register_run(first)
        assert await ours.list_runs() == [first]

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(16)
def test_an_event_that_is_stored_again_is_kept_once(store: Any) -> None:
    async def use() -> None:
        keyed = event(1, idempotency_key="1:1", metadata={"a": "b"}, error="x")
        for one in (event(0), event(0), keyed, replace(keyed, timestamp=NOON)):
            await store.append_event(one)
        assert await store.list_events(**ONE) == [event(0), event(0), keyed]
        assert await store.list_events(run_id="two") == []

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(16)
def test_the_latest_snapshot_is_the_last_that_is_settled(store: Any) -> None:
    async def use() -> None:
        assert await store.latest_snapshot(**ONE) is None
        whole = snapshot(1, "a", key="0:1:complete")
        cut = [snapshot(n, "a", "b", state="interrupted", key=f"{n}:x") for n in (2, 3)]
        for one in (whole, *cut, whole):
            await store.save_snapshot(one)
        assert await store.latest_snapshot(**ONE) == whole
        assert await store.latest_snapshot(**ONE, include_interrupted=True) == cut[1]
        assert await store.list_snapshots(**ONE) == [whole]
        assert await store.list_snapshots(**ONE, include_interrupted=True) == [whole, *cut]
        if not isinstance(store, SqliteStepStore):  # which keeps it
            await store.save_snapshot(snapshot(1, "late", key="1:late"))
            assert await store.list_snapshots(**ONE) == [whole], "a late one is left out"
        await store.save_snapshot(snapshot(4, "no key"))
        assert await store.latest_snapshot(**ONE) == snapshot(4, "no key")

    asyncio.run(use())


def test_a_long_history_with_an_image_is_read_back(store: Any) -> None:
    async def use() -> None:
        image = BinaryContent(data=bytes(range(256)) * 400, media_type="application/x-any")
        asked = ModelRequest(parts=[UserPromptPart(content=["see", image], timestamp=NOON)])
        for step in range(3):
            long = replace(snapshot(step), messages=[asked, *history(*"ab" * 200 * (step + 1))])
            await store.save_snapshot(long)
            assert await store.latest_snapshot(**ONE) == long

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(19)
def test_a_call_that_was_started_is_unresolved_until_it_has_ended(store: Any) -> None:
    async def use() -> None:
        def effect(call: str, status: Any) -> ToolEffectRecord:
            return ToolEffectRecord(
                tool_call_id=call, tool_name="pay", status=status, started_at=NOON, **ONE
            )

        assert await store.get_tool_effect(**ONE, tool_call_id="1") is None
        for call in "12":
            await store.record_tool_effect(effect(call, "started"))
        done = replace(effect("1", "completed"), ended_at=NOON, effect_summary="paid")
        await store.record_tool_effect(done)
        assert await store.get_tool_effect(**ONE, tool_call_id="1") == done
        assert await store.list_unresolved_tool_effects(**ONE) == [effect("2", "started")]
        assert await store.list_unresolved_tool_effects(run_id="two") == []

    asyncio.run(use())


def test_a_run_of_their_agent_is_gone_on_with_in_another_process(store: Any) -> None:
    async def use() -> None:
        persistence: Any = StepPersistence(store=store, run_id="one")
        agent = Agent(TestModel(), capabilities=[persistence])

        @agent.tool_plain
        def weather(city: str) -> str:
            """The weather."""
            return f"rain in {city}"

        ran = await agent.run("Will it rain?")
        kinds = [one.kind for one in await store.list_events(**ONE)]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_completed")
        assert "tool_call_completed" in kinds
        kept = await store.latest_snapshot(**ONE)
        assert kept.messages == ran.all_messages()
        assert await continue_run(store, run_id="one") == kept.messages
        assert await store.list_unresolved_tool_effects(**ONE) == []

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(2)
@pytest.mark.promise(48)
@pytest.mark.promise(50)
@pytest.mark.promise(16)
@pytest.mark.parametrize(
    "check", [one.name for one in CHECKS.values() if one.needs in ("", "keys")]
)
def test_snapshots_stay_through_kills_a_full_disk_and_damage(check: str) -> None:
    with Forks("tests.adapters.crash_stores:PydanticAISteps") as forks:
        outcome = run_check(CHECKS[check], forks, 1, KILLS)
    assert (outcome.verdict, outcome.detail) == ("passed", "")


@pytest.mark.promise(9)
def test_what_was_given_comes_back_byte_for_byte(tmp_path: Path) -> None:
    comes_back(PydanticAISteps, tmp_path)


@pytest.mark.promise(75)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_kept_is_refused_with_all_that_came_with_it(
    wrong: str, tmp_path: Path
) -> None:
    is_refused_whole(PydanticAISteps, tmp_path, WRONG[wrong], WRONG[wrong])


@pytest.mark.promise(47)
def test_a_clock_that_is_set_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_order(PydanticAISteps, tmp_path, monkeypatch)
