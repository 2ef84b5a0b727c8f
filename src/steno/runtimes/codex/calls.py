"""The life of each call of codex, as one table of states. Pure.

Codex speaks of a call in its items and its own questions, the gate (our hook, which codex runs
before and after a call) speaks of it too, and a person, a rule or a plugin decides about it. These
do not come in one order, and codex does not tell everything. Each is an event, and the table says
which state follows. An event that a state has no entry for changes nothing.

    no sandbox, codex asks                            state        stored
      item/started (thread waits for approval)        TOLD         step.sealed with the call
      requestApproval                                 ASKED        approval.asked
      a person says yes                               APPROVED     tool.started
      outputDelta                                     RUNNING      a draft of its output
      item/completed                                  SETTLED      tool.settled

    in a sandbox, the gate asks
      our hook waits                                  HELD         step.sealed, approval.asked
      a person says yes                               PASSED       tool.started
      item/started with a process id                  RUNNING
      item/completed                                  SETTLED      tool.settled

    in a sandbox, the command is to leave it
      our hook waits, a person says yes               PASSED       step.sealed, approval.asked,
                                                                   tool.started
      requestApproval, with a reason                  SETTLED      tool.settled: "not run: …"
                         and another call, c1/again   ASKED        step.sealed, approval.asked
                                                                   with `leaves`
      a person says yes                               APPROVED     tool.started
      our hook says that it is over                   OVER
      codex begins something else                     SETTLED      tool.settled: what the hook said

    a change of files, no sandbox
      item/started                                    ANNOUNCED    step.sealed with the call
      anything but a question                         RUNNING      tool.started
"""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.parts import Outcome, Refused, Text, ToolCall


class CallState(Enum):
    ANNOUNCED = (
        "codex told of a change of files; its next message says whether it asks first"
    )
    TOLD = "codex told of it; it does not run yet"
    OURS = "a tool of steno's own, which the turn runs and settles"
    HELD = "it waits at the gate"
    PASSED = "it was let through the gate; codex has not said that it runs"
    ASKED = "codex itself asks whether it may run"
    APPROVED = "codex has its yes; it tells of the call only when that is over"
    OVER = "a hook says that it is over; codex has not told of it"
    RUNNING = "it runs"
    SETTLED = "its outcome is known"


class CallEvent(Enum):
    BEGIN = "it was approved, or codex says that it begins"
    SPAWN = "codex names its process"
    OUTPUT = "it says something"
    GO_ON = "codex goes on without a question"
    WAIT = "codex waits for an answer"
    ASK = "codex asks whether it may run"
    COVER = "the yes at the gate is also the answer to codex's own question"
    HOOK = "a hook says that it is over"
    SETTLE = "its outcome is known"


_S, _E = CallState, CallEvent

TABLE: Mapping[CallState, Mapping[CallEvent, CallState]] = {
    _S.ANNOUNCED: {
        _E.BEGIN: _S.RUNNING,
        _E.SPAWN: _S.RUNNING,
        _E.OUTPUT: _S.RUNNING,
        _E.GO_ON: _S.RUNNING,
        _E.WAIT: _S.TOLD,
        _E.ASK: _S.ASKED,
        _E.SETTLE: _S.SETTLED,
    },
    _S.TOLD: {
        _E.BEGIN: _S.RUNNING,
        _E.SPAWN: _S.RUNNING,
        _E.OUTPUT: _S.RUNNING,
        _E.ASK: _S.ASKED,
        _E.SETTLE: _S.SETTLED,
    },
    _S.OURS: {_E.SETTLE: _S.SETTLED},
    _S.HELD: {
        _E.BEGIN: _S.PASSED,
        _E.SPAWN: _S.RUNNING,
        _E.OUTPUT: _S.RUNNING,
        _E.ASK: _S.ASKED,
        _E.SETTLE: _S.SETTLED,
    },
    _S.PASSED: {
        _E.SPAWN: _S.RUNNING,
        _E.OUTPUT: _S.RUNNING,
        _E.COVER: _S.APPROVED,
        _E.HOOK: _S.SETTLED,
        _E.SETTLE: _S.SETTLED,
    },
    _S.ASKED: {
        _E.BEGIN: _S.APPROVED,
        _E.SPAWN: _S.APPROVED,
        _E.OUTPUT: _S.RUNNING,
        _E.SETTLE: _S.SETTLED,
    },
    _S.APPROVED: {_E.OUTPUT: _S.RUNNING, _E.HOOK: _S.OVER, _E.SETTLE: _S.SETTLED},
    _S.OVER: {_E.OUTPUT: _S.RUNNING, _E.SETTLE: _S.SETTLED},
    _S.RUNNING: {_E.SETTLE: _S.SETTLED},
    _S.SETTLED: {},
}
"""A call that runs, or was let through, and that codex asks about is settled, and another call
stands in its place (`again`): so ASK has no entry there."""

