"""What chats are told, in words: endings, questions, refusals, help."""

from steno.journal.facts import TurnEnded
from steno.service.chats import Showing

ARGUMENTS_MAX = 1_500


def ended_text(showing: Showing) -> str:
    """The final text of an answer: what was said, and how it ended if that was not well."""
    ended = showing.ended
    if ended is None or ended.outcome == "done":
        return showing.text if showing.text.strip() else "(The answer has no text.)"
    closing = ending(ended)
    return (
        f"{showing.text.rstrip()}\n\n{closing}" if showing.text.strip() else closing
    )


def ending(ended: TurnEnded) -> str:
    if ended.outcome == "interrupted":
        if ended.cause == "user":
            return "Stopped. What was said is kept."
        return "Cut off by a restart. What was said is kept; /retry runs your message again."
    why = ended.detail or ended.cause or "no reason was given"
    return f"No answer: {why}. Your message is kept; /retry runs it again."


def asked_text(showing: Showing) -> str:
    """A question about a call, or what became of it."""
    match showing.decided:
        case "allow":
            return "Allowed."
        case "deny":
            return "Denied."
        case "over":
            return "This question is over: the turn has ended."
    if showing.asks is None:
        return "This question is over."
    one = showing.asks
    why = f"\n{one.why}" if one.why else ""
    shown = one.arguments[:ARGUMENTS_MAX] + (
        "…" if len(one.arguments) > ARGUMENTS_MAX else ""
    )
    return (
        f"May I run {one.tool}?{why}\n```\n{_unfenced(shown)}\n```\n"
        f"/approve {one.seq} or /deny {one.seq}"
    )


def _unfenced(text: str) -> str:
    """Arguments cannot end the fence that they stand in."""
    return text.replace("```", "`\u200b``")


PAIRING = (
    "This assistant answers people its owner knows. Give the owner this code within the hour: "
    "{code}\nNothing you wrote was kept."
)
PAIRED = "You are paired. Say hello; /help lists what you can do."
HELP = """\
/new begins a new session · /status says what is under way
/stop ends the running turn · /retry runs the last prompt again · /undo takes the last turn back
/compact summarises the older part · /fork goes on in a copy · /model SPEC chooses the model
/sessions lists sessions · /resume ID goes on with one · /link ID shows one here too
/approve N and /deny N decide about a call, /approve N always about those like it for 30 days
/jobs lists jobs · /help shows this"""
