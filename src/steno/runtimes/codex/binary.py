"""Where codex is: a path that was configured, the package that carries it, or the PATH."""

import importlib.util
import os
import shlex
import shutil
from pathlib import Path

from steno.tools.child import Command

MISSING = (
    "codex is not installed: pip install 'steno[codex]' brings it, or path under [codex] in "
    "{config} names one that is "
    "there; --runtime native answers without it. Nothing was stored"
)
ELSEWHERE = (
    "there is no codex at {path}, which STENO_CODEX_PATH or path under [codex] in {config} names: "
    "correct it, or take "
    "it out and have the one that pip install 'steno[codex]' brings; --runtime native answers "
    "without codex. Nothing "
    "was stored"
)


def missing(path: str, config: Path) -> str:
    """What to do where there is none."""
    return ELSEWHERE.format(path=path, config=config) if path else MISSING.format(config=config)


def by_hand(command: Command) -> str:
    """How a person calls the codex that steno runs: the one of the package is not on PATH, and a
    home that only steno is told of must be named."""
    program, home = str(command.words[0]), command.environment.get("CODEX_HOME", "")
    called = "codex" if shutil.which("codex") == program else shlex.quote(program)
    return (
        called
        if home == os.environ.get("CODEX_HOME", "")
        else f"CODEX_HOME={shlex.quote(home)} {called}"
    )


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
