"""The life of a call: each transition of the table, each event that changes nothing, and what
follows for a turn."""

import json
from typing import Any

import pytest

from steno.journal.parts import Failed, Interrupted, Refused, Returned, Text, ToolCall
from steno.runtimes.codex.calls import (
    STARTED,
    TABLE,
    CallEvent,
    CallState,
    CallTable,
    CodexCall,
    Promised,
    move,
)
from steno.runtimes.codex.effects import (
    Effect,
    EndTurn,
    KeepLate,
    OpenStep,
    SealStep,
    SettleCall,
    ShowOutput,
    StartCall,
)
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.policy import Unrun
from steno.runtimes.codex.protocol import command_over
from tests.codex.test_mapping import fold, item, note, shell

GRID = """
            BEGIN     SPAWN     OUTPUT   GO_ON    WAIT  ASK    COVER     HOOK     SETTLE
ANNOUNCED   RUNNING   RUNNING   RUNNING  RUNNING  TOLD  ASKED  .         .        SETTLED
TOLD        RUNNING   RUNNING   RUNNING  .        .     ASKED  .         .        SETTLED
OURS        .         .         .        .        .     .      .         .        SETTLED
HELD        PASSED    RUNNING   RUNNING  .        .     ASKED  .         .        SETTLED
PASSED      .         RUNNING   RUNNING  .        .     .      APPROVED  SETTLED  SETTLED
ASKED       APPROVED  APPROVED  RUNNING  .        .     .      .         .        SETTLED
APPROVED    .         .         RUNNING  .        .     .      .         OVER     SETTLED
OVER        .         .         RUNNING  .        .     .      .         .        SETTLED
RUNNING     .         .         .        .        .     .      .         .        SETTLED
SETTLED     .         .         .        .        .     .      .         .        .
"""
"""What follows from each event in each state; a dot for nothing."""

REACHED = {
    CallState.ANNOUNCED: ("ANNOUNCED",),
    CallState.TOLD: ("TOLD",),
    CallState.OURS: ("OURS",),
    CallState.HELD: ("HELD",),
    CallState.PASSED: ("HELD", "BEGIN"),
    CallState.ASKED: ("TOLD", "ASK"),
    CallState.APPROVED: ("TOLD", "ASK", "BEGIN"),
    CallState.OVER: ("TOLD", "ASK", "BEGIN", "HOOK"),
    CallState.RUNNING: ("TOLD", "OUTPUT"),
    CallState.SETTLED: ("TOLD", "SETTLE"),
}
"""How a call comes into each state: as what it begins, and what happens to it."""

CELLS = [
    (CallState[row.split()[0]], CallEvent[event], follows)
    for row in GRID.strip().splitlines()[1:]
    for event, follows in zip(GRID.split()[: len(CallEvent)], row.split()[1:], strict=True)
]


def a_call(state: CallState) -> CodexCall:
    begins, *events = REACHED[state]
    call = CodexCall(shell("c", "x"), CallState[begins])
    for event in events:
        move(call, CallEvent[event])
    assert call.state is state
    return call


@pytest.mark.parametrize(("state", "event", "follows"), CELLS)
def test_an_event_leads_to_the_state_that_the_table_says_or_changes_nothing(
    state: CallState, event: CallEvent, follows: str
) -> None:
    call = a_call(state)
    starts = move(call, event)
    after = state if follows == "." else CallState[follows]
    assert call.state is after
    assert starts == (state not in STARTED and after in STARTED), "it is started once"


def test_the_table_is_whole() -> None:
    assert set(TABLE) == set(CallState)
    assert len(CELLS) == len(CallState) * len(CallEvent)


def test_a_settled_call_holds_no_output() -> None:
    call = CodexCall(shell("c", "x"), CallState.RUNNING, shown="much", rest=["more"])
    move(call, CallEvent.SETTLE)
    assert call.collected() == ""


def test_what_codex_comes_back_with_is_the_call_that_was_promised_once() -> None:
    promised = Promised("old", "shell", shell("", "x").arguments)
    table = CallTable((promised,))
    assert table.add("new", shell("new", "x"), CallState.HELD).id == "old"
    assert table.of("new") is table.named("old")
    assert table.add("other", shell("other", "x"), CallState.HELD).id == "other"


# --- what follows for a turn ----------------------------------------------------------------------


def command(text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "commandExecution", "id": "c", "command": text, "status": "inProgress", **more}


def done(text: str = "x", **more: Any) -> dict[str, Any]:
    return command(text, exitCode=0, **more) | {"status": more.get("status", "completed")}


def output(text: str) -> Any:
    return note("item/commandExecution/outputDelta", itemId="c", delta=text, turnId="t")


