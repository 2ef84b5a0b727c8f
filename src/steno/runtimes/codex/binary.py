"""Where codex is: a path that was configured, the package that carries it, or the PATH."""

import importlib.util
import os
import shlex
import shutil
from pathlib import Path

from steno.tools.child import Command


def by_hand(command: Command) -> str:
    """How a person calls the codex that steno runs: the one of the package is not on PATH, and a
    home that only steno is told of must be named."""
    program, home = str(command.words[0]), command.environment.get("CODEX_HOME", "")
    called = "codex" if shutil.which("codex") == program else shlex.quote(program)
    is_usual = home == os.environ.get("CODEX_HOME", "")
    return called if is_usual else f"CODEX_HOME={shlex.quote(home)} {called}"


def find(path: str) -> Path | None:
    """None if there is none."""
    if path:
        found = Path(path).expanduser()
        return found if found.is_file() else None
    if importlib.util.find_spec("codex_cli_bin") is not None:
        import codex_cli_bin

        try:
            return Path(codex_cli_bin.bundled_codex_path())
        except FileNotFoundError:
            return None
    on_path = shutil.which("codex")
    return None if on_path is None else Path(on_path)
