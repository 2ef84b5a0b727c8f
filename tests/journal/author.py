"""Writes random journals that a real writer could have written, killed at any moment.

The author keeps its own books instead of asking the folds that are under test. A journal is `tidy`
if forks, rewinds and compactions fall between turns; otherwise they fall anywhere that the store
allows.
"""

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st
from msgspec import Struct

from steno.journal import facts as f
from steno.journal.drafts import Draft, Kind, Stream
from steno.journal.facts import Distilled, Item, MemoryRemoved, SessionTitled
from steno.journal.parts import (
    Content,
    Failed,
    Interrupted,
    Outcome,
    Reasoning,
    Refused,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
)
from steno.journal.redaction import redact

Move = Callable[[], None]

MOVES_MAX = 150
WORDS = ["a", "bc", "漢", "\ud800", "\0", "e\u0301 "]


class Journal(Struct):
    records: list[f.Record]
    drafts: list[Draft]


def journals(tidy: bool = True, closed: bool = False) -> st.SearchStrategy[Journal]:
    """`closed`: nothing is left open at the end. A seed reaches further than drawing each move; its
    length shrinks."""
    return st.builds(
        written, st.integers(0, 2**32), st.integers(0, MOVES_MAX), st.just(tidy), st.just(closed)
    )


def written(seed: int, moves: int, tidy: bool = True, closed: bool = False) -> Journal:
    author = Author(Random(seed), tidy)
    for _ in range(moves):
        author.pick(author.moves())()
    if closed:
        author.close()
    return Journal(author.records, [Draft(stream, text) for stream, text in author.drafts.items()])


