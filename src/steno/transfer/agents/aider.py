"""aider: `.aider.chat.history.md`, one Markdown file of a folder for all its talks.

    # aider chat started at 2026-11-18 10:00:00      a talk begins
    #### what a person typed                         one such line for each line of the prompt
    > what aider itself said                         kept, not said by the model
    everything else                                  the model's answer

The file has no times but the beginning of each talk, by the clock of the machine: every message has
that one.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from steno.journal.parts import Text
from steno.transfer.agents.reading import as_json, short
from steno.transfer.agents.talk import Answer, Entry, Kept, Said, Talk

PROGRAM = "aider"
NAME = ".aider.chat.history.md"
_BEGINS = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*$")


def talks(path: Path) -> Iterator[Talk]:
    began, held, n = "", list[str](), 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if found := _BEGINS.match(line):
                if held:
                    yield _talk(path, began, n, held)
                began, held, n = found[1], [], n + 1
            elif began:
                held.append(line.rstrip("\n"))
    if held:
        yield _talk(path, began, n, held)


def _talk(path: Path, began: str, n: int, held: list[str]) -> Talk:
    at_ms = int(datetime.fromisoformat(began).timestamp() * 1000)
    entries = list(_entries(held, at_ms))
    said = next((one for one in entries if isinstance(one, Said)), None)
    title = said.parts[0].text if said and isinstance(said.parts[0], Text) else ""
    id = f"{path.resolve().parent.name}/{began}/{n}"
    first = title.splitlines()[0][:80] if title else ""
    return Talk(
        program=PROGRAM, id=id, where=short(path), entries=entries, title=first
    )


def _kind(line: str) -> str:
    if line.startswith("#### "):
        return "said"
    return "told" if line.startswith("> ") else "answer"


def _entries(held: list[str], at_ms: int) -> Iterator[Entry]:
    run, kind = list[str](), ""
    for line in [*held, ""]:
        now = _kind(line) if line or kind == "answer" else kind
        if run and (now != kind):
            yield from _entry(run, kind, at_ms)
            run = []
        kind = now
        run.append(line)
    yield from _entry(run, kind, at_ms)


def _entry(run: list[str], kind: str, at_ms: int) -> Iterator[Entry]:
    if kind == "said":
        text = "\n".join(line.removeprefix("#### ").rstrip() for line in run).strip()
        if text:
            yield Said(at_ms, (Text(text),))
        return
    text = "\n".join(line.removeprefix("> ") for line in run).strip()
    if text and kind == "told":
        yield Kept(at_ms, as_json({"aider": text}))
    elif text:
        yield Answer(at_ms, (Text(text),))
