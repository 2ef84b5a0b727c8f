"""`steno.AsyncAgent` under trio: the verbs of asyncio, and functions that are awaited there."""

from pathlib import Path

import pytest

import steno
from steno.service.views import Approval
from tests.programs.test_agent import calls, script

trio = pytest.importorskip("trio")


def test_tools_and_approvals_run_in_the_loop_of_the_caller(tmp_path: Path) -> None:
    where: list[str] = []

    @steno.tool(approval="ask")
    async def weather(city: str) -> str:
        """The weather of a city."""
        await trio.sleep(0)
        where.append(trio.lowlevel.current_task().name)
        return f"rain in {city}"

    async def approve(call: Approval) -> bool:
        await trio.sleep(0)
        where.append(call.tool)
        return True

    async def use() -> None:
        model = script(tmp_path, calls("weather", city="Oslo"), {"text": "It rains."})
        agent = steno.AsyncAgent(tmp_path / "chats.db", model, tools=[weather], approve=approve)
        async with agent as opened:
            answer = await opened.run("alice", "Will it rain?")
            assert (answer.text, answer.outcome) == ("It rains.", "done")
            said = [message.text for message in await opened.messages("alice")]
            assert "rain in Oslo" in said

    trio.run(use)
    assert len(where) == 2


def test_a_turn_that_is_cancelled_keeps_what_was_shown_and_is_taken_up(tmp_path: Path) -> None:
    shown: list[str] = []

    async def use() -> None:
        path = tmp_path / "chats.db"
        model = "scripted:pieces?n=400&size=4&rate=200"
        async with steno.AsyncAgent(path, model) as agent:
            with trio.CancelScope() as scope:
                async for piece in agent.stream("alice", "Count"):
                    shown.append(piece)
                    if len(shown) == 5:
                        scope.cancel()
            cut = (await agent.messages("alice"))[-1]
            assert (cut.state, cut.text[: len("".join(shown))]) == ("interrupted", "".join(shown))
            async with trio.open_nursery() as nursery:
                for n in range(3):
                    nursery.start_soon(agent.interrupt, f"nobody {n}")
        async with steno.AsyncAgent(path, "scripted:echo") as agent:
            assert (await agent.resume("alice").answer()).outcome == "done"

    trio.run(use)
    assert len(shown) == 5
