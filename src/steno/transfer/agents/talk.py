"""A conversation of another program, in words that all of them share, and its facts.

A reader of a format yields `Talk`s; `carried` turns one into what a store can bring. What must be
true:

- Nothing is guessed. What has no meaning here is kept as it came, an `item.kept` beside the talk,
  and counted in the report.
- The same talk gives the same session id and the same facts, however often and wherever it is
  read. So a second import can see what the first one has stored, and go on behind it.
- Nothing waits afterwards. A prompt without an answer ends as interrupted; a call without an
  outcome is settled as unknown. No runner takes up what another program left open.

    Said 1 · Answer with a call · ToolResult · Answer · Said 2 · (the file ends)
    input 2 · turn 3 · step 4, 5 · tool 6, 7 · step 8, 9 · ended 10 (done)
    input 11 · turn 12 · ended 13 (interrupted, imported)
"""

import hashlib
import json
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Content, File, Image, Outcome, Seq, ToolCall, Unknown
from steno.store.protocol import Carried, Payload

UNFINISHED = "imported"
"""Why a turn is interrupted that was not finished where it came from."""

TITLE_CHARS = 200


class Attached(Struct, frozen=True):
    """Bytes that came along, and the part that names them."""

    part: Image | File
    body: bytes


class Said(Struct, frozen=True):
    """What a person said. `hidden`: people read it, the model was no longer told of it."""

    at_ms: int
    parts: tuple[Content, ...]
    author: str | None = None
    attached: tuple[Attached, ...] = ()
    hidden: bool = False


class Answer(Struct, frozen=True):
    """What a model answered to one request."""

    at_ms: int
    parts: tuple[Content, ...]
    model: str = ""
    usage: f.Usage | None = None
    ended: f.StepEnding = "complete"
    attached: tuple[Attached, ...] = ()
    hidden: bool = False


class ToolResult(Struct, frozen=True):
    at_ms: int
    call: str
    outcome: Outcome
    attached: tuple[Attached, ...] = ()
    hidden: bool = False


class Summarised(Struct, frozen=True):
    """The program put a summary in the place of everything before."""

    at_ms: int
    summary: str


class Kept(Struct, frozen=True):
    """Something that is no speech, or that we do not know: kept as it came."""

    at_ms: int
    json: str
    key: str | None = None


Entry = Said | Answer | ToolResult | Summarised | Kept


class Talk(Struct, frozen=True, kw_only=True):
    """`program` names the format, `id` is the talk's own id there, `where` is the file it is in. A
    branch shares its first `shared` entries with the talk `branch_of`; `entries` has those, too.
    `notes` are what a person should know of how it was read: (place, what)."""

    program: str
    id: str
    where: str
    entries: Iterable[Entry]
    title: str = ""
    branch_of: str | None = None
    shared: int = 0
    notes: tuple[tuple[str, str], ...] = ()


def fork_point(entries: Sequence[Entry], differs_at: int) -> int:
    """How many entries a branch shares with its parent: it begins with what a person said. A
    second answer to the same prompt has that prompt, too."""
    at = differs_at
    while at > 0 and not isinstance(entries[min(at, len(entries) - 1)], Said):
        at -= 1
    while at > 0 and isinstance(entries[at - 1], Said):
        at -= 1
    return at


def session_id(program: str, id: str) -> str:
    """Where a talk goes: the same in every store and at every import."""
    digest = hashlib.sha256(
        f"{program}\0{id}".encode("utf-8", "surrogatepass")
    ).digest()
    return b32encode(digest).decode().lower()[:13]


def branch(
    talk: Talk, leaf: str, known: Sequence[Entry], entries: Sequence[Entry]
) -> Talk | None:
    """Another way to go on from somewhere in a talk, whose entries are `known`; None if it is no
    other."""
    same = 0
    while same < min(len(known), len(entries)) and known[same] == entries[same]:
        same += 1
    if same == len(entries):
        return None
    return Talk(
        program=talk.program,
        id=f"{talk.id}#{leaf}",
        where=talk.where,
        entries=entries,
        title=talk.title,
        branch_of=talk.id,
        shared=fork_point(entries, same),
    )


