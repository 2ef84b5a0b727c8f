"""How a turn ended, in words: what happened, what was kept, what to do next."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from steno.journal.facts import TurnEnded
from steno.session.errors import NoSuch, Refusal
from steno.store.errors import (
    JournalCorrupt,
    KeyReused,
    SessionBusy,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnopenable,
)

if TYPE_CHECKING:
    from steno.agents import Provider

EPHEMERAL = (
    "this session is ephemeral: it lives in memory and leaves nothing on disk. When this process "
    "ends or is killed\n"
    "it is gone, and what is promised about storing (promises 1, 2, 5 and 37) does not apply to it"
)

IDLE = (
    "nothing happened here for long, so this visit has ended; "
    "all is kept, say something to go on"
)

STORE_CAUSES = {
    "store_full": ("the disk is full", "make room"),
    "store_locked": ("another process kept the store locked for too long", ""),
    "store_unwritable": ("the store cannot be written", "mend that"),
}
"""Why nothing more could be stored, and what helps."""

CODEX_MENDS = {
    "thread_lost": (
        "steno retry {session} --new-thread begins a new thread with what this session says"
    ),
    "input_too_long": "put the text into a file that codex can read, and name it",
}
"""What to do where running the same prompt again does not help."""

_READABLE = "meanwhile sessions, show, export, verify and backup work"


def ending(
    ended: TurnEnded, session: str | None, model: str, provider: "Provider | None"
) -> str:
    """What to tell a person about a turn that is not done. `session` is None if it is kept
    nowhere."""
    if session is None:
        what, mend = _failure(ended, model, provider)
        if ended.outcome == "interrupted":
            return (
                "stopped"
                if ended.cause == "user"
                else f"the turn was interrupted ({ended.cause})"
            )
        return "; ".join(filter(None, (f"the turn failed: {what}", mend)))
    if ended.outcome == "interrupted":
        return _interrupted(ended.cause, session)
    what, mend = _failure(ended, model, provider)
    kept = f"the turn failed: {what}; the prompt and everything shown are kept in session {session}"
    if ended.cause in CODEX_MENDS:
        return f"{kept}; {CODEX_MENDS[ended.cause].format(session=session)}"
    if ended.cause == "too_long" and model.startswith("codex:"):
        mend = f"steno compact {session} has codex make its thread shorter"
    again = (
        f"{mend}, then steno retry {session}"
        if mend
        else f"steno retry {session} runs the prompt again"
    )
    return f"{kept}; {again}"


def _interrupted(cause: str, session: str) -> str:
    kept = f"everything shown is kept in session {session}"
    match cause:
        case "user":
            return f"stopped; {kept}"
        case "deleted":
            return f"session {session} was deleted while its turn ran; nothing of it is kept"
        case "killed":
            return (
                f"the process that ran the turn was killed; {kept}; steno continue {session} "
                "takes it up"
            )
        case "store_full" | "store_locked" | "store_unwritable":
            what, mend = STORE_CAUSES[cause]
            mend = f"{mend}, then steno continue" if mend else "steno continue"
            return (
                f"the turn was cut off: {what}; {kept}; {mend} {session} takes it up"
            )
        case "terminated":
            return f"the turn was ended by a signal; {kept}; steno continue {session} takes it up"
        case "forked":
            return (
                f"the fork begins in the middle of this turn; steno retry {session} runs its "
                "prompt again"
            )
        case _:
            return (
                f"the turn was interrupted ({cause}); {kept}; "
                f"steno continue {session} takes it up"
            )


TRUST = "set SSL_CERT_FILE to a file with the certificate of its issuer"


def _failure(
    ended: TurnEnded, model: str, provider: "Provider | None"
) -> tuple[str, str]:
    """What failed, and what a person can do about it."""
    address = "the model" if provider is None else provider.url
    because = f" ({ended.detail})" if ended.detail else ""
    match ended.cause:
        case "unreachable":
            mend = "" if provider is None else f"check {provider.url_from}"
            return f"{address} cannot be reached{because}", mend
        case "not_trusted":
            return f"the certificate of {address} is not trusted{because}", TRUST
        case "no_key":
            mend = "" if provider is None else f"set {provider.key_from}"
            return f"{address} wants a key that it accepts{because}", mend
        case "unknown_model" | "no_model":
            where = "" if provider is None else f" at {provider.url}"
            return (
                f"there is no model {model or 'of this name'}{where}{because}",
                "choose another with --model",
            )
        case "too_long":
            return (
                f"the conversation is longer than {model or 'the model'} takes{because}",
                "",
            )
        case "timeout" | "dropped":
            return f"no answer came from {address}{because}", ""
        case "rate_limited" | "overloaded" | "server_error":
            said = {
                "rate_limited": "is being asked too often",
                "overloaded": "is overloaded",
            }
            return (
                f"{address} {said.get(ended.cause, 'reports an error of its own')}{because}",
                "",
            )
        case "refused":
            return f"{address} refused the request{because}", ""
        case _:
            return ended.detail or ended.cause, ""


def lost(cause: str, detail: str, provider: "Provider | None") -> str:
    """A request of which nothing came back."""
    address = (
        "" if provider is None or provider.url in detail else f" from {provider.url}"
    )
    return f"no answer{address} ({cause})" + (f": {detail}" if detail else "")


def waits(session: str, cause: str) -> str:
    """An input that was stored before the store could not be written any more."""
    what, mend = STORE_CAUSES[cause]
    mend = f"{mend}, then steno continue" if mend else "steno continue"
    return f"{what}; your message is saved in session {session} and waits; {mend} {session} runs it"


def command() -> str:
    """steno, as it can be typed here: with a path where it is no command."""
    import shlex  # both only when somebody leaves
    from shutil import which

    ours = Path(sys.prefix, "Scripts" if sys.platform == "win32" else "bin", "steno")
    found = which("steno")
    with contextlib.suppress(OSError):
        if found is not None and Path(found).samefile(ours):
            return "steno"
    words = [str(ours)] if ours.exists() else [sys.executable, "-m", "steno"]
    with contextlib.suppress(ValueError, OSError):
        words[0] = str(Path(words[0]).relative_to(Path.cwd()))
    return shlex.join(words)


def left(session: str | None, unanswered: int, unsent: str) -> list[str]:
    """What a person who left the full screen must know."""
    found = [] if session is None else [f"kept: {command()} --resume {session}"]
    if unanswered:
        which = "1 input is" if unanswered == 1 else f"{unanswered} inputs are"
        found.append(f"{which} not answered yet; there, /continue runs what waits")
    return [*found, f"not sent: {unsent}"] if unsent.strip() else found


def problem(error: Exception) -> str:
    """What went wrong, and what to do about it on the command line."""
    return "; ".join(filter(None, (str(error), advice(error))))


def advice(error: Exception) -> str:
    """What to do about an error, where that does not say so itself."""
    match error:
        case NoSuch(what="memory"):
            return "steno memory has the names of those there are, ID:SEQ.N"
        case NoSuch():
            return f"steno show {error.session} has the numbers"
        case Refusal():
            return _after_refusal(error)
        case SessionBusy():
            return (
                f"nothing was changed; wait for it (steno follow {error.session} shows it), or "
                "stop it with "
                f"steno interrupt {error.session}"
            )
        case KeyReused():
            return "another prompt needs another --input-id"
        case StoreFull():
            return f"make room and try again; {_READABLE}"
        case StoreReadOnly():
            return f"mend the permissions and try again; {_READABLE}"
        case StoreLocked():
            return "try again"
        case StoreTooNew():
            return "nothing was touched; use the newer steno"
        case StoreUnopenable():
            return "nothing was changed; mend that and try again"
        case JournalCorrupt(adoptable=True):
            return (
                "if another program wrote to it, steno verify --adopt looks at everything and can "
                "put that right; else steno restore FILE puts a backup in its place"
            )
        case JournalCorrupt():
            return (
                "nothing was changed; steno verify says what is damaged, steno restore FILE puts "
                "a backup in its place"
            )
        case _:
            return ""


def _after_refusal(error: Refusal) -> str:
    session = error.session
    match error.why:
        case "waits_for_approval":
            return (
                f"steno approve {session} or steno deny {session} decides, then steno continue "
                f"{session} goes on; steno interrupt {session} stops it"
            )
        case "killed_each_time" | "nothing_came_back" | "forked":
            return f"steno retry {session} runs its prompt again"
        case "input_waits":
            return f"steno continue {session} runs it"
        case "answered" | "turn_since" | "not_waiting":
            return f"steno show {session} has what was said"
        case "several_asked":
            return "say which"
        case "not_owed" | "not_failed" | "being_sent":
            return "steno deliveries lists them"
        case "undone" | "nothing_cut_off" | "no_turn" | "nothing_asked" | "not_asked":
            return ""
        case "nothing_to_send":
            return ""
        case unreachable:
            assert_never(unreachable)
