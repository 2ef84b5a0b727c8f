"""Plugins: code of others that is told what happens, and may add a note to a request or deny a
tool.

Each runs in a process of its own, so that one which raises, hangs, prints or dies does no harm. In
a plugin:

    from steno.plugins import hookimpl

    @hookimpl
    def on_session_end(session_id, reason, key): ...
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pluggy import HookimplMarker

    hookimpl: HookimplMarker

PROJECT = "steno"


def __getattr__(name: str) -> Any:
    """What a plugin needs is loaded where there is one."""
    if name == "hookimpl":
        from pluggy import HookimplMarker

        return HookimplMarker(PROJECT)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
