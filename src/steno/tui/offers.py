"""What the input offers while one types: commands after a slash, files after an @."""

import difflib
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from steno.workspace.commands import Command as OwnCommand
from steno.workspace.finding import Files

FILES_OFFERED_MAX = 20
COMMAND = re.compile(r"/([\w-]*)(?:\s|$)")
"""A first word with one slash before it is meant as a command. A path has a second slash."""
MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
MENTIONED = re.compile(r"(?:^|(?<=\s))@(\S+)")


class Command(Struct, frozen=True):
    """`sign` is what stands before its name."""

    name: str
    takes: str
    does: str
    sign: str = "/"


COMMANDS = (
    Command("help", "", "keys and commands"),
    Command("new", "", "begin a new session"),
    Command("sessions", "", "find, resume, rename or delete a session"),
    Command("resume", "[ID]", "go on with a session; without an ID, the list"),
    Command("continue", "", "take up what was cut off, run what waits"),
    Command("retry", "", "run the last prompt again"),
    Command("stop", "", "stop the running turn"),
    Command("steer", "TEXT", "say something into the running turn"),
    Command(
        "mode", "[MODE]", "what runs without asking: ask, edits, plan, everything"
    ),
    Command("diff", "", "how this session changed the files"),
    Command("undo", "", "undo the last turn: the talk, the files or both"),
    Command("redo", "", "take the last undo or rewind back"),
    Command("rewind", "[SEQ]", "take what follows a message out of the model's view"),
    Command("fork", "[SEQ]", "go on in a session of its own from a message"),
    Command(
        "hide", "[SEQ]", "take one message out of the model's view, or put it back"
    ),
    Command("model", "[SPEC]", "have another model answer"),
    Command(
        "login", "[NAME]", "keep a key of a provider, or use a server on this machine"
    ),
    Command("logout", "NAME", "forget the key of a provider"),
    Command("compact", "", "have the older part summarised"),
    Command(
        "goal",
        "TEXT",
        "say what this session is for; the model is told with every request",
    ),
    Command("memory", "", "what this session is told of earlier ones"),
    Command("cost", "", "what this session has used, by model"),
    Command("context", "", "what fills the model's context"),
    Command("init", "", "have an AGENTS.md written for this folder"),
    Command("attach", "PATH", "send a file or an image with the next input"),
    Command("detach", "", "take the last attached file off again"),
    Command("rename", "TITLE", "give this session a title"),
    Command("delete", "", "delete this session for good"),
    Command("copy", "", "copy the last answer"),
    Command("plain", "", "plain text, for the terminal's own selection"),
    Command(
        "theme",
        "[NAME]",
        "other colours; they are kept. /theme new NAME begins your own",
    ),
    Command("quit", "", "leave; everything is kept"),
)

_BY_NAME = {command.name: command for command in COMMANDS}
ELSEWHERE = {
    "add": "attach",
    "approvals": "mode",
    "clear": "new",
    "connect": "login",
    "drop": "detach",
    "exit": "quit",
    "models": "model",
    "permissions": "mode",
    "q": "quit",
    "status": "context",
    "summarize": "compact",
    "themes": "theme",
    "tokens": "context",
    "usage": "cost",
}
"""What other agents call these commands, for hands that know them."""


def parse(line: str) -> tuple[str, str] | None:
    """The command that a line is meant as, and what follows it as it was typed; None if it is
    something to be said."""
    meant = COMMAND.match(line)
    return None if meant is None else (meant[1], line[meant.end() :])


def nearest(name: str, own: Sequence[OwnCommand] = ()) -> str | None:
    """A command that may have been meant."""
    names = [*_BY_NAME, *(one.name for one in own)]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return found[0] if found else None


class Offers:
    """The commands of the program and of the person, and the files of the folder."""

    def __init__(
        self, own: Sequence[OwnCommand] = (), files: Files | None = None
    ) -> None:
        self.own = {one.name: one for one in own if one.name not in _BY_NAME}
        self._files = files

    def meant(self, line: str) -> tuple[str, str] | None:
        """The command that a line is meant as, by its own name; None if it is to be said."""
        found = parse(line)
        if found is None or self.known(found[0]):
            return found
        return ELSEWHERE.get(found[0], found[0]), found[1]

    def known(self, name: str) -> bool:
        return name in _BY_NAME or name in self.own

    def all(self) -> list[Command]:
        own = [Command(one.name, one.takes, one.does) for one in self.own.values()]
        return [*COMMANDS, *own]

    def like(self, line: str) -> list[Command]:
        """What a text up to the cursor can become; none if it is no beginning of anything."""
        if self._files is not None and (mention := MENTION.search(line)) is not None:
            found = self._files.like(mention[1], FILES_OFFERED_MAX)
            return [
                Command(path, "", "", "@") for path in found if path != mention[1]
            ]
        if (
            not line.startswith("/")
            or any(char.isspace() for char in line)
            or "/" in line[1:]
        ):
            return []
        begun = line[1:].lower()
        commands = self.all()
        first = [command for command in commands if command.name.startswith(begun)]
        first += [
            replace(_BY_NAME[here], name=name)
            for name, here in ELSEWHERE.items()
            if len(begun) > 1 and name.startswith(begun) and name not in self.own
        ]
        return first + [
            one
            for one in commands
            if begun and begun in one.name and one not in first
        ]
