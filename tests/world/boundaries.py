"""A turn killed at each of its commits, and what must be true after it.

The turn is run once to its end. Then it is run again for each commit, and killed before or after
it. What is stored must be exactly what the whole run had stored at that commit. Then a process
looks, and another one goes on.
"""

import functools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.engine.action import Limits
from steno.engine.recover import recover, waits_for_approval
from steno.engine.request import Request
from steno.journal.drafts import Draft
from steno.journal.facts import (
    InputAdmitted,
    Record,
    SessionAttended,
    SessionEnded,
    StepSealed,
    StepStarted,
    ToolSettled,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import Reasoning, Text, outcome_parts, text_of
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.models.specs import Access, ModelSettings, make
from steno.store.protocol import Event
from tests.models.rules import check
from tests.world.model import Reply, digest
from tests.world.store import Kill
from tests.world.world import FIRST, Act, Process, World, play

FORMATS = ("openai-chat", "anthropic")
SETTINGS = ModelSettings({"openai": Access("k"), "anthropic": Access("k")})
MODELS = {kind: make(f"{kind}:test", SETTINGS) for kind in FORMATS}
VISITS = (SessionAttended, SessionEnded)
PLAIN = [InputAdmitted, TurnStarted, StepStarted, StepSealed, TurnEnded]
"""A turn in which nothing is put right any more."""
NOW = "and now?"
THEN = "after it"

Prepare = Callable[[World], Awaitable[None]]
GoOn = Callable[[World, str, "Stands"], Awaitable[None]]


async def nothing(_: World) -> None: ...


async def go_on(world: World, id: str, before: "Stands") -> None:
    """Another process says something: what waited is answered first, and what the dead process left
    open is closed once."""
    world.model.choose = lambda _: Reply((THEN,))
    assert await world.process().run(lambda process: process.ask(NOW, session=id)) == THEN
    after = Stands(world, id)
    assert after.closing == ()
    assert after.records[: len(before.records)] == before.records
    new = [record.fact for record in after.records[len(before.records) :]]
    ended = [fact for fact in before.closing if isinstance(fact, TurnEnded)]
    assert [one.outcome for one in ended] in ([], ["interrupted"])
    assert {one.cause for one in ended} <= {"killed", "user"}
    for fact in before.closing:
        assert new.count(fact) == 1, "the correction is stored once, as it was shown"
    assert after.texts() == [*before.texts(waiting=False), *_answered(before), NOW, THEN]
    assert await world.process().run(lambda process: process.ask(NOW, session=id)) == THEN
    last = [record.fact for record in world.facts(id)[len(after.records) :]]
    assert [type(fact) for fact in last if not isinstance(fact, VISITS)] == PLAIN


def _answered(before: "Stands") -> list[str]:
    """What waited, each with an answer; what steers joins the turn that is open by then."""
    said: list[str] = []
    waiting = [before.state.pending[seq] for seq in sorted(before.state.pending)]
    for text, input in zip(before.texts(waiting=True), waiting, strict=True):
        if said and input.mode == "steer":
            said.pop()
        said += [text, THEN]
    return said


class Scenario(Struct, frozen=True):
    """What a process does until it is killed. `prepare` comes before it, and is not killed; `go_on`
    is how others go on in each session, and what is true then. `repeats`: the next request begins
    with what the last one said; a summary is an exception."""

    act: Act[Any]
    prepare: Prepare = nothing
    go_on: GoOn = go_on
    repeats: bool = True


class Stored(Struct, frozen=True):
    """Everything of all sessions at one moment, in words that are the same in each run."""

    facts: dict[str, list[tuple[int, Any]]]
    drafts: dict[str, list[Draft]]


class Stands:
    """A session as it stands: what a dead process left open is closed in memory."""

    def __init__(self, world: World, session: str = FIRST) -> None:
        self.records = world.facts(session)
        self.transcript, self.state = Transcript(), State()
        for record in self.records:
            self._apply(record)
        drafts = world.drafts(session)
        self.closing: tuple[TurnFact, ...] = recover(self.state, drafts)
        for fact in self.closing:
            self._apply(Record(self.state.head + 1, 0, fact))

    def _apply(self, record: Record) -> None:
        self.transcript.apply(record)
        self.state.apply(record)

    def texts(self, waiting: bool | None = None) -> list[str]:
        """What a person reads: everything, or what waits to be answered, or the rest."""
        messages = self.transcript.messages
        return [
            message.text for message in messages if waiting in (None, message.state == "pending")
        ]

    def answered(self, requests: Sequence[Request]) -> list[Request]:
        """Of these requests, those of this session that something came back for."""
        facts = [*self.records, *(Record(0, 0, fact) for fact in self.closing)]
        sealed = {one.fact.step for one in facts if isinstance(one.fact, StepSealed)}
        steps = (one for one in facts if isinstance(one.fact, StepStarted) and one.seq in sealed)
        digests = {one.fact.digest for one in steps if isinstance(one.fact, StepStarted)}
        return [one for one in requests if digest(one) in digests]

    def holds(self, shown: Event) -> bool:
        if isinstance(shown, Record):
            return shown in self.records
        text = self.streamed().get((shown.stream.started, shown.stream.kind), "")
        return text[shown.offset :].startswith(shown.text)

    def waits(self) -> bool:
        return self.state.turn is not None and waits_for_approval(self.state.turn)

    def streamed(self) -> dict[tuple[int, str], str]:
        """What each stream came to."""
        found = {}
        facts = [record.fact for record in self.records] + list(self.closing)
        for fact in facts:
            if isinstance(fact, StepSealed):
                found[fact.step, "text"] = text_of(fact.parts)
                thoughts = [part.text for part in fact.parts if isinstance(part, Reasoning)]
                found[fact.step, "reasoning"] = "".join(thoughts)
            if isinstance(fact, ToolSettled) and fact.started is not None:
                said = [part for part in outcome_parts(fact.outcome) if isinstance(part, Text)]
                found[fact.started, "output"] = text_of(tuple(said))
        return found


def at_every_boundary(scenario: Scenario, *replies: Reply) -> list[str]:
    """Kill it everywhere; what was said in the first session when it was not killed."""
    whole: dict[Kill, Stored] = {}

    async def to_the_end(world: World) -> tuple[list[str], list[str]]:
        await scenario.prepare(world)
        process = world.process()
        process.on_boundary = lambda kill: whole.update({kill: stored(world)})
        await process.run(scenario.act)
        return process.commits, Stands(world).texts()

    commits, texts = play(to_the_end, *replies)
    for kill, left in whole.items():
        where = f"{kill.when} commit {kill.n} of {len(commits)}: {commits[kill.n - 1]}"
        with saying(f"killed {where}"):
            play(_killed(scenario, kill, left), *replies)
    return texts


@contextmanager
def saying(where: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise


def _killed(scenario: Scenario, kill: Kill, left: Stored) -> Callable[[World], Awaitable[None]]:
    async def test(world: World) -> None:
        await scenario.prepare(world)
        process, seen = world.process(kill), []
        process.on_boundary = lambda at: seen.append(stored(world)) if at == kill else None
        await process.run(scenario.act)
        assert process.dead
        assert seen == [left], "exactly the finished prefix"
        for other in world.processes:
            await other.kill()
        await check_after(world, process, scenario)

    return test


def stored(world: World) -> Stored:
    owners = {one.store.owner for one in world.processes}
    return Stored(
        {
            id: [(one.seq, _same(one.fact, owners)) for one in world.facts(id)]
            for id in world.sessions()
        },
        {id: world.drafts(id) for id in world.sessions()},
    )


def _same(fact: Any, owners: set[str]) -> Any:
    """Without the name of a process, which is never the same."""
    return replace(fact, by="") if getattr(fact, "by", "") in owners else fact


async def check_after(world: World, dead: Process, scenario: Scenario) -> None:
    """What was shown is stored, no tool runs twice, and the next requests are valid."""
    stands = {id: Stands(world, id) for id in world.sessions()}
    await _look(world, stands)
    for one in dead.shown:
        assert any(stand.holds(one) for stand in stands.values()), "shown, so it is stored"
    began = Counter(world.runs)
    asked = list(world.model.requests)
    world.limits = Limits()
    for id, stand in stands.items():
        await scenario.go_on(world, id, stand)
    assert max([0, *Counter(world.runs).values()]) <= 1, "no tool ran twice"
    assert began <= Counter(world.runs)
    for request in world.model.requests[len(asked) :]:
        check_valid(request)
    for id, stand in stands.items():
        if scenario.repeats and (earlier := stand.answered(asked)):
            later = Stands(world, id).answered(world.model.requests)
            check_repeats(earlier[-1], later[-1])
    assert world.verify() == ()


async def _look(world: World, stands: dict[str, Stands]) -> None:
    """A process that looks sees what the next one will store, and stores nothing."""
    before, looker = stored(world), world.process()
    for id, stand in stands.items():
        loaded = await looker.sessions.load(id)
        assert loaded.state.turn == stand.state.turn
        assert loaded.state.last_turn == stand.state.last_turn
    assert stored(world) == before


def check_valid(request: Request) -> None:
    for kind in FORMATS:
        _check_bytes(kind, MODELS[kind].to_wire(request, {}))


@functools.cache
def _check_bytes(kind: str, body: bytes) -> None:
    """Most requests after a kill are the same: each is looked at once."""
    check(kind, msgspec.json.decode(body))


def wire(kind: str, request: Request) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(MODELS[kind].to_wire(request, {}))
    return body


def check_repeats(earlier: Request, later: Request) -> None:
    """A later request begins with all that an earlier one said, but for its note."""
    assert (later.system, later.tools) == (earlier.system, earlier.tools)
    assert later.entries[: len(earlier.entries)] == earlier.entries
    if earlier.note:
        return  # it stands at the end, and the bytes before it may be closed for it
    for kind in FORMATS:
        was, now = (_told(wire(kind, one)) for one in (earlier, later))
        assert now.startswith(was.removesuffix("]").removesuffix("}").removesuffix("]")), kind


def _told(body: dict[str, Any]) -> str:
    return json.dumps(json.loads(json.dumps(body["messages"]), object_hook=_unmarked))


def _unmarked(value: dict[str, Any]) -> dict[str, Any]:
    value.pop("cache_control", None)
    return value
