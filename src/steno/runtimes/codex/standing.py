"""How a turn of codex stands, by our journal. Pure."""

from steno.engine.action import Finish, Limits, next_action
from steno.engine.recover import waits_for_approval
from steno.journal.budget import Spent
from steno.journal.facts import TurnEnded
from steno.journal.state import OpenTurn, State


def waits(turn: OpenTurn | None) -> bool:
    """Whether a person was asked about something."""
    return turn is not None and any(c.asked and not c.started for c in turn.calls.values())


def only_waits(turn: OpenTurn | None) -> bool:
    """Whether nothing is under way but a question to a person, which the end of codex does not
    answer."""
    if turn is None or turn.step is not None or not waits_for_approval(turn):
        return False
    return all(call.started is None for call in turn.calls.values())


def budget_reached(state: State, limits: Limits, spent: Spent) -> str:
    """Which budget is spent, as our own loop would say before it asks again; "" if none."""
    turn = state.turn
    if turn is None or turn.step is not None or turn.calls or turn.last is None:
        return ""
    action = next_action(state, limits, spent=spent)
    ended = action.facts[-1] if isinstance(action, Finish) else None
    return ended.detail if isinstance(ended, TurnEnded) and ended.cause == "budget" else ""
