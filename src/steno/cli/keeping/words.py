"""The words of the commands around sessions, and an example for every command. Nothing heavy is
loaded here, so that --help stays quick."""

import argparse
import os
import re
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from steno.cli.parsing import Verbs

HIDDEN = ("carry", "remember")
"""Commands that steno gives itself; not for people."""
SHELLS = ("bash", "zsh", "tcsh")
SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
COLUMNS = 80
"""How wide help is where there is no terminal."""
SPAN_S_MAX = 100 * 366 * 86_400

EXAMPLES = {
    "steno": 'steno "explain this folder"\nsteno --continue\nsteno --model ollama:qwen3',
    "run": 'steno run "what changed since v1?"\ngit diff | steno run "review this" --output ndjson',
    "continue": "steno continue 01JA",
    "retry": "steno retry 01JA",
    "follow": "steno follow 01JA",
    "sessions": "steno sessions\nsteno sessions --all --json",
    "show": "steno show 01JA\nsteno show 01JA --json",
    "search": 'steno search "exact words" role:user\nsteno search --newest deploy -staging',
    "deliveries": "steno deliveries --json",
    "diff": "steno diff 01JA",
    "approvals": "steno approvals",
    "approve": 'steno approve 01JA\nsteno approve 01JA 17 --always "shell:git *"',
    "deny": 'steno deny 01JA 17 --reason "not on Fridays"',
    "rules": 'steno rules 01JA --allow "shell:git status*"',
    "rename": 'steno rename 01JA "The parser"',
    "goal": 'steno goal 01JA "all tests pass"',
    "interrupt": "steno interrupt 01JA",
    "undo": "steno undo 01JA\nsteno undo 01JA --both",
    "rewind": "steno rewind 01JA 12",
    "hide": "steno hide 01JA 12\nsteno hide 01JA 12 --show",
    "redact": "steno redact 01JA 12 --yes",
    "fork": "steno fork 01JA 12",
    "compact": "steno compact 01JA",
    "delete": "steno delete 01JA --yes",
    "distill": "steno distill 01JA",
    "memory": "steno memory\nsteno memory remove 01JA:9.1",
    "export": "steno export 01JA talk.json\nsteno export 01JA --html talk.html",
    "import": "steno import claude-code\nsteno import talk.json --dry-run",
    "verify": "steno verify",
    "backup": "steno backup monday.db\nsteno backup --into backups --keep 7",
    "restore": "steno restore monday.db",
    "doctor": "steno doctor\nsteno doctor --ask --json",
    "workers": "steno workers --json",
    "store": "steno store copy ~/.steno/store.db postgresql://localhost/steno",
    "gateway": "steno gateway\nsteno gateway token add phone",
    "models": "steno models\nsteno models openrouter --json",
    "login": "steno login\nsteno login anthropic\nsteno login openai < key.txt",
    "logout": "steno logout openai",
    "config": "steno config get model.default\nsteno config set model.default ollama:qwen3",
    "usage": "steno usage\nsteno usage --by model --days 7",
    "prune": "steno prune --older-than 90d\nsteno prune --older-than 1w --yes",
    "vacuum": "steno vacuum",
    "completion": "steno completion bash > ~/.local/share/bash-completion/completions/steno",
    "man": "steno man | man -l -",
    "acp": "steno acp\nsteno acp --model anthropic:claude-sonnet-5 --mode plan",
    "mcp": "steno mcp\nsteno mcp --allow-write",
    "jobs": 'steno jobs add "what is new?" --cron "0 9 * * 1-5"\nsteno jobs list',
    "jobs add": 'steno jobs add "what is new?" --cron "0 9 * * 1-5" --zone Europe/Berlin\n'
    'steno jobs add "the build?" --every 30m --missed skip',
    "jobs list": "steno jobs list\nsteno jobs list --json",
    "jobs show": "steno jobs show news",
    "jobs run": "steno jobs run news",
    "jobs pause": "steno jobs pause news",
    "jobs resume": "steno jobs resume news",
    "jobs remove": "steno jobs remove news",
    "gateway open": "steno gateway open\nsteno gateway open --no-browser",
    "gateway pair": "steno gateway pair 4711\nsteno gateway pair --invite telegram",
    "gateway unpair": "steno gateway unpair 123456",
    "gateway people": "steno gateway people --json",
    "gateway token": "steno gateway token add phone --scope read --expires 30d\n"
    "steno gateway token list\nsteno gateway token revoke phone",
    "memory remove": "steno memory remove 01JA:9.1",
    "store copy": "steno store copy ~/.steno/store.db postgresql://localhost/steno",
    "config get": "steno config get\nsteno config get model.default",
    "config set": "steno config set model.default ollama:qwen3",
    "config path": "steno config path",
    "config edit": "steno config edit",
}


class Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. Python asks for its width by a module that loads every compression
    there is, for each option of each command that is known."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size().columns or COLUMNS
    except OSError:
        return COLUMNS


