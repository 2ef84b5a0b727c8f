"""What became of a turn of codex, as facts and drafts of our journal: acts carried out, in
order."""

from functools import cache
from typing import assert_never

from steno.journal.drafts import Stream
from steno.journal.facts import (
    OutputLate,
    StepLost,
    StepSealed,
    StepStarted,
    ThreadCompacted,
    ToolSettled,
    ToolStarted,
    TurnFact,
    UsageReported,
)
from steno.journal.parts import Content, Outcome, Seq, Text, ToolCall
from steno.journal.state import OpenCall
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import effects as e
from steno.runtimes.codex import wording as w
from steno.runtimes.codex.means import Means
from steno.runtimes.codex.naming import seq_in
from steno.runtimes.codex.process import log
from steno.session.lease import HeldSession
from steno.store.errors import NotPending
from steno.tools.output import kept


class Recording:
    """`step` is the open one."""

    def __init__(self, held: HeldSession, means: Means, step: Seq) -> None:
        self._held = held
        self._means = means
        self._step: Seq | None = step
        self._last_step = step
        self._advised = False

    async def do(self, acts: list[e.Effect]) -> e.EndTurn | None:
        """Carry acts out in order; the end of the turn, if it is among them. Pieces of one stream
        go out together, and so do facts that need not wait."""
        facts: list[TurnFact] = []
        together = e.joined(acts)
        for at, act in enumerate(together):
            match act:
                case (
                    e.SealStep()
                    | e.LoseStep()
                    | e.ReportUsage()
                    | e.StorePlan()
                    | e.NoteCompaction()
                    | e.SettleCall()
                    | e.StartCall()
                    | e.KeepLate()
                ):
                    if isinstance(act, e.StartCall | e.SettleCall | e.KeepLate) and any(
                        _is_about(fact, act.call) for fact in facts
                    ):
                        await self._store(facts)
                    facts += await self._facts(act)
                    continue
                case _:
                    await self._store(facts)
            match act:
                case e.OpenStep():
                    taken = None if act.takes is None else seq_in(act.takes, self._held.id)
                    self._step = await self._open(() if taken is None else (taken,))
                case e.WriteText():
                    await self._held.draft(Stream(self._open_step(), act.kind), act.text)
                case e.ShowOutput():
                    await self._held.draft(
                        Stream(self._means.thread.ran[act.call], "output"), act.text
                    )
                case e.LogUnknown():
                    skip(act.method)
                case e.EndTurn():
                    await self.keep_late(
                        [late for late in together[at + 1 :] if isinstance(late, e.KeepLate)]
                    )
                    return act
                case unreachable:
                    assert_never(unreachable)
        await self._store(facts)
        return None

    async def _open(self, takes: tuple[Seq, ...]) -> Seq:
        """A step. An input that was taken back while codex was being given it stays taken back."""
        try:
            return await self._held.record(StepStarted(self._means.model, takes=takes))
        except NotPending:
            await self._held.catch_up()
            return await self._held.record(StepStarted(self._means.model))

    async def _store(self, facts: list[TurnFact]) -> None:
        if not facts:
            return
        first = await self._held.record(*facts)
        for seq, fact in enumerate(facts, start=first):
            if isinstance(fact, ToolStarted):
                self._means.thread.ran[fact.call] = seq
        facts.clear()

    async def _facts(self, act: e.Effect) -> list[TurnFact]:
        match act:
            case e.SealStep():
                step, self._step = self._open_step(), None
                self._last_step = step
                facts: list[TurnFact] = [
                    StepSealed(step, act.parts, act.ended, act.usage, act.shown)
                ]
                if act.started is not None:
                    facts.append(ToolStarted(step, act.started, self._means.server.group))
                    self._notice(act.parts[-1])
                return facts
            case e.LoseStep():
                step, self._step = self._open_step(), None
                return [StepLost(step, act.cause, "yes", act.detail)]
            case e.StartCall():
                step = self._open_call(act.call).step
                return [ToolStarted(step, act.call, self._means.server.group)]
            case e.SettleCall():
                outcome = await kept(act.outcome, self._means.output_chars_max, self._means.keep)
                shown = None if act.shown is None else (Text(act.shown),)
                self._advise(outcome)
                call = self._open_call(act.call)
                return [ToolSettled(call.step, act.call, outcome, call.started, shown)]
            case e.KeepLate():
                started = self._means.thread.ran.get(act.call)
                return [] if started is None else [OutputLate(started, act.text)]
            case e.ReportUsage():
                return [UsageReported(self._last_step, act.usage)]
            case e.StorePlan():
                return [act.plan]
            case e.NoteCompaction():
                return [ThreadCompacted(RUNTIME, self._means.thread.id)]
            case _:
                return []

    def _notice(self, part: Content) -> None:
        """Codex runs no command unasked, unless a rules file came to be while it ran, or the gate
        failed."""
        if isinstance(part, ToolCall) and part.name == w.SHELL:
            log().warning("codex runs a command without asking: %s", part.arguments)

    def _advise(self, outcome: Outcome) -> None:
        """To codex, a sandbox that cannot be built is a command that failed."""
        if not self._advised and w.of_the_sandbox(outcome):
            self._advised = True
            log().warning("codex's sandbox does not work here, so its commands fail; %s", w.SANDBOX)

    def _open_call(self, call: str) -> OpenCall:
        """What is stored of a call without an outcome."""
        turn = self._held.state.turn
        if turn is None:
            raise AssertionError("a call is open only in a turn")
        return turn.calls[call]

    def _open_step(self) -> Seq:
        if self._step is None:
            raise AssertionError("a step is open whenever something is said")
        return self._step

    async def keep_late(self, late: list[e.KeepLate]) -> None:
        facts: list[TurnFact] = []
        for act in e.joined(list(late)):
            facts += await self._facts(act)
        await self._store(facts)


def _is_about(fact: TurnFact, call: str) -> bool:
    if isinstance(fact, StepSealed):
        return any(isinstance(part, ToolCall) and part.id == call for part in fact.parts)
    return isinstance(fact, ToolStarted | ToolSettled) and fact.call == call


@cache
def skip(method: str) -> None:
    """Say it once, however often it comes."""
    log().warning("codex sent %s, which steno does not know; it is skipped", method)
