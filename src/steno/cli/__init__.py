"""The command line. A contract: scripts rely on its names, its output and its exit status.

0 done · 1 failed · 2 usage, or an unknown id · 130 interrupted
"""

import argparse
from collections.abc import Sequence

from steno.cli import screen

FAILED = 1
INTERRUPTED = 130
LIMIT_MAX = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    screen.prepare()
    try:
        return _main(parser().parse_args(argv))
    except screen.OutputLost as error:
        if not isinstance(error.__cause__, BrokenPipeError):  # a reader that has seen enough needs no telling
            screen.complain(f"the output could not be written: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        screen.finish()


def _main(options: argparse.Namespace) -> int:
    if options.version:
        from importlib.metadata import version

        screen.show(f"steno {version('steno')}")
        return 0
    from steno.cli import commands  # everything heavy is loaded behind the parser, so that --help stays quick

    return commands.run(options)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="steno", description="An agent whose transcript never lies: written before shown."
    )
    verbs = root.add_subparsers(dest="verb", metavar="COMMAND")
    root.add_argument("--resume", metavar="ID", help="go on with this session")
    root.add_argument("--continue", dest="latest", action="store_true", help="go on with the latest session")
    root.add_argument("--model", metavar="SPEC", help="e.g. openai-chat:NAME, anthropic:NAME, local:smollm2")
    root.add_argument("--yes", action="store_true", help="approve every tool call")
    root.add_argument("--version", action="store_true", help="say which steno this is")
    _add_turns(verbs)
    _add_looks(verbs)
    _add_edits(verbs)
    _add_keeping(verbs)
    return root


Verbs = argparse._SubParsersAction  # the only name argparse has for it


def _add_turns(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    run = verbs.add_parser("run", help="one turn; text streams to stdout")
    run.add_argument("prompt", help="what to say; - reads it from standard input")
    run.add_argument("--session", metavar="ID", help="in this session")
    run.add_argument("--key", metavar="NAME", help="in the session bound to NAME, made if absent")
    run.add_argument("--steer", action="store_true", help="into the running turn, at its next step, if there is one")
    run.add_argument("--input-id", metavar="ID", help="the same id again gives the first answer, not a second turn")
    for verb, text in (("continue", "take up a turn that was cut off"), ("retry", "run a failed prompt again")):
        _with_id(verbs.add_parser(verb, help=text))
    for turn in (run, verbs.choices["continue"], verbs.choices["retry"]):
        turn.add_argument("--model", metavar="SPEC", default=argparse.SUPPRESS)
        turn.add_argument("--yes", action="store_true", default=argparse.SUPPRESS, help="approve every tool call")
        turn.add_argument("--output", choices=("text", "ndjson"), default="text")


def _add_looks(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    sessions = verbs.add_parser("sessions", help="list sessions, the latest first")
    sessions.add_argument("--limit", type=_limit, default=50, metavar="N")
    show = _with_id(verbs.add_parser("show", help="one session, every message"))
    for look in (sessions, show):
        look.add_argument("--json", action="store_true")


def _add_edits(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    rename = _with_id(verbs.add_parser("rename", help="give a session a title"))
    rename.add_argument("title")
    _with_id(verbs.add_parser("interrupt", help="stop the running turn, from any process"))
    undo = _with_id(verbs.add_parser("undo", help="take the last turn out of the model's view"))
    undo.add_argument("--withdraw", type=int, metavar="SEQ", help="take an undo back")
    delete = _with_id(verbs.add_parser("delete", help="remove a session for good"))
    delete.add_argument("--with-forks", action="store_true", help="and every fork of it")
    delete.add_argument("--yes", action="store_true", help="without asking")


def _add_keeping(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    verify = verbs.add_parser("verify", help="check every byte of the store")
    verify.add_argument("--json", action="store_true")
    for verb, text in (("backup", "copy the store while it is in use"), ("restore", "put a backup in its place")):
        verbs.add_parser(verb, help=text).add_argument("file")
    verbs.add_parser("doctor", help="say what is set up and what is not")


def _with_id(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
    verb.add_argument("id", help="a session's id, or the beginning of it")
    return verb


def _limit(text: str) -> int:
    number = int(text)
    if not 1 <= number <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"it must be 1 to {LIMIT_MAX}")
    return number
