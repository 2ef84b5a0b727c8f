"""`import` of what other agents keep, on the running program: read, listed, gone on with; twice
adds nothing; killed, it goes on; nothing is guessed."""

import gzip
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import Program, World
from tests.transfer import foreign

DYING = """
import os, signal, sys
from steno.store.commit_queue import CommitQueue
from steno.cli import main
n, run = int(sys.argv[1]), CommitQueue.run
def counted(self, change):
    global n
    n -= 1
    if n == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, change)
CommitQueue.run = counted
sys.exit(main(sys.argv[2:]))
"""
"""Dies before its n-th commit."""


def moved(world: World, *paths: Path | str, expect: int = 0) -> list[dict[str, Any]]:
    """What the report says of each talk."""
    told = world.steno("import", "--json", *map(str, paths), expect=expect)
    return [json.loads(line) for line in told.splitlines()]


def spoken(world: World, id: str) -> list[tuple[str, str]]:
    return [(one["role"], one["text"]) for one in world.messages(id)]


@pytest.mark.promise(77)
def test_a_talk_of_claude_code_is_read_as_it_was_led(world: World) -> None:
    file = foreign.jsonl(world.work / f"{foreign.SESSION}.jsonl", foreign.claude_code())
    (told,) = moved(world, file)
    assert (told["program"], told["outcome"], told["messages"]) == ("claude-code", "new", 5)
    assert told["title"] == "Files here"
    assert told["kept"]["user"] == 1  # the local command: kept, and nobody's speech
    shown = world.show(told["session"])
    assert spoken(world, told["session"]) == [
        ("user", "list the files"),
        ("assistant", "I will look."),
        ("tool", "notes.txt"),
        ("tool", "more.txt"),
        ("assistant", "Two files."),
    ]
    assert [call["id"] for call in shown["messages"][1]["tool_calls"]] == ["t1", "t2"]
    (row,) = world.sessions()
    assert row["title"] == "Files here"
    assert row["usage"] == row["usage"] | {"calls": 2, "input": 86, "output": 14}
    assert row["created_ms"] < row["updated_ms"] < 1795008400000
    assert json.loads(world.steno("verify", "--json"))["damage"] == []


@pytest.mark.promise(77)
def test_importing_twice_adds_nothing_and_what_came_since_is_added(world: World) -> None:
    rows = foreign.claude_code()
    file = foreign.jsonl(world.work / f"{foreign.SESSION}.jsonl", rows)
    (first,) = moved(world, file)
    before = world.steno("export", first["session"])
    (again,) = moved(world, file)
    assert again["outcome"] == "same"
    assert world.steno("export", first["session"]) == before
    more = (
        foreign.said("u9", "a4", 20, "and now?"),
        foreign.answered("a9", "u9", 21, "m9", foreign.text("Nothing new.")),
    )
    foreign.jsonl(file, [*rows, *more])
    (grown,) = moved(world, file)
    assert (grown["outcome"], grown["session"]) == ("grown", first["session"])
    assert spoken(world, first["session"])[-2:] == [
        ("user", "and now?"),
        ("assistant", "Nothing new."),
    ]
    assert moved(world, file)[0]["outcome"] == "same"
    assert len(world.messages(first["session"])) == 7


@pytest.mark.promise(77)
def test_a_talk_that_went_on_here_too_is_left_and_the_report_says_so(
    world: World, server: ModelServer
) -> None:
    rows = foreign.claude_code()
    file = foreign.jsonl(world.work / f"{foreign.SESSION}.jsonl", rows)
    (first,) = moved(world, file)
    server.replies = [Reply(("I can go on.",))]
    world.steno("run", "go on", "--session", first["session"])
    asked = server.requests[-1]["messages"]
    assert next(one["content"] for one in asked if one["role"] == "user") == "list the files"
    foreign.jsonl(file, [*rows, foreign.said("u9", "a4", 20, "and now?")])
    (told,) = moved(world, file)
    assert told["outcome"] == "diverged"
    assert spoken(world, first["session"])[-1] == ("assistant", "I can go on.")


def test_nothing_is_asked_of_a_model_after_an_import(world: World, server: ModelServer) -> None:
    """A prompt that was not answered there does not wait here."""
    rows = [*foreign.claude_code(), foreign.said("u9", "a4", 20, "never answered")]
    (told,) = moved(world, foreign.jsonl(world.work / "s.jsonl", rows))
    shown = world.show(told["session"])
    assert shown["turns"][-1]["outcome"] == "interrupted"
    assert world.sessions()[0]["waiting"] is False
    assert server.requests == []


@pytest.mark.promise(77)
def test_branches_become_forks(world: World) -> None:
    told = moved(world, foreign.jsonl(world.work / "pi.jsonl", foreign.pi()))
    main, left = told
    assert (main["branch"], left["branch"]) == (False, True)
    assert spoken(world, main["session"]) == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "instead"),
        ("assistant", "cut"),
    ]
    assert world.messages(main["session"])[-1]["state"] == "interrupted"
    assert [text for _, text in spoken(world, left["session"])] == ["first", "one", "left", "gone"]
    forked = {row["id"]: row["forked_from"] for row in world.sessions()}
    assert forked[left["session"]]["session"] == main["session"]
    assert forked[main["session"]] is None