def hooked(said: str) -> Any:
    return command_over(
        json.dumps({"tool_use_id": "c", "turn_id": "t", "tool_response": said}).encode()
    )


def waiting() -> Any:
    flags = {"type": "active", "activeFlags": ["waitingOnApproval"]}
    return note("thread/status/changed", status=flags)


def ended(status: str) -> Any:
    return note("turn/completed", turn={"id": "t", "status": status})


def at_the_gate(call: ToolCall | None = None, passed: bool = False) -> TurnMap:
    map = TurnMap()
    map.turn = "t"
    call = shell("c", "x") if call is None else call
    assert map.held(call) == [SealStep((call,))]
    if passed:
        assert map.begin("c") == [StartCall("c")]
    return map


def asked(map: TurnMap | None = None) -> TurnMap:
    map = TurnMap() if map is None else map
    fold(waiting(), item("started", **command()), map=map)
    assert map.asked("c") == []
    return map


def test_a_call_that_codex_asks_about_starts_with_the_yes() -> None:
    map = asked()
    assert [map.begin("c"), map.begin("c")] == [[StartCall("c")], []], "once"
    settled = SettleCall("c", Returned((Text("hi"),)))
    assert fold(output("hi"), item("completed", **done()), map=map) == [
        ShowOutput("c", "hi"),
        settled,
    ]


def test_a_call_that_was_let_through_the_gate_runs_when_codex_names_its_process() -> None:
    map = at_the_gate(passed=True)
    assert map.let_through("c")
    assert fold(item("started", **command(processId="1")), map=map) == []
    assert not map.let_through("c")
    assert fold(hooked("not heard"), map=map) == [], "codex tells of it by itself"
    assert fold(item("completed", **done()), map=map) == [SettleCall("c", Returned(()))]


def test_a_call_that_the_sandbox_stopped_at_once_is_settled_by_the_hook() -> None:
    map = at_the_gate(passed=True)
    assert fold(hooked("Read-only"), map=map) == [SettleCall("c", Failed((Text("Read-only"),)))]
    assert fold(output("late"), map=map) == [KeepLate("c", "late")]
    assert fold(item("completed", **done()), map=map) == []


@pytest.mark.promise(4)
@pytest.mark.parametrize("unrun", [Unrun.MORE_RIGHTS, Unrun.ONCE_MORE, Unrun.STOPPED])
def test_a_call_that_was_let_through_and_is_asked_about_is_another_call(unrun: Unrun) -> None:
    map = at_the_gate(passed=True)
    assert map.asked("c", unrun) == [
        SettleCall("c", Failed((Text(unrun.value),))),
        OpenStep(),
        SealStep((shell("c/again", "x"),)),
    ]
    assert map.call_of("c") == "c/again"
    assert map.refuse("c/again", "no") == [], "codex says that it was declined"
    declined = item("completed", **done(status="declined"))
    assert fold(declined, map=map) == [SettleCall("c/again", Refused("no"))]


def test_the_hook_of_a_call_that_codex_asked_about_is_waited_for() -> None:
    """Codex tells of such a command when it is over; if it begins something else, it does not."""
    told, untold = (asked() for _ in range(2))
    for map in (told, untold):
        map.begin("c")
        assert fold(hooked("said"), map=map) == []
    completed = item("completed", **done(aggregatedOutput="all of it"))
    assert fold(completed, map=told) == [SettleCall("c", Returned((Text("all of it"),)))]
    other = item("started", type="agentMessage", id="m")
    assert fold(other, map=untold) == [SettleCall("c", Failed((Text("said"),)))]


