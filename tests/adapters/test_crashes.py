"""Every adapter through kills, two writers, a full disk, damage and a retry, by crashkit."""

import pytest

from crashkit.checks import CHECKS, run_check
from tests.chance import SEED

STORES = ("OpenAIAgents", "ClaudeAgent", "LangGraph", "PydanticAI")
OFFERED = {"retried_append": ("ClaudeAgent",), "stale_writer": ("PydanticAI",)}
CASES = [
    (store, check)
    for store in STORES
    for check in CHECKS
    if check != "shown_text" and store in OFFERED.get(check, STORES)
]
CASES.append(("OpenAIShown", "shown_text"))
QUICK = [
    ("ClaudeAgent", "kill_batch", 5),
    ("OpenAIAgents", "kill_single", 5),
    ("OpenAIAgents", "damaged_bytes", 2),
]
"""Those whose processes start quickly, often: they need no framework."""


def _passes(store: str, check: str, rounds: int) -> None:
    outcome = run_check(CHECKS[check], f"tests.adapters.crash_stores:{store}", SEED, rounds)
    assert (outcome.verdict, outcome.detail) == ("passed", "")


@pytest.mark.promise(76)
@pytest.mark.promise(2)
@pytest.mark.promise(50)
@pytest.mark.parametrize(("store", "check", "rounds"), QUICK)
def test_an_adapter_keeps_what_it_acknowledged(store: str, check: str, rounds: int) -> None:
    _passes(store, check, rounds)


@pytest.mark.torture
@pytest.mark.promise(76)
@pytest.mark.promise(48)
@pytest.mark.parametrize(("store", "check"), CASES)
def test_an_adapter_keeps_what_it_acknowledged_often(store: str, check: str) -> None:
    _passes(store, check, 25)
