"""What a start loads: a person waits for each module, so what a run has no use for stays on the
disk."""

import subprocess
import sys
from pathlib import Path

from tests.program.world import World

UNUSED = (
    "aiohttp",
    "email",
    "importlib.metadata",
    "mcp",
    "pluggy",
    "rich",
    "textual",
    "xllamacpp",
    "steno.delivery",
    "steno.library",
    "steno.models.http",
    "steno.plugins.hosts",
    "steno.runtimes.codex.driver",
    "steno.runtimes.compact",
    "steno.runtimes.tool_calls",
    "steno.tools.shell",
    "steno.tools.search",
    "steno.store.import_session",
    "steno.store.verify",
    "json",
    "steno.tools.mcp",
    "steno.transfer",
    "steno.tui",
    "tomllib",
    "zipfile",
)
ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (("run", "hello", "--model", "scripted:echo"), ("sessions",), ("--help",))
MODULES_MAX = {
    ("-m", "steno", *COMMANDS[0]): 127,
    ("-m", "steno", *COMMANDS[1]): 90,
    ("-m", "steno", *COMMANDS[2]): 9,
    ("-c", "import steno; steno.open"): 52,
    ("-c", "import steno"): 1,
}
"""Modules of steno that a start may load: each is read from the disk while a person waits."""


def loaded(world: World, *words: str) -> set[str]:
    return loaded_by(world, "-m", "steno", *words)


def loaded_by(world: World, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        env=world.environment,
        cwd=world.work,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }


def test_a_command_loads_nothing_that_it_has_no_use_for(world: World) -> None:
    loaded(
        world, *COMMANDS[0]
    )  # the first start of all looks for plugins, and remembers that there are none
    for words in COMMANDS:
        modules = loaded(world, *words)
        assert "steno.cli" in modules
        assert not [
            name
            for name in sorted(modules)
            if any(f"{name}.".startswith(f"{one}.") for one in UNUSED)
        ], words


def test_a_start_loads_few_modules(world: World) -> None:
    loaded(world, *COMMANDS[0])
    found = {
        words: sorted(name for name in loaded_by(world, *words) if f"{name}.".startswith("steno."))
        for words in MODULES_MAX
    }
    assert {words: names for words, names in found.items() if len(names) > MODULES_MAX[words]} == {}


def test_what_a_turn_loads_is_loaded_before_the_tests_fork_for_it(world: World) -> None:
    script = (
        "import sys; from steno.cli import main; from tests.program import forking\n"
        "forking._load()\n"
        "before = set(sys.modules)\n"
        f"main({list(COMMANDS[0])!r})\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith('steno.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=world.environment | {"PYTHONPATH": str(ROOT)},
        cwd=world.work,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1].split() == ["steno.models.scripted"]
