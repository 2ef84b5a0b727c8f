"""steno: an agent runtime whose transcript never lies. Written before shown.

    import steno

    with steno.open("chats.db") as chats:
        chat = chats.session("alice")
        chat.say("What is a journal?")
        with chat.reply(model="my-model") as reply:
            for piece in ("Something ", "that ", "remembers."):
                print(reply.write(piece), end="")
        print(chat.messages()[-1].text)

Nothing heavy is loaded until it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steno.engine.action import Limits
    from steno.journal.transcript import Message
    from steno.library import (
        AsyncLibrary,
        AsyncReply,
        AsyncSession,
        Followed,
        Library,
        Reply,
        Session,
        aopen,
        open,
    )
    from steno.programs.agent import Answer, AsyncAgent, TurnFailed
    from steno.programs.blocking import Agent
    from steno.programs.functions import tool
    from steno.store.errors import StoreError
    from steno.store.sqlite.database import SqliteSettings as Settings

__all__ = [
    "Agent",
    "Answer",
    "AsyncAgent",
    "AsyncLibrary",
    "AsyncReply",
    "AsyncSession",
    "Followed",
    "Library",
    "Limits",
    "Message",
    "Reply",
    "Session",
    "Settings",
    "StoreError",
    "TurnFailed",
    "aopen",
    "open",
    "tool",
]

_HOMES = {
    "Agent": ("steno.programs.blocking", "Agent"),
    "Answer": ("steno.programs.agent", "Answer"),
    "AsyncAgent": ("steno.programs.agent", "AsyncAgent"),
    "Limits": ("steno.engine.action", "Limits"),
    "Message": ("steno.journal.transcript", "Message"),
    "TurnFailed": ("steno.programs.agent", "TurnFailed"),
    "tool": ("steno.programs.functions", "tool"),
    "StoreError": ("steno.store.errors", "StoreError"),
    "Settings": ("steno.store.sqlite.database", "SqliteSettings"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    from importlib import import_module

    home, meant = _HOMES.get(name, ("steno.library", name))
    return getattr(import_module(home), meant)
