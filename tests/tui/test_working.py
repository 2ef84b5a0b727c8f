"""Working in a folder with the chat: modes, diffs, undo, files and commands in the input, keys."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from textual import events

from steno.tui.composer import Composer
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import Person, chat_with

EDIT = ("edit_file", json.dumps({"path": "a.py", "old": "one = 1", "new": "one = 2"}))
OLD = "zero = 0\none = 1\n"


def edits(server: ModelServer) -> None:
    server.replies = [Reply(tools=(EDIT,)), Reply(("Changed.",)), Reply(("ok",))]


@pytest.fixture(autouse=True)
def folder(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    (world.work / "a.py").write_text(OLD)
    return world.work


def test_shift_tab_goes_through_the_modes_and_the_session_keeps_it(
    world: World, server: ModelServer
) -> None:
    edits(server)

    async def talk(person: Person) -> None:
        assert person.status().startswith(" ask")
        await person.press("shift+tab")
        await person.sees("accept edits")
        await person.say("change it")
        await person.sees("Changed.")
        await person.rests()
        assert (await person.service.views.state(person.session)).mode == "edits"
        await person.press("shift+tab")
        await person.until(lambda: person.status().startswith(" plan"), "plan mode")
        await person.press("shift+tab", "shift+tab")
        await person.until(lambda: person.status().startswith(" ask"), "ask again")

    chat_with(world, talk)
    assert (world.work / "a.py").read_text() == OLD.replace("1", "2")


def test_the_mode_of_the_start_does_not_come_back_after_it_was_changed(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("First.",)), Reply(("Second.",))]

    async def talk(person: Person) -> None:
        await person.say("one")
        await person.sees("First.")
        await person.rests()
        await person.press("shift+tab")
        await person.until(lambda: person.status().startswith(" ask"), "the mode that asks")
        await person.say("two")
        await person.sees("Second.")
        assert (await person.service.views.state(person.session)).mode == "ask"

    chat_with(world, talk, mode="everything")


def test_a_question_shows_a_real_diff_and_so_does_the_card_afterwards(
    world: World, server: ModelServer
) -> None:
    edits(server)

    async def talk(person: Person) -> None:
        await person.say("change it")
        await person.is_asked("edit_file")
        await person.sees("a.py  +1 -1", "2   - one = 1", "  2 + one = 2", "1 1   zero = 0")
        await person.press("right", "enter")
        await person.sees("Changed.")
        await person.sees("2   - one = 1")

    chat_with(world, talk)


def test_versions_stand_side_by_side_where_it_is_wide(world: World, server: ModelServer) -> None:
    edits(server)

    async def talk(person: Person) -> None:
        await person.say("change it")
        await person.sees("2 - one = 1", "│ 2 + one = 2")

    chat_with(world, talk, size=(120, 30))


def test_undo_asks_puts_files_back_and_brings_the_prompt_back(
    world: World, server: ModelServer
) -> None:
    edits(server)
    file = world.work / "a.py"

    async def talk(person: Person) -> None:
        await person.press("shift+tab")
        await person.say("change it")
        await person.sees("Changed.")
        await person.rests()
        await person.say("/undo")
        await person.sees("The talk and the files")
        await person.press("enter")
        await person.sees("put back: a.py", "undone: the model is not told")
        assert file.read_text() == OLD
        await person.until(
            lambda: person.chat.query_one(Composer).text == "change it", "the prompt"
        )
        person.chat.query_one(Composer).replace_text("")
        await person.say("/redo")
        await person.sees("edited again: a.py", "told it again")
        assert file.read_text() != OLD
        file.write_text("mine\n")
        await person.say("/undo")
        await person.sees("The talk and the files")
        await person.press("enter")
        await person.sees("left as it is: a.py")
        assert file.read_text() == "mine\n"

    chat_with(world, talk)


def test_always_offers_the_call_a_pattern_the_tool_and_the_folder(
    world: World, server: ModelServer
) -> None:
    call = ("shell", json.dumps({"command": "echo one"}))
    server.replies = [Reply(tools=(call,)), Reply(("Done.",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.is_asked("shell")
        await person.press("right", "right", "enter")
        await person.sees(
            "This call: shell:echo one", "Calls like shell:echo *", "Every call of shell"
        )
        await person.press("down", "down", "down", "enter")
        await person.sees("Done.")
        [(rule, one)] = (await person.service.approvals.rules(person.session)).items()
        assert (rule, one.verdict, one.until_ms > 0) == ("shell:echo *", "allow", True)

    chat_with(world, talk)
    kept = json.loads((world.home / "folders.json").read_text())
    rule = kept[str(world.work)]["shell:echo *"]
    assert rule["verdict"] == "allow"
    assert rule["until"].startswith("20")
    assert (world.home / "folders.json").stat().st_mode & 0o777 == 0o600


def test_a_file_named_with_an_at_goes_along(world: World, server: ModelServer) -> None:
    (world.work / "sub").mkdir()
    (world.work / "sub" / "b.txt").write_text("in b")
    server.replies = [Reply(("Seen it.",))]

    async def talk(person: Person) -> None:
        await person.type("look at @b.t")
        await person.sees("@sub/b.txt")
        await person.press("tab", "enter")
        await person.sees("Seen it.")
        await person.rests()

    chat_with(world, talk)
    told = json.dumps(server.requests[0]["messages"][-1])
    assert "look at @sub/b.txt" in told
    assert "in b" in told


def test_a_command_of_ones_own_is_run_and_its_output_goes_along(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.say("!echo from me")
        await person.sees("from me", "goes with your next message")
        await person.say("what was that?")
        await person.sees("ok")
        await person.rests()

    chat_with(world, talk)
    assert len(server.requests) == 1
    assert "from me" in json.dumps(server.requests[0]["messages"][-1])


def test_a_long_paste_folds_to_a_line_and_is_sent_whole(world: World, server: ModelServer) -> None:
    long = "\n".join(f"line {n}" for n in range(40))

    async def talk(person: Person) -> None:
        composer = person.chat.query_one(Composer)
        composer.post_message(events.Paste(long))
        await person.sees("[pasted 40 lines")
        await person.press("f3")
        await person.until(lambda: composer.text == long, "the whole text")
        composer.replace_text("")
        composer.post_message(events.Paste(long))
        await person.sees("[pasted 40 lines")
        await person.press("enter")
        await person.sees("ok")
        await person.rests()

    chat_with(world, talk)
    assert long in server.requests[0]["messages"][-1]["content"]


def test_a_dropped_path_is_attached(world: World, server: ModelServer) -> None:
    async def talk(person: Person) -> None:
        composer = person.chat.query_one(Composer)
        composer.post_message(events.Paste(f"'{world.work / 'a.py'}' "))
        await person.sees("+ attached a.py")
        assert composer.text == ""

    chat_with(world, talk)


def test_a_markdown_file_is_a_command_of_the_chat(world: World, server: ModelServer) -> None:
    own = world.work / ".steno" / "commands" / "review.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\ndescription: look at changes\n---\nReview $1 well.")

    async def talk(person: Person) -> None:
        await person.type("/rev")
        await person.sees("look at changes")
        await person.press("tab")
        await person.say("a.py")
        await person.sees("Review a.py well.")

    chat_with(world, talk)


def test_escape_stops_and_what_was_typed_keeps_two_ctrl_c_from_leaving(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("Once ",), then="hang")]

    async def talk(person: Person) -> None:
        await person.say("a story")
        await person.sees("Once", "Esc stops")
        await person.press("escape")
        await person.sees("stopped by you")
        await person.rests()
        await person.press("ctrl+c")
        await person.type("more")
        await person.press("ctrl+c")
        await person.sees("forgotten")
        assert person.chat.left is None

    chat_with(world, talk)


def test_what_was_said_before_is_found(world: World, server: ModelServer) -> None:
    world.steno("run", "an earlier prompt")
    server.replies = [Reply(("An answer about tides.",))]

    async def talk(person: Person) -> None:
        await person.sees("Recent here", "an earlier prompt")
        await person.press("ctrl+r")
        await person.sees("What you said", "an earlier prompt")
        await person.press("enter")
        composer = person.chat.query_one(Composer)
        await person.until(lambda: composer.text == "an earlier prompt", "the prompt")
        await person.press("enter")
        await person.sees("about tides")
        await person.rests()

    chat_with(world, talk)


def test_a_session_of_another_folder_asks_where_to_work(world: World, server: ModelServer) -> None:
    other = world.work.parent / "other"
    other.mkdir()
    here, world.work = world.work, other
    world.steno("run", "over there")
    (session,) = [one["id"] for one in world.sessions()]
    world.work = here

    async def talk(person: Person) -> None:
        await person.sees("belongs to another folder", "Move it here")
        await person.press("down", "enter")
        await person.sees("over there")
        assert (await person.service.views.state(session)).folder == str(here)

    chat_with(world, talk, session)


def test_steps_cost_and_context_are_shown(world: World, server: ModelServer) -> None:
    steps = [{"text": "look", "status": "done"}, {"text": "mend", "status": "pending"}]
    server.replies = [Reply(tools=(("todo", json.dumps({"steps": steps})),)), Reply(("ok",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("☑ look", "☐ mend", "1 of 2 done")
        await person.rests()
        await person.say("/cost")
        await person.sees("tokens in")
        await person.say("/context")
        await person.sees("the next request has about", "surroundings: about")

    chat_with(world, talk)


def test_the_branch_is_in_the_status_line(world: World, server: ModelServer) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=world.work, check=True)

    async def talk(person: Person) -> None:
        await person.sees("work (trunk)")

    chat_with(world, talk)
    assert os.environ.get("STENO_HOME") != str(world.home)
