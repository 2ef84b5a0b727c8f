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
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import acts as a
from steno.runtimes.codex import wording as w
from steno.runtimes.codex.means import Means
from steno.runtimes.codex.naming import seq_in
from steno.runtimes.codex.process import log
from steno.session.lease import HeldSession
from steno.store.errors import NotPending
from steno.tools.output import kept


class Recording:
    """`step` is the open one. `started` are the calls that run or ran in this turn, each with its
    fact."""

    def __init__(self, held: HeldSession, means: Means, step: Seq) -> None:
        self.started: dict[str, Seq] = {}
        self._held = held
        self._means = means
        self._step: Seq | None = step
        self._last_step = step
        self._steps: dict[str, Seq] = {}
        self._advised = False
        turn = held.state.turn
        for call in () if turn is None else turn.calls.values():
            self._steps[call.call.id] = call.step

    async def do(self, acts: list[a.Act]) -> a.End | None:
        """Carry acts out in order; the end of the turn, if it is among them. Pieces of one stream
        go out together, and so do facts that need not wait."""
        facts: list[TurnFact] = []
        together = a.joined(acts)
        for at, act in enumerate(together):
            match act:
                case (
                    a.Seal()
                    | a.Lose()
                    | a.Report()
                    | a.Plan()
                    | a.Compacted()
                    | a.Settle()
                    | a.Start()
                    | a.Late()
                ):
                    if isinstance(act, a.Settle | a.Late) and act.call not in self.started:
                        await self._store(facts)
                    facts += await self._facts(act)
                    continue
                case _:
                    await self._store(facts)
            match act:
                case a.OpenStep():
                    taken = None if act.takes is None else seq_in(act.takes, self._held.id)
                    self._step = await self._open(() if taken is None else (taken,))
                case a.Write():
                    await self._held.draft(Stream(self._open_step(), act.kind), act.text)
                case a.Output():
                    await self._held.draft(Stream(self.started[act.call], "output"), act.text)
                case a.Skip():
                    skip(act.method)
                case a.End():
                    await self.keep_late(
                        [late for late in together[at + 1 :] if isinstance(late, a.Late)]
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
                self.started[fact.call] = self._means.thread.ran[fact.call] = seq
        facts.clear()

    async def _facts(self, act: a.Act) -> list[TurnFact]:
        match act:
            case a.Seal():
                step, self._step = self._open_step(), None
                self._last_step = step
                facts: list[TurnFact] = [
                    StepSealed(step, act.parts, act.ended, act.usage, act.shown)
                ]
                self._steps |= {part.id: step for part in act.parts if isinstance(part, ToolCall)}
                if act.started is not None:
                    facts.append(ToolStarted(step, act.started, self._means.server.group))
                    self._notice(act.parts[-1])
                return facts
            case a.Lose():
                step, self._step = self._open_step(), None
                return [StepLost(step, act.cause, "yes", act.detail)]
            case a.Start():
                return [ToolStarted(self._steps[act.call], act.call, self._means.server.group)]
            case a.Settle():
                outcome = await kept(act.outcome, self._means.output_chars_max, self._means.keep)
                shown = None if act.shown is None else (Text(act.shown),)
                self._advise(outcome)
                started = self.started.get(act.call)
                return [ToolSettled(self._steps[act.call], act.call, outcome, started, shown)]
            case a.Late():
                started = self._means.thread.ran.get(act.call)
                return [] if started is None else [OutputLate(started, act.text)]
            case a.Report():
                return [UsageReported(self._last_step, act.usage)]
            case a.Plan():
                return [act.plan]
            case a.Compacted():
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

    def _open_step(self) -> Seq:
        if self._step is None:
            raise AssertionError("a step is open whenever something is said")
        return self._step

    async def keep_late(self, late: list[a.Late]) -> None:
        facts: list[TurnFact] = []
        for act in a.joined(list(late)):
            facts += await self._facts(act)
        await self._store(facts)


@cache
def skip(method: str) -> None:
    """Say it once, however often it comes."""
    log().warning("codex sent %s, which steno does not know; it is skipped", method)
