"""The words of the command line mean the same whether every verb was made for them or only those
that they say."""

import argparse
from typing import Any

import pytest

from steno.cli.parsing import parser, query_last

FULL = parser()
(VERBS,) = (
    action.choices for action in FULL._actions if isinstance(action, argparse._SubParsersAction)
)
WORDS = (
    "",
    "--help",
    "nope",
    "ru hello",
    "--res x",
    "-- run hello",
    "run show",
    "--model run show x",
    "--yes run hello --mod x",
    "--nope show x",
    "memory remove",
    "memory remove a:1.1",
    "memory --json remove a:1.1",
    "memory remove --help",
    "remove",
    "rewind x --to 1 --withdraw 2",
)
ENDINGS = (
    "",
    " --help",
    " x",
    " x 1",
    " x --json",
    " x --yes",
    " x --seq 3",
    " x --limit 0",
    " x --ask wait --model y",
)


def meaning(
    made: argparse.ArgumentParser, words: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[Any, ...]:
    """What was understood, or the status; and everything that was written."""
    try:
        understood: Any = vars(made.parse_args(words))
    except SystemExit as left:
        understood = left.code
    return understood, *capsys.readouterr()


def test_a_parser_for_some_words_understands_them_as_one_for_all_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in (*WORDS, *(verb + ending for verb in VERBS for ending in ENDINGS)):
        words = line.split()
        assert meaning(parser(words), words, capsys) == meaning(FULL, words, capsys), line


@pytest.mark.parametrize("words", ["x --html f", "--html x f", "x f --html", "--html x -- f"])
def test_the_file_of_an_export_may_stand_anywhere(words: str) -> None:
    options = FULL.parse_args(query_last(["export", *words.split()]))
    assert (options.id, options.file, options.html) == ("x", "f", True)
