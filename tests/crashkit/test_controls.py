"""The kit proves itself: a store that is whole passes every check, and each broken one fails
exactly its own."""

import json
from pathlib import Path

import pytest

from crashkit.__main__ import level, main, table
from crashkit.checks import CHECKS, run_check
from crashkit.controls import CONTROLS

SEED = 1


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_passes_a_whole_store_and_fails_the_one_that_is_broken_for_it(name: str) -> None:
    check, control = CHECKS[name], CONTROLS[name]
    whole = run_check(check, "crashkit.controls:Whole", SEED, rounds=1)
    assert (whole.verdict, whole.detail) == ("passed", "")
    broken = run_check(check, f"crashkit.controls:{control.__name__}", SEED, rounds=5)
    assert broken.verdict == "failed", broken


@pytest.mark.torture
@pytest.mark.parametrize("broken", CHECKS)
def test_a_broken_store_fails_no_other_check(broken: str) -> None:
    target = f"crashkit.controls:{CONTROLS[broken].__name__}"
    verdicts = {name: run_check(check, target, SEED, 6).verdict for name, check in CHECKS.items()}
    assert verdicts == {name: "failed" if name == broken else "passed" for name in CHECKS}


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