STARTED = frozenset((_S.PASSED, _S.APPROVED, _S.OVER, _S.RUNNING))
"""From the first of these on, the call may have had effects: `tool.started` is stored."""


class OutputBounds(Struct, frozen=True):
    """How much of a call's output is shown, and how much more is kept for its outcome."""

    shown_chars_max: int = 30_000
    kept_chars_max: int = 5_000_000


class Promised(Struct, frozen=True):
    """A call that a person approved before it could be run: when codex comes with the same one, it
    is this one. `explained`: the question had a reason. `leaves`: the approval covers leaving the
    sandbox."""

    id: str
    name: str
    arguments: str
    explained: bool = False
    leaves: bool = False


class CodexCall(Struct):
    """`as_told` is the call as it is stored, with its id. `server` is the MCP server whose tool it
    is, once codex has named it. `refusal` is why it must not run, `over` what a hook said came of
    it. `rest` is output beyond what is shown."""

    as_told: ToolCall
    state: CallState
    promised: Promised | None = None
    server: str = ""
    refusal: str = ""
    over: str = ""
    shown: str = ""
    rest: list[str] = []
    rest_chars: int = 0

    @property
    def id(self) -> str:
        return self.as_told.id

    def is_started(self) -> bool:
        return self.state in STARTED

    def is_open(self) -> bool:
        return self.state is not CallState.SETTLED

    def collected(self) -> str:
        """All of its output that was kept."""
        return self.shown + "".join(self.rest)

    def covers(self, explained: bool, leaves: bool) -> bool:
        """True if its yes at the gate also answers a question of codex's own: one that gives a
        reason or is about leaving the sandbox only if that was approved before."""
        if self.state is not CallState.PASSED:
            return False
        if not explained and not leaves:
            return True
        kept = self.promised
        return (
            kept is not None and kept.explained >= explained and kept.leaves >= leaves
        )

    def take_output(self, text: str, bounds: OutputBounds) -> str:
        """Keep output; the part of it that is to be shown."""
        room = bounds.shown_chars_max - len(self.shown)
        shown, rest = text[:room], text[room:]
        if rest and self.rest_chars < bounds.kept_chars_max:
            self.rest.append(rest)
            self.rest_chars += len(rest)
        self.shown += shown
        return shown

    def beside(self, outcome: Outcome) -> str | None:
        """What was shown, if the outcome does not begin with it."""
        if not self.shown or isinstance(outcome, Refused):
            return None
        said = "".join(part.text for part in outcome.parts if isinstance(part, Text))
        return None if said.startswith(self.shown) else self.shown


class CallTable:
    """The calls of one turn. Codex names a call by its item; `of` finds the call that an item
    stands for at present, `named` a call by its own id. An item whose call is settled may be
    another call's next: some providers give each call of a turn the same id. `announced` is the
    last call that began as such."""

    def __init__(self, promised: tuple[Promised, ...] = ()) -> None:
        self._calls: dict[str, CodexCall] = {}
        self._ids: dict[str, str] = {}
        self.announced: CodexCall | None = None
        self._promised = list(promised)

    def named(self, id: str) -> CodexCall | None:
        return self._calls.get(id)

    def of(self, item: str) -> CodexCall | None:
        return self._calls.get(self._ids.get(item, item))

    def in_state(self, state: CallState) -> list[CodexCall]:
        return [call for call in self._calls.values() if call.state is state]

    def still_open(self) -> list[CodexCall]:
        return [call for call in self._calls.values() if call.is_open()]

    def add(self, item: str, as_told: ToolCall, state: CallState) -> CodexCall:
        """A call that is not in the table, or was promised: then it keeps the id that it had."""
        like = (as_told.name, as_told.arguments)
        promised = next(
            (one for one in self._promised if (one.name, one.arguments) == like), None
        )
        if promised is not None:
            self._promised.remove(promised)
            as_told = replace(as_told, id=promised.id)
        return self._put(item, CodexCall(as_told, state, promised))

    def again(self, item: str, as_told: ToolCall, state: CallState) -> CodexCall:
        """Another call in the place of the one that an item stands for, which is settled."""
        before = self._ids.get(item, item)
        return self._put(
            item, CodexCall(replace(as_told, id=f"{before}/again"), state)
        )

    def _put(self, item: str, call: CodexCall) -> CodexCall:
        self._calls.pop(call.id, None)
        self._calls[call.id] = call
        self._ids[item] = call.id
        if call.state is CallState.ANNOUNCED:
            self.announced = call
        return call


def move(call: CodexCall, event: CallEvent) -> bool:
    """Have an event happen to a call. True if that starts it."""
    before = call.state
    call.state = TABLE[before].get(event, before)
    if call.state is CallState.SETTLED:
        call.shown, call.rest = "", []
    return call.state in STARTED and before not in STARTED