@pytest.mark.promise(77)
def test_exports_of_the_web_chats_are_read_from_their_zip_files(world: World) -> None:
    picture = {"file-a1-river.png": b"\x89PNG river"}
    chatgpt = foreign.zipped(world.work / "chatgpt.zip", foreign.chatgpt(), **picture)
    claude = foreign.zipped(world.work / "claude.zip", foreign.claude_ai())
    river, other, sea = moved(world, chatgpt, claude)
    (asked, answered) = spoken(world, river["session"])
    assert asked[1].endswith("name a river")
    assert "file_b2" in asked[1], "what the zip does not have is told of as it came"
    assert answered == ("assistant", "The Rhine.")
    (shown,) = world.messages(river["session"])[0]["attachments"]
    assert (shown["media_type"], shown["name"]) == ("image/png", "river.png")
    assert river["kept"] == {"multimodal_text": 1}, "a picture that is not in the zip"
    assert spoken(world, other["session"])[-1] == ("assistant", "The Nile.")
    assert spoken(world, sea["session"]) == [
        ("user", "[notes.txt]\nthe notes\n\nname a sea"),
        ("assistant", "The Baltic."),
    ]


@pytest.mark.promise(77)
def test_compressed_lineages_of_hermes_are_one_session_without_doubled_rows(world: World) -> None:
    (told,) = moved(world, foreign.hermes(world.work / "state.db"))
    texts = [one["text"] for one in world.messages(told["session"])]
    assert texts == [
        "do you like tea?",
        "Very much.",
        "taken back",
        "which one?",
        "Green.",
        "thanks",
        "Gladly.",
    ]
    hidden = [one["text"] for one in world.messages(told["session"]) if one["hidden"]]
    assert hidden == ["taken back"]
    assert "REFERENCE ONLY" not in world.steno("export", "--markdown", told["session"])


@pytest.mark.promise(77)
def test_the_other_programs_are_recognised_by_what_is_in_their_files(world: World) -> None:
    folder = world.work / "all"
    foreign.opencode(folder / "opencode.db")
    foreign.llm(folder / "logs.db")
    foreign.openai_agents(folder / "agents.db")
    foreign.aider(folder / ".aider.chat.history.md")
    foreign.jsonl(folder / "2026/11/18/rollout-1.jsonl", foreign.codex())
    (folder / "notes.md").write_text("# mine\n")
    (folder / "other.json").write_text("{}")
    told = {(one["program"], one["title"]): one for one in moved(world, folder)}
    assert {program for program, _ in told} == {
        "opencode",
        "llm",
        "openai-agents",
        "aider",
        "codex",
    }
    said = {key: spoken(world, one["session"]) for key, one in told.items()}
    assert said["opencode", "Reading"] == [
        ("user", "read a"),
        ("assistant", ""),
        ("tool", "its text"),
        ("assistant", "It says so."),
    ]
    assert said["llm", "old talk"] == [("user", "hello"), ("assistant", "hi")]
    assert said["llm", "new talk"] == [("user", "good morning"), ("assistant", "and to you")]
    assert [text for _, text in said["openai-agents", "alice"]] == [
        "look",
        "",
        "a file",
        "one file",
    ]
    assert said["aider", "add a greeting"][0] == ("user", "add a greeting\nto the file")
    assert said["aider", "add a greeting"][-1] == ("assistant", "You are welcome.")
    assert said["codex", ""] == [
        ("user", "what is here?"),
        ("assistant", ""),
        ("tool", "a file"),
        ("assistant", "One file."),
    ]
    assert told["openai-agents", "alice"]["kept"] == {"something_new": 1}


SAMPLES = Path(foreign.__file__).with_name("samples")
FOUND = "There is notes.txt."
FOUND_WIDE = "There is notes.txt, größer als 中文."
LOOKED = "I will look."
THANKED = ("thank you", "You are welcome.")
OUTPUT = '{"output": "notes.txt", "exit_code": 0, "error": null}'
CHANGE = "<<<<<<< SEARCH\nold line\n=======\nnew line\n>>>>>>> REPLACE"
EDIT = f"Here it is.\n\nnotes.txt\n```\n{CHANGE}\n```"
HEARD = "All right, I heard you."
SAMPLED: dict[str, tuple[str, ...]] = {
    "claude-code": ("look here claude", LOOKED, "notes.txt", FOUND_WIDE, *THANKED),
    "pi": ("look here pi", LOOKED, "notes.txt\n", FOUND, *THANKED),
    "opencode": ('"look here opencode"', LOOKED, "notes.txt\n", FOUND, '"thank you"', THANKED[1]),
    "openai-agents": ("look here claude", LOOKED, "notes.txt", FOUND_WIDE, *THANKED),
    "hermes": ("look here hermes", LOOKED, OUTPUT, FOUND),
    "llm": ("hello there", HEARD, *THANKED, "what version", HEARD),
    "aider": ("edit the file", EDIT, *THANKED),
}
"""What was said in talks that the programs themselves kept, one talk after another."""