def line_to(leaf: str, parents: Mapping[str, str]) -> list[str]:
    """The ids from the root of a tree to a leaf. A circle ends it."""
    line: dict[str, None] = {}
    at = leaf
    while at in parents and at not in line:
        line[at] = None
        at = parents[at]
    return list(line)[::-1]


def entries_in(records: Iterable[f.Record]) -> int:
    """How many entries of a talk these facts were made of."""
    made = 0
    for fact in (record.fact for record in records):
        ran = isinstance(fact, f.ToolSettled) and fact.started is not None
        made += ran or isinstance(
            fact, f.InputAdmitted | f.StepSealed | f.Compacted | f.ItemKept
        )
    return made


class Writer:
    """The facts of one talk, one entry after another. Given what an earlier import has stored, it
    goes on behind that."""

    def __init__(self, program: str, stored: Iterable[f.Record] = ()) -> None:
        self.head: Seq = 0
        self.title = ""
        self._at_ms = 0
        self._program = program
        self._waiting: list[Seq] = []
        self._turn: Seq = 0
        self._last_turn: Seq = 0
        self._calls: dict[str, Seq] = {}
        self._cut = False
        self._brought: set[str] = set()
        for record in stored:
            self.head, self._at_ms = record.seq, record.at_ms
            if isinstance(record.fact, f.TurnStarted):
                self._last_turn = record.seq
            elif isinstance(record.fact, f.SessionRenamed):
                self.title = record.fact.title

    def fact(self, at_ms: int, fact: f.AnyFact) -> f.Record:
        """An entry that has no time has that of the one before it."""
        self.head += 1
        self._at_ms = at_ms or self._at_ms
        return f.Record(self.head, self._at_ms, fact)

    def entry(self, entry: Entry) -> Iterator[Carried]:
        match entry:
            case Said():
                yield from self._end_turn(entry.at_ms)
                yield from self._payloads(entry.attached)
                said = f.InputAdmitted(
                    entry.parts, f"import:{self._program}", author=entry.author
                )
                yield self.fact(entry.at_ms, said)
                self._waiting.append(self.head)
                yield from self._hide(entry, self.head)
            case Answer():
                yield from self._answer(entry)
            case ToolResult():
                yield from self._settle(entry)
            case Summarised():
                yield from self.end(entry.at_ms)
                if self.head > 1:
                    yield self.fact(
                        entry.at_ms, f.Compacted(self.head, entry.summary)
                    )
                else:
                    yield self._keep(entry.at_ms, {"summary": entry.summary})
            case Kept():
                yield self.fact(
                    entry.at_ms, f.ItemKept(self._program, entry.json, entry.key)
                )

    def end(self, at_ms: int) -> Iterator[Carried]:
        """Nothing waits after this."""
        yield from self._end_turn(at_ms)
        while self._waiting:
            yield from self._start_turn(at_ms)
            yield from self._end_turn(at_ms)

    def rename(self, at_ms: int, title: str) -> Iterator[Carried]:
        title = " ".join(title.split())[:TITLE_CHARS]
        if title and title != self.title:
            yield self.fact(at_ms, f.SessionRenamed(title))

    def _keep(self, at_ms: int, what: object) -> f.Record:
        return self.fact(
            at_ms, f.ItemKept(self._program, json.dumps(what, ensure_ascii=False))
        )

    def _payloads(self, attached: tuple[Attached, ...]) -> Iterator[Carried]:
        for one in attached:
            if one.part.hash not in self._brought:
                self._brought.add(one.part.hash)
                yield Payload(one.body)

    def _start_turn(self, at_ms: int) -> Iterator[Carried]:
        """It takes the first input that waits; the others steer its first step."""
        origin = (
            f.Takes(self._waiting.pop(0))
            if self._waiting
            else f.Continues(self._last_turn)
        )
        yield self.fact(at_ms, f.TurnStarted(origin))
        self._turn = self._last_turn = self.head
        self._cut = True

    def _answer(self, answer: Answer) -> Iterator[Carried]:
        yield from self._settle_open(answer.at_ms)
        if not self._waiting and not self._last_turn:
            # There is nothing here that a turn with this answer could take.
            yield self._keep(
                answer.at_ms, {"answer": msgspec.to_builtins(answer.parts)}
            )
            return
        if not self._turn:
            yield from self._start_turn(answer.at_ms)
        yield from self._payloads(answer.attached)
        takes, self._waiting = tuple(self._waiting), []
        yield self.fact(answer.at_ms, f.StepStarted(answer.model, takes=takes))
        step = self.head
        sealed = f.StepSealed(step, answer.parts, answer.ended, answer.usage)
        yield self.fact(answer.at_ms, sealed)
        self._calls = {
            part.id: step for part in answer.parts if isinstance(part, ToolCall)
        }
        self._cut = answer.ended in ("incomplete", "interrupted")
        yield from self._hide(answer, step)

    def _hide(self, entry: Said | Answer | ToolResult, at: Seq) -> Iterator[Carried]:
        if entry.hidden:
            yield self.fact(entry.at_ms, f.MessageHidden(at))

    def _settle(self, result: ToolResult) -> Iterator[Carried]:
        step = self._calls.pop(result.call, None)
        if step is None:
            outcome = msgspec.to_builtins(result.outcome)
            yield self._keep(result.at_ms, {"call": result.call, "outcome": outcome})
            return
        yield from self._payloads(result.attached)
        yield self.fact(result.at_ms, f.ToolStarted(step, result.call))
        started = self.head
        settled = f.ToolSettled(step, result.call, result.outcome, started)
        yield self.fact(result.at_ms, settled)
        yield from self._hide(result, started)

    def _settle_open(self, at_ms: int) -> Iterator[Carried]:
        for call, step in self._calls.items():
            yield self.fact(at_ms, f.ToolSettled(step, call, Unknown()))
        self._calls = {}

    def _end_turn(self, at_ms: int) -> Iterator[Carried]:
        if not self._turn:
            return
        cut = self._cut or bool(self._calls)
        yield from self._settle_open(at_ms)
        if cut:
            yield self.fact(at_ms, f.TurnEnded(self._turn, "interrupted", UNFINISHED))
        else:
            yield self.fact(at_ms, f.TurnEnded(self._turn, "done"))
        self._turn = 0