@pytest.mark.parametrize(
    ("explained", "leaves", "covered"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_a_yes_at_the_gate_answers_a_question_that_says_no_more_once(
    explained: bool, leaves: bool, covered: bool
) -> None:
    map = at_the_gate(passed=True)
    assert map.answered("c", explained, leaves) is covered
    assert map.answered("c", False, False) is not covered, "it counts once"


@pytest.mark.promise(4)
@pytest.mark.parametrize("leaves", [False, True])
def test_what_was_approved_before_answers_what_it_covered(leaves: bool) -> None:
    map = TurnMap(promised=(Promised("old", "shell", shell("", "x").arguments, True, leaves),))
    assert map.held(shell("c", "x")) == [], "its step is sealed"
    assert map.begin("old") == [StartCall("old")]
    assert map.answered("c", explained=True, leaves=True) is leaves


@pytest.mark.parametrize("state", ["held", "not at the gate"])
def test_a_refusal_settles_a_call_at_the_gate_and_no_other(state: str) -> None:
    map = at_the_gate() if state == "held" else asked()
    settled: list[Effect] = [SettleCall("c", Refused("no"))]
    assert map.refuse("c", "no") == (settled if state == "held" else [])
    assert map.is_open("c") == (state != "held")


def test_a_call_that_says_something_runs_whatever_was_decided() -> None:
    map = at_the_gate()
    assert fold(output("hi"), map=map) == [StartCall("c"), ShowOutput("c", "hi")]
    assert map.refuse("c", "no") == [], "what was shown is not dropped"
    [left, _] = fold(ended("completed"), map=map)
    assert left == SettleCall("c", Interrupted((Text("hi"),)))


def test_a_change_of_files_that_is_not_asked_about_runs() -> None:
    kind = {"type": "add"}
    changes = [{"path": "/a", "kind": kind, "diff": "x"}]
    change = {"type": "fileChange", "id": "c", "changes": changes, "status": "inProgress"}
    begun = [type(one) for one in fold(item("started", **change), note("warning"))]
    assert begun == [SealStep, StartCall]
    assert [type(one) for one in fold(item("started", **change), waiting(), note("warning"))] == [
        SealStep
    ]


@pytest.mark.promise(4)
@pytest.mark.parametrize("spawned", [False, True])
def test_what_a_hook_of_codex_puts_in_the_place_of_a_call_is_another_call(spawned: bool) -> None:
    map = at_the_gate(passed=True)
    process = {"processId": "1"} if spawned else {}
    effects = fold(waiting(), item("started", **command("y", **process)), map=map)
    settled, opened, sealed = effects
    assert isinstance(settled, SettleCall)
    assert (settled.call, type(settled.outcome), opened) == ("c", Failed, OpenStep())
    started = "c/again" if spawned else None
    assert sealed == SealStep((shell("c/again", "y"),), started=started)


def test_an_id_that_a_settled_call_had_may_be_that_of_the_next() -> None:
    """There are providers that give each call the same id."""
    map = at_the_gate(passed=True)
    map.asked("c", Unrun.MORE_RIGHTS)
    map.begin("c/again")
    fold(item("completed", **done()), map=map)
    assert fold(item("started", **command("y", processId="1")), map=map) == [
        OpenStep(),
        SealStep((shell("c", "y"),), started="c"),
    ]
    assert fold(item("completed", **done("y")), map=map) == [SettleCall("c", Returned(()))]


@pytest.mark.promise(4)
@pytest.mark.parametrize(("asks", "through"), [("s__x", True), ("s", False)])
def test_a_yes_to_a_tool_is_no_yes_to_a_server_whose_name_begins_alike(
    asks: str, through: bool
) -> None:
    map = at_the_gate(ToolCall("c", "s__x__t", "{}"), passed=True)
    tool = {"type": "mcpToolCall", "id": "c", "server": "s__x", "tool": "t", "arguments": {}}
    fold(item("started", **tool, status="inProgress"), map=map)
    assert map.let_through_for(asks) is through


@pytest.mark.parametrize(
    ("status", "unasked", "passed", "running"),
    [
        (
            "completed",
            "not run: the turn ended first",
            Failed((Text("codex said nothing of it: it was not run, or it failed at once"),)),
            Interrupted(()),
        ),
        (
            "interrupted",
            "not run: the turn was stopped first",
            Interrupted(()),
            Interrupted(()),
        ),
        ("failed", "not run: the turn failed first", Interrupted(()), Interrupted(())),
    ],
)
def test_the_end_of_the_turn_settles_what_is_open(
    status: str, unasked: str, passed: Any, running: Any
) -> None:
    runs = TurnMap()
    fold(item("started", **command(processId="1")), map=runs)
    maps = [asked(), at_the_gate(), at_the_gate(passed=True), runs]
    outcomes = [Refused(unasked), Refused(unasked), passed, running]
    for map, outcome in zip(maps, outcomes, strict=True):
        settled, end = fold(ended(status), map=map)[-2:]
        assert settled == SettleCall("c", outcome)
        assert isinstance(end, EndTurn)


def test_a_tool_of_ours_is_settled_by_us_and_by_nothing_else() -> None:
    map = TurnMap()
    tool = {"type": "dynamicToolCall", "id": "c", "tool": "find", "arguments": {}}
    assert fold(item("started", **tool), map=map) == [SealStep((ToolCall("c", "find", "{}"),))]
    assert fold(item("completed", **tool), output("x"), map=map) == []
    assert [type(one) for one in fold(ended("completed"), map=map)] == [EndTurn]
    map.settled("c")
    assert not map.is_open("c")
