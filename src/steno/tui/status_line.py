"""What goes on in a session, for the lines around it: in few words."""

import time
from math import ceil

from msgspec import Struct

from steno.agents import Agents
from steno.frontend.answers import Answer
from steno.journal.listing import ListingRow
from steno.journal.state import OpenTurn, State
from steno.service.attachments import Attachment
from steno.tui.blocks import Tone
from steno.tui.to_blocks import Folded
from steno.tui.wording import advice, size

HOW_TO_BEGIN = "Type a message and press Enter. F1 or /help shows keys and commands."
TIPS = (
    "Tip: @ names a file, which goes along with your message",
    "Tip: Shift-Tab changes what runs without asking; plan mode only reads",
    "Tip: ! runs a command yourself and attaches its output",
    "Tip: /undo puts files back that an edit changed",
    "Tip: Ctrl-R finds what you said before",
    "Tip: /init writes an AGENTS.md, which every session of this folder is told",
)
LOCAL = (
    "No key is set, so a tiny demo model (SmolLM2, 135 million parameters) answers on this "
    "machine: quick, private and "
    "often wrong. /login takes a key for a real model, or finds a server on this machine."
)


class Doing(Struct, frozen=True):
    """What goes on in a session, in a few words."""

    word: str
    busy: bool = False
    hint: str = ""


DELETED = Doing("deleted")


class Trying(Struct, frozen=True):
    """How requests that get no answer are tried again, and for how long the last one is lost."""

    attempts_max: int
    lost_for_s: float = 0.0


def state(
    state: State,
    elsewhere: str | None,
    driving: bool,
    compacting: bool,
    trying: Trying,
    streams: bool = True,
) -> Doing:
    """`streams`: some of the answer is there."""
    if compacting:
        return Doing("summarising", True, "Ctrl-C stops")
    turn = state.turn
    where = "" if elsewhere is None else f" in {runner(elsewhere)}"
    if turn is None:
        return (
            Doing("starting", True)
            if driving and state.pending
            else Doing("ready", hint=_to_go_on(state, elsewhere))
        )
    if waits_for_you(state):
        return Doing("waits for your answer", False, "Ctrl-C stops the turn")
    if turn.interrupted is not None:
        return Doing(f"stopping{where}", True)
    running = [
        call.call.name for call in turn.calls.values() if call.started is not None
    ]
    if running:
        word = f"running {', '.join(sorted(set(running)))}"
    elif streams and not (turn.step is None and turn.lost):
        word = "answering"
    else:
        attempt = (
            f", attempt {turn.lost + 1} of {trying.attempts_max}" if turn.lost else ""
        )
        word = f"{_waiting(turn, trying)}{attempt}"
    return Doing(word + where, True, "Esc stops")


def _waiting(turn: OpenTurn, trying: Trying) -> str:
    if turn.step is not None or turn.last_lost is None:
        return "waiting for the first byte"
    wait_s = (turn.last_lost.wait_ms or 0) / 1000 - trying.lost_for_s
    return f"retrying in {ceil(wait_s)} s" if wait_s > 0 else "retrying"


def meaning(answer: Answer | None) -> str:
    """What Enter does with an answer that is typed at a question; None is a message."""
    if answer is None:
        return "Enter queues your message; the question stays open"
    if answer.decision == "allow":
        always = (
            " and calls like it in this session for 30 days" if answer.always else ""
        )
        return f"Enter allows it{always}"
    return (
        "Enter denies it and tells the model why"
        if answer.reason
        else "Enter denies it"
    )


def _to_go_on(state: State, elsewhere: str | None) -> str:
    """What a person can do about what rests and is not over."""
    if state.cut_off is not None and state.cut_off.waits():
        return "/continue takes it up"
    return "/continue runs what waits" if state.pending and elsewhere is None else ""


def answering(state: State) -> str:
    """The fallback that answers the rest of the open turn; "" if none took over."""
    return (
        state.turn.fallen[-1] if state.turn is not None and state.turn.fallen else ""
    )


def waits_for_you(state: State) -> bool:
    turn = state.turn
    if turn is None or not turn.calls:
        return False
    return all(
        call.asked and call.started is None and call.decision is None
        for call in turn.calls.values()
    )


def runner(owner: str) -> str:
    """Who runs a session, as a person would look for it."""
    host, _, rest = owner.rpartition(".")[0].rpartition(".")
    return f"process {rest} on {host}" if rest.isdigit() else owner


def left_open(
    folded: Folded, row: ListingRow, elsewhere: str | None
) -> list[tuple[str, Tone]]:
    """What a person who resumes a session must know."""
    found: list[tuple[str, Tone]] = []
    state = folded.state
    if elsewhere is not None:
        found.append(
            (
                (
                    f"{runner(elsewhere)} runs this session; you follow it live, and what you say "
                    "goes there"
                ),
                "warn",
            )
        )
    elif waits_for_you(state):
        found.append(("a tool call waits for your answer", "warn"))
    elif state.cut_off is not None and state.cut_off.waits():
        found.append(
            (
                (
                    "the last turn was cut off: /continue takes it up, /retry runs it again, "
                    "/undo forgets it"
                ),
                "warn",
            )
        )
    if row.pending and elsewhere is None:
        many = (
            "an input waits"
            if len(row.pending) == 1
            else f"{len(row.pending)} inputs wait"
        )
        found.append(
            (
                f"{many} unanswered: /continue runs what waits, ↑ takes the last one back",
                "warn",
            )
        )
    if not found:
        found.append(
            (f"resumed; last used {ago(row.updated_ms, time.time())}", "quiet")
        )
    return found


def ago(at_ms: int, now_s: float) -> str:
    seconds = max(int(now_s - at_ms / 1000), 0)
    for name, length in (("day", 86_400), ("hour", 3_600), ("min", 60)):
        if seconds >= length:
            number = seconds // length
            return f"{number} {name}{'s' if number > 1 and name != 'min' else ''} ago"
    return "just now"


def problem(error: Exception) -> str:
    """What went wrong, and what to do about it."""
    return "; ".join(filter(None, (str(error), advice(error))))


def attached(attachment: Attachment) -> str:
    return f"{attachment.part.name} ({size(attachment.part.size)})"


def about_model(model: str, wiring: Agents) -> str:
    """What a person must know of the model that answers."""
    return LOCAL if wiring.is_demo() and model.startswith("local:") else ""
