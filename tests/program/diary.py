"""A plugin for tests: writes down what it is told, and misbehaves as its environment says.
Installed by `install`."""

import json
import os
from pathlib import Path
from typing import Any

from tests.program.world import World

PLUGIN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from steno.plugins import hookimpl

HOME = Path(os.environ["STENO_HOME"])
DOES = os.environ.get("DIARY_DOES", "")

def write(**told):
    with (HOME / "{name}.jsonl").open("a") as diary:
        diary.write(json.dumps(told) + "\\n")

@hookimpl
def on_session_start(session_id, platform):
    write(hook="on_session_start", session_id=session_id, platform=platform)

@hookimpl
def on_session_end(session_id, completed, interrupted, model, platform, reason, key):
    write(hook="on_session_end", session_id=session_id, completed=completed,
          interrupted=interrupted, model=model, platform=platform, reason=reason, key=key)
    if DOES == "raise":
        raise ValueError("no thanks")
    if DOES == "hang":
        time.sleep(60)
    if DOES == "exit":
        os._exit(3)
    if DOES == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
    if DOES == "print":
        print("printed by python")
        print("complained by python", file=sys.stderr)
        os.write(1, b"written by hand\\n")
        subprocess.run(["sh", "-c", "echo said by a child; echo to the terminal > /dev/tty"])

@hookimpl
def delivery(session_id, channel, address, outcome):
    write(hook="delivery", session_id=session_id, channel=channel, address=address, outcome=outcome)
"""


def install(world: World, name: str = "diary", source: str = PLUGIN) -> None:
    folder = world.home / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source.replace("{name}", name))


def told(world: World, name: str = "diary", hook: str = "on_session_end") -> list[dict[str, Any]]:
    file = world.home / f"{name}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [
        {key: value for key, value in line.items() if key != "hook"}
        for line in lines
        if line["hook"] == hook
    ]


def log(world: World) -> str:
    file = world.home / "plugins.log"
    return file.read_text() if file.exists() else ""


def hosts(world: World) -> list[int]:
    """The processes of plugins that run for this home."""
    mark = f"STENO_HOME={world.home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"steno.plugins.process" in words and mark in (entry / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if os.getpgid(pid)]
