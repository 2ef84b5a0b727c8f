"""The kit proves itself: a store that is whole passes every check, and each broken one fails
exactly its own."""

import json
from pathlib import Path

import pytest

from crashkit.__main__ import level, main, table
from crashkit.checks import CHECKS, run_check
from crashkit.controls import CONTROLS
from crashkit.forks import Forks

SEED = 1


def verdicts(store: str, rounds: int) -> dict[str, str]:
    with Forks(f"crashkit.controls:{store}") as forks:
        return {
            name: run_check(check, forks, SEED, rounds).verdict for name, check in CHECKS.items()
        }


def test_a_whole_store_passes_every_check() -> None:
    assert set(verdicts("Whole", rounds=3).values()) == {"passed"}


@pytest.mark.parametrize("broken", CHECKS)
def test_a_broken_store_fails_the_check_it_is_broken_for_and_no_other(broken: str) -> None:
    found = verdicts(CONTROLS[broken].__name__, rounds=5)
    assert found == {name: "failed" if name == broken else "passed" for name in CHECKS}


def test_every_check_has_a_sentence_and_a_control() -> None:
    assert CONTROLS.keys() == CHECKS.keys()
    assert all(check.sentence.endswith(".") for check in CHECKS.values())


def test_a_level_needs_everything_below_it() -> None:
    passed = dict.fromkeys(CHECKS, "passed")
    assert level(passed) == "platinum"
    assert level(passed | {"shown_text": "not offered"}) == "gold"
    assert level(passed | {"two_writers": "failed"}) == "bronze"
    assert level(passed | {"kill_single": "failed"}) == "none"


def test_results_become_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "whole.json"
    words = ["run", "store", "crashkit.controls:ForgetsKeys", "--json", str(file)]
    assert main([*words, "--check", "retried_append", "--seed", "7"]) == 1
    assert "--check retried_append --seed 7" in capsys.readouterr().out
    shown = table([json.loads(file.read_text())])
    assert "**stored 3 times**" in shown
    assert "seed 7" in shown
