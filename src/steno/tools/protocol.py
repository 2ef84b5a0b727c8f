"""What a tool is to the runtime.

A call goes through two stages, so that its start can be stored before it has any effect:

    prepare   parse the arguments and get ready (a child process is spawned but waits); has no
              effect on the world
    run       do it, handing output on as it comes; the outcome is a value, never an exception

If our process dies between the two, the waiting child ends by itself and nothing has happened.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct

from steno.journal.facts import FileVersions, ToolSpec
from steno.journal.parts import Failed, Hash, Interrupted, Outcome, Returned, Text
from steno.race import first_of
from steno.tools.sandbox import Bounds, Sandbox, Scrub

Arguments = TypeVar("Arguments", bound=Struct)

Output = Callable[[str], Awaitable[None]]
"""Takes a piece of output; returns when it is durable."""


class Journaled:
    """The output of a call whose effects are kept: `put` stores bytes by their hash, `changes`
    stores what a file holds and will hold, before it is touched."""

    def __init__(
        self,
        say: Output,
        put: Callable[[bytes], Awaitable[Hash]],
        keep: Callable[[FileVersions], Awaitable[None]],
    ) -> None:
        self._say = say
        self.put = put
        self._keep = keep

    async def __call__(self, text: str) -> None:
        await self._say(text)

    async def changes(
        self, path: str, before: bytes | None, after: bytes | None
    ) -> None:
        hashes = [
            None if data is None else await self.put(data) for data in (before, after)
        ]
        await self._keep(FileVersions(path, *hashes))


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


@runtime_checkable
class Checks(Protocol):
    """A tool that can say of arguments that they cannot be used before a person is asked."""

    async def check(self, arguments: str) -> None:
        """Raises `BadArguments`."""
        ...


def decode_arguments(arguments: str, into: type[Arguments]) -> Arguments:
    try:
        return msgspec.json.decode(arguments, type=into)
    except (
        msgspec.DecodeError,
        UnicodeEncodeError,
    ) as error:  # The latter: a lone surrogate.
        raise BadArguments(f"the arguments cannot be used: {error}") from error


class Unusable(Exception):
    """The call cannot do what it was asked for. The message goes back to the model."""


class Reading:
    """A call that only looks at what is stored: it has no process, and can be cut off at any
    moment."""

    def __init__(self, look: Callable[[], Awaitable[str]]) -> None:
        self.group: int | None = None
        self._look = look
        self._stopped = asyncio.Event()

    async def run(self, output: Output) -> Outcome:
        try:
            found = await first_of(self._look(), self._stopped)
        except Unusable as error:
            return Failed((Text(str(error)),))
        return Interrupted() if found is None else Returned((Text(found),))

    async def stop(self) -> None:
        self._stopped.set()
