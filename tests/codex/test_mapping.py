"""The mapping, by equality, on what the real codex said: logs of our own (`make record-codex`), and
those of others if there are any beside the project."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno.journal.facts import PlanStep, PlanUpdated, Usage
from steno.journal.parts import (
    Failed,
    Interrupted,
    Opaque,
    Reasoning,
    Refused,
    Returned,
    Text,
    ToolCall,
)
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.calls import OutputBounds, Promised
from steno.runtimes.codex.effects import (
    Effect,
    EndTurn,
    KeepLate,
    LogUnknown,
    LoseStep,
    NoteCompaction,
    OpenStep,
    ReportUsage,
    SealStep,
    SettleCall,
    ShowOutput,
    StartCall,
    StorePlan,
    WriteText,
    joined,
)
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.translate import of_the_sandbox

LOGS = Path(__file__).with_name("logs")
OTHERS = Path(__file__).parents[3] / "shared" / "codex"


def turns(log: Path) -> list[list[Effect]]:
    """The acts of each turn in a log. What we told codex is taken from the log, too."""
    found: list[list[Effect]] = []
    map = TurnMap()
    asked: dict[int | str, str] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        message = entry["msg"]
        if entry["dir"] == ">":
            if message.get("method") == "turn/start" and not (found and not over(found[-1])):
                map = TurnMap()
                found.append([])
            elif (
                message.get("method") == "turn/steer" and "clientUserMessageId" in message["params"]
            ):
                map.steers.add(message["params"]["clientUserMessageId"])
            elif "decision" in message.get("result", {}):
                found[-1] += decided(map, asked[message["id"]], message["result"]["decision"])
            elif "contentItems" in message.get("result", {}):
                map.settled(asked[message["id"]])
            continue
        read = p.line(json.dumps(message).encode())
        if isinstance(read, p.ServerRequest):
            asked[read.id] = getattr(read.asked, "item_id", "") or getattr(
                read.asked, "call_id", ""
            )
        elif not isinstance(read, p.RpcAnswer | p.HookNote) and found and mine(message, map):
            found[-1] += map.apply(read)
    return [joined(acts) for acts in found]


def mine(message: dict[str, Any], map: TurnMap) -> bool:
    """Whether a message is of the turn that was begun last; until it is known, the first one says
    which that is."""
    turn = message.get("params", {}).get("turn", {}).get("id") or message.get("params", {}).get(
        "turnId"
    )
    return not (message["method"] == "turn/completed" and map.turn and turn != map.turn)


def over(acts: list[Effect]) -> bool:
    return any(isinstance(act, EndTurn) for act in acts)


def decided(map: TurnMap, call: str, decision: str) -> list[Effect]:
    if decision == "accept":
        return map.begin(call)
    map.refuse(call, "not run: the user denied it")
    return []


def shell(id: str, command: str) -> ToolCall:
    return ToolCall(id, "shell", json.dumps({"command": command}))


def answered(text: str, usage: Usage | None = None) -> list[Effect]:
    return [WriteText("text", text), SealStep((Text(text),), usage=usage), EndTurn("completed")]


LOOK = WriteText("text", "I look.")
RAN: list[Effect] = [OpenStep(), *answered("It ran.")]
ECHO = shell("c1", "echo ran >> ran; echo hi")
COUNT = shell("c5", "for i in $(seq 100); do echo line$i; sleep 0.1; done")
CHANGE = {"path": "/example/work/new.txt", "kind": "add", "diff": "made by a patch\n"}
BUSY = "We’re currently experiencing high demand, which may cause temporary errors."
NONE = "cat: none: No such file or directory\n"
SHEEP = '{"type": "search", "query": "sheep", "queries": null}'
FIVE = Usage(5, 2, 0, 0)
OWN: dict[str, list[Effect]] = {
    "answer": answered("Hello there.", Usage(7, 3, 0, 0)),
    "reasoning": [
        WriteText("reasoning", "Let me think."),
        WriteText("text", "Done."),
        SealStep((Reasoning("Let me think."), Text("Done."))),
        EndTurn("completed"),
    ],
    "command": [
        LOOK,
        SealStep((Text("I look."), shell("c16", "sleep 0.5; echo hi"))),
        StartCall("c16"),
        ShowOutput("c16", "hi\n"),
        SettleCall("c16", Returned((Text("hi\n"),))),
        *RAN,
    ],
    "declined": [
        LOOK,
        SealStep((Text("I look."), ECHO)),
        SettleCall("c1", Refused("not run: the user denied it")),
        *RAN,
    ],
    "failing": [
        LOOK,
        SealStep((Text("I look."), shell("c17", "sleep 0.5; cat none"))),
        StartCall("c17"),
        ShowOutput("c17", NONE),
        SettleCall("c17", Failed((Text(f"{NONE}[exit status 1]"),))),
        *RAN,
    ],
    "patch": [
        LOOK,
        SealStep(
            (Text("I look."), ToolCall("c2", "apply_patch", json.dumps({"changes": [CHANGE]})))
        ),
        StartCall("c2"),
        SettleCall("c2", Returned((Text("add /example/work/new.txt"),))),
        *RAN,
    ],
    "tool": [
        LOOK,
        SealStep((Text("I look."), ToolCall("c7", "search_sessions", '{"query": "hello"}'))),
        *RAN,
    ],
    "error": [LoseStep("server_error", BUSY), EndTurn("failed", "server_error", BUSY)],
    "search": [
        LOOK,
        SealStep(
            (Text("I look."), ToolCall("ws", "web_search", '{"query": "sheep"}')), started="ws"
        ),
        SettleCall("ws", Returned((Text(SHEEP),))),
        OpenStep(),
        *answered("Found.", FIVE),
    ],
    "own-tool": [
        LOOK,
        SealStep((Text("I look."), ToolCall("m1", "odd__count", "{}")), started="m1"),
        SettleCall("m1", Returned((Text("count 1"),))),
        ReportUsage(FIVE),
        OpenStep(),
        *answered("Done.", FIVE),
    ],
    "plan": [
        WriteText("text", "I plan."),
        StorePlan(
            PlanUpdated((PlanStep("look", "inProgress"), PlanStep("tell", "pending")), "two things")
        ),
        *answered("I plan.", FIVE)[1:-1],
        OpenStep(),
        *answered("Done.", FIVE),
    ],
    "stopped-text": [
        WriteText("text", "word0 word1 word2 word3 word4 word5 "),
        SealStep((Text("word0 word1 word2 word3 word4 word5 "),), "interrupted"),
        EndTurn("interrupted"),
    ],
}


@pytest.mark.parametrize("name", OWN)
def test_a_turn_of_the_real_codex(name: str) -> None:
    assert turns(LOGS / f"{name}.jsonl") == [OWN[name]]


def test_an_input_that_steers_ends_the_step_and_is_taken_by_the_next() -> None:
    [[wrote, sealed, opened, *rest]] = turns(LOGS / "steered.jsonl")
    assert isinstance(wrote, WriteText)
    assert sealed == SealStep((Text(wrote.text),), "interrupted")
    assert isinstance(opened, OpenStep)
    assert opened.takes is not None
    assert rest == answered("And so on.")


def test_a_stream_that_breaks_off_is_incomplete() -> None:
    [[wrote, sealed, end]] = turns(LOGS / "broken.jsonl")
    assert isinstance(wrote, WriteText)
    assert sealed == SealStep((Text(wrote.text),), "incomplete")
    assert isinstance(end, EndTurn)
    assert (end.status, end.cause) == ("failed", "dropped")


def test_output_after_the_end_of_the_turn_is_late() -> None:
    [[said, sealed, start, *rest]] = turns(LOGS / "stopped-command.jsonl")
    assert (said, sealed, start) == (LOOK, SealStep((Text("I look."), COUNT)), StartCall("c5"))
    output, settled, end, *late = rest
    assert isinstance(output, ShowOutput)
    assert settled == SettleCall("c5", Interrupted((Text(output.text),)))
    assert end == EndTurn("interrupted")
    assert all(isinstance(act, KeepLate) and act.call == "c5" for act in late)


def test_what_codex_types_is_a_call_that_is_over() -> None:
    [acts] = turns(LOGS / "typed.jsonl")
    typed = ToolCall("c1/typed1", "write_stdin", json.dumps({"call": "c1", "text": "hi\x04\x04"}))
    assert acts.index(StartCall("c1")) < acts.index(SealStep((typed,), started="c1/typed1"))
    assert SettleCall("c1/typed1", Returned(())) in acts


def test_calls_that_overlap_have_a_step_each() -> None:
    [acts] = turns(LOGS / "both.jsonl")
    sealed = [act for act in acts if isinstance(act, SealStep)]
    assert [len([part for part in act.parts if isinstance(part, ToolCall)]) for act in sealed] == [
        1,
        1,
        0,
    ]
    assert {act.outcome for act in acts if isinstance(act, SettleCall)} == {
        Returned((Text("one\n"),)),
        Returned((Text("two\n"),)),
    }


# --- logs that others recorded --------------------------------------------------------------------

DONE = "Hello from the fake model, all done. "
SAID = "hi-from-shell\nsecond\nLinux\n"
WARNED = f"pyenv: cannot rehash: {'/'.join(('', 'home', 'user'))} isn't writable\n{SAID}"
COST = Usage(10, 5, 0, 0)
HI = "echo hi-from-shell; sleep 0.3; echo second; uname -s"
ALL_DONE: list[Effect] = [ReportUsage(COST), OpenStep(), *answered(DONE, COST)]


def ran(id: str, shown: str, said: str, asked: bool = False) -> list[Effect]:
    begun: list[Effect] = (
        [SealStep((shell(id, HI),)), StartCall(id)]
        if asked
        else [SealStep((shell(id, HI),), started=id)]
    )
    beside = None if said.startswith(shown) else shown
    return [
        *begun,
        ShowOutput(id, shown),
        SettleCall(id, Returned((Text(said),)), beside),
        *ALL_DONE,
    ]


def failed(cause: str, detail: str) -> list[Effect]:
    return [LoseStep(cause, detail), EndTurn("failed", cause, detail)]


OTHER: dict[str, list[list[Effect]]] = {
    "full": [ran("call_1", SAID, SAID)],
    "approval": [
        ran("call_8", WARNED, WARNED),
        ran("call_10", SAID, WARNED, asked=True),
        [
            SealStep((shell("call_12", HI),)),
            SettleCall("call_12", Refused("not run: the user denied it")),
            *ALL_DONE,
        ],
        ran("call_14", WARNED, WARNED),
    ],
    "misc": [
        [SealStep((ToolCall("call_5", "ask_oracle", '{"q": "life"}'),)), *ALL_DONE],
        failed("server_error", BUSY),
        [
            WriteText("text", "partial "),
            SealStep((Text("partial "),), "incomplete", usage=COST),
            EndTurn(
                "failed",
                "dropped",
                "stream disconnected before completion: stream closed before response.completed",
            ),
        ],
        failed("rate_limited", "exceeded retry limit, last status: 429 Too Many Requests"),
        failed("dropped", "stream disconnected before completion: fake failure"),
    ],
    "two-b": [answered(DONE, COST)],
}


def test_turns_that_others_recorded() -> None:
    there = [name for name in OTHER if (OTHERS / f"{name}.jsonl").exists()]
    assert {name: turns(OTHERS / f"{name}.jsonl") for name in there} == {
        name: OTHER[name] for name in there
    }


# --- what no log has ------------------------------------------------------------------------------


def note(method: str, **params: Any) -> p.Notification:
    read = p.notification(method, msgspec.Raw(json.dumps(params).encode()))
    assert not isinstance(read, p.HookNote)
    return read


def item(step: str, **fields: Any) -> p.Notification:
    return note(f"item/{step}", item=fields, turnId="t")


def fold(*notes: p.Notification, map: TurnMap | None = None) -> list[Effect]:
    folded = TurnMap() if map is None else map
    folded.turn = "t"
    return [act for one in notes for act in folded.apply(one)]


def test_an_unknown_notification_is_skipped_and_an_unknown_item_is_kept() -> None:
    assert fold(note("thread/dreamt", about="sheep")) == [LogUnknown("thread/dreamt")]
    started = item("started", type="dream", id="d1", about="sheep")
    completed = item("completed", type="dream", id="d1", about="sheep", vivid=True)
    kept = Opaque(
        "codex", "dream", '{"type": "dream", "id": "d1", "about": "sheep", "vivid": true}'
    )
    assert fold(started, completed) == [SealStep((kept,))]


def test_a_known_item_that_cannot_be_read_is_kept_too() -> None:
    [sealed] = fold(item("completed", type="fileChange", id="f", changes="many"))
    assert isinstance(sealed, SealStep)
    assert isinstance(sealed.parts[0], Opaque)


def test_an_item_without_a_proper_id_is_kept_too() -> None:
    kept = Opaque("codex", "nameless", '{"type": "dream", "id": null}')
    assert fold(item("completed", type="dream", id=None)) == [SealStep((kept,))]


def test_the_completed_text_is_the_truth_and_what_was_shown_is_kept_beside_it() -> None:
    acts = fold(
        item("started", type="agentMessage", id="m", text=""),
        note("item/agentMessage/delta", itemId="m", delta="Hallo", turnId="t"),
        item("completed", type="agentMessage", id="m", text="Hello"),
        note("turn/completed", turn={"id": "t", "status": "completed"}),
    )
    assert acts == [
        WriteText("text", "Hallo"),
        SealStep((Text("Hello"),), shown=(Text("Hallo"),)),
        EndTurn("completed"),
    ]


def test_text_that_was_not_streamed_is_shown_when_it_is_completed() -> None:
    whole = item("completed", type="agentMessage", id="m", text="Hello")
    assert fold(whole) == [WriteText("text", "Hello")]


def cut_by_a_call(*pieces: str, whole: str) -> list[Effect]:
    """A message whose first piece is followed by a command. What comes after that began."""
    begun, *rest = (
        note("item/agentMessage/delta", itemId="m", delta=piece, turnId="t") for piece in pieces
    )
    command = {
        "type": "commandExecution",
        "id": "c",
        "command": "x",
        "processId": "1",
        "status": "inProgress",
    }
    map = TurnMap()
    call = ToolCall("c", "shell", '{"command": "x"}')
    sealed = [WriteText("text", pieces[0]), SealStep((Text(pieces[0]), call), started="c")]
    assert fold(begun, item("started", **command), map=map) == sealed
    completed = item("completed", type="agentMessage", id="m", text=whole)
    return fold(*rest, completed, item("started", type="agentMessage", id="n"), map=map)


@pytest.mark.promise(9, 11)
def test_what_a_call_came_into_is_not_said_twice() -> None:
    rest = [OpenStep(), WriteText("text", "lo"), SealStep((Text("lo"),))]
    assert cut_by_a_call("Hel", "lo", whole="Hello") == rest
    assert cut_by_a_call("Hel", whole="Hello") == rest
    assert cut_by_a_call("Hello", whole="Hello") == []


def test_what_a_call_came_into_and_is_completed_otherwise_is_whole_beside_what_was_shown() -> None:
    sealed = SealStep((Text("Hello"),), shown=(Text("lo"),))
    assert cut_by_a_call("Hal", "lo", whole="Hello") == [
        OpenStep(),
        WriteText("text", "lo"),
        sealed,
    ]


def test_of_inputs_that_steer_together_the_first_says_what_was_shown() -> None:
    map = TurnMap()
    fold(note("item/agentMessage/delta", itemId="m", delta="Hel", turnId="t"), map=map)
    map.steers.add("one")
    assert map.saying() == "Hel"
    map.steers.add("two")
    assert map.saying() == ""


def test_two_messages_of_the_agent_are_two_answers() -> None:
    first, second = (
        (
            item("started", type="agentMessage", id=id, text=""),
            item("completed", type="agentMessage", id=id, text=text),
        )
        for id, text in (("a", "One."), ("b", "Two."))
    )
    sealed = SealStep((Text("One."),))
    assert fold(*first, *second) == [
        WriteText("text", "One."),
        sealed,
        OpenStep(),
        WriteText("text", "Two."),
    ]


def test_plans_and_compactions_are_recorded() -> None:
    plan = [{"step": "look", "status": "completed"}, {"step": "tell", "status": "pending"}]
    updated = note("turn/plan/updated", plan=plan, explanation="why", turnId="t", threadId="x")
    steps = (PlanStep("look", "completed"), PlanStep("tell", "pending"))
    assert fold(updated, item("completed", type="contextCompaction", id="c")) == [
        StorePlan(PlanUpdated(steps, "why")),
        NoteCompaction(),
    ]


@pytest.mark.parametrize(
    ("fields", "call", "outcome"),
    [
        (
            {
                "type": "mcpToolCall",
                "server": "s",
                "tool": "t",
                "arguments": {"a": 1},
                "status": "completed",
            }
            | {"result": {"content": [{"type": "text", "text": "out"}]}},
            ToolCall("i", "s__t", '{"a": 1}'),
            Returned((Text("out"),)),
        ),
        (
            {"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": {}, "status": "failed"}
            | {"error": {"message": "no"}},
            ToolCall("i", "s__t", "{}"),
            Failed((Text("no"),)),
        ),
        (
            {"type": "webSearch", "query": "sheep", "action": {"type": "search", "query": "sheep"}},
            ToolCall("i", "web_search", '{"query": "sheep"}'),
            Returned((Text('{"type": "search", "query": "sheep"}'),)),
        ),
        (
            {"type": "imageView", "path": "/x.png"},
            ToolCall("i", "codex_imageView", '{"type": "imageView", "path": "/x.png", "id": "i"}'),
            Returned((Text('{"type": "imageView", "path": "/x.png", "id": "i"}'),)),
        ),
    ],
)
def test_other_items_are_calls_with_an_outcome(
    fields: dict[str, Any], call: ToolCall, outcome: Any
) -> None:
    acts = fold(item("started", **fields, id="i"), item("completed", **fields, id="i"))
    assert acts == [SealStep((call,), started="i"), SettleCall("i", outcome)]


def test_output_beyond_the_bound_is_kept_and_not_shown() -> None:
    map = TurnMap(OutputBounds(shown_chars_max=5, kept_chars_max=100))
    command = {"type": "commandExecution", "id": "c", "command": "x", "processId": "1"}
    acts = fold(
        item("started", **command, status="inProgress"),
        note("item/commandExecution/outputDelta", itemId="c", delta="123", turnId="t"),
        note("item/commandExecution/outputDelta", itemId="c", delta="456789", turnId="t"),
        item("completed", **command, status="completed", exitCode=0),
        map=map,
    )
    assert acts[1:] == [
        ShowOutput("c", "123"),
        ShowOutput("c", "45"),
        SettleCall("c", Returned((Text("123456789"),))),
    ]


def test_a_promised_call_is_the_one_that_a_person_approved() -> None:
    map = TurnMap(promised=(Promised("old", "shell", json.dumps({"command": "ls -l"})),))
    command = {"type": "commandExecution", "id": "new", "command": "/bin/bash -lc 'ls -l'"}
    fold(
        note(
            "thread/status/changed", status={"type": "active", "activeFlags": ["waitingOnApproval"]}
        ),
        map=map,
    )
    assert fold(item("started", **command, status="inProgress"), map=map) == []
    assert map.call_of("new") == "old"
    assert map.begin("old") == [StartCall("old")]
    settled = fold(
        item("completed", **command, status="completed", exitCode=0, aggregatedOutput="x"), map=map
    )
    assert settled == [SettleCall("old", Returned((Text("x"),)))]


def test_a_call_that_is_to_run_again_with_more_rights_is_another_call() -> None:
    map = TurnMap()
    command = {"type": "commandExecution", "id": "c", "command": "x", "processId": "1"}
    output = note("item/commandExecution/outputDelta", itemId="c", delta="no", turnId="t")
    again = shell("c/again", "x")
    fold(item("started", **command, status="inProgress"), output, map=map)
    assert map.asked("c") == [
        SettleCall("c", Failed((Text("no"),))),
        OpenStep(),
        SealStep((again,)),
    ]
    assert map.begin(map.call_of("c")) == [StartCall("c/again")]
    done = item("completed", **command, status="completed", exitCode=0, aggregatedOutput="yes")
    assert fold(done, map=map) == [SettleCall("c/again", Returned((Text("yes"),)))]


def test_a_retry_of_codex_closes_what_it_had_said() -> None:
    again = note("error", error={"message": "stream disconnected"}, willRetry=True, turnId="t")
    delta = note("item/agentMessage/delta", itemId="m", delta="half", turnId="t")
    whole = item("completed", type="agentMessage", id="m", text="half")
    assert fold(
        delta, again, delta, whole, note("turn/completed", turn={"id": "t", "status": "completed"})
    ) == [
        WriteText("text", "half"),
        SealStep((Text("half"),), "incomplete"),
        OpenStep(),
        WriteText("text", "half"),
        SealStep((Text("half"),)),
        EndTurn("completed"),
    ]


@pytest.mark.promise(7)
@pytest.mark.parametrize(
    ("sent", "read"), [(b"a\xff\xfeb", "a\ufffd\ufffdb"), (b"c\\ud800d", "c\ufffdd")]
)
def test_what_utf8_cannot_hold_is_replaced_and_the_rest_is_read(sent: bytes, read: str) -> None:
    said = b'{"method":"item/agentMessage/delta","params":{"itemId":"m","delta":"%s"}}' % sent
    assert p.line(said) == p.AgentDelta("m", read)
    for nothing in (b"\xff", b"[1]", b'{"id":{},"method":3}'):
        with pytest.raises(msgspec.DecodeError):
            p.line(nothing)


def test_the_end_of_a_turn_counts_even_if_it_cannot_be_read_whole() -> None:
    ended = note("turn/completed", turn={"id": "t", "status": "failed", "error": 7})
    assert [type(act) for act in fold(ended)] == [LoseStep, EndTurn]


@pytest.mark.parametrize(
    "words", ["bwrap: No permissions", "Failed: Unable to spawn codex-linux-sandbox because:\nno"]
)
def test_a_sandbox_that_cannot_be_built_is_told_from_a_command_that_fails(words: str) -> None:
    assert of_the_sandbox(Failed((Text(words),)))
    assert not of_the_sandbox(Failed((Text(f"grep said\n{words}"),)))
    assert not of_the_sandbox(Returned((Text(words),)))
