"""Whether a command that codex asks about is to leave its sandbox: what is not known to stay inside
may leave."""

from typing import Any

import pytest

from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.policy import covers_leaving, leaves


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"cmd": "ls"}, False),
        ({"cmd": "ls", "sandbox_permissions": "use_default"}, False),
        ({"cmd": "ls", "sandbox_permissions": None}, False),
        ({"cmd": "ls", "sandbox_permissions": "require_escalated"}, True),
        ({"cmd": "ls", "sandbox_permissions": "something else"}, True),
        ({"cmd": "ls", "additional_permissions": {"network": {"enabled": True}}}, True),
        ({"cmd": "ls", "with_escalated_permissions": True}, True),
    ],
)
def test_only_a_command_that_asks_for_no_rights_is_known_to_stay(
    arguments: Any, expected: bool | None
) -> None:
    assert leaves([arguments]) is expected
    assert leaves([{"cmd": "ls"}, arguments]) is expected, "each may be the one"


def test_of_a_call_that_nobody_knows_it_is_not_known_whether_it_stays() -> None:
    assert leaves([]) is None


COMMAND = p.CommandApproval("c1", "to look")
CHANGE = p.FileApproval("c1", "to look")


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    ("asked", "leaves", "confined", "expected"),
    [
        (COMMAND, True, True, True),
        (COMMAND, None, True, True),
        (COMMAND, False, True, False),
        (COMMAND, True, False, False),
        (CHANGE, None, True, True),
        (CHANGE, None, False, False),
    ],
)
def test_a_yes_covers_leaving_only_where_the_question_was_about_that(
    asked: p.CommandApproval | p.FileApproval, leaves: bool | None, confined: bool, expected: bool
) -> None:
    assert covers_leaving(asked, leaves, confined) is expected
