"""steno mcp, before the client of the mcp package: a real process, a real pipe."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from steno.runtimes.codex.binary import find
from tests.clients.process import LIMIT_S, Home, wait_until

READS = {"sessions_list", "session_read", "session_search", "session_wait", "approvals_list"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def with_client(home: Home, do: Callable[[Client], Awaitable[None]], *words: str) -> None:
    async def run() -> None:
        command, *args = home.words("mcp", *words)
        given = StdioServerParameters(
            command=command, args=args, env=home.environment, cwd=home.work
        )
        async with asyncio.timeout(LIMIT_S), Client(given) as client:
            await do(client)

    asyncio.run(run())


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    found: dict[str, Any] = answer.structured_content
    return found


@pytest.mark.promise(5)
@pytest.mark.promise(9)
@pytest.mark.promise(16)
@pytest.mark.promise(75)
def test_a_client_sends_once_waits_reads_and_searches(home: Home) -> None:
    async def do(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READS | {"session_send"}
        sent = await call(client, "session_send", text="a green door", key="one")
        again = await call(client, "session_send", text="a green door", key="one")
        assert again == sent | {"first": False}
        refused = await client.call_tool("session_send", {"text": "a red door", "key": "one"})
        assert refused.is_error
        for wrong in ({"text": 3, "key": "2"}, {"text": "x"}, {"text": "", "key": "2"}):
            assert (await client.call_tool("session_send", wrong)).is_error

        id = sent["session"]
        told: list[dict[str, Any]] = []
        cursor = sent["cursor"]
        while not told or told[-1]["type"] != "turn_ended":
            waited = await call(client, "session_wait", session=id, cursor=cursor)
            told, cursor = told + waited["events"], waited["cursor"]
        said = "".join(one["text"] for one in told if one["type"] == "text")
        assert said == "a green door"
        after = await call(client, "session_wait", session=id, cursor=cursor, timeout_s=0)
        assert not [one for one in after["events"] if one["type"] == "text"]

        read = await call(client, "session_read", session=id)
        assert [one["text"] for one in read["messages"]] == ["a green door"] * 2
        first = await call(client, "session_read", session=id, limit=1)
        rest = await call(client, "session_read", session=id, after=first["next"])
        assert [*first["messages"], *rest["messages"]] == read["messages"]
        assert rest["next"] is None

        found = await call(client, "session_search", query="green")
        assert [hit["session"] for hit in found["hits"]] == [id]
        listed = await call(client, "sessions_list")
        assert [one["id"] for one in listed["sessions"]] == [id]
        assert (await call(client, "approvals_list"))["approvals"] == []
        [whole] = (await client.read_resource(f"steno://sessions/{id}")).contents
        assert "a green door" in getattr(whole, "text", "")

    with_client(home, do, "--allow-write")


def test_without_allow_write_nothing_can_be_sent_and_nothing_is_written(home: Home) -> None:
    id = home.begin("hello")
    before = home.store_files()

    async def do(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READS
        refused = await client.call_tool("session_send", {"text": "x", "key": "k"})
        assert refused.is_error
        read = await call(client, "session_read", session=id)
        assert [one["text"] for one in read["messages"]] == ["hello", "hello"]
        unknown = await client.call_tool("session_read", {"session": "nothing-like-it"})
        assert unknown.is_error
        bad = await client.call_tool("session_wait", {"session": id, "cursor": "../x"})
        assert bad.is_error

    with_client(home, do)
    assert home.store_files() == before


@pytest.mark.promise(17)
@pytest.mark.promise(34)
@pytest.mark.promise(50)
def test_an_interrupted_answer_and_damage_are_told_as_what_they_are(home: Home) -> None:
    home.script({"text": "half an", "then": "hang"})

    async def do(client: Client) -> None:
        sent = await call(client, "session_send", text="a green door", key="one")
        id, cursor, said = sent["session"], sent["cursor"], ""
        while "half an" not in said:
            waited = await call(client, "session_wait", session=id, cursor=cursor, until="anything")
            cursor = waited["cursor"]
            said += "".join(one["text"] for one in waited["events"] if one["type"] == "text")
        later = await call(client, "session_send", session=id, text="a red door", key="two")
        assert later["session"] == id
        home.steno("interrupt", id)
        told: list[str] = []
        while "turn_ended" not in told:
            waited = await call(client, "session_wait", session=id, cursor=cursor)
            cursor, told = waited["cursor"], told + [one["type"] for one in waited["events"]]
        read = (await call(client, "session_read", session=id))["messages"]
        states = [(one["text"], one["state"]) for one in read]
        assert states[:2] == [("a green door", "complete"), ("half an", "interrupted")]
        assert states[2][0] == "a red door", "it waited for its turn"
        home.steno("interrupt", id)

    with_client(home, do, "--allow-write")
    [id] = home.sessions()
    wait_until(lambda: not home.listed()[0]["running"], "the end of the turn")
    home.damage(b"a green door")

    async def damaged(client: Client) -> None:
        assert (await client.call_tool("session_read", {"session": id})).is_error

    with_client(home, damaged)


def test_codex_writes_what_the_page_shows(tmp_path: Path) -> None:
    codex = find("")
    if codex is None:
        pytest.skip("the real codex is not installed")
    page = Path(__file__).parents[2] / "docs" / "how-to" / "read-your-history-over-mcp.md"
    subprocess.run(
        [str(codex), "mcp", "add", "steno", "--", "steno", "mcp"],
        env={"CODEX_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    written = (tmp_path / "config.toml").read_text()
    assert written.strip() in page.read_text()


@pytest.mark.promise(2)
def test_what_was_sent_is_answered_though_the_server_is_killed(home: Home) -> None:
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    send = {"name": "session_send", "arguments": {"text": "still here", "key": "k"}}
    server = subprocess.Popen(
        home.words("mcp", "--allow-write"),
        env=home.environment,
        cwd=home.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    for line in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": send},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0"} | line).encode() + b"\n")
        server.stdin.flush()
    answers = [json.loads(server.stdout.readline()) for _ in range(2)]
    server.kill()
    server.communicate()
    session = answers[-1]["result"]["structuredContent"]["session"]
    home.wait_for_answer(session, "still here")
