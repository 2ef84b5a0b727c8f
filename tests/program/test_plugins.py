"""Plugins on the running program: installed in both ways, told of everything, harming nobody."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from steno.plugins.discovery import find
from tests.program.diary import hosts, install, log, told
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_compact import long_session
from tests.program.test_cli_terminal import CTRL_D, terminal
from tests.program.world import World, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "session_diary.py"
SHELL = (("shell", '{"command": "touch ran; echo out"}'),)


def diary_of(world: World) -> list[dict[str, str]]:
    return [json.loads(line) for line in (world.home / "diary.jsonl").read_text().splitlines()]


# --- installing -----------------------------------------------------------------------------------


@pytest.mark.promise(39)
def test_the_example_works_from_the_folder(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("fine",))]
    install(world, "session_diary", EXAMPLE.read_text())
    world.steno("run", "hi")
    id = world.only_session()
    began, ended = diary_of(world)
    assert began == {"session": id, "began_on": "cli"}
    assert ended == {
        "session": id,
        "ended": "left",
        "how": "completed",
        "model": "openai-chat:test",
        "key": f"{id}:ended:2",
    }


@pytest.mark.torture
def test_the_example_works_as_an_installed_package_and_is_gone_when_it_is_removed(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    server.replies = [Reply(("fine",)), Reply(("fine",)), Reply(("fine",))]
    place = tmp_path / "site"
    place.mkdir()
    world.environment["PYTHONPATH"] = str(place)
    with world.start("run", "before it is installed") as program:
        assert program.end() == 0
    assert not (world.home / "diary.jsonl").exists()
    pip_install(wheel_of(EXAMPLE, tmp_path), place)
    with world.start("run", "hi") as program:
        assert (program.end(), program.errors()) == (0, "")
    assert [line.get("ended") for line in diary_of(world)] == [None, "left"]
    for file in place.glob("session_diary-*.dist-info/*"):
        file.unlink()
    (info,) = place.glob("session_diary-*.dist-info")
    info.rmdir()
    with world.start("run", "after it was removed") as program:
        assert program.end() == 0
    assert len(diary_of(world)) == 2


def test_an_installed_plugin_is_found_in_whatever_form_it_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[console_scripts]\na = b\n\n[steno.plugins]\nmine = package.mine\n"
    for form in ("one/mine-1.0.dist-info", "two/mine.egg-info", "mine-1.0.egg/EGG-INFO"):
        info = tmp_path / form
        info.mkdir(parents=True)
        (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(said)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr(
            "mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n"
        )
        archive.writestr("mine-1.0.dist-info/entry_points.txt", said)
    (tmp_path / "none" / "other-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "none" / "old-1.0.egg-info").write_text("Name: old\n")
    (tmp_path / "home").mkdir()
    found = {}
    for place in sorted(set(tmp_path.iterdir()) - {tmp_path / "home"}):
        monkeypatch.setattr("sys.path", [str(place)])
        found[place.name] = [(one.name, one.target) for one in find(tmp_path / "home")]
    assert found.pop("none") == []
    assert list(found.values()) == [[("mine", "package.mine")]] * 4


def wheel_of(module: Path, folder: Path) -> Path:
    """A package of one module, with its entry point."""
    wheel = folder / "session_diary-1.0-py3-none-any.whl"
    info = "session_diary-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(module, "session_diary.py")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: session-diary\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(
            f"{info}/entry_points.txt", "[steno.plugins]\nsession_diary = session_diary\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def pip_install(wheel: Path, place: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--target", str(place), str(wheel)], check=True, timeout=100)


# --- what they are told and may say ---------------------------------------------------------------

NOSY = """
import json, os
from pathlib import Path
from steno.plugins import hookimpl

def write(hook, told):
    with (Path(os.environ["STENO_HOME"]) / "nosy.jsonl").open("a") as file:
        file.write(json.dumps({"hook": hook} | told) + "\\n")

@hookimpl
def turn_started(session_id, turn): write("turn_started", {"turn": turn})
@hookimpl
def turn_ended(session_id, turn, outcome, cause):
    write("turn_ended", {"turn": turn, "outcome": outcome})
@hookimpl
def before_request(session_id, turn, model, attempt):
    write("before_request", {"model": model, "attempt": attempt})
    return "the moon is full"
@hookimpl
def after_request(session_id, turn, model, ended, input_tokens, output_tokens):
    write("after_request", {"ended": ended})
@hookimpl
def before_tool(tool, arguments):
    write("before_tool", {"tool": tool, "arguments": arguments})
    return "not on a full moon" if "touch" in arguments else None
