"""Scripts that complete commands, and the manual page: both made from the parser, so that they say
what the program has."""

import argparse
import re
from collections.abc import Iterator

from steno.cli.keeping.words import EXAMPLES, HIDDEN
from steno.cli.stdio import complain, show


def completion(root: argparse.ArgumentParser, shell: str) -> int:
    try:
        import shtab
    except ModuleNotFoundError:
        complain(
            "the package shtab is missing: pip install shtab; nothing was printed"
        )
        return 1
    verbs = _verbs(root)
    for name in HIDDEN:
        verbs.choices.pop(name, None)
    show(shtab.complete(root, shell=shell))
    return 0


def manual(root: argparse.ArgumentParser) -> int:
    show("\n".join(_page(root)))
    return 0


def _verbs(
    root: argparse.ArgumentParser,
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    return next(
        action
        for action in root._actions
        if isinstance(action, argparse._SubParsersAction)
    )


def _page(root: argparse.ArgumentParser) -> Iterator[str]:
    yield '.TH STENO 1 "" "steno" "User Commands"'
    yield ".SH NAME\nsteno \\- an agent whose transcript never lies: written before shown"
    yield ".SH SYNOPSIS\n.B steno\n[OPTIONS] [COMMAND] ..."
    yield ".SH OPTIONS"
    yield from _options(root)
    yield ".SH COMMANDS"
    verbs = _verbs(root)
    helps = {one.dest: one.help or "" for one in verbs._choices_actions}
    for name, verb in verbs.choices.items():
        if name not in HIDDEN:
            usage = re.sub(r"\s+", " ", verb.format_usage().removeprefix("usage: "))
            yield f".SS steno {_safe(name)}\n{_safe(helps.get(name, ''))}\n.PP\n{_safe(usage)}"
            yield from _options(verb)
            if name in EXAMPLES:
                yield f".PP\nExamples:\n.nf\n{_safe(EXAMPLES[name])}\n.fi"
    yield ".SH EXIT STATUS\n0 done; 1 failed; 2 usage, or an unknown id; 130 interrupted"
    yield ".SH FILES\n.I ~/.steno\nthe store, config.toml and keys.json; STENO_HOME names another"


def _options(verb: argparse.ArgumentParser) -> Iterator[str]:
    for action in verb._actions:
        if (
            isinstance(action, argparse._SubParsersAction)
            or action.help == argparse.SUPPRESS
        ):
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        takes = (
            ""
            if action.nargs == 0 or not action.option_strings
            else f" {_value(action)}"
        )
        help = (action.help or "").replace("%%", "%")
        yield f".TP\n.B {_safe(names + takes)}\n{_safe(help)}"


def _value(action: argparse.Action) -> str:
    if action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _safe(text: str) -> str:
    """Text as roff takes it: no line of it is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)
