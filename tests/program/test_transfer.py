"""`export` and `import` on the running program: a session goes through a file and is the same on
the other side."""

import json
import signal
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.program import forking
from tests.program.diary import install, told
from tests.program.distilling import TEA, answer, distils
from tests.program.model_server import ModelServer, Reply
from tests.program.test_approvals_elsewhere import ASKS, killed_while_waiting, pending, ran
from tests.program.test_attach import png
from tests.program.test_cli_compact import long_session
from tests.program.test_cli_views import complaint
from tests.program.world import WAIT_S, World

SECRET = "swordfish-4711"
LONG_OUTPUT = "seq 1 40000"
"""About 230 KB, which is stored by its hash."""


@pytest.fixture
def there(world: World) -> World:
    """Another home, with nothing in it."""
    other = copy(world)
    other.home = world.home.with_name("there")
    other.environment = world.environment | {"STENO_HOME": str(other.home)}
    return other


def exported(world: World, id: str) -> bytes:
    return world.steno("export", id).encode()


def move(world: World, there: World, id: str) -> bytes:
    """Carry a session over, and see that it is equal in every way that a second process can look at
    it; the file."""
    file = world.work / f"{id}.steno"
    world.steno("export", id, str(file))
    assert id in there.steno("import", str(file))
    assert exported(there, id) == file.read_bytes()
    assert there.show(id) == world.show(id)
    assert there.steno("show", id) == world.steno("show", id)
    here, moved = ([one for one in each.sessions() if one["id"] == id] for each in (world, there))
    assert moved == here
    assert json.loads(there.steno("verify", "--json"))["damage"] == []
    return file.read_bytes()


def rich_session(world: World, server: ModelServer) -> str:
    """A name, a title, an image, a long output by its hash, a goal, a rule, something hidden,
    undone and redacted."""
    (world.work / "dot.png").write_bytes(png())
    tool = Reply(("I look.",), tools=(("shell", json.dumps({"command": LONG_OUTPUT})),))
    server.replies = [
        Reply(("a dot",), thought="hm"),
        tool,
        Reply(("it counts",)),
        Reply(("no",)),
        Reply(("again",)),
    ]
    world.steno("run", "what is this?", "--attach", "dot.png", "--key", "k", "--input-id", "first")
    world.steno("run", "count", "--key", "k", "--yes")
    world.steno("run", f"keep {SECRET}", "--key", "k")
    world.steno("run", "once more", "--key", "k")
    id = world.only_session()
    secret = next(one["seq"] for one in world.messages(id, "user") if SECRET in one["text"])
    world.steno("redact", id, "--seq", str(secret), "--yes")
    world.steno("hide", id, "--seq", str(world.messages(id, "assistant")[0]["seq"]))
    world.steno("undo", id)
    world.steno("rename", id, "Dots and\u2028numbers")
    world.steno("goal", id, "count them all")
    world.steno("rules", id, "--deny", "shell:rm *")
    return id


@pytest.mark.promise(59)
@pytest.mark.promise(16)
@pytest.mark.promise(53)
def test_a_session_is_equal_in_another_home_and_goes_on_there(
    world: World, server: ModelServer, there: World
) -> None:
    id = rich_session(world, server)
    file = move(world, there, id)
    assert file.count(b'"type":"payload"') == 2
    asked = len(server.requests)
    assert (
        there.steno(
            "run", "what is this?", "--attach", "dot.png", "--key", "k", "--input-id", "first"
        )
        == "a dot\n"
    )
    assert len(server.requests) == asked
    server.replies = [Reply(("on we go",))]
    world.steno("run", "and now?", "--session", id)
    there.steno("run", "and now?", "--key", "k")
    assert server.bodies[-1] == server.bodies[-2], "both ask the model the same"
    shown, moved = ([{**one, "seq": 0} for one in each.messages(id)] for each in (world, there))
    assert shown == moved