def brought(folder: Path) -> None:
    """The samples, as the files that they were."""
    for sample in SAMPLES.iterdir():
        if sample.suffix == ".json":
            foreign.tables_of(folder / f"{sample.stem}.db", json.loads(sample.read_text()))
        elif sample.suffix == ".jsonl":
            (folder / sample.name).write_bytes(sample.read_bytes())
        else:
            foreign.aider(folder / ".aider.chat.history.md", sample.read_text())


@pytest.mark.promise(77)
def test_what_the_programs_themselves_kept_comes_in_whole_and_once(world: World) -> None:
    folder = world.work / "kept"
    folder.mkdir()
    brought(folder)
    told = moved(world, folder)
    assert {one["outcome"] for one in told} == {"new"}
    said: dict[str, list[str]] = {}
    for one in told:
        texts = [text for _, text in spoken(world, one["session"])]
        said.setdefault(one["program"], []).extend(texts)
    assert {program: tuple(texts) for program, texts in said.items()} == SAMPLED
    assert {one["outcome"] for one in moved(world, folder)} == {"same"}


def test_a_compressed_rollout_of_codex_is_read(world: World) -> None:
    import zstandard

    raw = "".join(json.dumps(row) + "\n" for row in foreign.codex()).encode()
    (world.work / "rollout-1.jsonl.zst").write_bytes(zstandard.compress(raw))
    (world.work / "rollout-2.jsonl.gz").write_bytes(gzip.compress(raw))
    first, again = moved(
        world, world.work / "rollout-1.jsonl.zst", world.work / "rollout-2.jsonl.gz"
    )
    assert (first["outcome"], again["outcome"]) == ("new", "same")


def test_old_talks_are_listed_by_their_time_behind_what_was_said_here(world: World) -> None:
    world.steno("run", "said here")
    paths = []
    for n, day in enumerate(("18", "16", "17", "17")):
        text = json.dumps(foreign.claude_code()).replace("2026-11-18", f"2026-11-{day}")
        rows = json.loads(
            text.replace(foreign.SESSION, f"s{n}").replace("Files here", f"{day} {n}")
        )
        paths.append(foreign.jsonl(world.work / f"s{n}.jsonl", rows))
    moved(world, *paths)
    titles = [row["title"] for row in world.sessions()]
    assert titles == ["said here", "18 0", "17 2", "17 3", "16 1"]


def test_a_dry_run_stores_nothing(world: World) -> None:
    file = foreign.jsonl(world.work / "s.jsonl", foreign.claude_code())
    told = world.steno("import", "--dry-run", str(file))
    assert "new" in told
    assert "5 messages" in told
    assert world.sessions() == []


@pytest.mark.promise(77)
def test_what_cannot_be_read_is_refused_with_its_place(world: World) -> None:
    rows = foreign.claude_code()
    file = foreign.jsonl(world.work / "s.jsonl", rows)
    file.write_text(file.read_text() + "not json\n" + '{"half": ')
    (told,) = moved(world, file)
    assert told["outcome"] == "new"
    assert told["notes"] == [[f"work/s.jsonl:{len(rows) + 1}", "this line is not JSON"]] or (
        told["notes"][0][0].endswith(f"s.jsonl:{len(rows) + 1}")
    )
    strange = world.work / "strange.json"
    strange.write_text('{"a": 1}')
    (refused,) = moved(world, strange, expect=1)
    assert refused["outcome"] == "refused"
    assert moved(world, "no-such-thing", expect=2) == []


def test_a_program_is_found_by_its_name_below_the_home_folder(world: World) -> None:
    home = world.work / "person"
    foreign.jsonl(home / ".claude/projects/-x" / f"{foreign.SESSION}.jsonl", foreign.claude_code())
    world.environment |= {"HOME": str(home)}
    (told,) = moved(world, "claude-code")
    assert told["outcome"] == "new"


@pytest.mark.promise(77)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_killed_at_a_commit_it_goes_on(world: World, n: int) -> None:
    """Each talk is there whole or not at all, and the next import brings the rest."""
    paths = []
    for number in range(3):
        rows = json.loads(json.dumps(foreign.claude_code()).replace(foreign.SESSION, f"s{number}"))
        paths.append(foreign.jsonl(world.work / f"s{number}.jsonl", rows))
    words = ("import", *map(str, paths))
    with Program(world, (sys.executable, "-c", DYING, str(n), *words)) as killed:
        assert killed.end() == -signal.SIGKILL
    assert all(len(world.messages(row["id"])) == 5 for row in world.sessions())
    moved(world, *paths)
    assert sorted(len(world.messages(row["id"])) for row in world.sessions()) == [5, 5, 5]
    assert {one["outcome"] for one in moved(world, *paths)} == {"same"}
