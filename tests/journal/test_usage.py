"""What a session cost: unknown is not 0."""

import pytest

from steno.journal.facts import Compacted, Fact, HelperEnded, StepLost, StepSealed, Usage
from steno.journal.usage import UsageTotal
from tests.journal.folding import fold, in_place


def total(*sequence: Fact) -> UsageTotal:
    return fold(UsageTotal(), in_place(sequence))


def test_reports_are_added_up() -> None:
    assert total(
        StepSealed(1, (), usage=Usage(10, 2, 5, 1)), StepSealed(2, (), usage=Usage(20, 3, 0, 0))
    ) == UsageTotal(calls=2, unreported=0, input=30, output=5, cached=5, reasoning=1)


@pytest.mark.promise(8)
def test_what_nobody_reported_is_unknown_and_a_reported_zero_is_zero() -> None:
    assert total(StepSealed(1, ()), StepSealed(2, (), usage=Usage())) == UsageTotal(
        calls=2, unreported=2
    )
    assert total(StepSealed(1, (), usage=Usage(input=0))) == UsageTotal(calls=1, input=0)


@pytest.mark.promise(8)
def test_a_lost_call_that_may_have_been_sent_counts_and_its_cost_is_unknown() -> None:
    assert total(StepLost(1, "x", "yes"), StepLost(2, "x", "unknown")) == UsageTotal(
        calls=2, unreported=2
    )
    assert total(StepLost(3, "x", "no")) == UsageTotal()


@pytest.mark.promise(8)
def test_a_summary_is_a_call_too() -> None:
    assert total(Compacted(1, "s", usage=Usage(100, 7))) == UsageTotal(calls=1, input=100, output=7)
    assert total(HelperEnded(1, "done", usage=Usage(100, 7))) == UsageTotal(
        calls=1, input=100, output=7
    )
    assert total(HelperEnded(1, "unknown", sent="unknown")) == UsageTotal(calls=1, unreported=1)
    assert total(HelperEnded(1, "stopped", sent="no"), Compacted(1, "s")) == UsageTotal()
