"""Tools of MCP servers: real ones over stdio and HTTP, and one that misbehaves."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest

from steno.journal.facts import ContextSet
from steno.journal.parts import (
    Failed,
    Image,
    Interrupted,
    Outcome,
    Returned,
    Text,
    Unknown,
    outcome_parts,
)
from steno.tools import child
from steno.tools.groups import members
from steno.tools.mcp import ServerSettings
from steno.tools.mcp_tools import NAME_CHARS_MAX, Servers, schema_text, tool_name
from steno.tools.protocol import BadArguments, Tool
from steno.tools.sandbox import Scrub
from tests.ports import free_port
from tests.tools.calls import Pieces, alive, comes_true, needs_proc, said
from tests.tools.mcp_servers import command, odd, over_http

T = TypeVar("T")
Tools = dict[str, Tool]


def settings(words: tuple[str, ...], **more: Any) -> ServerSettings:
    return ServerSettings(command=words[0], args=words[1:], **more)


async def keep(payload: bytes) -> str:
    return sha256(payload).hexdigest()


@asynccontextmanager
async def running(
    folder: Path, server: ServerSettings, before: ContextSet | None = None
) -> AsyncIterator[Tools]:
    servers = Servers({"srv": server}, folder, Scrub())
    try:
        yield await servers.tools(before, keep)
    finally:
        await servers.close()


async def called(tools: Tools, name: str, **arguments: object) -> Outcome:
    prepared = await tools[f"srv__{name}"].prepare(json.dumps(arguments))
    return await prepared.run(Pieces())


def within(folder: Path, server: ServerSettings, test: Callable[[Tools], Awaitable[T]]) -> T:
    async def run() -> T:
        async with running(folder, server) as tools:
            return await test(tools)

    return asyncio.run(run())


def runs(folder: Path) -> int:
    log = folder / "count.txt"
    return len(log.read_text().split()) if log.exists() else 0


# --- real servers ---------------------------------------------------------------------------------


async def everything(tools: Tools) -> None:
    assert await called(tools, "echo", message="héllo") == Returned((Text("Echo: héllo"),))
    assert await called(tools, "get-sum", a=1, b=2) == Returned((Text("The sum of 1 and 2 is 3."),))
    wrong = await called(tools, "get-sum", a="x")
    assert isinstance(wrong, Failed)
    assert "expected number" in said(wrong)
    picture = await called(tools, "get-tiny-image")
    assert [part.media_type for part in outcome_parts(picture) if isinstance(part, Image)] == [
        "image/png"
    ]
    assert "temperature" in said(await called(tools, "get-structured-content", location="New York"))
    assert "resource" in said(await called(tools, "get-resource-links", count=2))


def test_a_real_server_over_stdio(tmp_path: Path) -> None:
    within(tmp_path, settings(command("server-everything", "stdio")), everything)


def test_a_real_server_over_http(tmp_path: Path) -> None:
    with over_http(tmp_path / "log") as server:
        within(tmp_path, ServerSettings(url=server.url), everything)


def test_the_real_file_server_works_in_its_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")

    async def use(tools: Tools) -> None:
        wrote = await called(tools, "write_file", path=str(folder / "a.txt"), content="some text")
        assert isinstance(wrote, Returned)
        assert (
            said(await called(tools, "read_text_file", path=str(folder / "a.txt"))) == "some text"
        )
        assert isinstance(
            await called(tools, "read_text_file", path=str(tmp_path / "secret.txt")), Failed
        )

    within(tmp_path, settings(command("server-filesystem", str(folder))), use)
    assert (folder / "a.txt").read_text() == "some text"


async def long_call(tools: Tools) -> "tuple[Any, asyncio.Task[Outcome]]":
    prepared = await tools["srv__trigger-long-running-operation"].prepare(
        '{"duration": 30, "steps": 2}'
    )
    task = asyncio.create_task(prepared.run(Pieces()))
    await asyncio.sleep(0.3)
    return prepared, task


async def stopped_at_once(tools: Tools) -> None:
    prepared, task = await long_call(tools)
    began = time.monotonic()
    await prepared.stop()
    assert isinstance(await task, Interrupted)
    assert time.monotonic() - began < 2
    assert said(await called(tools, "echo", message="still here")) == "Echo: still here"


def test_a_stop_ends_a_call_and_not_the_server(tmp_path: Path) -> None:
    within(tmp_path, settings(command("server-everything", "stdio")), stopped_at_once)
    with over_http(tmp_path / "log") as server:
        within(tmp_path, ServerSettings(url=server.url), stopped_at_once)


def test_a_server_killed_in_mid_call_leaves_the_outcome_unknown_and_is_started_again(
    tmp_path: Path,
) -> None:
    async def kill(tools: Tools) -> tuple[Outcome, Outcome]:
        prepared, task = await long_call(tools)
        os.kill(prepared.group, signal.SIGKILL)
        return await task, await called(tools, "echo", message="again")

    lost, again = within(tmp_path, settings(command("server-everything", "stdio")), kill)
    assert isinstance(lost, Unknown)
    assert again == Returned((Text("Echo: again"),))


def test_a_server_over_http_killed_in_mid_call_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    port = free_port()

    async def kill(tools: Tools) -> Outcome:
        _, task = await long_call(tools)
        first.kill()
        lost = await task
        with pytest.raises(BadArguments, match="not run: the MCP server 'srv' cannot be used"):
            await called(tools, "echo", message="too early")
        with over_http(tmp_path / "again", port):
            assert said(await called(tools, "echo", message="again")) == "Echo: again"
        return lost

    with over_http(tmp_path / "log", port) as first:
        assert isinstance(within(tmp_path, ServerSettings(url=first.url), kill), Unknown)


def test_a_server_over_http_that_was_restarted_is_reached_again(tmp_path: Path) -> None:
    port = free_port()

    async def restart(tools: Tools) -> Outcome:
        first.kill()
        with over_http(tmp_path / "again", port):
            await called(tools, "echo", message="the session is gone")
            return await called(tools, "echo", message="hello")

    with over_http(tmp_path / "log", port) as first:
        assert within(tmp_path, ServerSettings(url=first.url), restart) == Returned(
            (Text("Echo: hello"),)
        )


# --- what a model is told -------------------------------------------------------------------------


def test_names_are_taken_by_every_provider_and_specs_do_not_depend_on_order(tmp_path: Path) -> None:
    async def names(tools: Tools) -> list[str]:
        assert [tool.spec.name for tool in tools.values()] == list(tools) == sorted(tools)
        assert all(tool.approval == "ask" for tool in tools.values())
        schema = tools["srv__big"].spec.schema
        assert schema == '{"properties":{"a":{},"b":{},"chars":{"type":"integer"}},"type":"object"}'
        weird = next(name for name in tools if "weird" in name)
        prepared = await tools[weird].prepare("{}")
        assert said(await prepared.run(Pieces())).startswith("weird.näme/x")
        return list(tools)

    found = within(tmp_path, settings(odd()), names)
    assert len(found) == 10
    assert all(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", name) for name in found)


def test_changed_names_stay_apart() -> None:
    assert tool_name("s", "a.b") != tool_name("s", "a_b") == "s__a_b"
    long = "x" * 100
    assert len(tool_name("s", long)) == NAME_CHARS_MAX
    assert tool_name("s", long) != tool_name("s", long + "y")


def test_the_same_schema_is_the_same_text() -> None:
    one = {"type": "object", "properties": {"a": {"type": "string", "title": "A"}}, "$schema": "x"}
    other = {"properties": {"a": {"title": "A", "type": "string"}}, "type": "object"}
    assert schema_text(one) == schema_text(other)
    assert json.loads(schema_text({})) == {"type": "object", "properties": {}}


def test_the_repeat_policy_and_the_choice_of_tools_come_from_the_configuration(
    tmp_path: Path,
) -> None:
    async def specs(tools: Tools) -> dict[str, str]:
        return {name: tool.spec.repeat for name, tool in tools.items()}

    chosen = settings(odd(), safe=frozenset(["pid"]), only=frozenset(["pid", "count"]))
    assert within(tmp_path, chosen, specs) == {"srv__count": "never", "srv__pid": "safe"}
    assert set(within(tmp_path, settings(odd(), safe=frozenset("*")), specs).values()) == {"safe"}


def test_a_server_that_cannot_start_keeps_the_tools_that_the_session_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(tmp_path, settings(odd())) as tools:
            before = ContextSet("m", tools=tuple(tool.spec for tool in tools.values()))
        async with running(tmp_path, settings(odd("dead")), before) as tools:
            assert tuple(tool.spec for tool in tools.values()) == before.tools
            with pytest.raises(BadArguments, match=r"not run: .*I cannot go on: no config"):
                await called(tools, "count")
        async with running(tmp_path, settings(odd()), before) as tools:
            assert said(await called(tools, "count")) == "count 1"

    asyncio.run(run())
    assert "I cannot go on: no config" in caplog.text


def test_a_server_that_says_its_tools_changed_is_asked_again(tmp_path: Path) -> None:
    async def run() -> None:
        servers = Servers({"srv": settings(odd("changing"))}, tmp_path, Scrub())
        try:
            before = await servers.tools(None, keep)
            assert said(await called(before, "count")) == "count 1"
            after = await servers.tools(None, keep)
            assert set(after) - set(before) == {"srv__new10"}
        finally:
            await servers.close()

    asyncio.run(run())


# --- servers that misbehave -----------------------------------------------------------------------


def test_a_call_is_sent_once_when_the_server_dies_of_it(tmp_path: Path) -> None:
    async def die(tools: Tools) -> tuple[Outcome, Outcome]:
        return await called(tools, "die"), await called(tools, "pid")

    died, after = within(tmp_path, settings(odd()), die)
    assert isinstance(died, Unknown)
    assert isinstance(after, Returned)
    assert runs(tmp_path) == 1


def test_no_answer_in_time_is_unknown(tmp_path: Path) -> None:
    async def hang(tools: Tools) -> tuple[Outcome, Outcome]:
        return await called(tools, "hang"), await called(tools, "count")

    hung, after = within(tmp_path, settings(odd(), time_limit_s=0.5), hang)
    assert isinstance(hung, Unknown)
    assert "no answer within 0.5 s" in said(hung)
    assert after == Returned((Text("count 2"),))


@pytest.mark.parametrize(
    ("habit", "complaint"), [("silent", "did not start within 1 s"), ("dead", "no config")]
)
def test_a_server_that_does_not_start_is_given_up(
    tmp_path: Path, habit: str, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(tools: Tools) -> int:
        return len(tools)

    began = time.monotonic()
    assert within(tmp_path, settings(odd(habit), start_limit_s=1.0), nothing) == 0
    assert time.monotonic() - began < 6
    assert complaint in caplog.text


def test_a_command_that_does_not_exist_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(tools: Tools) -> int:
        return len(tools)

    assert within(tmp_path, settings(("no-such-program",)), nothing) == 0
    assert "'srv' cannot be used" in caplog.text
    assert "not found" in caplog.text


def test_lines_that_are_no_messages_are_passed_over(tmp_path: Path) -> None:
    async def count(tools: Tools) -> Outcome:
        return await called(tools, "count")

    assert within(tmp_path, settings(odd("chatty")), count) == Returned((Text("count 1"),))


def test_an_answer_that_is_no_text_is_mended(tmp_path: Path) -> None:
    async def garbled(tools: Tools) -> Outcome:
        return await called(tools, "garbled")

    mended = "half \N{REPLACEMENT CHARACTER} a pair, \0 and \uffff"
    assert within(tmp_path, settings(odd()), garbled) == Returned((Text(mended),))


@pytest.mark.parametrize(
    "arguments", ["{", "[]", "1", '{"a":"\\ud800"}', '{"a":"\ud800"}', "[" * 100_000]
)
def test_arguments_that_cannot_be_used_are_not_sent(tmp_path: Path, arguments: str) -> None:
    async def refused(tools: Tools) -> None:
        with pytest.raises(BadArguments, match="the arguments cannot be used"):
            await tools["srv__count"].prepare(arguments)

    within(tmp_path, settings(odd()), refused)
    assert runs(tmp_path) == 0


def test_a_message_without_end_cuts_the_server_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LINE_BYTES_MAX", 1024 * 1024)

    async def flood(tools: Tools) -> tuple[Outcome, Outcome]:
        return await called(tools, "big"), await called(tools, "count")

    flooded, after = within(tmp_path, settings(odd("flood")), flood)
    assert isinstance(flooded, Unknown)
    assert isinstance(after, Returned)


def test_a_server_gets_no_secrets_but_those_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k1")
    monkeypatch.setenv("MY_TOKEN", "k2")
    monkeypatch.setenv("PLAIN", "p")

    async def environment(tools: Tools) -> dict[str, str]:
        found: dict[str, str] = json.loads(said(await called(tools, "env")))
        return found

    given = within(
        tmp_path, settings(odd(), pass_env=("MY_TOKEN",), env={"OTHER": "o"}), environment
    )
    assert "OPENAI_API_KEY" not in given
    assert (given["MY_TOKEN"], given["OTHER"], given["PLAIN"]) == ("k2", "o", "p")


# --- the end of servers ---------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize("habits", [(), ("stubborn",)])
def test_closing_ends_the_whole_group(tmp_path: Path, habits: tuple[str, ...]) -> None:
    async def group(tools: Tools) -> int:
        return int(said(await called(tools, "pid")))

    pid = within(tmp_path, settings(odd(*habits)), group)
    assert not alive(pid)
    assert comes_true(lambda: not members(pid))


DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.tools.test_mcp import called, odd, running, said, settings

async def die():
    folder = Path(sys.argv[1])
    async with running(folder, settings(odd("stubborn"))) as tools:
        (folder / "pid").write_text(said(await called(tools, "pid")))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(die())
"""


@needs_proc
def test_a_stubborn_server_does_not_outlive_a_kill_of_ours(tmp_path: Path) -> None:
    """Nobody is left to look after the server, and nobody opens the session again."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path)], cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == -signal.SIGKILL
    server = int((tmp_path / "pid").read_text())
    assert comes_true(lambda: not alive(server), 10)
    assert comes_true(lambda: not members(server), 10)