def carried(talk: Talk) -> Iterator[Carried]:
    """The talk as a session, whole."""
    writer, at_ms = Writer(talk.program), 0
    platform = f"import:{talk.program}"
    for n, entry in enumerate(talk.entries):
        if n == 0:
            yield writer.fact(entry.at_ms, f.SessionStarted(platform))
        if n > 0 and talk.branch_of is not None and n == talk.shared:
            yield from writer.end(at_ms)
            point = f.ForkPoint(session_id(talk.program, talk.branch_of), writer.head)
            yield writer.fact(at_ms, f.SessionStarted(platform, forked_from=point))
        yield from writer.entry(entry)
        at_ms = entry.at_ms
    if writer.head:
        yield from writer.end(at_ms)
        yield from writer.rename(at_ms, talk.title)


def base_of(talk: Talk) -> Seq:
    """How many facts of the session are those of the talk that it branched from."""
    if talk.branch_of is None or talk.shared == 0:
        return 0
    for one in carried(talk):
        begun = one.fact if isinstance(one, f.Record) else None
        if isinstance(begun, f.SessionStarted) and begun.forked_from is not None:
            return begun.forked_from.seq
    return 0


def continued(talk: Talk, stored: Sequence[f.Record]) -> Iterator[Carried]:
    """What the talk has beyond what an earlier import has stored."""
    writer, at_ms = Writer(talk.program, stored), 0
    done = entries_in(stored)
    for entry in islice(talk.entries, done, None):
        yield from writer.entry(entry)
        at_ms = entry.at_ms
    at_ms = at_ms or (stored[-1].at_ms if stored else 0)
    yield from writer.end(at_ms)
    yield from writer.rename(at_ms, talk.title)
