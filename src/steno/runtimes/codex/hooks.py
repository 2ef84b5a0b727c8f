"""What codex says of hooks, and what our own tell us: of a call that waits, and of a command that
is over."""

import msgspec
from msgspec import Raw, Struct

from steno.runtimes.codex.items import Read


class HookRun(Read, frozen=True):
    """`source` says whose hook it is; the id ends with the call that it stands before or after."""

    id: str
    source: str = ""
    event_name: str = ""


class Hook(Read, frozen=True):
    key: str
    current_hash: str
    event_name: str = ""
    command: str | None = None
    enabled: bool = True


class HooksError(Read, frozen=True):
    message: str = ""


class HooksOfFolder(Read, frozen=True):
    hooks: tuple[Hook, ...] = ()
    errors: tuple[HooksError, ...] = ()


class HooksListed(Read, frozen=True):
    data: tuple[HooksOfFolder, ...] = ()

    def hooks(self) -> tuple[Hook, ...]:
        return tuple(hook for folder in self.data for hook in folder.hooks)

    def wrong(self) -> str:
        """Why it knows of none, if it says so."""
        return next((error.message for folder in self.data for error in folder.errors), "")


class Held(Struct, frozen=True):
    """A call that waits at our gate: codex has not told of it yet. `tool` and `input` are codex's
    words for it. `path` is the file that it keeps of the thread."""

    call: str = msgspec.field(name="tool_use_id")
    turn: str = msgspec.field(name="turn_id")
    tool: str = msgspec.field(name="tool_name")
    input: Raw = msgspec.field(name="tool_input")
    folder: str = msgspec.field(default="", name="cwd")
    path: str | None = msgspec.field(default=None, name="transcript_path")

    def command(self) -> str | None:
        """None if it is no command."""
        return _held_commands.decode(self.input).command if self.tool == "Bash" else None

    def patch(self) -> str | None:
        """None if it is no call of codex's own tool for changes."""
        return _held_commands.decode(self.input).command if self.tool == "apply_patch" else None


class _HeldCommand(Struct, frozen=True):
    command: str


_held = msgspec.json.Decoder(Held)
_held_commands = msgspec.json.Decoder(_HeldCommand)


def held(line: bytes) -> Held:
    """Raises msgspec.DecodeError for what is none."""
    read = _held.decode(line)
    read.command(), read.patch()
    return read


class Over(Struct, frozen=True):
    """A command is over, and this is what it said."""

    call: str = msgspec.field(name="tool_use_id")
    turn: str = msgspec.field(name="turn_id")
    response: Raw = msgspec.field(name="tool_response")

    def said(self) -> str:
        said = msgspec.json.decode(self.response)
        return said if isinstance(said, str) else bytes(self.response).decode("utf-8", "replace")


_over = msgspec.json.Decoder(Over)


def over(written: bytes) -> Over:
    """Raises msgspec.DecodeError for what is none, or not whole yet."""
    return _over.decode(written)
