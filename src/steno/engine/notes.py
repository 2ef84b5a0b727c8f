"""Notes: text for one request, at its end. Never stored, summarised or searched.

They are spoken by the runtime, and say so, because a model must not take them for the person's
words.
"""

from steno.journal.parts import Unknown
from steno.journal.state import CutOff

OPENING = "[Note from the runtime, not from the user]"
GO_ON = (
    f"{OPENING} Your answer above broke off. Go on exactly where it stopped; do not repeat any of "
    "it."
)


def recovery_note(cut: CutOff, continuing: bool) -> str:
    """What a model must know about a turn that was cut off."""
    ending = cut.ended.ending
    turn = cut.ended.turn
    lines = [OPENING, f"The previous turn was cut off ({ending.cause}) before it was finished."]
    if turn.last is not None and turn.last.ended in ("interrupted", "incomplete"):
        lines.append("Your last answer above is only the part that was shown.")
    unseen = [fact.call for fact in turn.settled if not isinstance(fact.outcome, Unknown)]
    unknown = [fact.call for fact in turn.settled if isinstance(fact.outcome, Unknown)]
    if unseen:
        lines.append(f"You have not answered to these tool results yet: {', '.join(unseen)}.")
    if unknown:
        lines.append(
            f"Nobody knows whether these calls took effect: {', '.join(unknown)}. "
            "They were not run again. Check before you repeat one."
        )
    lines.append(
        "Take the work up where it stopped."
        if continuing
        else "Answer the user's latest message; mention this if it helps."
    )
    return "\n".join(lines)