@hookimpl
def after_tool(tool, outcome): write("after_tool", {"tool": tool, "outcome": outcome})
@hookimpl
def compaction(upto, summary): write("compaction", {"summary": summary})
"""


WORDY = """
from steno.plugins import hookimpl

@hookimpl
def before_request(): return "\u6708" * 100_000
"""


def test_a_long_note_is_cut_and_its_plugin_lives_on(world: World, server: ModelServer) -> None:
    server.replies = [
        Reply(("fine",), tools=(("read_file", '{"path": "none"}'),)),
        Reply(("fine",)),
    ]
    install(world, "wordy", WORDY)
    world.steno("run", "hi")
    assert [
        json.dumps(request, ensure_ascii=False).count("\u6708") for request in server.requests
    ] == [20_000, 20_000]


def test_plugins_hear_of_turns_requests_and_tools_add_a_note_and_deny_a_tool(
    world: World, server: ModelServer
) -> None:
    install(world, "nosy", NOSY)
    server.replies = [Reply(("I will. ",), tools=SHELL), Reply(("then not",))]
    assert world.steno("run", "go", "--yes") == "I will. then not\n"
    assert not (world.work / "ran").exists()
    (tool,) = world.messages(world.only_session(), "tool")
    assert (tool["state"], tool["text"]) == (
        "failed",
        "not run: the plugin nosy denies it: not on a full moon",
    )
    assert "not on a full moon" in json.dumps(server.requests[1])
    heard = [json.loads(line) for line in (world.home / "nosy.jsonl").read_text().splitlines()]
    asked = [{"hook": "before_request", "model": "openai-chat:test", "attempt": 1}]
    answered = [{"hook": "after_request", "ended": "complete"}]
    assert heard == [
        {"hook": "turn_started", "turn": 4},
        *asked,
        *answered,
        {"hook": "before_tool", "tool": "shell", "arguments": SHELL[0][1]},
        {"hook": "after_tool", "tool": "shell", "outcome": "refused"},
        *asked,
        *answered,
        {"hook": "turn_ended", "turn": 4, "outcome": "done"},
    ]


def test_plugins_hear_of_a_compaction_with_its_summary(world: World, server: ModelServer) -> None:
    id = long_session(world, server, Reply(("A SUMMARY OF IT",)))
    install(world, "nosy", f"{NOSY}\nwrite('loaded', {{}})\n")
    diary = world.home / "nosy.jsonl"
    server.on_request = lambda _: wait_until(
        diary.exists, "the plugin, which is told in passing, to be there"
    )
    world.steno("compact", id)
    heard = [json.loads(line) for line in diary.read_text().splitlines()[1:]]
    assert heard == [{"hook": "compaction", "summary": "A SUMMARY OF IT"}]


@pytest.mark.promise(43)
def test_a_note_of_a_plugin_stands_at_the_end_of_its_request_and_is_stored_nowhere(
    world: World, server: ModelServer
) -> None:
    install(world, "nosy", NOSY)
    server.replies = [Reply(("fine",)), Reply(("fine",))]
    world.steno("run", "one", "--key", "k")
    world.steno("run", "two", "--key", "k")
    for request in server.requests:
        assert json.dumps(request["messages"]).count("the moon is full") == 1
        assert "the moon is full" in json.dumps(request["messages"][-1])
    assert "the moon is full" not in json.dumps(world.show(world.only_session()))
    found = subprocess.run(
        ["grep", "-rl", "the moon is full", str(world.home)], capture_output=True, check=False
    )
    assert {Path(line).suffix for line in found.stdout.decode().split()} <= {".py", ".pyc"}


def test_an_older_plugin_without_the_hook_or_with_fewer_arguments_works(
    world: World, server: ModelServer
) -> None:
    only_turns = "from steno.plugins import hookimpl\n\n@hookimpl\ndef turn_ended(): pass\n"
    terse = (
        "import os\nfrom steno.plugins import hookimpl\n\n@hookimpl\ndef on_session_end(reason):\n"
        "    open(os.environ['STENO_HOME'] + '/terse', 'a').write(reason)\n"
    )
    install(world, "older", only_turns)
    install(world, "terse", terse)
    install(world, "nothing", "")
    server.replies = [Reply(("fine",))]
    with world.start("run", "hi") as program:
        assert (program.end(), program.errors()) == (0, "")
    assert (world.home / "terse").read_text() == "left"
    assert log(world) == ""


# --- harming nobody -------------------------------------------------------------------------------


@pytest.mark.promise(39)
@pytest.mark.parametrize("does", ["raise", "exit", "hang"])
def test_a_plugin_that_misbehaves_delays_nothing_keeps_others_from_nothing_and_is_named_in_the_log(
    world: World, server: ModelServer, does: str
) -> None:
    install(world, "bad")
    install(world, "good", "import os; os.environ.pop('DIARY_DOES', None)\n" + _plugin("good"))
    world.environment["DIARY_DOES"] = does
    server.replies = [Reply(("fine",)), Reply(("fine",))]
    with world.start("run", "hi", "--key", "k") as program:
        assert (program.end(), program.shown(), program.errors()) == (0, "fine\n", "")
    assert [len(told(world, name)) for name in ("bad", "good")] == [1, 1]
    del world.environment["DIARY_DOES"]
    world.steno("run", "next", "--key", "other")
    id = next(one["id"] for one in world.sessions() if one["name"] == "k")
    again = [one for one in told(world, "bad") if one["session_id"] == id]
    assert len(again) == (1 if does == "raise" else 2), (
        "one that raised was told; the others may not have heard"
    )
    assert len([one for one in told(world, "good") if one["session_id"] == id]) == 1
    complaints = [line for line in log(world).splitlines() if "plugin bad" in line]
    assert len(complaints) == 1
    assert "plugin good" not in log(world)


def test_each_plugin_is_named_in_the_log_once_for_each_thing_whichever_hook_it_is(
    world: World, server: ModelServer
) -> None:
    head = "from steno.plugins import hookimpl\n\n@hookimpl\n"
    for name in ("one", "two"):
        install(world, name, f"{head}def after_request(): raise RuntimeError('boom')\n")
    install(
        world,
        "astray",
        f"{head}def on_sesion_end(): pass\n\n@hookimpl(optionalhook=True)\ndef later(): pass\n",
    )
    server.replies = [Reply(("one ",), tools=SHELL), Reply(("two",))]
    world.steno("run", "hi", "--yes")
    complaints = [
        line.partition(" plugin ")[2] for line in log(world).splitlines() if " plugin " in line
    ]
    assert sorted(complaints) == [
        "astray: has a hook that steno does not know, and that is never called: on_sesion_end",
        "one: after_request raised RuntimeError: boom",
        "two: after_request raised RuntimeError: boom",
    ]
    assert log(world).count("Traceback") == 2


def _plugin(name: str) -> str:
    from tests.program.diary import PLUGIN

    return PLUGIN.replace("{name}", name)


def test_what_a_plugin_writes_to_the_terminal_goes_into_the_log(
    world: World, server: ModelServer
) -> None:
    install(world)
    world.environment["DIARY_DOES"] = "print"
    server.replies = [Reply(("fine",))]
    with terminal(world, "--plain") as program:
        program.wait_seen("you> ")
        program.type("hi\n")
        program.wait_seen("you> ", times=2)
        program.type(CTRL_D)
        assert program.end() == 0
        seen = program.seen()
    lines = ["printed by python", "complained by python", "written by hand", "said by a child"]
    assert not any(line in seen for line in [*lines, "to the terminal"])
    assert all(line in log(world) for line in lines)


def test_a_plugin_that_prints_without_end_fills_no_disk_and_delays_nobody(
    world: World, server: ModelServer
) -> None:
    install(world, "flood", "while True: print('x' * 999)\n")
    with world.start("run", "hi") as program:
        assert (program.end(), program.shown(), program.errors()) == (0, "ok\n", "")
    kept = [file.stat().st_size for file in world.home.glob("plugins.log*")]
    assert len(kept) in (1, 2)
    assert max(kept) < 1 << 20
    assert hosts(world) == []


def test_a_plugin_that_cannot_be_loaded_is_named_in_the_log_and_nothing_else_happens(
    world: World, server: ModelServer
) -> None:
    install(world, "broken", "import no_such_module\n")
    server.replies = [Reply(("fine",))]
    with world.start("run", "hi") as program:
        assert (program.end(), program.shown(), program.errors()) == (0, "fine\n", "")
    assert "plugin broken: cannot be loaded: ModuleNotFoundError" in log(world)


def test_a_plugin_that_hangs_before_a_request_delays_the_first_one_only_and_by_a_bound(
    world: World, server: ModelServer
) -> None:
    slow = (
        "import time\nfrom steno.plugins import hookimpl\n\n@hookimpl\ndef before_request(): "
        "time.sleep(60)\n"
    )
    install(world, "slow", slow)
    server.replies = [Reply(("one ",), tools=SHELL), Reply(("two",))]
    with world.start("run", "go", "--yes") as program:
        assert (program.end(), program.shown()) == (0, "one two\n")
    assert log(world).count("plugin slow: did not answer before_request in 1 s") == 1


def test_an_ephemeral_session_is_told_to_nobody(world: World, server: ModelServer) -> None:
    install(world)
    server.replies = [Reply(("fine",))]
    world.steno("run", "hi", "--ephemeral")
    assert told(world) == []
    assert log(world) == ""
