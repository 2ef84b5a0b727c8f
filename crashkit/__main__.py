"""python -m crashkit list | run store MODULE:NAME | score FILE..."""

import argparse
import json
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crashkit.checks import CHECKS, LEVELS, run_check
from crashkit.child import find
from crashkit.forks import Forks

SIGNS = {"passed": "pass", "not offered": "not offered", "unreachable": "not reached"}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crashkit", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="the checks, each with one sentence")
    run = verbs.add_parser("run", help="put a store through them")
    run.add_argument("what", choices=("store",))
    run.add_argument("target", metavar="MODULE:NAME")
    run.add_argument("--check", action="append", choices=tuple(CHECKS), help="only this one")
    run.add_argument("--rounds", type=int, default=12, help="kills and damages of each check")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--json", metavar="FILE", type=Path, help="for crashkit score")
    score = verbs.add_parser("score", help="a table of results, in Markdown")
    score.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(words)
    if options.verb == "list":
        for check in CHECKS.values():
            print(f"{check.name:<15} {check.level:<9} {check.sentence}")
        return 0
    if options.verb == "score":
        print(table([json.loads(file.read_text()) for file in options.files]))
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    sys.path.insert(0, str(Path.cwd()))
    kind = find(options.target)
    outcomes = []
    print(f"{options.target} {getattr(kind, 'version', '')}, seed {options.seed}", flush=True)
    with Forks(options.target) as forks:
        for name in options.check or CHECKS:
            outcome = run_check(CHECKS[name], forks, options.seed, options.rounds)
            outcomes.append(outcome)
            print(f"{name:<15} {outcome.verdict:<12} {outcome.detail}", flush=True)
            if outcome.verdict == "failed":
                again = f"{options.target} --check {name} --seed {options.seed}"
                print(f"{'':<15} again: python -m crashkit run store {again}", flush=True)
    if options.json is not None:
        result = {
            "store": getattr(kind, "title", kind.__name__),
            "version": str(getattr(kind, "version", "")),
            "seed": options.seed,
            "rounds": options.rounds,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "python": platform.python_version(),
            "outcomes": [asdict(one) for one in outcomes],
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(one.verdict == "failed" for one in outcomes))


def level(verdicts: dict[str, str]) -> str:
    """The highest level of which everything passed, with all below it."""
    reached = "none"
    for one in LEVELS:
        needed = [check.name for check in CHECKS.values() if check.level == one]
        if any(verdicts.get(name) != "passed" for name in needed):
            break
        reached = one
    return reached


def table(results: list[dict[str, Any]]) -> str:
    heads = ["store", *(name.replace("_", " ") for name in CHECKS), "passed", "level"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    notes = []
    for result in results:
        found = {one["check"]: one for one in result["outcomes"]}
        verdicts = {name: one["verdict"] for name, one in found.items()}
        cells = [_cell(found.get(name)) for name in CHECKS]
        passed = sum(verdict == "passed" for verdict in verdicts.values())
        name = f"{result['store']} {result['version']}".strip()
        lines.append("| " + " | ".join([name, *cells, f"{passed} of {len(CHECKS)}"]))
        lines[-1] += f" | {level(verdicts)} |"
        notes.append(
            f"- {name}: seed {result['seed']}, {result['rounds']} rounds, {result['date']}, "
            f"Python {result['python']}"
        )
    return "\n".join([*lines, "", *notes])


def _cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not run"
    if outcome["verdict"] == "failed":
        return f"**{outcome['detail'].replace('|', '/')[:90]}**"
    return SIGNS[outcome["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
