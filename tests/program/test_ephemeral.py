"""Sessions that live in memory and leave no bytes: conversations, then a search of everything that
could hold any.

What is looked for has letters that JSON may escape, and is looked for in every spelling that a copy
could have.
"""

import base64
import contextlib
import json
import os
import signal
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, CTRL_D, terminal
from tests.program.test_cli_views import complaint
from tests.program.test_tools_mcp import configure, stdio
from tests.program.world import World
from tests.tools.calls import needs_proc
from tests.tools.mcp_servers import command

SAID = "swordfish-ä☃-4711"
ANSWERED = "marlin-ß☂-0815"
LONG = json.dumps({"command": f"for i in $(seq 3000); do echo line $i {SAID}; done"})
WORDS = (SAID, ANSWERED)


@pytest.fixture
def world(tmp_path: Path, server: ModelServer) -> World:
    """Everything that a program may take for a place to put something in lies in one folder."""
    made = World(tmp_path / "all", server.url)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        folder = tmp_path / "all" / name
        folder.mkdir()
        made.environment[name] = str(folder)
    return made


def spellings(word: str) -> list[bytes]:
    plain = word.encode()
    return [
        plain,
        word.encode("utf-16-le"),
        word.encode("utf-16-be"),
        json.dumps(word)[1:-1].encode(),
        plain.hex().encode(),
        *(base64.b64encode(plain[skip:])[:-4] for skip in range(3)),
    ]


