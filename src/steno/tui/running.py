"""Runs the full-screen chat from its first frame to the moment when the terminal is as it was."""

import asyncio
import signal

from steno.cli.leaving import leave_by_deadline
from steno.config import terminal
from steno.service import Service
from steno.tui.app import Chat
from steno.tui.terminal import Restorer, ask
from steno.wiring import Wiring


async def run(service: Service, wiring: Wiring, session: str | None) -> tuple[int, str | None]:
    """The chat, until somebody leaves; its exit status and the session that was on the screen last."""
    restorer = Restorer()
    asked = ask(terminal())
    chat = Chat(service, wiring, session, asked.shade, asked.typed)
    chat.on_leaving = lambda status: leave_by_deadline(restorer.restore, status)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, chat.action_interrupt)
    loop.add_signal_handler(signal.SIGTERM, chat.go, 130, "signal")
    loop.add_signal_handler(signal.SIGHUP, chat.go, 130, "closed_terminal")
    try:
        await chat.run_async()
        restorer.done = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
    return (1 if chat.left is None else chat.left), chat.watched.id
