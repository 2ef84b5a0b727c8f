"""A plugin that keeps a diary: a line of JSON for each session that was opened, for each that
ended, and for each answer that a channel was told.

Copy it to $STENO_HOME/plugins/ (~/.steno/plugins/), or install it as a package with the entry point

    [project.entry-points."steno.plugins"]
    session_diary = "session_diary"

The diary is diary.jsonl in the same home. The end of a session is told at least once, also if steno
was killed: then at the next start. `key` tells a second telling from a second end, so a line that
is there already is not written again.
"""

import json
import os
from pathlib import Path
from typing import Any

from steno.plugins import hookimpl

HOME = Path(os.environ.get("STENO_HOME") or Path.home() / ".steno")
DIARY = HOME / "diary.jsonl"


@hookimpl
def on_session_start(session_id: str, platform: str) -> None:
    write(session=session_id, began_on=platform)


@hookimpl
def on_session_end(
    session_id: str, completed: bool, interrupted: bool, model: str, reason: str, key: str
) -> None:
    if key not in keys():
        how = "completed" if completed else "interrupted" if interrupted else "unfinished"
        write(session=session_id, ended=reason, how=how, model=model, key=key)


@hookimpl
def delivery(session_id: str, channel: str, outcome: str) -> None:
    write(session=session_id, told=channel, outcome=outcome)


@hookimpl
def before_tool(tool: str, arguments: str) -> str | None:
    """Nothing may touch the diary but this plugin."""
    return (
        "the diary is not to be touched"
        if tool != "read_file" and DIARY.name in arguments
        else None
    )


def write(**line: Any) -> None:
    with DIARY.open("a", encoding="utf-8") as diary:
        diary.write(json.dumps(line) + "\n")


def keys() -> set[str]:
    if not DIARY.exists():
        return set()
    return {
        json.loads(line).get("key", "") for line in DIARY.read_text(encoding="utf-8").splitlines()
    }
