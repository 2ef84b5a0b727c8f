"""What `import steno` costs and loads: whole processes, less an empty one, by turns with `import
sqlite3, json`.

All of them find compiled modules in a cache of this run's own, as an installed program does.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.result import Plan, Result, at_most, noted
from bench.timing import bounded, timed_ms
from steno.store.sqlite.store import BlockingStore

NAME = "import"
UNWELCOME = frozenset(
    """
    socket ssl http urllib.request requests httpx httpcore aiohttp urllib3 websockets asyncio
    curses readline tkinter prompt_toolkit textual rich openai anthropic google mcp psycopg asyncpg
    """.split()  # noqa: SIM905 - a table reads better than a list of strings
)
"""Packages for networks, screens and providers: none of them may be loaded before it is used."""

_BASE = "import sqlite3, json"
_LIST = "\nimport sys; print(*sys.modules)"


def run(plan: Plan) -> list[Result]:
    path = Path(plan.folder) / "imports.db"
    BlockingStore(path).close()
    rounds = plan.pick(25, 9)
    compiled = {
        **os.environ,
        "PYTHONPYCACHEPREFIX": str(Path(plan.folder) / "compiled"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    scripts = {
        "import steno": "import steno",
        "import steno; steno.open": "import steno; steno.open",
        "import steno; steno.open(…)": f"import steno; steno.open({str(path)!r})",
    }
    base_ms, costs_ms = _costs_ms([_BASE, *scripts.values()], rounds, compiled)
    detail = f"against {base_ms:.1f} ms; whole process less `pass`, median of {rounds}"
    [(first, first_ms), *rest] = zip(scripts, costs_ms, strict=True)
    results = [at_most(NAME, first, first_ms / base_ms, 5, detail=f"{first_ms:.1f} ms {detail}")]
    results += [
        noted(NAME, what, cost_ms / base_ms, detail=f"{cost_ms:.1f} ms") for what, cost_ms in rest
    ]
    unwelcome = sorted(_loaded(scripts["import steno; steno.open(…)"], compiled) & UNWELCOME)
    count = float(len(unwelcome))
    return [
        *results,
        at_most(NAME, "network, UI and SDK packages loaded", count, 0, "", ", ".join(unwelcome)),
    ]


def _costs_ms(scripts: list[str], rounds: int, env: dict[str, str]) -> tuple[float, list[float]]:
    """What each script takes beyond an empty one; the first apart."""
    all_scripts = ["pass", *scripts]
    taken_ms: list[list[float]] = [[] for _ in all_scripts]
    for script in all_scripts:
        _python(script, env)
    for _ in bounded(rounds):
        for script, took_ms in zip(all_scripts, taken_ms, strict=True):
            took_ms.append(timed_ms(lambda script=script: _python(script, env)))  # type: ignore[misc]
    empty_ms, base_ms, *costs_ms = (median(took_ms) for took_ms in taken_ms)
    return base_ms - empty_ms, [cost_ms - empty_ms for cost_ms in costs_ms]


def _loaded(script: str, env: dict[str, str]) -> set[str]:
    return set(_python(script + _LIST, env).split())


def _python(script: str, env: dict[str, str]) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=env, check=True, capture_output=True, text=True, timeout=60
    ).stdout
