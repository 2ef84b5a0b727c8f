"""What to tell a person when codex fails: what happened, and what to do."""

from steno.runtimes.codex.binary import by_hand
from steno.runtimes.codex.effects import EndTurn
from steno.runtimes.codex.process import (
    CodexError,
    Gone,
    Silent,
    TooLong,
    Unguarded,
    Unreadable,
    Unstartable,
)
from steno.runtimes.codex.protocol import VERSIONS
from steno.runtimes.codex.thread import ThreadBusy, ThreadLost
from steno.runtimes.codex.wording import SANDBOX
from steno.tools.child import Command


def on_error(error: CodexError, session: str) -> tuple[str, str]:
    """The cause and the detail of a turn that codex could not begin."""
    match error:
        case ThreadLost():
            mend = (
                f"steno retry {session} --new-thread begins a new one with what this session says"
            )
            return "thread_lost", f"codex {error}; {mend}"
        case ThreadBusy():
            return "codex", f"codex {error}; close it there, nothing is lost"
        case Unguarded():
            loose = (
                "its own rules files or MCP servers could do things that steno was not asked about"
            )
            return (
                "codex",
                (
                    f"codex {error}, so {loose}; turn hooks on in its configuration, or take "
                    "those away"
                ),
            )
        case Unstartable():
            return (
                "codex",
                f"{error}; steno doctor says which codex is used; path under [codex] names another",
            )
        case Gone():
            return "codex", f"codex {error}; it is started again with the next turn"
        case Silent():
            return "codex", f"codex {error}; answer_s under [codex] gives it more"
        case Unreadable():
            return (
                "codex",
                (
                    f"codex {error}; steno was tried with codex {VERSIONS}, path under [codex] "
                    "names another"
                ),
            )
        case TooLong():
            return (
                "too_long",
                f"codex says: {error} Put the text into a file that codex can read, and name it",
            )
        case _:
            return "codex", f"codex says: {error}"


def on_failure(end: EndTurn, command: Command) -> str:
    """`command` is what codex was started with."""
    match end.cause:
        case "no_key":
            return (
                f"{end.detail}; {by_hand(command)} login signs in, or set the key that its "
                "provider wants"
            )
        case "too_long":
            return f"{end.detail.rstrip('.')}; steno compact has codex make its thread shorter"
        case "sandbox":
            return f"{end.detail}; {SANDBOX}"
        case _:
            return end.detail
