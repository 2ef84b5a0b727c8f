"""What a session can do in a terminal, it can do in the service: tools of MCP servers with an
approval over HTTP, plugins, compaction, and turns by the real codex beside others."""

from pathlib import Path
from typing import Any

import pytest

from tests.codex.world import FIXTURES, CodexWorld, real_codex
from tests.gateway.client import Gateway
from tests.models.aimock import aimock
from tests.program import diary
from tests.program.distilling import GOOD, LINES, TEA, distillations, distils, system
from tests.program.model_server import ModelServer, Reply
from tests.program.test_tools_mcp import configure, stdio
from tests.program.world import World, wait_until
from tests.tools.mcp_servers import odd


def texts(gateway: Gateway, session: str) -> list[tuple[str, str]]:
    shown = gateway.ask("GET", f"/api/sessions/{session}").json()
    return [(one["role"], one["text"]) for one in shown["messages"]]


def waiting(gateway: Gateway, session: str) -> list[dict[str, Any]]:
    asked = gateway.ask("GET", "/api/approvals").json()["approvals"]
    return [one for one in asked if one["session"] == session]


@pytest.mark.promise(37)
def test_a_tool_of_an_mcp_server_runs_once_it_is_allowed_over_http(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    configure(world, stdio("odd", odd()))
    diary.install(world)
    server.replies = [Reply(tools=(("odd__count", "{}"),)), Reply(("counted",)), Reply(("short",))]
    gateway = Gateway(world, tmp_path)
    try:
        session = gateway.make(model="openai-chat:test")
        assert gateway.say(session, "count").status == 202
        wait_until(lambda: bool(waiting(gateway, session)), "the call to wait for approval")
        (asked,) = waiting(gateway, session)
        gateway.kill()
        gateway.start()
        assert waiting(gateway, session) == [asked]
        path = f"/api/approvals/{session}/{asked['seq']}"
        assert gateway.ask("POST", path, {"decision": "allow"}).status == 200
        wait_until(lambda: ("assistant", "counted") in texts(gateway, session), "the answer")
        assert [text for role, text in texts(gateway, session) if role == "tool"] != []
        compact = f"/api/sessions/{session}/compact"
        # The answer is read before its turn has ended; until then there is nothing to shorten.
        wait_until(lambda: gateway.ask("POST", compact, {}).status in (200, 202), "the summary")
        assert gateway.stop() == 0
    finally:
        gateway.close()
    starts = diary.told(world, hook="on_session_start")
    assert session in {one["session_id"] for one in starts}


@pytest.mark.promise(33)
def test_what_was_said_over_http_is_distilled_when_it_rests_and_told_to_the_next_session(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    world.environment |= {"STENO_MEMORY_DISTILL": "auto", "STENO_MEMORY_REST_S": "0"}
    distils(server, GOOD)
    gateway = Gateway(world, tmp_path)
    try:
        first = gateway.make()
        for line in LINES:
            assert gateway.say(first, line, wait=20).status == 200

        def made() -> list[Any]:
            found: list[Any] = gateway.ask("GET", f"/api/sessions/{first}").json()["distillates"]
            return found

        wait_until(lambda: len(made()) == 1, "what is worth keeping")
        assert len(distillations(server)) == 1
        assert [role for role, _ in texts(gateway, first)] == ["user", "assistant"] * len(LINES)
        assert gateway.say(gateway.make(), "hello", wait=20).status == 200
        assert TEA in system(server.requests[-1])
    finally:
        gateway.close()


def test_a_turn_by_codex_is_streamed_as_any_other(tmp_path: Path) -> None:
    real_codex()
    with aimock(FIXTURES, tmp_path) as provider:
        world = CodexWorld(tmp_path, provider)
        gateway = Gateway(world, tmp_path)
        try:
            session, beside = gateway.make(), gateway.make(model="scripted:echo")
            assert gateway.say(session, "hello").status == 202
            assert gateway.say(beside, "said here", wait=20).json()["turn"]["outcome"] == "done"
            events = gateway.until_end(session)
            said = "".join(event.data["text"] for event in events if event.name == "text")
            assert said == "Hello there."
            assert events[-1].data["outcome"] == "done"
            assert texts(gateway, session) == [("user", "hello"), ("assistant", "Hello there.")]
            assert texts(gateway, beside) == [("user", "said here"), ("assistant", "said here")]
        finally:
            gateway.close()