@pytest.mark.promise(46)
@pytest.mark.promise(60)
def test_every_view_of_a_session_has_the_same_messages_in_the_same_order(
    world: World, server: ModelServer
) -> None:
    id = rich_session(world, server)
    messages = world.messages(id)
    headings = [
        line
        for line in world.steno("export", id, "--markdown").splitlines()
        if line.startswith("## #")
    ]
    assert [line.split()[1:3] for line in headings] == [
        [f"#{one['seq']}", one["role"]] for one in messages
    ]
    text = world.steno("export", id, "--markdown")
    assert all(one["text"].strip() in text for one in messages)
    starts = [json.loads(line) for line in exported(world, id).splitlines()]
    seqs = {one["seq"] for one in starts if one["type"] == "fact"}
    assert seqs >= {one["seq"] for one in messages}
    assert SECRET not in text
    assert SECRET.encode() not in exported(world, id)


@pytest.mark.promise(29)
def test_a_summary_is_nobodys_speech_in_an_export(
    world: World, server: ModelServer, there: World
) -> None:
    id = long_session(world, server, Reply(("THE-SUMMARY of it",)))
    there.environment |= {
        name: value for name, value in world.environment.items() if name != "STENO_HOME"
    }
    world.steno("compact", id)
    assert "THE-SUMMARY" not in world.steno("export", id, "--markdown")
    holding = [
        json.loads(line)["body"]["type"]
        for line in exported(world, id).splitlines()
        if b"THE-SUMMARY" in line
    ]
    assert holding == ["compacted"]
    move(world, there, id)


@pytest.mark.promise(59)
@pytest.mark.promise(58)
def test_a_fork_is_complete_without_its_parent_and_finds_it_if_it_comes(
    world: World, server: ModelServer, there: World
) -> None:
    server.replies = [Reply(("one",)), Reply(("two",)), Reply(("three",)), Reply(("four",))]
    world.steno("run", "first", "--key", "k", "--input-id", "i1")
    world.steno("run", "second", "--key", "k")
    parent = world.only_session()
    at = world.messages(parent, "assistant")[0]["seq"]
    fork = world.steno("fork", parent, "--at", str(at)).split()[0]
    world.steno("run", "another way", "--session", fork, "--input-id", "i2")
    deeper = world.steno(
        "fork", fork, "--at", str(world.messages(fork, "assistant")[-1]["seq"])
    ).split()[0]
    move(world, there, deeper)
    move(world, there, fork)
    assert [one["text"] for one in there.messages(fork)] == ["first", "one", "another way", "three"]
    move(world, there, parent)
    assert there.steno("run", "first", "--key", "k", "--input-id", "i1") == "one\n"
    assert there.steno("run", "another way", "--session", fork, "--input-id", "i2") == "three\n"
    lines = there.steno("sessions", "--tree").splitlines()
    assert [line.split()[0] for line in lines] == [parent, "└──", "└──"]


@pytest.mark.promise(59)
def test_what_was_distilled_comes_along(world: World, server: ModelServer, there: World) -> None:
    distils(server, Reply((answer(TEA),)))
    world.steno("run", "I like tea", "--key", "k")
    id = world.only_session()
    world.steno("distill", id)
    move(world, there, id)
    assert there.steno("memory", "--json") == world.steno("memory", "--json")
    there.steno("run", "what do I like?")
    assert TEA in json.dumps(server.requests[-1])


