"""What a tool is to the runtime.

A call goes through two stages, so that its start can be stored before it has any effect:

    prepare   parse the arguments and get ready (a child process is spawned but waits); has no effect on the world
    run       do it, handing output on as it comes; the outcome is a value, never an exception

If our process dies between the two, the waiting child ends by itself and nothing has happened.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Outcome
from steno.tools.environment import Scrub
from steno.tools.sandbox import Bounds, Sandbox

Output = Callable[[str], Awaitable[None]]
"""Takes a piece of output; returns when it is durable."""


class BadArguments(Exception):
    """The model's arguments cannot be used. The message goes back to the model."""


class Workspace(Struct, frozen=True):
    """Where tools work, and their bounds. Output is shown as it comes up to `output_chars_max`, and
    kept up to `kept_chars_max`."""

    folder: Path
    time_limit_s: float = 120.0
    output_chars_max: int = 30_000
    kept_chars_max: int = 5_000_000
    scrub: Scrub = Scrub()
    bounds: Bounds = Bounds()
    sandbox: Sandbox = Sandbox()


class Prepared(Protocol):
    """A call that is ready to run. `group` is the process group that must be ended if we die
    meanwhile."""

    group: int | None

    async def run(self, output: Output) -> Outcome: ...

    async def stop(self) -> None:
        """End it at once, with its whole process group. `run` then returns what there was as
        `Interrupted`."""
        ...


class Tool(Protocol):
    """`approval` says whether a person must agree before each call."""

    spec: ToolSpec
    approval: Literal["none", "ask"]

    async def prepare(self, arguments: str) -> Prepared:
        """`arguments` is the JSON text the model wrote. Raises `BadArguments`."""
        ...
