"""What a command may use and see, as far as the system gives it without root.

    Scrub     variables that it does not get. It keeps a secret from getting into a transcript by
              accident; it does not confine a command
    Bounds    limits that the system itself enforces on each process of a command
    bwrap     bubblewrap, where it is installed and asked for: all but the workspace is read-only,
              steno's own folder is not there, and there is no network unless it is allowed

A sandbox that was asked for and cannot be had is an error, never a command that runs without it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

MISSING = (
    'sandbox = "bwrap" is set under [tools], but there is no program bwrap. Install bubblewrap '
    '(Debian: apt install bubblewrap), or set sandbox = "none"'
)
_BLOCK_BYTES = 512
_HIDDEN = (
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(_|$)"
    r"|_(PASS|PWD|PAT|DSN)$"
    r"|^(AWS|AZURE|OPENAI|ANTHROPIC)_"
)


class Scrub(Struct, frozen=True):
    """What of our environment a child process gets: everything but what looks like a secret, by
    name only. `secret` are names beside those that look like one, `kept` those that a child gets
    all the same."""

    secret: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def clean(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in environment.items()
            if not self._hides(name)
        }

    def _hides(self, name: str) -> bool:
        if name in self.kept:
            return False
        return (
            name in self.secret or re.search(_HIDDEN, name, re.IGNORECASE) is not None
        )


class Bounds(Struct, frozen=True):
    """For each process of a command. 0: no limit but the system's own."""

    cpu_s: int = 0
    memory_mb: int = 0
    open_files: int = 0
    file_mb: int = 0

    def as_shell(self) -> str:
        """Statements of sh that set the limits, hard and soft. One that the system does not know
        ends the shell."""
        limits = (
            ("t", self.cpu_s),
            ("v", self.memory_mb * 1024),
            ("n", self.open_files),
            ("f", self.file_mb * 1024 * 1024 // _BLOCK_BYTES),
        )
        return "".join(
            f"ulimit -{letter} {value} || exit 125; "
            for letter, value in limits
            if value
        )


class Sandbox(Struct, frozen=True):
    """`hidden` are folders that a command must not see; no file tool touches them, whatever the
    kind."""

    kind: Literal["none", "bwrap"] = "none"
    network: bool = False
    hidden: tuple[Path, ...] = ()

    def missing(self) -> str:
        """Why it cannot be had; empty if it can."""
        if self.kind != "bwrap":
            return ""
        from shutil import which

        return MISSING if which("bwrap") is None else ""

    def around(self, words: list[str], folder: Path) -> list[str]:
        """The words of a command that runs other words inside."""
        if self.kind == "none":
            return words
        root = folder.resolve()
        inside = str(root)
        hidden = [path.resolve() for path in self.hidden if path.exists()]
        wrapped = [
            "bwrap",
            "--die-with-parent",
            "--unshare-pid",
            "--unshare-ipc",
            "--ro-bind",
            "/",
            "/",
        ]
        wrapped += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108 it is the command's own
        wrapped += [*_covered(hidden), "--bind", inside, inside]
        wrapped += _covered(
            [path for path in hidden if path.is_relative_to(root)]
        )  # what is bound uncovers it
        wrapped += ["--chdir", inside]
        if not self.network:
            wrapped.append("--unshare-net")
        return [*wrapped, "--", *words]


def _covered(folders: Sequence[Path]) -> list[str]:
    """An empty folder in the place of each."""
    return [word for folder in folders for word in ("--tmpfs", str(folder))]
