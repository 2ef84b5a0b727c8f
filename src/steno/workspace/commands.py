"""Commands and skills of a person: Markdown files in `.steno/` of the folder and in steno's home.

    commands/NAME.md             /NAME ARGUMENTS sends what the file says. $ARGUMENTS stands for all
                                 of what follows the name, $1 to $9 for a word of it; where the file
                                 names neither, what follows is added at its end
    skills/NAME.md               told to the model by its name and description; it reads the rest
    skills/NAME/SKILL.md         when it needs it, with `read_skill`. /NAME sends it, too

A file may begin with lines between two `---`: `description: …` and `takes: …` (or
`argument-hint: …`), which the list of commands shows. The folder's own come before the home's.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
CHARS_MAX = 100_000
FILES_MAX = 200
_NUMBERED = re.compile(r"\$(ARGUMENTS|[1-9])")


class Command(Struct, frozen=True):
    """`text` is what the file says below its first lines."""

    name: str
    kind: Literal["command", "skill"]
    text: str
    does: str = ""
    takes: str = ""

    def with_arguments(self, given: str) -> str:
        """What is said to the model when it is called with this."""
        try:
            from shlex import split

            words = split(given)
        except ValueError:  # a quotation mark that stands alone
            words = given.split()

        def filled(match: re.Match[str]) -> str:
            if match[1] == "ARGUMENTS":
                return given.strip()
            number = int(match[1])
            return words[number - 1] if number <= len(words) else ""

        text, places = _NUMBERED.subn(filled, self.text)
        return text if places or not given.strip() else f"{text}\n\n{given.strip()}"


def commands(folder: Path | None, home: Path) -> tuple[Command, ...]:
    """All there are, by name; the first of a name counts."""
    found: dict[str, Command] = {}
    for place in (*(() if folder is None else (folder / ".steno",)), home):
        for one in (*_commands_in(place / "commands"), *_skills_in(place / "skills")):
            found.setdefault(one.name, one)
    return tuple(sorted(found.values(), key=lambda one: one.name))


def skills(folder: Path | None, home: Path) -> tuple[Command, ...]:
    return tuple(one for one in commands(folder, home) if one.kind == "skill")


def _commands_in(folder: Path) -> Iterator[Command]:
    for file in _files(folder):
        if file.suffix == ".md" and NAME.fullmatch(file.stem):
            yield from _read(file, file.stem, "command")


def _skills_in(folder: Path) -> Iterator[Command]:
    for file in _files(folder):
        if file.suffix == ".md" and NAME.fullmatch(file.stem):
            yield from _read(file, file.stem, "skill")
        elif NAME.fullmatch(file.name):
            yield from _read(file / "SKILL.md", file.name, "skill")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:FILES_MAX]
    except OSError:
        return []


def _read(
    file: Path, name: str, kind: Literal["command", "skill"]
) -> Iterator[Command]:
    try:
        if not file.is_file():
            return
        with file.open("rb") as opened:
            text = opened.read(CHARS_MAX).decode("utf-8", "replace")
    except OSError:
        return
    head, body = _parted(text)
    takes = head.get("takes") or head.get("argument-hint", "")
    if not takes and _NUMBERED.search(body):
        takes = "[TEXT]"
    first = next((line.strip("# ") for line in body.splitlines() if line.strip()), "")
    if body.strip():
        yield Command(name, kind, body.strip(), head.get("description", first), takes)


def _parted(text: str) -> tuple[dict[str, str], str]:
    """The settings between two `---` at the top, and the rest."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---" or "---" not in (line.strip() for line in lines[1:]):
        return {}, text
    end = next(
        at for at, line in enumerate(lines[1:], start=1) if line.strip() == "---"
    )
    pairs = (line.partition(":") for line in lines[1:end])
    head = {
        key.strip().lower(): value.strip().strip("'\"") for key, _, value in pairs
    }
    return head, "\n".join(lines[end + 1 :])
