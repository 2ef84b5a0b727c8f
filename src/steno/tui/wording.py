"""What is said to a person in the chat, in few words: what happened, what was kept, what to do
next."""

from steno.frontend import wording
from steno.journal.facts import StepLost, TurnEnded
from steno.session.errors import Refusal
from steno.store.errors import NotAllowed, SessionBusy, StoreError, UnknownSession
from steno.tui.blocks import Tone

CAUSES = {
    "unreachable": "the model cannot be reached",
    "not_trusted": "the certificate of the model's server is not trusted",
    "no_key": "there is no key that the provider accepts",
    "unknown_model": "there is no such model",
    "no_model": "there is no such model",
    "too_long": "the session is longer than the model takes",
    "input_too_long": "the prompt is longer than codex takes in one message",
    "timeout": "no answer came",
    "dropped": "no answer came",
    "rate_limited": "the provider is being asked too often",
    "overloaded": "the provider is overloaded",
    "server_error": "the provider reports an error of its own",
    "refused": "the provider refused the request",
    "store_full": "the disk is full",
    "store_locked": "another process kept the store locked for too long",
    "store_unwritable": "the store cannot be written",
    "incomplete": "the answer kept breaking off",
}

_OTHER = "choose another model with /model, then /retry"
MENDS = {
    "not_trusted": "start steno with SSL_CERT_FILE naming a file with the signer's certificate",
    "no_key": (f"/login takes its key, then /retry; or {_OTHER}"),
    "unknown_model": _OTHER,
    "no_model": _OTHER,
    "too_long": "/compact makes it shorter, then /retry",
    "thread_lost": (
        "in another terminal, steno retry ID --new-thread begins a new thread with what this "
        "session says (steno sessions shows the ID); /retry alone would ask for the same thread"
    ),
    "input_too_long": "put the text into a file that codex can read, and name it",
}
"""What to do about a turn that failed, where running it again is not enough."""


def ending(ended: TurnEnded, by_codex: bool = False) -> tuple[str, Tone]:
    """A turn that is not done. What to do about a login of codex's own its detail says."""
    if ended.outcome == "failed":
        what = CAUSES.get(ended.cause, "")
        detail = ended.detail if not what or ended.detail not in what else ""
        said = "; ".join(filter(None, (what, detail))) or ended.cause
        mend = (
            "" if by_codex and ended.cause == "no_key" else MENDS.get(ended.cause, "")
        )
        return (
            (
                f"failed: {said.removesuffix('.')}. Everything is kept; "
                f"{mend or '/retry runs it again'}"
            ),
            "bad",
        )
    match ended.cause:
        case "user":
            return "stopped by you; what was shown is kept", "warn"
        case "killed":
            return "cut off: the process was killed; what was shown is kept", "warn"
        case "terminated":
            return "cut off: the program was ended; what was shown is kept", "warn"
        case "forked":
            return "the fork begins here, in the middle of a turn", "quiet"
        case _:
            cause = CAUSES.get(ended.cause)
            why = f" ({ended.cause})" if cause is None else f": {cause}"
            return f"cut off{why}; what was shown is kept", "warn"


def lost(fact: StepLost | TurnEnded) -> str:
    what = CAUSES.get(fact.cause, fact.cause)
    return f"no answer: {what}" + (
        f" ({fact.detail})" if fact.detail and fact.detail not in what else ""
    )


def advice(error: Exception) -> str:
    """What to do in the chat about an error, where that does not say so itself."""
    match error:
        case UnknownSession():
            return "Ctrl-O lists those that there are"
        case SessionBusy():
            return (
                "nothing was changed; you follow it here, and Ctrl-C stops its turn"
            )
        case Refusal(why="waits_for_approval"):
            return "answer the question first, or stop the turn with Ctrl-C"
        case Refusal(why="killed_each_time" | "nothing_came_back" | "forked"):
            return "/retry runs its prompt again"
        case Refusal(why="input_waits"):
            return "/continue runs it"
        case StoreError() if not isinstance(error, NotAllowed):
            return wording.advice(error)
        case _:
            return ""


def size(bytes_count: int) -> str:
    if bytes_count < 1_000:
        return f"{bytes_count} B"
    return (
        f"{bytes_count / 1_000:.0f} kB"
        if bytes_count < 1_000_000
        else f"{bytes_count / 1_000_000:.1f} MB"
    )


def count(number: int) -> str:
    """A number of tokens as people say it."""
    if number < 1_000:
        return str(number)
    return (
        f"{number / 1_000:.1f}k"
        if number < 1_000_000
        else f"{number / 1_000_000:.2f}M"
    )


def duration(ms: int) -> str:
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    return (
        f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02} s"
    )
