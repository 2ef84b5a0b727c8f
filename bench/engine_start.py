"""What a person waits for at the prompt of a shell: whole processes, against `python -c pass`.

All of them find compiled modules in a cache of this run's own, as an installed program does.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

from bench.result import Plan, Result, at_most
from bench.timing import bounded, timed_ms

NAME = "start"
TEXT = "hello"


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith("STENO_")} | {
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "PYTHONDONTWRITEBYTECODE": "",
        "STENO_HOME": str(folder / "home"),
    }
    python = [sys.executable, "-c", "pass"]
    steno = [sys.executable, "-m", "steno"]
    cases = {
        "steno run, scripted model, a session of its own": (
            [*steno, "run", TEXT, "--model", "scripted:echo"],
            15.0,
        ),
        "steno --help": ([*steno, "--help"], 6.0),
    }
    rounds = plan.pick(21, 7)
    results = []
    for what, (command, limit) in cases.items():
        _ran(command, env)
        pairs = [
            (timed_ms(partial(_ran, command, env)), timed_ms(partial(_ran, python, env)))
            for _ in bounded(rounds)
        ]
        ours, base = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        detail = f"{ours:.0f} / {base:.1f} ms; {rounds} rounds"
        results.append(at_most(NAME, what, median(a / b for a, b in pairs), limit, detail=detail))
    return results


def _ran(command: list[str], env: dict[str, str]) -> None:
    subprocess.run(
        command, env=env, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
    )
