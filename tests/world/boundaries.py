"""A turn killed at each of its commits, and what must be true after it.

The turn is run once to its end. Then it is run again for each commit, and killed before or after it.
What is stored must be exactly what the whole run had stored at that commit. Then a process looks,
and another one goes on.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.engine.action import Limits
from steno.engine.recover import recover
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
from steno.store.protocol import Piece
from tests.models.rules import check
from tests.world.model import Reply
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
Check = Callable[[World, "Stands"], Awaitable[None]]


class Scenario(Struct, frozen=True):
    """What a process does until it is killed. `prepare` comes before it, and is not killed; `check`
    says what else must be true when the others have looked and gone on."""

    act: Act[Any]
    prepare: Prepare | None = None
    check: Check | None = None


class Stored(Struct, frozen=True):
    """Everything of all sessions at one moment, in words that are the same in each run."""

    facts: dict[str, list[tuple[int, Any]]]
    drafts: dict[str, list[Draft]]


class Stands:
    """A session as it stands: what a dead process left open is closed in memory."""

    def __init__(self, process: Process, session: str) -> None:
        self.records = process.facts(session)
        self.transcript, self.state = Transcript(), State()
        for record in self.records:
            self._apply(record)
        drafts = process.drafts(session)
        self.closing: tuple[TurnFact, ...] = recover(self.state, drafts)
        for fact in self.closing:
            self._apply(Record(self.state.head + 1, 0, fact))

    def _apply(self, record: Record) -> None:
        self.transcript.apply(record)
        self.state.apply(record)

    def texts(self, role: str | None = None) -> list[str]:
        messages = self.transcript.messages
        return [message.text for message in messages if role in (None, message.role)]

    def sealed(self) -> bool:
        """Whether anything of an answer is stored: what nobody answered is not told again."""
        facts = (*(record.fact for record in self.records), *self.closing)
        return any(isinstance(fact, StepSealed) for fact in facts)

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
        if scenario.prepare is not None:
            await scenario.prepare(world)
        process = world.process()
        process.on_boundary = lambda kill: whole.update({kill: stored(process)})
        await process.run(scenario.act)
        return process.commits, Stands(process, FIRST).texts()

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
        if scenario.prepare is not None:
            await scenario.prepare(world)
        process, seen = world.process(kill), []
        process.on_boundary = lambda at: seen.append(stored(process)) if at == kill else None
        await process.run(scenario.act)
        assert process.dead
        assert seen == [left], "exactly the finished prefix"
        for other in world.processes:
            await other.kill()
        await check_after(world, process, scenario.check)

    return test


def stored(process: Process) -> Stored:
    sessions = process.sessions()
    return Stored(
        {id: [(one.seq, _same(one.fact)) for one in process.facts(id)] for id in sessions},
        {id: process.drafts(id) for id in sessions},
    )


def _same(fact: Any) -> Any:
    """Without the name of a process, which is never the same."""
    return replace(fact, by="") if isinstance(fact, SessionAttended) else fact


async def check_after(world: World, dead: Process, also: Check | None = None) -> None:
    """Looking stores nothing; what was shown is stored; the next turn is as it must be, and what the
    dead process left open is closed once."""
    looker = world.process()
    before = stored(looker)
    stands = {id: Stands(looker, id) for id in looker.sessions()}
    assert stored(looker) == before
    for one in dead.shown:
        if isinstance(one, Piece):
            at = (one.stream.started, one.stream.kind)
            texts = [stand.streamed().get(at) for stand in stands.values()]
            assert any(
                text is not None and text[one.offset :].startswith(one.text) for text in texts
            )
        else:
            assert any(one in stand.records for stand in stands.values())
    ran = list(world.runs)
    assert len(set(ran)) == len(ran), "no tool ran twice"
    asked = list(world.model.requests)
    world.limits = Limits()
    for id, stand in stands.items():
        await _go_on(world, id, stand)
    assert world.runs == ran, "what had begun is not run again"
    for request in world.model.requests[len(asked) :]:
        check_valid(request)
    if asked and any(stand.sealed() for stand in stands.values()):
        check_repeats(asked[-1], world.model.requests[-1])
    assert world.process().verify() == ()
    if also is not None:
        for stand in stands.values():
            await also(world, stand)


async def _go_on(world: World, id: str, before: Stands) -> None:
    waiting = len(before.state.pending)
    world.model.choose = lambda _: Reply((THEN,))
    next = world.process()
    assert await next.run(lambda process: process.ask(NOW, session=id)) == THEN
    after = Stands(next, id)
    assert after.closing == ()
    assert after.records[: len(before.records)] == before.records
    new = [record.fact for record in after.records[len(before.records) :]]
    for fact in before.closing:
        assert new.count(fact) == 1, "the correction is stored once, as it was shown"
    expected = [*before.texts(), *[THEN] * waiting, NOW, THEN]
    assert after.texts() == expected
    another = world.process()
    assert await another.run(lambda process: process.ask(NOW, session=id)) == THEN
    last = [record.fact for record in another.facts(id)[len(after.records) :]]
    assert [type(fact) for fact in last if not isinstance(fact, VISITS)] == PLAIN


def check_valid(request: Request) -> None:
    for kind in FORMATS:
        check(kind, wire(kind, request))


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
