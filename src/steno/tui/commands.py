"""The words that begin with a slash: what there is, and how one is completed."""

import re

from msgspec import Struct

COMMAND = re.compile(r"/([\w-]*)(?:\s|$)")
"""A first word with one slash before it is meant as a command. A path has a second slash."""


class Command(Struct, frozen=True):
    name: str
    takes: str
    does: str


COMMANDS = (
    Command("help", "", "keys and commands"),
    Command("new", "", "begin a new session"),
    Command("sessions", "", "find, resume, rename or delete a session"),
    Command("resume", "ID", "go on with a session"),
    Command("continue", "", "take up what was cut off, run what waits"),
    Command("retry", "", "run the last prompt again"),
    Command("stop", "", "stop the running turn"),
    Command("steer", "TEXT", "say something into the running turn"),
    Command("undo", "", "take the last turn out of the model's view"),
    Command("redo", "", "take the last undo or rewind back"),
    Command("rewind", "SEQ", "take what follows a message out of the model's view"),
    Command("fork", "[SEQ]", "go on in a session of its own from a message"),
    Command("hide", "SEQ", "take one message out of the model's view, or put it back"),
    Command("model", "[SPEC]", "have another model answer"),
    Command("compact", "", "have the older part summarised"),
    Command("goal", "TEXT", "say what this session is for; the model is told with every request"),
    Command("memory", "", "what this session is told of earlier ones"),
    Command("attach", "PATH", "send a file or an image with the next input"),
    Command("detach", "", "take the last attached file off again"),
    Command("rename", "TITLE", "give this session a title"),
    Command("delete", "", "delete this session for good"),
    Command("copy", "", "copy the last answer"),
    Command("plain", "", "plain text, for the terminal's own selection"),
    Command("theme", "[dark|light]", "other colours"),
    Command("quit", "", "leave; everything is kept"),
)

_BY_NAME = {command.name: command for command in COMMANDS}


def parse(line: str) -> tuple[str, str] | None:
    """The command that a line is meant as, and what follows it as it was typed; None if it is
    something to be said."""
    meant = COMMAND.match(line)
    return None if meant is None else (meant[1], line[meant.end() :])


def known(name: str) -> bool:
    return name in _BY_NAME


def completions(line: str) -> list[Command]:
    """The commands that a beginning can become; none if it is no beginning of one."""
    if not line.startswith("/") or any(char.isspace() for char in line) or "/" in line[1:]:
        return []
    begun = line[1:].lower()
    first = [command for command in COMMANDS if command.name.startswith(begun)]
    return first + [
        command for command in COMMANDS if begun and begun in command.name and command not in first
    ]


def nearest(name: str) -> str | None:
    """A command that may have been meant."""
    import difflib

    found = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    return found[0] if found else None
