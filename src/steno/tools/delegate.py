"""The tool `delegate`: a prompt for a session of its own, whose end is the outcome of the call.

What must be true:

- The child session and its link to the parent are stored before its first request; its id is shown
  at once, so that the parent names it even if we die.
- The child is bounded: it cannot delegate, and its time and its steps have a limit. Few of them
  work at once.
- Its end is reported once, as the outcome of the call: finished, failed, or, if we died meanwhile,
  unknown.
"""

import asyncio
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Failed, Interrupted, Outcome, Returned, Text, ToolCall
from steno.tools.builtin import DELEGATE_SPEC
from steno.tools.protocol import BadArguments, Output, Prepared, decode_arguments

PROMPT_CHARS_MAX = 100_000
AT_ONCE_MAX = 4
"""Helpers of one session that work at the same time; more of them wait for their turn."""
_STOP_WAIT_S = 5.0


class DelegateArguments(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1, max_length=PROMPT_CHARS_MAX)]


class HelperReport(Struct, frozen=True):
    """How a child's turn ended, and its last words. `outcome` is None if it never began or is still
    open."""

    outcome: Literal["done", "interrupted", "failed"] | None
    cause: str
    text: str


def prompt_in(call: ToolCall) -> str | None:
    """What a call delegates; None if its arguments cannot be read, or any more."""
    try:
        return decode_arguments(call.arguments, DelegateArguments).prompt
    except BadArguments:
        return None


class Children(Protocol):
    """What delegating needs of the part that runs sessions."""

    async def begin(self, parent: str, prompt: str) -> str:
        """Make a session linked to its parent and admit the prompt. Its id, once all of that is
        stored."""
        ...

    async def run(self, child: str, leaving: asyncio.Event) -> HelperReport:
        """Run it to the end of its turn. `leaving`, when set, ends the turn."""
        ...


class Delegate:
    spec: ToolSpec = DELEGATE_SPEC
    approval: Literal["none", "ask"] = "ask"

    def __init__(self, children: Children, session: str, time_limit_s: float) -> None:
        self._children = children
        self._session = session
        self._time_limit_s = time_limit_s
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    async def check(self, arguments: str) -> None:
        decode_arguments(arguments, DelegateArguments)

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, DelegateArguments)
        call = DelegateCall(
            self._children, self._session, asked.prompt, self._time_limit_s
        )
        return _Queued(call, self._places)


class _Queued:
    """A call that waits for its place. A stop reaches those before it too, so that it does not wait
    long."""

    def __init__(self, call: "DelegateCall", places: asyncio.Semaphore) -> None:
        self.group: int | None = None
        self.stop = call.stop
        self._call = call
        self._places = places

    async def run(self, output: Output) -> Outcome:
        async with self._places:
            return await self._call.run(output)


class DelegateCall:
    def __init__(
        self, children: Children, session: str, prompt: str, time_limit_s: float
    ) -> None:
        self.group: int | None = None
        self._children = children
        self._session = session
        self._prompt = prompt
        self._time_limit_s = time_limit_s
        self._leaving = asyncio.Event()
        self._stopped = False

    async def run(self, output: Output) -> Outcome:
        if self._stopped:
            return Interrupted()
        child = await self._children.begin(self._session, self._prompt)
        shown = f"[delegated to session {child}]\n"
        await output(shown)
        running = asyncio.create_task(self._children.run(child, self._leaving))
        try:
            done, _ = await asyncio.wait({running}, timeout=self._time_limit_s)
            if not done:
                self._leaving.set()
                await asyncio.wait({running}, timeout=_STOP_WAIT_S)
            return self._outcome(
                shown,
                running.result() if running.done() else None,
                in_time=bool(done),
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def stop(self) -> None:
        self._stopped = True
        self._leaving.set()

    def _outcome(
        self, shown: str, report: HelperReport | None, in_time: bool
    ) -> Outcome:
        text = shown + ("" if report is None else report.text)
        if self._stopped:
            return Interrupted((Text(text),))
        if not in_time:
            return Failed(
                (
                    Text(
                        f"{text}\n[ended: the time limit of {self._time_limit_s:g} s was reached]"
                    ),
                )
            )
        if report is not None and report.outcome == "done":
            return Returned((Text(text),))
        how = (
            "did not begin"
            if report is None or report.outcome is None
            else f"{report.outcome}: {report.cause}"
        )
        return Failed((Text(f"{text}\n[the helper's turn did not end well: {how}]"),))
