"""The words of the command line mean the same whether every verb was made for them or only those
that they say."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from steno.cli.keeping.words import HIDDEN
from steno.cli.parsing import parser, query_last

FULL = parser()
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "command-line.md"
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


WITHOUT_JSON = {
    "run": "--output ndjson",
    "continue": "--output ndjson",
    "retry": "--output ndjson",
    "follow": "--output ndjson",
    "export": "what it writes is JSON, or for people",
    "completion": "a script",
    "man": "a page",
    "config edit": "an editor",
    "gateway": "a server",
    "gateway open": "a browser",
    "gateway pair": "a code for a person",
    "gateway unpair": "a person",
    "acp": "a protocol",
    "mcp": "a protocol",
    "store copy": "a person waits for it",
    "carry": "for steno itself",
    "remember": "for steno itself",
    "memory remove": "memory --json remove",
}


def acts(made: argparse.ArgumentParser, named: str = "") -> dict[str, argparse.ArgumentParser]:
    """Every command, and what some do, by name."""
    under = [one for one in made._actions if isinstance(one, argparse._SubParsersAction)]
    found = {} if not named or (under and under[0].required) else {named: made}
    for one in under:
        for name, verb in one.choices.items():
            found |= acts(verb, f"{named} {name}".strip())
    return found


def test_every_command_can_say_what_it_did_as_json() -> None:
    without = {
        name for name, verb in acts(FULL).items() if "--json" not in verb._option_string_actions
    }
    assert without == set(WITHOUT_JSON)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sessions --jsn", "steno sessions: error: unrecognized arguments: --jsn; did you mean"),
        ("--contine", "did you mean --continue?"),
        ("show x --nothing-like-it", "unrecognized arguments: --nothing-like-it\n"),
    ],
)
def test_an_unknown_option_is_told_by_its_command_with_what_was_meant(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser(line.split()).parse_args(line.split())
    assert said in capsys.readouterr().err


def test_every_command_shows_how_it_is_used() -> None:
    page = {f"  {line}" for line in PAGE.read_text(encoding="utf-8").splitlines()}
    for name, verb in acts(FULL).items():
        if name.partition(" ")[0] not in HIDDEN:
            told = verb.format_help().partition("examples:\n")[2].splitlines()
            assert told, name
            assert set(told) <= page, name
            for line in told:
                assert f"steno {name}" in line, line
