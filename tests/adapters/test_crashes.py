"""Every adapter through kills, two writers, a full disk, damage and a retry, by crashkit."""

from collections.abc import Iterator

import pytest

from crashkit.checks import CHECKS, run_check
from crashkit.forks import Forks
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
KILLS = {"kill_single": 10, "kill_batch": 10, "shown_text": 20}
"""At random moments: 20 of each adapter, and ten times as many in `make torture`."""
OFTEN = 10
ROUNDS = 2


@pytest.fixture(scope="module")
def adapters() -> Iterator[dict[str, Forks]]:
    """A process for each that has loaded its framework, and forks those that are killed."""
    opened: dict[str, Forks] = {}
    yield opened
    for forks in opened.values():
        forks.__exit__()


def passes(adapters: dict[str, Forks], store: str, check: str, often: int = 1) -> None:
    if store not in adapters:
        adapters[store] = Forks(f"tests.adapters.crash_stores:{store}").__enter__()
    rounds = KILLS.get(check, ROUNDS) * often
    outcome = run_check(CHECKS[check], adapters[store], SEED, rounds)
    assert (outcome.verdict, outcome.detail) == ("passed", "")


@pytest.mark.promise(76)
@pytest.mark.promise(2)
@pytest.mark.promise(5)
@pytest.mark.promise(16)
@pytest.mark.promise(18)
@pytest.mark.promise(48)
@pytest.mark.promise(50)
@pytest.mark.parametrize(("store", "check"), CASES)
def test_an_adapter_keeps_what_it_acknowledged(
    adapters: dict[str, Forks], store: str, check: str
) -> None:
    passes(adapters, store, check)


@pytest.mark.torture
@pytest.mark.promise(76)
@pytest.mark.promise(48)
@pytest.mark.parametrize(("store", "check"), CASES)
def test_an_adapter_keeps_what_it_acknowledged_often(
    adapters: dict[str, Forks], store: str, check: str
) -> None:
    passes(adapters, store, check, OFTEN)
