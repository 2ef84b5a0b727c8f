"""Runs the tool calls of one answer side by side: each is approved, stored as started, run, settled
by its own fact."""

import asyncio
import time
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from steno.engine.approval import ALWAYS_ASKED, Policy, in_mode
from steno.journal.drafts import Stream
from steno.journal.facts import (
    ApprovalAsked,
    FileKept,
    FileVersions,
    ToolSettled,
    ToolStarted,
)
from steno.journal.parts import Failed, Outcome, Refused, Text
from steno.journal.state import OpenCall
from steno.race import first_of
from steno.session.lease import HeldSession
from steno.tools.protocol import BadArguments, Checks, Journaled, Prepared, Tool

STOPPED = Refused("not run: the turn was stopped first")
UNASKED = Refused("not run: it needs approval and there was nobody to ask")
PLANNING = Refused(
    "not run: the session is in plan mode, which only reads. Say what you would do instead; the "
    "user leaves plan mode to have it done"
)
DENIED = "not run: the user denied it"

Permission = Refused | Literal["given", "left"]
"""Whether a call may run. "left": not decided, because this process is leaving."""


class _Kind(Struct, frozen=True):
    """What holds for a call where no rule does, and the calls that it stands for."""

    default: Literal["allow", "ask"]
    edits: tuple[tuple[str, str], ...] = ()


class Calls:
    def __init__(
        self,
        held: HeldSession,
        tools: Mapping[str, Tool],
        approval: Literal["allow", "refuse", "ask"],
        policy: Policy = Policy(),  # noqa: B008 - it is frozen
    ) -> None:
        self._held = held
        self._tools = tools
        self._approval = approval
        self._policy = policy

    async def run(self, calls: tuple[OpenCall, ...]) -> None:
        """All of them at once; returns when each has an outcome in the journal, or waits for
        approval and we leave."""
        tasks = [asyncio.create_task(self._one(call)) for call in calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, call: OpenCall) -> None:
        tool = self._tools.get(call.call.name)
        if tool is None:
            await self.settle(
                call, Failed((Text(f"there is no tool {call.call.name!r}"),))
            )
            return
        try:
            if isinstance(tool, Checks):
                await tool.check(call.call.arguments)
        except BadArguments as error:
            await self.settle(call, Failed((Text(str(error)),)))
            return
        match await self.permission(
            call, "allow" if tool.approval == "none" else "ask"
        ):
            case "left":
                return
            case Refused() as refused:
                await self.settle(call, refused)
                return
            case "given":
                pass
        try:
            prepared = await self._prepared(call, tool)
        except BadArguments as error:
            await self.settle(call, Failed((Text(str(error)),)))
            return
        if prepared is None:
            await self.settle(call, STOPPED)
            return
        await self._carry_out(call, tool, prepared)

    async def permission(
        self,
        call: OpenCall,
        default: Literal["allow", "ask"],
        edits: tuple[tuple[str, str], ...] = (),
        why: str = "",
        leaves: bool = False,
    ) -> Permission:
        """A rule that denies comes first, then a plugin. Then what a person decided, also while
        no process ran the session, counts before what this run was told. `edits` are calls that
        this one stands for: rules for them count, too. `why` is the reason that the question gives,
        `leaves` whether a yes covers leaving the sandbox."""
        kind = _Kind(default, edits)
        ruled = self._without_asking(call, kind)
        objection = (
            None if isinstance(ruled, Refused) else await self._objection(call)
        )
        if self._held.letting_go():
            return "left"
        if self._held.asked_to_stop():
            return STOPPED
        if objection is not None:
            return objection
        if (settled := self._without_asking(call, kind)) is not None:
            return settled
        if self._approval == "refuse":
            return UNASKED
        if not call.asked:
            await self._held.record(
                ApprovalAsked(call.step, call.call.id, why, leaves)
            )
        return await self._decision(call, kind)

    async def _objection(self, call: OpenCall) -> Refused | None:
        told: dict[str, object] = {
            "tool": call.call.name,
            "arguments": call.call.arguments,
            "call": call.call.id,
        }
        for plugin, reason in await self._held.consult("before_tool", told):
            return Refused(f"not run: the plugin {plugin} denies it: {reason}")
        return None

    def _without_asking(self, call: OpenCall, kind: "_Kind") -> Permission | None:
        """What rules, a decision or this run say by now; None if a person must be asked."""
        now_ms = time.time_ns() // 1_000_000
        rules = self._held.state.rules.items()
        policy = self._policy.within(
            {rule: one.verdict for rule, one in rules if not one.over(now_ms)}
        )
        verdict, rule = policy.decide_all(
            ((call.call.name, call.call.arguments), *kind.edits), kind.default
        )
        if verdict == "deny":
            return Refused(f"not run: the rule {str(rule)!r} denies it")
        by_mode = in_mode(
            self._held.state.mode, call.call.name, kind.default, kind.edits
        )
        if by_mode == "deny":
            return PLANNING
        if call.decision is not None:
            return _as_decided(call)
        if call.call.name in ALWAYS_ASKED:
            return None
        allowed = (
            verdict == "allow" or self._approval == "allow" or by_mode == "allow"
        )
        return "given" if allowed else None

    async def _decision(self, call: OpenCall, kind: "_Kind") -> Permission:
        """Wait until a person, anywhere, decides, sets a rule that does, or asks for a stop. If it
        is we who leave, the question stays."""
        while True:
            self._held.decided.clear()
            await self._held.catch_up()
            turn = self._held.state.turn
            open_call = None if turn is None else turn.calls.get(call.call.id)
            if self._held.letting_go():
                return "left"
            if self._held.asked_to_stop() or open_call is None:
                return STOPPED
            if (settled := self._without_asking(open_call, kind)) is not None:
                return settled
            await first_of(self._held.decided.wait(), self._held.stopped)

    async def _prepared(self, call: OpenCall, tool: Tool) -> Prepared | None:
        """None if a stop was asked for first: a server that must be started can take long."""
        return await first_of(tool.prepare(call.call.arguments), self._held.stopped)

    async def _carry_out(
        self, call: OpenCall, tool: Tool, prepared: Prepared
    ) -> None:
        try:
            started = await self._held.record(
                ToolStarted(call.step, call.call.id, prepared.group, tool.spec.repeat)
            )
        except BaseException:
            await prepared.stop()
            raise

        async def say(text: str) -> None:
            await self._held.draft(Stream(started, "output"), text)

        async def keep(file: FileVersions) -> None:
            await self._held.record(FileKept(started, file))

        output = Journaled(say, self._held.put, keep)

        stopper = asyncio.create_task(self._stop_when_asked(prepared))
        try:
            outcome = await prepared.run(output)
        except BaseException:
            await prepared.stop()
            raise
        finally:
            stopper.cancel()
        await self.settle(call, outcome, started)

    async def _stop_when_asked(self, prepared: Prepared) -> None:
        await self._held.stopped.wait()
        await prepared.stop()

    async def settle(
        self, call: OpenCall, outcome: Outcome, started: int | None = None
    ) -> None:
        await self._held.record(
            ToolSettled(call.step, call.call.id, outcome, started)
        )


def _as_decided(call: OpenCall) -> Permission:
    if call.decision == "allow":
        return "given"
    return Refused(f"{DENIED}: {call.reason}" if call.reason else DENIED)
