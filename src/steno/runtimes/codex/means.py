"""What a turn of codex works with."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from steno.engine.action import Limits
from steno.journal.history import Said
from steno.runtimes.codex.process import Server
from steno.runtimes.codex.thread import Thread
from steno.runtimes.tool_calls import Calls
from steno.runtimes.toolbox import Excerpts
from steno.tools.output import Keep


class Means(Struct, frozen=True):
    """`confined`: codex has a sandbox, and asks by itself only about what is to leave it."""

    server: Server
    thread: Thread
    calls: Calls
    keep: Keep
    excerpts: Excerpts
    input: Callable[[Sequence[Said]], Awaitable[list[dict[str, Any]]]]
    model: str
    output_chars_max: int
    limits: Limits
    confined: bool = False