def holders(folder: Path, *found: bytes) -> list[str]:
    """The files that hold any of some bytes. Others use the memory disk, too: their files come and
    go."""
    holding = []
    for inside, _, names in os.walk(folder):
        for file in (Path(inside, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if file.is_file() and any(sought in file.read_bytes() for sought in found):
                    holding.append(str(file))
    return holding


def left(folder: Path, *words: str) -> list[str]:
    return holders(folder, *(spelling for word in words for spelling in spellings(word)))


def files_of(folder: Path) -> dict[str, str]:
    """Every file with what is in it."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
    }


def written_by(process: int) -> list[str]:
    """The files that a process has open for writing at this moment, by name or without one."""
    found = []
    for handle in Path(f"/proc/{process}/fd").iterdir():
        flags = int(
            (Path(f"/proc/{process}/fdinfo") / handle.name)
            .read_text()
            .split("flags:")[1]
            .split()[0],
            8,
        )
        if stat.S_ISREG(handle.stat().st_mode) and flags & (os.O_WRONLY | os.O_RDWR):
            found.append(str(handle.readlink()))
    return found


def results(request: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [
        block
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict)
    ]
    return [block for block in blocks if block["type"] == "tool_result"]


def test_the_search_finds_what_a_stored_session_leaves(world: World, server: ModelServer) -> None:
    server.replies = [Reply((ANSWERED,))]
    world.steno("run", SAID)
    assert left(world.home, SAID)
    assert left(world.home, ANSWERED)
    for number, spelling in enumerate(spellings(SAID)):
        (world.work / "copy").write_bytes(b"<" + spelling + b">")
        assert left(world.work, SAID), number


@pytest.mark.promise(60)
def test_a_whole_conversation_leaves_no_bytes_and_says_so(
    world: World, server: ModelServer
) -> None:
    pytest.importorskip("mcp")
    configure(world, stdio("everything", command("server-everything", "stdio")))
    world.steno("run", "stored as usual")
    before = files_of(world.home.parent)
    server.requests.clear()
    server.replies = [
        Reply(tools=(("shell", LONG), ("everything__get-tiny-image", "{}"))),
        Reply(tools=(("delegate", json.dumps({"prompt": f"look at {SAID}"})),)),
        Reply((f"helped {ANSWERED}",)),
        Reply(tools=(("search_sessions", json.dumps({"query": "stored"})),)),
        Reply((ANSWERED,)),
        Reply((f"half an answer {ANSWERED}",), then="hang"),
        Reply(("over",)),
    ]
    with terminal(world, "--plain", "--ephemeral", "--yes", "--model", "anthropic:test") as chat:
        chat.wait_seen("promises 1, 2, 5 and 37) does not apply")
        chat.wait_seen("you> ")
        chat.type(f"{SAID}\n")
        chat.wait_seen("you> ", 2)
        chat.type(f"again {SAID}\n")
        chat.wait_seen("half an answer")
        chat.type(CTRL_C)
        chat.wait_seen("you> ", 3)
        chat.type("and?\n")
        chat.wait_seen("over")
        chat.wait_seen("you> ", 4)
        assert written_by(chat.process.pid) == []
        chat.type(CTRL_D)
        assert chat.end() == 0
        assert "steno --resume" not in chat.seen()
    told = [block for request in server.requests for block in results(request)]
    assert any("read_output" in json.dumps(block) for block in told)
    assert any(f"helped {ANSWERED}" in json.dumps(block, ensure_ascii=False) for block in told)
    assert any("[0 messages with 'stored'" in json.dumps(block) for block in told)
    assert f"half an answer {ANSWERED}" in json.dumps(server.requests[-1], ensure_ascii=False)
    pictures = [
        part
        for block in told
        for part in block["content"]
        if isinstance(part, dict) and "source" in part
    ]
    image = base64.b64decode(pictures[0]["source"]["data"])
    assert image.startswith(b"\x89PNG")
    assert (
        left(world.home.parent, *WORDS)
        == holders(world.home.parent, image)
        == left(Path("/dev/shm"), *WORDS)
        == []
    )
    assert files_of(world.home.parent) == before
    assert [one["title"] for one in world.sessions()] == ["stored as usual"]


@needs_proc
@pytest.mark.promise(60)
@pytest.mark.parametrize("moment", ["while it streams", "while a tool runs"])
def test_a_kill_leaves_no_bytes(world: World, server: ModelServer, moment: str) -> None:
    world.steno("run", "stored as usual")
    before = files_of(world.home.parent)
    waits = json.dumps({"command": f"echo {SAID}; echo {SAID} >&2; sleep 60"})
    streams = moment == "while it streams"
    server.requests.clear()
    server.replies = [
        Reply((ANSWERED,), then="hang")
        if streams
        else Reply((ANSWERED,), tools=(("shell", waits),))
    ]
    with world.start("run", "--ephemeral", "--yes", "--output", "ndjson", SAID) as program:
        program.wait_shown(ANSWERED if streams else "tool_output")
        assert written_by(program.process.pid) == []
        shown = program.kill()
        assert json.loads(shown.splitlines()[0])["ephemeral"] is True
    assert ANSWERED in json.dumps(
        [json.loads(line) for line in shown.splitlines()], ensure_ascii=False
    )
    assert left(world.home.parent, *WORDS) == left(Path("/dev/shm"), *WORDS) == []
    assert files_of(world.home.parent) == before
    assert [one["title"] for one in world.sessions()] == ["stored as usual"]


@pytest.mark.promise(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.suite("SIGTERM")
def test_a_signal_leaves_no_bytes_and_promises_nothing(
    world: World, server: ModelServer, number: int
) -> None:
    server.replies = [Reply((ANSWERED,), then="hang")]
    before = files_of(world.home.parent)
    with world.start("run", "--ephemeral", SAID) as program:
        program.wait_shown(ANSWERED)
        program.signal(number)
        assert program.end() == 130
        told = program.errors()
    assert "does not apply" in told
    assert "kept" not in told
    assert "steno continue" not in told
    assert not world.home.exists()
    assert files_of(world.home.parent) == before


@pytest.mark.promise(60)
def test_a_failed_turn_leaves_no_bytes_either(world: World, server: ModelServer) -> None:
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    server.replies = [Reply(status=500)]
    with world.start("run", "--ephemeral", SAID) as program:
        assert program.end() == 1
        told = program.errors()
    assert "the turn failed" in told
    assert "steno retry" not in told
    assert not world.home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--ephemeral", "--resume", "abcd"),
        ("--ephemeral", "--continue"),
        ("run", "--ephemeral", "--session", "abcd", "hi"),
        ("run", "--ephemeral", "--key", "k", "hi"),
        ("run", "--ephemeral", "--input-id", "i", "hi"),
        ("run", "--ephemeral", "--detach", "hi"),
        ("run", "--ephemeral", "--ask", "wait", "hi"),
        ("--ephemeral", "sessions"),
    ],
)
def test_what_needs_a_stored_session_is_refused(
    world: World, server: ModelServer, words: tuple[str, ...]
) -> None:
    assert "--ephemeral" in complaint(world, *words, expect=2)
    assert server.requests == []
    assert not world.home.exists()


def test_the_option_may_stand_before_the_command(world: World, server: ModelServer) -> None:
    assert world.steno("--ephemeral", "run", "hi") == "ok\n"
    assert not world.home.exists()
