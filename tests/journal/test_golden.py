"""Old bytes stay readable for ever. How to add golden journals, and why never to edit one, is in
goldens.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from steno.journal.codec import TAGS, decode, encode
from steno.journal.facts import SessionStarted
from tests.journal import goldens
from tests.journal.declarations import declared_fields, written_fields

every_journal = pytest.mark.parametrize("journal", goldens.journals(), ids=lambda path: path.stem)


@every_journal
def test_each_line_decodes_and_encodes_to_the_same_bytes(journal: Path) -> None:
    for body in goldens.bodies(journal):
        assert encode(decode(body)) == body


@every_journal
def test_each_line_means_what_it_meant_when_it_was_written(journal: Path) -> None:
    then = json.loads(goldens.snapshot(journal, "facts").read_text())
    assert same_as_far_as_known(then, goldens.facts(journal)) == then


@every_journal
def test_the_views_say_what_they_said(journal: Path) -> None:
    then = json.loads(goldens.snapshot(journal, "views").read_text())
    assert same_as_far_as_known(then, goldens.views(journal)) == then


def test_every_tag_is_in_a_golden_journal() -> None:
    found = {
        json.loads(body)["type"]
        for journal in goldens.journals()
        for body in goldens.bodies(journal)
    }
    assert found == TAGS


def test_every_part_outcome_and_field_is_in_a_golden_journal() -> None:
    decoded = [decode(body) for journal in goldens.journals() for body in goldens.bodies(journal)]
    assert written_fields(decoded) == declared_fields()


@every_journal
def test_a_golden_journal_is_a_whole_session(journal: Path) -> None:
    assert isinstance(decode(goldens.bodies(journal)[0]), SessionStarted)


def same_as_far_as_known(was: Any, is_now: Any) -> Any:
    """What is there now without the fields that nobody knew then."""
    if isinstance(was, dict) and isinstance(is_now, dict):
        return {
            name: same_as_far_as_known(was[name], value)
            for name, value in is_now.items()
            if name in was
        }
    if isinstance(was, list) and isinstance(is_now, list) and len(was) == len(is_now):
        return [same_as_far_as_known(*pair) for pair in zip(was, is_now, strict=True)]
    return is_now
