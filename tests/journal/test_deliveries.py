"""Which deliveries are open, and what each would tell: a fold that the row for lists holds."""

from steno.journal import facts as f
from steno.journal.codec import decode_listing, encode
from steno.journal.debts import SETTLED_MAX, OwedDeliveries, OwedDelivery
from steno.journal.listing import ListingRow
from tests.journal.folding import fold, in_place, said

OWED = f.DeliveryOwed(2, "phone", "example.org", "k", 60)
ACCEPTED: list[f.AnyFact] = [f.SessionStarted("cli"), said("hi"), OWED]
TAKEN: list[f.AnyFact] = [*ACCEPTED, f.TurnStarted(f.Takes(2))]
ENDED: list[f.AnyFact] = [*TAKEN, f.TurnEnded(4, "interrupted", "killed")]


def row(*sequence: f.AnyFact) -> ListingRow:
    return fold(ListingRow(), in_place(sequence))


def folded(*sequence: f.AnyFact) -> OwedDeliveries:
    return row(*sequence).deliveries


def the_one(*sequence: f.AnyFact) -> OwedDelivery:
    (one,) = folded(*sequence).open.values()
    return one


def test_it_is_owed_with_the_input_taken_by_a_turn_and_due_with_its_end() -> None:
    assert the_one(*ACCEPTED) == OwedDelivery(2, 60, channel="phone", since_ms=3_000)
    assert the_one(*TAKEN) == OwedDelivery(2, 60, channel="phone", since_ms=3_000, taken=4)
    assert the_one(*ENDED) == OwedDelivery(2, 60, channel="phone", since_ms=5_000, taken=4, turn=4)
    assert row(*ENDED).owes()


def test_an_input_that_steers_is_answered_by_the_turn_that_is_open() -> None:
    steered = (
        f.SessionStarted("cli"),
        said("one"),
        f.TurnStarted(f.Takes(2)),
        said("two", "steer"),
    )
    owed = f.DeliveryOwed(4, "phone", "example.org", "k")
    taken = (*steered, owed, f.StepStarted("m", takes=(4,)))
    assert the_one(*taken).taken == 6
    assert the_one(*taken, f.TurnEnded(3, "done")).turn == 3


def test_the_end_of_another_turn_is_not_the_answer() -> None:
    before = (f.SessionStarted("cli"), said("one"), f.TurnStarted(f.Takes(2)), said("two"))
    assert the_one(*before, f.DeliveryOwed(4, "phone", "x", "k"), f.TurnEnded(3, "done")).turn == 0


def test_what_is_continued_or_run_again_before_anybody_was_told_is_told_with_its_last_end() -> None:
    continued = (*ENDED, f.TurnStarted(f.Continues(4)))
    assert the_one(*continued).turn == 0
    assert the_one(*continued, f.TurnEnded(6, "done")).turn == 6
    again = (*ENDED, f.TurnStarted(f.Takes(2)), f.TurnEnded(6, "done"))
    assert (the_one(*again).taken, the_one(*again).turn) == (6, 6)


def test_what_was_tried_stays_what_it_was() -> None:
    tried = (
        *ENDED,
        f.DeliveryAttempted(3, "me", 4),
        f.TurnStarted(f.Continues(4)),
        f.TurnEnded(7, "done"),
    )
    assert (the_one(*tried).turn, the_one(*tried).tries, the_one(*tried).by) == (4, 1, "me")
    open_still = (*TAKEN, f.DeliveryAttempted(3, "me", 4), f.TurnEnded(4, "interrupted", "killed"))
    assert the_one(*open_still).turn == 4, "a view showed it as ended before that was stored"


def test_a_try_that_failed_leaves_it_owed_and_says_why() -> None:
    failed = (
        *ENDED,
        f.DeliveryAttempted(3, "me", 4),
        f.DeliverySettled(3, f.DeliveryRefused("status 503")),
    )
    one = the_one(*failed)
    assert (one.tries, one.tried_ms, one.by, one.cause) == (1, 6_000, "", "status 503")
    assert the_one(*failed, f.DeliveryAttempted(3, "you", 4)).cause == ""


def test_it_is_owed_until_it_arrived_expired_was_refused_or_taken_back() -> None:
    for outcome in (f.Delivered("r"), f.DeliveryExpired(), f.DeliveryRefused("gone", final=True)):
        assert folded(*ENDED, f.DeliverySettled(3, outcome)) == OwedDeliveries(settled=[(3, 6)])
    assert folded(*ACCEPTED, f.InputWithdrawn(2)) == OwedDeliveries(settled=[(3, 4)])
    assert not row(*ACCEPTED, f.InputWithdrawn(2)).owes()


def test_of_those_that_are_settled_the_last_few_are_remembered() -> None:
    facts = [f.DeliveryOwed(2, "phone", "x", str(number)) for number in range(SETTLED_MAX + 2)]
    settled = [f.DeliverySettled(seq, f.Delivered()) for seq in range(3, 3 + len(facts))]
    assert [owed for owed, _ in folded(*ACCEPTED[:2], *facts, *settled).settled] == list(
        range(5, 3 + len(facts))
    )


def test_a_fork_owes_nothing_of_it() -> None:
    assert (
        folded(*ENDED, f.SessionStarted("cli", forked_from=f.ForkPoint("s", 5))) == OwedDeliveries()
    )


def test_the_row_with_it_is_read_as_it_was_written() -> None:
    tried = row(*ENDED, f.DeliveryAttempted(3, "me", 4))
    assert decode_listing(encode(tried)) == tried