@pytest.mark.promise(59)
@pytest.mark.promise(37)
def test_a_question_that_waits_can_be_answered_where_the_session_is_now(
    world: World, server: ModelServer, there: World
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    killed_while_waiting(world)
    id = world.only_session()
    move(world, there, id)
    assert pending(there) == pending(world)
    there.steno("approve", id)
    assert "It ran." in there.steno("continue", id)
    assert (ran(world), len(pending(world)), len(pending(there))) == (1, 1, 0)


@pytest.mark.promise(59)
@pytest.mark.parametrize("by", ["rule", "decision"])
def test_what_was_allowed_elsewhere_is_not_allowed_here_unless_one_trusts_it(
    world: World, server: ModelServer, there: World, by: str
) -> None:
    """A file could else run commands on whoever goes on with its session."""
    server.replies = [ASKS, Reply(("It ran.",))]
    killed_while_waiting(world)
    id = world.only_session()
    world.steno(
        "rules" if by == "rule" else "approve",
        id,
        *(("--allow", "shell:count *") if by == "rule" else ()),
    )
    file = world.work / "talk.steno"
    world.steno("export", id, str(file))
    refused = complaint(there, "import", str(file), expect=1)
    assert "unasked: shell" in refused
    assert "--trust" in refused
    assert there.sessions() == []
    there.steno("import", "--trust", str(file))
    assert exported(there, id) == file.read_bytes()


# --- while it runs, and after a kill --------------------------------------------------------------


@pytest.mark.promise(5)
@pytest.mark.promise(34)
def test_a_turn_that_streams_is_exported_with_all_that_was_shown_and_is_cut_off_there(
    world: World, server: ModelServer, there: World
) -> None:
    server.replies = [Reply(("half of ", "it", " and the rest"), held=True)]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half of it")
        id = world.only_session()
        there.steno("import", str(write(world, id)))
        moved = there.show(id)
        assert [(one["text"], one["state"]) for one in moved["messages"]] == [
            ("tell me", "complete"),
            ("half of it", "interrupted"),
        ]
        assert (moved["turns"][-1]["outcome"], moved["turns"][-1]["cause"]) == (
            "interrupted",
            "killed",
        )
        assert (there.sessions()[0]["running"], moved["visitors"], moved["ended"]) == (
            False,
            [],
            "killed",
        )
        server.go_on()
        assert program.end() == 0
    assert world.messages(id)[-1]["text"] == "half of it and the rest"
    assert "is here already and has" in world.steno("import", str(world.work / "file")), (
        "it has gone on since"
    )
    server.replies = [Reply((" and on",))]
    there.steno("continue", id)
    assert [one["text"] for one in there.messages(id, "assistant")] == ["half of it", " and on"]
    assert "another one" in complaint(there, "import", str(write(world, id, "later")), expect=1)


def write(world: World, id: str, name: str = "file") -> Path:
    world.steno("export", id, str(world.work / name))
    return world.work / name


@pytest.mark.promise(39)
def test_plugins_are_told_nothing_of_what_happened_elsewhere(
    world: World, server: ModelServer, there: World
) -> None:
    """One visit was cut off, and of another the plugins had not been told yet."""
    server.replies = [Reply(("fine",)), Reply(("half",), then="hang")]
    install(world)
    world.environment["DIARY_DOES"] = "exit"
    world.steno("run", "one", "--key", "k")
    with world.start("run", "two", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    install(there)
    id = world.only_session()
    server.replies = [Reply(("fine",))]
    file = write(world, id)
    there.steno("import", str(file))
    there.steno("run", "something else", "--key", "another")
    assert [one["session_id"] for one in told(there)] == [
        one["id"] for one in there.sessions() if one["id"] != id
    ]
    (moved,) = [one for one in there.sessions() if one["id"] == id]
    assert (moved["ended"], moved["last_turn"]) == ("killed", "interrupted")
    there.steno("run", "three", "--key", "k")
    assert [one["session_id"] for one in told(there)][-1] == id, (
        "of what happens here they are told"
    )


def large_file(
    path: Path, messages: int, session: str = "large", size: int = 200, payloads: int = 0
) -> Path:
    """An export of so many messages, each with a key, as steno would write it."""
    whole, facts = sha256(), 0
    with path.open("wb") as file:

        def write(**line: object) -> None:
            raw = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            whole.update(raw)
            file.write(raw)

        write(type="steno.export", version=1, session=session, base=0)
        write(type="fact", seq=1, at_ms=1, body={"type": "session.started", "platform": "test"})
        for seq in range(2, messages + 2):
            parts: list[dict[str, Any]] = [
                {"type": "text", "text": f"message {seq} ".ljust(size, "x")}
            ]
            if seq < payloads + 2:
                data = (b"%d" % seq).ljust(177_000, b"y")
                hash = sha256(data).hexdigest()
                write(type="payload", hash=hash, data=b64encode(data).decode())
                parts.append(
                    {"type": "file", "hash": hash, "media_type": "text/plain", "size": len(data)}
                )
            body = {"type": "input.admitted", "parts": parts, "source": session, "key": f"k{seq}"}
            write(type="fact", seq=seq, at_ms=seq, body=body)
            facts = seq
        end = {
            "type": "end",
            "payloads": payloads,
            "facts": facts,
            "drafts": 0,
            "keys": 0,
            "sha256": whole.hexdigest(),
        }
        file.write(json.dumps(end, separators=(",", ":")).encode() + b"\n")
    return path


TABLES = ("sessions", "facts", "drafts", "payloads", "payload_owners", "keys", "imports")


def left(world: World) -> dict[str, int]:
    """How many rows there are, as a reader in another language would count them."""
    with closing(sqlite3.connect(f"file:{world.home / 'store.db'}?mode=ro", uri=True)) as store:
        return {
            table: store.execute(f"select count(*) from {table}").fetchone()[0] for table in TABLES
        }


@contextmanager
def importing(world: World) -> Iterator[forking.Process]:
    """`steno import -`, which reads what it is fed."""
    program = forking.start_fed(("import", "-"), world.environment, world.work)
    try:
        yield program
    finally:
        program.stdout.close()
        with suppress(BrokenPipeError):
            program.stdin.close()


KILLED_AT = (0.0, 0.2, 0.5, 0.9, 1.0)
"""How much of the file was read when the kill came; at 1.0 all but its last line."""


@pytest.mark.promise(59)
@pytest.mark.promise(2)
@pytest.mark.parametrize("share", KILLED_AT)
@pytest.mark.suite("0.2", "0.9")
def test_an_import_that_is_killed_leaves_nothing_and_can_be_done_again(
    world: World, share: float
) -> None:
    """More than a pipe holds is written, so the process has read and stored what came before."""
    path = large_file(world.work / "large.steno", 1_500, payloads=3)
    file = path.read_bytes()
    most = file.rindex(b"\n", 0, -1) + 1
    with importing(world) as program:
        program.stdin.write(file[: int(most * share)])
        program.stdin.flush()
        program.send_signal(signal.SIGKILL)
        program.wait(WAIT_S)
    assert world.sessions() == []
    assert json.loads(world.steno("verify", "--json")) == {"sessions": 0, "facts": 0, "damage": []}
    assert left(world) == dict.fromkeys(TABLES, 0)
    world.steno("import", str(path))
    assert world.sessions()[0]["messages"] == 1_500
    assert exported(world, "large") == file


def test_ctrl_c_ends_an_import_at_once_and_nothing_is_there(world: World) -> None:
    file = large_file(world.work / "large.steno", 2_000).read_bytes()
    with importing(world) as program:
        program.stdin.write(file[:-100])
        program.stdin.flush()
        program.send_signal(signal.SIGINT)
        assert program.wait(WAIT_S) == 130
    assert world.sessions() == []


MEASURED = """
import sys
from pathlib import Path
from steno.cli import main
status = main(sys.argv[1:])
lines = Path("/proc/self/status").read_text().splitlines()
(peak,) = [line for line in lines if line.startswith("VmHWM")]
sys.stderr.write(peak.split()[1])
sys.exit(status)
"""


def peak_kb(world: World, *words: str) -> int:
    """The most memory that a command takes."""
    command = [sys.executable, "-c", MEASURED, *words]
    ran = subprocess.run(
        command, env=world.environment, cwd=world.work, capture_output=True, check=True
    )
    return int(ran.stderr)


MORE_KB = 9_000
"""A page of a long session, and what the allocator keeps. The files differ by more than twenty
megabytes."""


@pytest.mark.promise(59)
def test_the_memory_that_moving_takes_does_not_grow_with_the_session(world: World) -> None:
    small = large_file(world.work / "small.steno", 200, "small", 4_000, payloads=5)
    large = large_file(world.work / "large.steno", 3_000, "large", 4_000, payloads=50)
    assert large.stat().st_size > 22_000_000
    bounds = [peak_kb(world, "import", str(small)), peak_kb(world, "export", "small")]
    peaks = [peak_kb(world, "import", str(large)), peak_kb(world, "export", "large")]
    assert [peak - bound < MORE_KB for peak, bound in zip(peaks, bounds, strict=True)] == [
        True,
        True,
    ], (bounds, peaks)
    assert peak_kb(world, "import", str(large)) < bounds[0] + MORE_KB, (
        "and to see that it is there already"
    )


# --- files ----------------------------------------------------------------------------------------


def test_a_file_is_for_its_owner_and_is_never_overwritten_unasked(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "hello", "--key", "k")
    id = world.only_session()
    file = write(world, id)
    whole = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"mine")
    assert "exists already" in complaint(world, "export", id, str(file), expect=1)
    assert file.read_bytes() == b"mine"
    world.steno("export", id, str(file), "--force")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (whole, 0o600)
    assert "not a file" in complaint(world, "export", id, str(world.work), "--force", expect=1)
    assert "No such file" in complaint(
        world, "export", id, str(world.work / "no" / "file"), expect=1
    )
    assert sorted(entry.name for entry in world.work.iterdir()) == ["file"]


@pytest.mark.promise(50)
def test_a_damaged_session_gives_no_file_and_a_damaged_file_no_session(
    world: World, server: ModelServer, there: World
) -> None:
    world.steno("run", "hello", "--key", "k")
    id = world.only_session()
    whole = write(world, id).read_bytes()
    for name, damaged, says in (
        ("cut", whole[: len(whole) // 2], "cut off"),
        ("altered", whole.replace(b"hello", b"hallo"), "altered"),
        ("another", b"# hello\n", "not a session that steno exported"),
    ):
        (there.work / name).write_bytes(damaged)
        assert says in complaint(there, "import", str(there.work / name), expect=1)
    assert there.sessions() == []
    assert "no such file" in complaint(there, "import", str(there.work / "nothing"), expect=2)
    assert "no session" in complaint(world, "export", "nobody", expect=2)
    store = world.home / "store.db"
    store.write_bytes(store.read_bytes().replace(b'"text":"hello"', b'"text":"hallo"'))
    for words in ((), ("--markdown",)):
        assert "damaged" in complaint(
            world, "export", id, str(world.work / "new"), *words, expect=1
        )
    assert not (world.work / "new").exists()
    assert list(world.work.glob("*.partial")) == []


def test_a_name_or_an_input_id_that_is_used_here_is_refused_and_nothing_is_changed(
    world: World, server: ModelServer, there: World
) -> None:
    world.steno("run", "hello", "--key", "k", "--input-id", "i")
    file = write(world, world.only_session())
    there.steno("run", "mine", "--key", "k")
    before = there.sessions()
    assert "the name 'k' is bound" in complaint(there, "import", str(file), expect=1)
    assert there.sessions() == before
    there.steno("delete", there.only_session(), "--yes")
    there.steno("run", "mine", "--input-id", "i")
    assert "key 'i' of 'cli'" in complaint(there, "import", str(file), expect=1)
    assert [one["title"] for one in there.sessions()] == ["mine"]
    assert json.loads(there.steno("verify", "--json"))["damage"] == []


@pytest.mark.promise(60)
def test_an_ephemeral_session_cannot_be_exported(world: World, server: ModelServer) -> None:
    world.steno("run", "hello", "--ephemeral")
    assert world.sessions() == []
    assert "--ephemeral" in complaint(world, "--ephemeral", "export", "any", expect=2)
