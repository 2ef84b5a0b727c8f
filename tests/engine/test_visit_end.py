"""The end of a visit, by equality."""

import json

import pytest

from steno.engine.visit_end import AtEnd, Reason, Visit, at_end, ending, told
from steno.journal import facts as f
from steno.journal.listing import ListingRow
from tests.journal.folding import said, state

VISIT = Visit("s", 2, "cli")


@pytest.mark.parametrize(
    ("row", "tail", "expected"),
    [
        (ListingRow(), (), AtEnd("none")),
        (ListingRow(last_turn="done", model="m"), (), AtEnd("done", model="m")),
        (ListingRow(last_turn="failed", waiting=[(7, 7)]), (), AtEnd("failed", waiting=True)),
        (
            ListingRow(last_turn="done"),
            (said("hi"), f.TurnStarted(f.Takes(1))),
            AtEnd("interrupted"),
        ),
    ],
)
def test_a_session_is_left_as_recovery_will_close_it(
    row: ListingRow, tail: tuple[f.AnyFact, ...], expected: AtEnd
) -> None:
    assert at_end(row, state(*tail)) == expected


@pytest.mark.promise(39)
@pytest.mark.parametrize(
    ("reason", "at", "completed", "interrupted"),
    [
        ("idle", AtEnd("done"), True, False),
        ("idle", AtEnd("interrupted"), False, True),
        ("idle", AtEnd("failed"), False, False),
        ("idle", AtEnd("none"), False, False),
        ("idle", AtEnd("done", waiting=True), False, True),
        ("killed", AtEnd("done"), True, True),
        ("killed", AtEnd("failed"), False, True),
        ("killed", AtEnd("done", waiting=True), False, True),
    ],
)
def test_plugins_are_told_exactly_what_happened(
    reason: Reason, at: AtEnd, completed: bool, interrupted: bool
) -> None:
    assert told(VISIT, reason, at) == {
        "session_id": "s",
        "completed": completed,
        "interrupted": interrupted,
        "model": "",
        "platform": "cli",
        "reason": reason,
        "key": "s:ended:2",
    }


def test_an_end_and_what_it_owes_are_facts_for_one_commit() -> None:
    at = AtEnd("done", model="m")
    assert ending(VISIT, "left", at, (), "me") == (f.SessionEnded("left", "done", 2),)
    ended, owed = ending(VISIT, "left", at, ("a", "b"), "me")
    assert ended == f.SessionEnded("left", "done", 2)
    assert isinstance(owed, f.HookOwed)
    assert (owed.plugins, owed.attended, owed.by) == (("a", "b"), 2, "me")
    assert json.loads(owed.arguments) == told(VISIT, "left", at)
