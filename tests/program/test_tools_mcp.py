"""The running program with MCP servers: a real one over stdio and HTTP, and one that misbehaves."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.journal.facts import ContextSet
from tests.models.rules import check
from tests.ports import free_port
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until
from tests.tools.calls import alive, comes_true, needs_proc
from tests.tools.mcp_servers import command, odd, over_http


def configure(world: World, *tables: str) -> None:
    world.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (world.home / "config.toml").write_text("\n".join(tables))


def stdio(name: str, words: tuple[str, ...], more: str = "") -> str:
    return (
        f"[mcp.{name}]\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}\n{more}\n"
    )


def tool_names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request["tools"]]


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def runs(world: World) -> int:
    log = world.work / "count.txt"
    return len(log.read_text().split()) if log.exists() else 0


def test_the_model_uses_real_servers_over_stdio_and_over_http(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "note.txt").write_text("from the file server")
    with over_http(tmp_path / "log") as remote:
        configure(
            world,
            stdio("local", command("server-everything", "stdio")),
            stdio("files", command("server-filesystem", str(shared)), 'only = ["read_text_file"]'),
            f'[mcp.far]\nurl = "{remote.url}"\nonly = ["get-sum"]\n',
        )
        server.replies = [
            Reply(
                tools=(
                    ("local__echo", '{"message": "hi"}'),
                    ("far__get-sum", '{"a": 1, "b": 2}'),
                    ("files__read_text_file", json.dumps({"path": str(shared / "note.txt")})),
                    (
                        "files__read_text_file",
                        json.dumps({"path": str(world.home / "config.toml")}),
                    ),
                )
            ),
            Reply(("done",)),
        ]
        assert world.steno("run", "use them", "--yes") == "done\n"
    names = tool_names(server.requests[0])
    assert [name for name in names if name.startswith("far__")] == ["far__get-sum"]
    assert "local__trigger-long-running-operation" in names
    told = {
        m["tool_call_id"]: m["content"]
        for m in server.requests[1]["messages"]
        if m["role"] == "tool"
    }
    *good, outside = (told[f"call_{i}"] for i in range(4))
    assert good == ["Echo: hi", "The sum of 1 and 2 is 3.", "from the file server"]
    assert "outside allowed directories" in outside
    specs = {
        tool["function"]["name"]: tool["function"]["parameters"]
        for tool in server.requests[0]["tools"]
    }
    assert specs["far__get-sum"]["required"] == ["a", "b"], "their schemas are part of the context"
    assert stored_schemas(world, "far__get-sum") == [specs["far__get-sum"]]


def test_a_call_needs_approval(world: World, server: ModelServer) -> None:
    configure(world, stdio("odd", odd()))
    server.replies = [Reply(tools=(("odd__count", "{}"),)), Reply(("done",))]
    world.steno("run", "count")
    assert "nobody to ask" in results(server.requests[1])[0]
    assert runs(world) == 0


@pytest.mark.promise(40)
def test_requests_repeat_their_prefix_in_every_process_with_the_server_or_without_it(
    world: World, server: ModelServer
) -> None:
    configure(world, stdio("odd", odd()))
    world.steno("run", "one", "--key", "k")
    world.steno("run", "two", "--key", "k")
    configure(world, stdio("odd", odd("dead")))
    world.steno("run", "three", "--key", "k")
    first, second, third = server.requests
    assert first["tools"] == second["tools"] == third["tools"]
    assert "odd__count" in tool_names(first)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert third["messages"][: len(second["messages"])] == second["messages"]


@pytest.mark.promise(19)
def test_a_call_whose_server_died_of_it_is_not_repeated_and_the_next_request_says_so(
    world: World, server: ModelServer
) -> None:
    configure(world, stdio("odd", odd()))
    server.replies = [
        Reply(tools=(("odd__die", "{}"),)),
        Reply(tools=(("odd__pid", "{}"),)),
        Reply(("I see",)),
    ]
    assert world.steno("run", "do it", "--yes") == "I see\n"
    assert runs(world) == 1
    (unknown,) = results(server.requests[1])
    assert "The outcome of this call is unknown" in unknown
    assert "was not run again" in unknown
    died, after = world.messages(world.only_session(), "tool")
    assert (died["state"], after["state"]) == ("interrupted", "complete")


@needs_proc
@pytest.mark.promise(4, 19)
def test_a_server_killed_in_mid_call_leaves_the_outcome_unknown_and_the_call_is_not_repeated(
    world: World, server: ModelServer
) -> None:
    configure(world, stdio("odd", odd()))
    pid = Reply(tools=(("odd__pid", "{}"),))
    server.replies = [pid, Reply(tools=(("odd__hang", "{}"),)), pid, Reply(("I see",))]
    with world.start("run", "hang", "--yes") as program:
        wait_until(lambda: runs(world) == 1, "the call to begin")
        os.kill(int(results(server.requests[1])[0]), signal.SIGKILL)
        assert program.end() == 0
        assert program.shown() == "I see\n"
    first, unknown, again = results(server.requests[-1])
    assert "The outcome of this call is unknown" in unknown
    assert runs(world) == 1
    assert first != again, "another process"
    states = [message["state"] for message in world.messages(world.only_session(), "tool")]
    assert states == ["complete", "interrupted", "complete"]


@pytest.mark.promise(4, 19, 35)
def test_a_server_over_http_killed_in_mid_call_leaves_the_outcome_unknown_and_is_used_again(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    port, count = free_port(), Reply(tools=(("far__count", "{}"),))
    server.replies = [
        Reply(tools=(("far__hang", "{}"),)),
        count,
        Reply(("I see",)),
        count,
        Reply(("done",)),
    ]
    with over_http(tmp_path / "log", port, odd_in=world.work) as remote:
        configure(world, f'[mcp.far]\nurl = "{remote.url}"\n')
        with world.start("run", "hang", "--key", "k", "--yes") as program:
            wait_until(lambda: runs(world) == 1, "the call to begin")
            remote.kill()
            assert program.end() == 0
            assert program.shown() == "I see\n"
    unknown, too_early = results(server.requests[-1])
    assert "The outcome of this call is unknown" in unknown
    assert "was not run again" in unknown
    assert "not run: the MCP server 'far' cannot be used" in too_early
    with over_http(tmp_path / "again", port, odd_in=world.work):
        assert world.steno("run", "and?", "--key", "k", "--yes") == "done\n"
    assert runs(world) == 2, "one was lost and is not repeated, one was counted"
    assert results(server.requests[-1]) == [unknown, too_early, "count 2"]
    for request in server.requests:
        check("openai-chat", request)
    states = [message["state"] for message in world.messages(world.only_session(), "tool")]
    assert states == ["interrupted", "failed", "complete"]


@needs_proc
@pytest.mark.promise(4, 19)
def test_a_call_under_way_when_we_are_killed_is_not_repeated_and_its_server_is_ended(
    world: World, server: ModelServer
) -> None:
    configure(world, stdio("odd", odd("stubborn")))
    server.replies = [
        Reply(tools=(("odd__pid", "{}"),)),
        Reply(tools=(("odd__hang", "{}"),)),
        Reply(("It may have run.",)),
    ]
    with world.start("run", "hang", "--key", "k", "--yes") as program:
        wait_until(lambda: runs(world) == 1, "the call to begin")
        program.kill()
    pid = int(results(server.requests[1])[0])
    assert comes_true(lambda: not alive(pid), 10)
    assert world.steno("run", "and?", "--key", "k", "--yes") == "It may have run.\n"
    assert runs(world) == 1
    assert "The outcome of this call is unknown" in results(server.requests[2])[1]


@pytest.mark.promise(4, 19, 35)
@pytest.mark.parametrize("n", range(4, 8))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.suite("before-5", "before-7", "after-4", "after-6")
def test_a_kill_at_any_boundary_of_a_call_runs_it_once_at_most(
    world: World, server: ModelServer, when: str, n: int
) -> None:
    configure(world, stdio("odd", odd()))
    calls, done = Reply(tools=(("odd__count", "{}"),)), Reply(("done",))
    server.replies = [calls, done]
    with world.start_dying(when, n, "run", "go", "--key", "k", "--yes") as program:
        assert program.end() == -signal.SIGKILL
    ran, asked = runs(world), len(server.requests)
    server.replies = [done]
    assert world.steno("run", "and?", "--key", "k", "--yes") == "done\n"
    assert runs(world) == ran <= 1
    request = server.requests[asked]
    ids = [call["id"] for message in request["messages"] for call in message.get("tool_calls", [])]
    assert [
        message["tool_call_id"] for message in request["messages"] if message["role"] == "tool"
    ] == ids
    states = [message["state"] for message in world.messages(world.only_session(), "tool")]
    match states:
        case []:
            assert ran == 0
        case ["failed"]:
            assert ran == 0
            assert "not run" in results(request)[0]
        case ["interrupted"]:
            assert "The outcome of this call is unknown" in results(request)[0]
        case _:
            assert (states, results(request), ran) == (["complete"], ["count 1"], 1)


@needs_proc
@pytest.mark.parametrize("how", ["interrupt", "SIGINT", "SIGTERM"])
@pytest.mark.suite("interrupt", "SIGTERM")
def test_a_stop_ends_a_call_and_the_server_with_it(
    world: World, server: ModelServer, how: str
) -> None:
    configure(world, stdio("odd", odd("stubborn")))
    server.replies = [Reply(tools=(("odd__pid", "{}"),)), Reply(tools=(("odd__hang", "{}"),))]
    with world.start("run", "hang", "--yes") as program:
        wait_until(lambda: runs(world) == 1, "the call to begin")
        id = world.only_session()
        if how == "interrupt":
            world.steno("interrupt", id)
        else:
            program.signal(getattr(signal, how))
        assert program.end() == 130
    assert [message["state"] for message in world.messages(id, "tool")] == [
        "complete",
        "interrupted",
    ]
    assert not alive(int(results(server.requests[1])[0]))


@pytest.mark.promise(53)
def test_a_long_answer_of_a_server_is_stored_whole_and_read_back(
    world: World, server: ModelServer
) -> None:
    configure(world, stdio("odd", odd()))
    server.replies = [Reply(tools=(("odd__big", '{"chars": 177000}'),)), Reply(("done",))]
    world.steno("run", "say much", "--yes", "--key", "k")
    (told,) = results(server.requests[1])
    assert len(told) < 12_000
    hash = told.split('read_output with output "')[1].split('"')[0]
    asked = json.dumps({"output": hash, "offset": 176_990})
    server.replies = [Reply(tools=(("read_output", asked),)), Reply(("done",))]
    server.requests.clear()
    world.steno("run", "read it", "--key", "k")
    assert results(server.requests[1])[-1] == "y" * 10 + "\n[characters 176990 to 177000 of 177000]"


@pytest.mark.promise(35, 41)
def test_an_image_that_no_provider_takes_is_kept_and_not_sent(
    world: World, server: ModelServer
) -> None:
    """One is an image; one is text that is called an image; one is too large."""
    configure(world, stdio("odd", odd()))
    server.replies = [Reply(tools=(("odd__picture", "{}"),)), Reply(("done",))]
    world.steno("run", "show me", "--yes", "--model", "anthropic:m")
    check("anthropic", server.requests[1])
    (result,) = server.requests[1]["messages"][-1]["content"]
    kinds = [(block["type"], block.get("text", "")[:20]) for block in result["content"]]
    assert [kind for kind, _ in kinds] == ["text", "image", "text", "text"]
    assert [text for _, text in kinds[2:]] == ["[image, image/png, 1", "[image, image/png, 4"]
    (tool,) = world.messages(world.only_session(), "tool")
    assert [one["type"] for one in tool["attachments"]] == ["image"] * 3, (
        "what is stored is what the server gave"
    )


def test_a_repeat_policy_is_stored_with_the_call(world: World, server: ModelServer) -> None:
    configure(world, stdio("odd", odd(), 'safe = ["pid"]'))
    server.replies = [Reply(tools=(("odd__pid", "{}"), ("odd__count", "{}"))), Reply(("done",))]
    world.steno("run", "go", "--yes")
    assert stored_starts(world) == {"call_0": "safe", "call_1": "never"}


def stored_schemas(world: World, tool: str) -> list[Any]:
    """The schema of a tool in each fact about the context."""
    with steno.open(world.home / "store.db") as library:
        facts = [record.fact for record in library.store.read_all(world.only_session())]
    contexts = (fact for fact in facts if isinstance(fact, ContextSet))
    return [
        json.loads(spec.schema)
        for context in contexts
        for spec in context.tools
        if spec.name == tool
    ]


def stored_starts(world: World) -> dict[str, str]:
    """Of each call, the repeat policy in its `tool.started` fact."""
    import apsw

    connection = apsw.Connection(
        f"file:{world.home}/store.db?mode=ro",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )
    facts = [
        json.loads(str(body))
        for (body,) in connection.execute("select body from facts order by id")
    ]
    connection.close()
    return {
        fact["call"]: fact.get("repeat", "never")
        for fact in facts
        if fact["type"] == "tool.started"
    }


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[mcp.x]\nargs = ["a"]', "either a command or a url"),
        ('[mcp.x]\ncommand = "a"\nurl = "http://b"', "either a command or a url"),
        ('[mcp.a__b]\ncommand = "a"', "cannot be used"),
        ('[mcp.x]\ncommand = "a"\ncolour = "red"', "colour"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused(
    world: World, table: str, message: str
) -> None:
    configure(world, table)
    with world.start("run", "hi") as program:
        assert program.end() == 2
        assert message in program.errors()


def test_without_the_sdk_the_program_says_how_to_get_it_and_stores_nothing(
    world: World, server: ModelServer
) -> None:
    hidden = world.work / "hidden"
    (hidden / "mcp").mkdir(parents=True)
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u; f = u.find_spec; "
        "u.find_spec = lambda name, *more: None if name == 'mcp' else f(name, *more)\n"
    )
    world.environment["PYTHONPATH"] = os.pathsep.join([str(hidden), str(Path(__file__).parents[2])])
    configure(world, stdio("odd", odd()))
    with world.start("run", "hi") as program:
        assert program.end() == 2
        assert "pip install 'steno-agent[mcp]'" in program.errors()
    assert server.requests == []
    assert world.sessions() == []
