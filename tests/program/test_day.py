"""A day in a folder, against a scripted model: instructions, a plan, edits, a failing test mended,
files put back, a kill in the middle of an edit, resumed, what changed, what it cost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

BROKEN = "def add(a, b):\n    return a - b\n"
MENDED = "def add(a, b):\n    return a + b\n"
CHECK = f"{sys.executable} -B -c 'import calc; assert calc.add(1, 2) == 3'"


def edit(old: str, new: str) -> tuple[str, str]:
    return "edit_file", json.dumps({"path": "calc.py", "old": old, "new": new})


@pytest.mark.promise(1, 6, 78)
def test_a_day_in_a_folder(world: World, server: ModelServer) -> None:
    file = world.work / "calc.py"
    file.write_text(BROKEN)
    (world.work / "AGENTS.md").write_text("Run the check after each edit.")
    check = ("shell", json.dumps({"command": CHECK}))

    server.replies = [Reply(tools=(edit("-", "+"),)), Reply(("I would change the sign.",))]
    world.steno("run", "mend add", "--key", "day", "--mode", "plan")
    assert file.read_text() == BROKEN
    assert "Run the check after each edit." in json.dumps(server.requests[0])
    session = world.only_session()

    server.requests.clear()
    server.replies = [
        Reply(tools=(check,)),
        Reply(tools=(edit("a - b", "a + b"),)),
        Reply(tools=(check,)),
        Reply(("Mended.",)),
    ]
    rule = f"shell:{CHECK}"
    assert "Mended." in world.steno(
        "run", "do it", "--key", "day", "--mode", "edits", "--allow", rule
    )
    states = [m["state"] for m in world.messages(session, "tool")][-3:]
    assert states == ["failed", "complete", "complete"]
    assert file.read_text() == MENDED

    world.steno("undo", session, "--both")
    assert file.read_text() == BROKEN
    world.steno("undo", session, "--redo-files")
    assert file.read_text() == MENDED

    server.requests.clear()
    server.replies = [Reply(tools=(edit("a + b", "sum((a, b))"),)), Reply(("Went on.",))]
    script = str(Path(__file__).with_name("dying_anywhere.py"))
    subprocess.run(
        [sys.executable, script, "after", "FileKept", "run", "use sum", "--key", "day"],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert world.steno("export", session).count('"file.kept"') == 2
    assert file.read_text() == MENDED
    world.steno("continue", session)
    assert "Whether these calls took effect is not known" in json.dumps(server.requests[-1])

    assert "+    return a + b" in world.steno("diff", session)
    world.steno("undo", session, "--files")
    assert file.read_text() == MENDED
    (row,) = world.sessions()
    assert row["usage"]["input"] > 0
    world.steno("verify")
