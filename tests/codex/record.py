"""Records turns of the real codex: `make record-codex` writes what it said and what it was told
into logs/.

A log has one object a line, {"dt","dir","msg"}, as the wire had it; paths of the machine it was
made on are replaced.
"""

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.codex.doings import COUNTED, PLANNED, SEARCHED, TYPED, WITH_PLANS, own_server, told
from tests.codex.responses_server import Answer
from tests.codex.world import FIXTURES, CodexWorld, real_codex
from tests.models.aimock import aimock

LOGS = Path(__file__).with_name("logs")
DYING = Path(__file__).with_name("dying.py")


def between(world: CodexWorld, victim: str = "both", when: str = "after", n: int | str = 0) -> None:
    """From here on, steno finds a codex with `dying.py` in front of it."""
    script = world.work.parent / "codex-that-dies"
    words = (sys.executable, str(DYING), victim, when, str(n), real_codex())
    script.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    script.chmod(0o755)
    world.environment["STENO_CODEX_PATH"] = str(script)


def _plain(prompt: str, *words: str) -> Callable[[CodexWorld], None]:
    def run(world: CodexWorld) -> None:
        world.run(prompt, *words, expect=None)

    return run


def _stopped(prompt: str, shown: str) -> Callable[[CodexWorld], None]:
    def run(world: CodexWorld) -> None:
        with world.start("run", prompt, "--key", "k", "--yes", "--output", "ndjson") as program:
            program.wait_shown(shown)
            program.signal(signal.SIGINT)
            program.end()

    return run


def _steered(world: CodexWorld) -> None:
    with world.start("run", "slow", "--key", "k") as program:
        program.wait_shown("word3")
        world.steno("run", "and", "--key", "k", "--steer")
        program.end()


def _doing(answers: tuple[Answer, ...], more: str = "") -> Callable[[CodexWorld], None]:
    def run(world: CodexWorld) -> None:
        with told(world, *answers, more=more):
            world.run("go", "--yes")

    return run


SCENES: dict[str, Callable[[CodexWorld], None]] = {
    "answer": _plain("hello"),
    "reasoning": _plain("think"),
    "command": _plain("say", "--yes"),
    "declined": _plain("echo"),
    "failing": _plain("moan", "--yes"),
    "patch": _plain("patch", "--yes"),
    "both": _plain("both", "--yes"),
    "tool": _plain("find"),
    "error": _plain("500"),
    "broken": _plain("broken stream"),
    "stopped-text": _stopped("slow", "word5"),
    "stopped-command": _stopped("count", "line3"),
    "steered": _steered,
    "search": _doing(SEARCHED),
    "own-tool": _doing(COUNTED, own_server()),
    "typed": _doing(TYPED),
    "plan": _doing(PLANNED, WITH_PLANS),
}


def main() -> None:
    for name, scene in SCENES.items():
        folder = Path(tempfile.mkdtemp())
        with aimock(FIXTURES, folder) as server:
            world = CodexWorld(folder, server)
            between(world)
            wire = folder / "wire.jsonl"
            world.environment["STENO_TEST_WIRE"] = str(wire)
            scene(world)
            time.sleep(0.2)
            lines = wire.read_text().splitlines()
            (LOGS / f"{name}.jsonl").write_text("".join(_cleaned(line, folder) for line in lines))
        sys.stdout.write(f"{name}\n")


def _cleaned(line: str, folder: Path) -> str:
    """The line without what only this machine has."""
    entry = json.loads(line)
    message = entry["msg"]
    if (
        message.get("method") in ("remoteControl/status/changed", "initialize")
        or "codexHome" in line
    ):
        return ""
    if "instructions" in str(message.get("params", {})).lower():
        message["params"].pop("developerInstructions", None)
    text = json.dumps(entry).replace(str(folder), "/example")
    return re.sub(r"/tmp/[\w./-]*", "/example", text) + "\n"


if __name__ == "__main__":
    main()