class Parser(argparse.ArgumentParser):
    """One that says what was meant, and shows how a command is used."""

    def __init__(self, prog: str | None = None, **more: object) -> None:
        name = (prog or "").removeprefix("steno ")
        if shown := EXAMPLES.get(name):
            more["epilog"] = "examples:\n" + "\n".join(
                f"  {line}" for line in shown.splitlines()
            )
        super().__init__(prog=prog, formatter_class=Help, **more)  # type: ignore[arg-type]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What a command does not know is told with the usage of that command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}"
            )
        return found, unknown

    def _meant(self, word: str) -> str:
        if not word.startswith("--"):
            return ""
        from difflib import get_close_matches

        near = get_close_matches(
            word.partition("=")[0], self._option_string_actions, 1, 0.7
        )
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        wrong = re.match(
            r"argument (COMMAND|[\w{},-]+): invalid choice: '(.*?)' \(", message, re.S
        )
        if wrong and wrong[1] in ("COMMAND", "ACT"):
            verbs = next(
                action.choices
                for action in self._actions
                if isinstance(action, argparse._SubParsersAction)
            )
            from difflib import get_close_matches

            names = [name for name in verbs if name not in HIDDEN]
            near = get_close_matches(wrong[2], names, 2, 0.6)
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            message = f"there is no command {wrong[2]!r}; {meant}{self.prog} --help lists them"
        super().error(message)


def with_json(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
    verb.add_argument(
        "--json", action="store_true", help="say what was done as one object"
    )
    return verb


def number(text: str) -> int:
    """A message or a turn, by its number. One that is too large names none, which is told with
    those that there are."""
    if not text.isdecimal() or len(text) > 40:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number; steno show prints them"
        )
    return int(text)


def span(text: str) -> float:
    """A time such as 90d, in seconds."""
    unit = SPANS.get(text[-1:])
    if (
        unit is None
        or not text[:-1].isdecimal()
        or not 0 < int(text[:-1]) * unit <= SPAN_S_MAX
    ):
        raise argparse.ArgumentTypeError(
            "a time such as 12h, 90d or 8w, 100 years at most"
        )
    return float(int(text[:-1]) * unit)


def count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError("a number from 1 to 100000")
    return int(text)


def add_around(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    models = verbs.add_parser("models", help="list what your providers have")
    models.add_argument(
        "provider", nargs="?", metavar="NAME", help="of this provider alone"
    )
    models.add_argument(
        "--all", action="store_true", help="every one, not 20 of each provider"
    )
    models.add_argument(
        "--json", action="store_true", help="one object a line, a line a model"
    )
    login = verbs.add_parser(
        "login", help="keep a provider's key, in the system's keyring"
    )
    login.add_argument(
        "provider", nargs="?", metavar="NAME", help="e.g. anthropic, openai"
    )
    login.add_argument(
        "--untested",
        action="store_true",
        help="keep it although the provider cannot be asked",
    )
    logout = verbs.add_parser("logout", help="forget a provider's key")
    logout.add_argument("provider", metavar="NAME")
    for one in (login, logout):
        with_json(one)
    _add_config(verbs)
    usage = verbs.add_parser(
        "usage", help="what models were asked for, and what that costs"
    )
    usage.add_argument(
        "--by",
        default="day",
        metavar="WHAT",
        help="day, model or session; several by commas",
    )
    usage.add_argument(
        "--days", type=count, default=30, metavar="N", help="how far back"
    )
    usage.add_argument(
        "--json", action="store_true", help="one object a line, a line a row"
    )
    prune = verbs.add_parser("prune", help="delete old sessions for good")
    prune.add_argument(
        "--older-than",
        type=span,
        required=True,
        metavar="TIME",
        help="in which nothing happened for so long: 90d, 8w",
    )
    prune.add_argument("--yes", action="store_true", help="without asking")
    prune.add_argument(
        "--dry-run", action="store_true", help="say which; delete nothing"
    )
    prune.add_argument(
        "--json", action="store_true", help="one object a line, a line a session"
    )
    vacuum = verbs.add_parser(
        "vacuum", help="give back the room that removed sessions left"
    )
    with_json(vacuum)
    completion = verbs.add_parser(
        "completion", help="print a script that completes commands"
    )
    completion.add_argument("shell", choices=SHELLS)
    verbs.add_parser("man", help="print the manual page")


def _add_config(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    config = verbs.add_parser(
        "config", help="look at the configuration, or change it"
    )
    acts = config.add_subparsers(dest="act", required=True, metavar="ACT")
    get = acts.add_parser("get", help="what holds now; keys are not shown")
    get.add_argument(
        "name", nargs="?", metavar="KEY", help="e.g. model.default; none: everything"
    )
    get.add_argument("--json", action="store_true")
    put = acts.add_parser(
        "set", help="write one key; the rest of the file stays as it is"
    )
    put.add_argument("name", metavar="KEY")
    put.add_argument("value", metavar="VALUE")
    with_json(put)
    with_json(acts.add_parser("path", help="where the file is"))
    acts.add_parser(
        "edit", help="open it in your editor; a mistake is told before it is kept"
    )