class Author:
    def __init__(self, chance: Random, tidy: bool) -> None:
        self.pick, self.tidy = chance.choice, tidy
        self.records: list[f.Record] = []
        self.drafts: dict[Stream, str] = {}
        self.forget_what_is_open()
        self.write(f.SessionStarted("test"))

    def forget_what_is_open(self) -> None:
        self.pending: dict[Seq, str] = {}
        self.turn: Seq | None = None
        self.step: Seq | None = None
        self.answered = self.interrupted = False
        self.prompt: Seq = 0
        self.calls: dict[str, Seq | None] = {}
        self.asked: dict[str, Seq] = {}
        self.last_failed: Seq | None = None
        self.deliveries: list[Seq] = []
        self.hooks: list[Seq] = []
        self.visits: list[Seq] = []
        self.drafts.clear()

    def write(self, fact: f.AnyFact) -> Seq:
        seq = len(self.records) + 1
        self.records.append(f.Record(seq, self.pick(range(10)), fact))
        return seq

    def seqs_of(self, *kinds: type) -> list[Seq]:
        return [record.seq for record in self.records if isinstance(record.fact, kinds)]

    # --- what can happen next

    def moves(self) -> list[Move]:
        return [
            self.admit,
            self.admit,
            self.take_back,
            self.aside,
            self.hide,
            *5 * self._turn_moves(),
        ]

    def _turn_moves(self) -> list[Move]:
        if self.turn is None:
            resting: list[Move] = [self.set_context, self.edit]
            if self.last_failed is not None:
                resting += [self.take_up, self.retry]
            return resting + 2 * [self.begin] if self.pending else resting
        if self.step is not None:
            return [self.stream, self.stream, self.seal, self.seal, self.lose, self.interrupt]
        if self.calls:
            return [
                self.ask_approval,
                self.decide,
                self.start_tool,
                self.output,
                self.settle,
                self.settle,
            ]
        return [self.start_step, self.start_step, self.start_step, self.end_turn, self.interrupt]

    def aside(self) -> None:
        """Something of which there is little in any journal."""
        rare: list[Move] = [
            self.rename,
            self.redact,
            self.set_rule,
            self.set_goal,
            *4 * [self.outside],
        ]
        rare += [*3 * [self.visit], *3 * [self.leave], *2 * [self.forget]]
        rare += [] if self.turn is not None else [self.distil, self.distil, self.entitle]
        self.pick(rare if self.tidy else [*rare, *3 * [self.edit]])()

    def edit(self) -> None:
        self.pick([self.fork, *3 * [self.rewind], *2 * [self.withdraw], *3 * [self.compact]])()

    def admit(self) -> None:
        mode = self.pick(["queue", "steer"])
        said = f.InputAdmitted((Text(self.pick(WORDS)),), "test", mode=mode)  # type: ignore[arg-type]
        self.pending[self.write(said)] = mode

    def take_back(self) -> None:
        if self.pending:
            taken_back = self.pick(sorted(self.pending))
            del self.pending[taken_back]
            self.write(f.InputWithdrawn(taken_back))

    def begin(self) -> None:
        taken = min(self.pending)
        del self.pending[taken]
        self._start(f.Takes(taken), taken)

    def take_up(self) -> None:
        if self.last_failed is not None:
            self._start(f.Continues(self.last_failed), self.prompt)

    def retry(self) -> None:
        if self.prompt:
            self._start(f.Takes(self.prompt), self.prompt)

    def _start(self, origin: f.Takes | f.Continues, prompt: Seq) -> None:
        self.turn, self.prompt = self.write(f.TurnStarted(origin)), prompt
        self.answered = self.interrupted = False

    def start_step(self) -> None:
        steering = tuple(seq for seq, mode in self.pending.items() if mode == "steer")
        for seq in steering:
            del self.pending[seq]
        self.step = self.write(f.StepStarted("model", takes=steering))

    def stream(self) -> None:
        kind: Kind = self.pick(["text", "text", "reasoning"])
        self._draft(self.step, kind)

    def output(self) -> None:
        started = [seq for seq in self.calls.values() if seq is not None]
        if started:
            self._draft(self.pick(started), "output")

    def _draft(self, started: Seq | None, kind: Kind) -> None:
        if started is not None:
            stream = Stream(started, kind)
            self.drafts[stream] = self.drafts.get(stream, "") + self.pick(WORDS)

    def seal(self) -> None:
        if self.step is None:
            return
        ended: f.StepEnding = self.pick(
            ["complete", "complete", "complete", "length", "incomplete", "interrupted"]
        )
        parts: list[Content] = []
        if reasoning := self.drafts.pop(Stream(self.step, "reasoning"), ""):
            parts.append(Reasoning(reasoning))
        if text := self.drafts.pop(Stream(self.step, "text"), ""):
            parts.append(Text(text))
        calls = [ToolCall(f"{self.step}.{i}", "tool", "{}") for i in range(self.pick([0, 1, 2]))]
        usage = self.pick([None, f.Usage(), f.Usage(3), f.Usage(output=4)])
        self.write(f.StepSealed(self.step, (*parts, *calls), ended, usage))
        self.calls = {call.id: None for call in calls} if ended == "complete" else {}
        self.step, self.answered = None, True

    def lose(self) -> None:
        if self.step is not None and not self.drafts:
            self.write(f.StepLost(self.step, "dropped", self.pick(["yes", "no", "unknown"])))
            self.step = None

    def ask_approval(self) -> None:
        unstarted = [call for call, started in self.calls.items() if started is None]
        if unstarted:
            call = self.pick(unstarted)
            self.asked[call] = self.write(f.ApprovalAsked(_step_of(call), call))

    def decide(self) -> None:
        if self.asked:
            self.write(
                f.ApprovalDecided(
                    self.pick(sorted(self.asked.values())), self.pick(["allow", "deny"]), "user"
                )
            )

    def set_rule(self) -> None:
        self.write(
            f.RuleSet(self.pick(["shell", "shell:ls*"]), self.pick(["allow", "ask", "deny", None]))
        )

    def set_goal(self) -> None:
        self.write(f.GoalSet(self.pick(["", *WORDS])))

    def start_tool(self) -> None:
        unstarted = [call for call, started in self.calls.items() if started is None]
        if unstarted:
            call = self.pick(unstarted)
            self.calls[call] = self.write(f.ToolStarted(_step_of(call), call))

    def settle(self) -> None:
        call = self.pick(sorted(self.calls))
        started = self.calls.pop(call)
        self.asked.pop(call, None)
        if started is None:
            self.write(f.ToolSettled(_step_of(call), call, Refused("no")))
            return
        text = self.drafts.pop(Stream(started, "output"), "") + self.pick(WORDS)
        parts = (Text(text),)
        outcomes: list[Outcome] = [Returned(parts), Failed(parts), Interrupted(parts)]
        self.write(f.ToolSettled(_step_of(call), call, self.pick(outcomes), started))

    def interrupt(self) -> None:
        if self.turn is not None:
            self.write(f.InterruptAsked(self.turn))
            self.interrupted = True

    def end_turn(self) -> None:
        if self.turn is None:
            return
        outcomes: list[f.TurnOutcome] = ["interrupted"] if self.interrupted else ["failed"]
        if self.answered:
            outcomes.append("done")
        outcome = self.pick(outcomes)
        self.write(f.TurnEnded(self.turn, outcome, "" if outcome == "done" else "cause"))
        self.last_failed = None if outcome == "done" else self.turn
        self.turn = None
        self.calls, self.asked = {}, {}

    def close(self) -> None:
        """End whatever is open, as a runner that is stopped would."""
        if self.step is not None:
            self.stream()
            self.seal()
        for call, started in sorted(self.calls.items()):
            text = "" if started is None else self.drafts.pop(Stream(started, "output"), "")
            outcome = (
                Refused("stopped") if started is None else Unknown((Text(text),) if text else ())
            )
            self.write(f.ToolSettled(_step_of(call), call, outcome, started))
        self.calls = {}
        self.end_turn()

    # --- what anyone may do at any time

    def rename(self) -> None:
        self.write(f.SessionRenamed(self.pick(WORDS)))

    def visit(self) -> None:
        self.visits.append(self.write(f.SessionAttended(self.pick(WORDS), "test")))

    def leave(self) -> None:
        """Whoever leaves owes plugins a word in the same commit, whether it turns out to be the end
        or not."""
        attended = self.pick([None, *self.visits])
        self.write(f.SessionEnded("left", attended=attended))
        if attended is not None and self.pick([True, False]):
            self.hooks.append(
                self.write(f.HookOwed("end", "k", plugins=("a", "b"), attended=attended, by="me"))
            )

    def hide(self) -> None:
        messages = self.seqs_of(f.InputAdmitted, f.StepStarted, f.ToolStarted)
        if messages:
            self.write(f.MessageHidden(self.pick(messages), self.pick([True, False])))

    def redact(self) -> None:
        target = self.pick(self.records)
        emptied = redact(target.fact)
        if emptied is not None:
            self.records[target.seq - 1] = f.Record(target.seq, target.at_ms, emptied)
            self.write(f.MessageRedacted(target.seq))

    def outside(self) -> None:
        match self.pick(["owe", "attempt", "deliver", "owe_hook", "hook", "thread"]):
            case "owe":
                self.deliveries.append(self.write(f.DeliveryOwed(1, "chat", "me", "k")))
            case "attempt" if self.deliveries:
                self.write(f.DeliveryAttempted(self.pick(self.deliveries), self.pick(["", "me"])))
            case "deliver" if self.deliveries:
                owed, refused = (
                    self.pick(self.deliveries),
                    f.DeliveryRefused("no", final=self.pick([True, False])),
                )
                outcomes = (f.Delivered("r"), refused, f.DeliveryExpired())
                self.write(self.pick([f.DeliverySettled(owed, outcome) for outcome in outcomes]))
            case "owe_hook":
                self.hooks.append(self.write(f.HookOwed("end", "k")))
            case "hook" if self.hooks:
                if self.pick([True, False, False]):
                    self.write(f.HookAttempted(self.pick(self.hooks), "else"))
                else:
                    self.write(f.HookDone(self.pick(self.hooks), self.pick(["", "a", "b"])))
            case "thread" if self.turn is None:
                self.write(f.ThreadBound("codex", self.pick(WORDS)))

    # --- what changes the view

    def _boundary(self) -> Seq:
        if self.tidy:
            return self.pick([0, *self.seqs_of(f.TurnEnded)])
        return self.pick(range(len(self.records) + 1))

    def set_context(self) -> None:
        model = self.pick(["model", "another"])
        self.write(
            f.ContextSet(model, self.pick(WORDS), instead_of="" if model == "model" else "model")
        )

    def distil(self) -> None:
        """Range and items are as a runner would have them: what was said up to here."""
        items = tuple(
            Item(self.pick(["decision", "open", "fact"]), self.pick(WORDS), (1,)) for _ in range(2)
        )
        self.write(
            Distilled(0, len(self.records), self.pick(WORDS), self.pick(WORDS), items, "model")
        )

    def entitle(self) -> None:
        self.write(SessionTitled(len(self.records), self.pick(WORDS), "model"))

    def forget(self) -> None:
        distilled = self.seqs_of(Distilled)
        if distilled:
            self.write(MemoryRemoved(self.pick(distilled), self.pick([0, 1, 2])))

    def compact(self) -> None:
        self.write(f.Compacted(self._boundary(), self.pick(WORDS)))

    def rewind(self) -> None:
        self.write(f.Rewound(self._boundary()))

    def withdraw(self) -> None:
        rewinds = self.seqs_of(f.Rewound)
        if rewinds:
            self.write(f.RewindWithdrawn(self.pick(rewinds)))

    def fork(self) -> None:
        at = max(1, self._boundary(), self._boundary())
        del self.records[at:]
        self.forget_what_is_open()
        self.write(f.SessionStarted("test", forked_from=f.ForkPoint("parent", at)))


def _step_of(call: str) -> Seq:
    return int(call.partition(".")[0])
