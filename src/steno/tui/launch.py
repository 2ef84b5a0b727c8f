"""Runs the full-screen chat from its first frame to the moment when the terminal is as it was."""

import signal
from functools import partial

from msgspec import Struct

from steno.agents import Agents
from steno.config import terminal_colours
from steno.frontend.process import LEFT, REASONS, heeding, leave_by_deadline
from steno.frontend.sanitize import sanitize
from steno.model_choice import Beginning
from steno.service import Service
from steno.store.errors import StoreError
from steno.tui.app import Chat
from steno.tui.terminal import Restorer, ask, kept_shade


class ChatEnd(Struct, frozen=True):
    """How the chat was left: its exit status, the session that was on the screen last, how many of
    its inputs no process answers, and what was typed and not sent."""

    status: int
    session: str | None
    unanswered: int
    unsent: str


async def run(service: Service, wiring: Agents, beginning: Beginning) -> ChatEnd:
    """The chat, until the person leaves."""
    restorer = Restorer()
    asked = ask(terminal_colours())
    shade = kept_shade(wiring.where.home) or asked.shade
    chat = Chat(service, wiring, beginning, shade)
    chat.answer_is_late = asked.late
    chat.on_leaving = lambda status: leave_by_deadline(restorer.restore, status)
    going = {
        number: partial(chat.go, LEFT, reason) for number, reason in REASONS.items()
    }
    with heeding(going | {signal.SIGINT: chat.action_interrupt}):
        await chat.run_async()
        restorer.done = True
    last = chat.watched.id
    return ChatEnd(
        1 if chat.left is None else chat.left,
        last,
        await _unanswered(service, last),
        sanitize(chat.unsent),
    )


async def _unanswered(service: Service, session: str | None) -> int:
    """How many inputs wait while no process runs the session. If the store does not say, none:
    they are told when the session is resumed."""
    if session is None:
        return 0
    try:
        end = await service.views.end(session, 1)
    except StoreError:
        return 0
    return 0 if end.owner is not None else len(end.row.pending)
