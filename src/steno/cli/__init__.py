"""The command line. A contract: scripts rely on its names, its output and its exit status.

0 done · 1 failed · 2 usage, or an unknown id · 130 interrupted
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from steno.cli import stdio
from steno.cli.parsing import parser, prompted, query_last
from steno.frontend import first_frame

FAILED = 1
INTERRUPTED = 130
YOUNG_MAX = 100_000
"""New objects before Python looks for garbage among them: what is loaded stays, and looking through
it would be a useless wait."""


def main(argv: Sequence[str] | None = None) -> int:
    """Called without words, this is the program, and it ends here: everything is closed by then,
    and nothing is gained by taking the interpreter apart, module by module."""
    status = _carry_out(argv)
    if argv is None:
        os._exit(status)
    return status


def _carry_out(argv: Sequence[str] | None) -> int:
    stdio.prepare()
    words = prompted(sys.argv[1:] if argv is None else argv)
    try:
        return _main(parser(words).parse_args(query_last(words)))
    except stdio.OutputLost as error:
        if not isinstance(
            error.__cause__, BrokenPipeError
        ):  # a reader that has seen enough needs no telling
            stdio.complain(f"the output could not be written: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        stdio.finish()


def _main(options: argparse.Namespace) -> int:
    if options.version:
        from importlib.metadata import version

        stdio.show(f"steno {version('steno-agent')}")
        return 0
    if options.verb in ("completion", "man"):
        from steno.cli.keeping import manual

        whole = parser()
        if options.verb == "man":
            return manual.manual(whole)
        return manual.completion(whole, options.shell)
    gc.set_threshold(YOUNG_MAX)
    if (
        options.verb is None
        and not options.plain
        and not options.verbose
        and first_frame.usable()
    ):
        _begin_chat(options)
    from steno.cli import (
        commands,
    )  # heavy, and so behind the parser: --help stays quick

    gc.freeze()
    return commands.run(options)


def _begin_chat(options: argparse.Namespace) -> None:
    if options.resume is not None or options.latest:
        first_frame.show("", "", "opening the session")
        return
    text = "" if options.ephemeral else first_frame.WELCOME
    first_frame.show("a new session", text, "starting")
