"""A talk that the real codex kept comes in whole, once, and can be gone on with."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.codex.responses_server import call, message, responses
from tests.codex.world import CONFIG, real_codex
from tests.program.world import World

ASKED = ("exec", "--skip-git-repo-check", "-s", "danger-full-access")


@pytest.mark.promise(77)
def test_a_rollout_of_the_real_codex_comes_in_once(tmp_path: Path) -> None:
    home, work = tmp_path / "codex", tmp_path / "work"
    home.mkdir()
    work.mkdir(exist_ok=True)
    looking = [message("I will look."), call("exec_command", "c1", cmd="echo made-by-codex")]
    with responses(looking, [message("There is one.")], [message("Once more.")]) as server:
        (home / "config.toml").write_text(CONFIG.format(url=server.url))
        own = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
        for words in (("list the files",), ("resume", "--last", "and again")):
            subprocess.run(
                [real_codex(), *ASKED, *words],
                cwd=work,
                env=own | {"FAKE_KEY": "k"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=True,
            )
    there = World(tmp_path / "there", "")
    sessions = str(home / "sessions")
    [told] = [json.loads(line) for line in there.steno("import", "--json", sessions).splitlines()]
    assert (told["program"], told["outcome"], told["messages"]) == ("codex", "new", 6)
    assert told["kept"]["session_meta"] == 1
    [again] = [json.loads(line) for line in there.steno("import", "--json", sessions).splitlines()]
    assert (again["outcome"], again["session"]) == ("same", told["session"])
    assert [(one["role"], one["state"]) for one in there.messages(told["session"])] == [
        (role, "complete")
        for role in ("user", "assistant", "tool", "assistant", "user", "assistant")
    ]
    spoken = [one["text"] for one in there.messages(told["session"]) if one["role"] != "tool"]
    assert spoken == ["list the files", "I will look.", "There is one.", "and again", "Once more."]
    [output] = there.messages(told["session"], "tool")
    assert "made-by-codex" in output["text"]
    found = json.loads(there.steno("search", "--json", "made-by-codex in:tools"))
    assert {hit["session"] for hit in found["hits"]} == {told["session"]}
    went = there.steno("run", "go on", "--session", told["session"], "--model", "scripted:echo")
    assert "go on" in went
