"""How a session ends: with its reason on every way out, once, told to plugins whatever was killed
when."""

import json
import os
import signal
import time
from typing import Any

import pytest

from steno.engine.visit_end import AtEnd, Visit, ending
from steno.journal.codec import encode
from steno.journal.facts import (
    HookAttempted,
    HookDone,
    InputAdmitted,
    SessionAttended,
    SessionStarted,
)
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore
from tests.chance import chance_of
from tests.program.diary import PLUGIN, hosts, install, log, told
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, CTRL_D, terminal
from tests.program.test_endings import _close
from tests.program.world import Program, World, wait_until

HANG = Reply(("going ",), then="hang")
SIGNALS = {
    signal.SIGINT: "signal",
    signal.SIGTERM: "signal",
    signal.SIGHUP: "closed_terminal",
    signal.SIGQUIT: "signal",
    signal.SIGKILL: "killed",
}
LEAVE_S = 1.0


def ended(world: World) -> str | None:
    """As the list and the session itself say it."""
    (one,) = world.sessions()
    assert world.show(str(one["id"]))["ended"] == one["ended"]
    return None if one["ended"] is None else str(one["ended"])


def dying(world: World, when: str, n: int, *words: str) -> Program:
    return world.start_changed("dying_at_the_end.py", when, str(n), *words)


def left_in_s(program: Program, number: signal.Signals) -> float:
    began_s = time.monotonic()
    program.signal(number)
    program.process.wait(30)
    return time.monotonic() - began_s


# --- the reason -----------------------------------------------------------------------------------


@pytest.mark.promise(39)
def test_a_command_that_is_done_has_left(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("fine",)), HANG]
    world.steno("run", "hi", "--key", "k")
    assert ended(world) == "left"
    with world.start("run", "again", "--key", "k") as program:
        program.wait_shown("going")
        assert ended(world) is None, "whoever comes resumes it"
        (visitor,) = world.show(world.only_session())["visitors"]
        assert str(program.process.pid) in visitor
        program.signal(signal.SIGTERM)
        program.end()
    assert ended(world) == "signal"


@pytest.mark.promise(6)
@pytest.mark.promise(39)
@pytest.mark.parametrize("number", SIGNALS)
def test_every_signal_has_its_reason_and_plugins_hear_what_happened(
    world: World, server: ModelServer, number: signal.Signals
) -> None:
    install(world)
    server.replies = [HANG, Reply(("fine",))]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("going")
        program.signal(number)
        program.end()
    assert ended(world) == SIGNALS[number]
    id = world.only_session()
    if number == signal.SIGKILL:
        assert told(world) == []
        world.steno("run", "next")
    first, *_ = told(world)
    assert first == {
        "session_id": id,
        "completed": False,
        "interrupted": True,
        "model": "openai-chat:test",
        "platform": "cli",
        "reason": SIGNALS[number],
        "key": f"{id}:ended:2",
    }
    world.steno("run", "and again")
    assert len([one for one in told(world) if one["session_id"] == id]) == 1
    assert wait_gone(world)


def wait_gone(world: World) -> bool:
    wait_until(lambda: hosts(world) == [], "the processes of plugins to end")
    return True


@pytest.mark.promise(6)
@pytest.mark.parametrize("way", ["ctrl-d", "quit", "ctrl-c twice", "term", "hangup", "closed"])
def test_the_chat_has_a_reason_for_every_way_out(
    world: World, server: ModelServer, way: str
) -> None:
    server.replies = [Reply(("fine",))]
    with terminal(world, "--plain") as program:
        program.wait_seen("you> ")
        program.type("hello\n")
        program.wait_seen("you> ", times=2)
        match way:
            case "ctrl-d":
                program.type(CTRL_D)
            case "quit":
                program.type("/quit\n")
            case "ctrl-c twice":
                program.type(CTRL_C)
                program.wait_seen("again")
                program.type(CTRL_C)
            case "term":
                program.process.send_signal(signal.SIGTERM)
            case "hangup":
                program.process.send_signal(signal.SIGHUP)
            case _:
                _close(program)
        program.process.wait(30)
    expected = {"ctrl-d": "left", "quit": "left", "ctrl-c twice": "signal", "term": "signal"}
    assert ended(world) == expected.get(way, "closed_terminal")


def test_a_chat_in_which_nothing_was_said_ends_without_a_trace(world: World) -> None:
    install(world)
    with terminal(world, "--plain") as program:
        program.wait_seen("you> ")
        program.type(CTRL_D)
        assert program.end() == 0
    assert world.sessions() == []
    assert told(world) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.suite("SIGINT", "SIGKILL")
def test_who_leaves_before_a_first_turn_began_leaves_an_input_that_waits_and_no_end_to_tell_of(
    world: World, server: ModelServer, number: signal.Signals
) -> None:
    """As while somebody else holds the session: the runtime of this process never starts."""
    install(world)
    with BlockingStore(world.home / "store.db") as store:
        id = store.create(SessionStarted("test", name="k"))
        lease = store.acquire(id)
        with world.start("run", "hi", "--key", "k") as program:
            wait_until(lambda: bool(world.show(id)["visitors"]), "the input to be accepted")
            assert left_in_s(program, number) < LEAVE_S
            assert "Traceback" not in program.errors()
        store.abandon(lease)
    server.replies = [Reply(("elsewhere",)), Reply(("taken up",))]
    world.steno("run", "next", "--key", "other")
    assert [one for one in told(world) if one["session_id"] == id] == []
    assert world.show(id)["ended"] == SIGNALS[number]
    assert "taken up" in world.steno("continue", id), "what was accepted waited"
    assert [one["reason"] for one in told(world) if one["session_id"] == id] == ["left"]


def test_watching_is_no_visit(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("fine",))]
    world.steno("run", "hi")
    before = world.show(world.only_session())
    for words in (("follow", before["id"]), ("show", before["id"]), ("sessions",)):
        world.steno(*words)
    assert world.show(before["id"]) == before


def test_a_detached_turn_is_a_visit_of_its_own_process(world: World, server: ModelServer) -> None:
    install(world)
    server.replies = [Reply(("fine",))]
    world.steno("run", "hi", "--detach")
    wait_until(lambda: world.sessions()[0]["ended"] == "left", "its end")
    wait_until(lambda: len(told(world)) == 1, "the plugin to hear of it")


@pytest.mark.promise(39)
def test_of_two_visitors_the_last_to_leave_ends_the_session_and_plugins_hear_of_one_end(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [HANG, Reply(("second",))]
    with world.start("run", "one", "--key", "k") as first:
        first.wait_shown("going")
        with world.start("run", "two", "--key", "k") as second:
            wait_until(
                lambda: len(world.show(world.only_session())["visitors"]) == 2, "two visitors"
            )
            first.signal(signal.SIGINT)
            assert first.end() == 130
            assert second.end() == 0
    assert ended(world) == "left"
    assert [(one["reason"], one["completed"]) for one in told(world)] == [("left", True)]


# --- killed anywhere ------------------------------------------------------------------------------

POINTS = [("before", 1), ("after", 1), ("before", 2), ("after", 2)]
"""Around the end with what it owes, and around the record that the plugin was told."""


@pytest.mark.promise(39)
@pytest.mark.parametrize(("when", "n"), POINTS)
@pytest.mark.suite("before-1", "after-2")
def test_a_kill_around_the_end_tells_the_plugin_at_the_next_start(
    world: World, server: ModelServer, when: str, n: int
) -> None:
    install(world)
    server.replies = [Reply(("fine",)), Reply(("fine",)), Reply(("fine",))]
    with dying(world, when, n, "run", "hi", "--key", "k") as program:
        assert program.end() == -signal.SIGKILL
    id = world.only_session()
    killed = (when, n) == ("before", 1)
    assert ended(world) == ("killed" if killed else "left")
    world.steno("run", "next")
    world.steno("run", "after that")
    heard = [one for one in told(world) if one["session_id"] == id]
    between_call_and_record = (when, n) == ("before", 2)
    assert len(heard) == (2 if between_call_and_record else 1)
    assert {json.dumps(one) for one in heard} == {json.dumps(heard[0])}, (
        "the same, with the same key"
    )
    assert (heard[0]["completed"], heard[0]["interrupted"], heard[0]["key"]) == (
        True,
        killed,
        f"{id}:ended:2",
    )


@pytest.mark.promise(39)
def test_a_kill_while_the_plugin_is_being_told_tells_it_again(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [Reply(("fine",)), Reply(("fine",))]
    world.environment["DIARY_DOES"] = "kill"
    with world.start("run", "hi", "--key", "k") as program:
        assert program.end() == -signal.SIGKILL
    del world.environment["DIARY_DOES"]
    world.steno("run", "next")
    id = world.sessions()[1]["id"]
    heard = [one for one in told(world) if one["session_id"] == id]
    assert len(heard) == 2
    assert heard[0] == heard[1]
    assert wait_gone(world)


@pytest.mark.promise(39)
def test_of_two_that_start_at_once_one_ends_what_was_killed_and_tells_of_it(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.choose = lambda request: (
        HANG if "hang" in json.dumps(request["messages"][-1]) else Reply(("fine",))
    )
    for round in range(2):
        with world.start("run", "hang", "--key", f"killed {round}") as program:
            program.wait_shown("going")
            program.kill()
        killed = next(
            str(one["id"]) for one in world.sessions() if one["name"] == f"killed {round}"
        )
        starting = [world.start("run", f"{i}", "--key", f"{round} {i}") for i in range(3)]
        for one in starting:
            with one:
                assert one.end() == 0
        world.steno("run", "once more")
        assert [one["reason"] for one in told(world) if one["session_id"] == killed] == ["killed"]


NEXT = {
    "its name": ("run", "next", "--key", "k"),
    "its id": ("run", "next", "--session", "{id}"),
    "continue": ("continue", "{id}"),
    "the chat": ("--plain", "--resume", "{id}"),
}


@pytest.mark.promise(39)
@pytest.mark.parametrize("way", NEXT)
def test_the_end_of_a_killed_visit_is_told_if_the_same_session_is_opened_next(
    world: World, server: ModelServer, way: str
) -> None:
    install(world)
    server.replies = [HANG, Reply(("fine",))]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("going")
        program.kill()
    id = world.only_session()
    words = [word.replace("{id}", id) for word in NEXT[way]]
    if way == "the chat":
        with terminal(world, *words) as chat:
            chat.wait_seen("you> ")
            chat.type("next\n")
            chat.wait_seen("you> ", times=2)
            chat.type(CTRL_D)
            assert chat.end() == 0
    else:
        world.steno(*words)
    first, second = told(world)
    assert (first["reason"], first["interrupted"]) == ("killed", True)
    assert first["key"] == f"{id}:ended:2"
    assert (second["reason"], second["completed"]) == ("left", True)
    assert second["key"] != first["key"]


@pytest.mark.promise(39)
@pytest.mark.promise(55)
def test_the_end_of_an_open_session_that_is_deleted_is_told_once(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [HANG, Reply(("fine",))]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("going")
        id = world.only_session()
        world.steno("delete", id, "--yes")
        program.end()
    world.steno("run", "next")
    heard = [one for one in told(world) if one["session_id"] == id]
    assert [(one["reason"], one["interrupted"]) for one in heard] == [("deleted", True)]


@pytest.mark.promise(39)
@pytest.mark.promise(55)
def test_the_end_of_a_killed_session_that_is_deleted_next_is_told_once(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [HANG, Reply(("fine",))]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("going")
        program.kill()
    id = world.only_session()
    world.steno("delete", id, "--yes")
    world.steno("run", "next")
    heard = [one for one in told(world) if one["session_id"] == id]
    assert [(one["reason"], one["key"]) for one in heard] == [("killed", f"{id}:ended:2")]


def test_a_session_that_is_not_deleted_because_it_has_forks_is_not_told_as_ended(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [Reply(("fine",)), HANG]
    world.steno("run", "hi", "--key", "k")
    id = world.only_session()
    world.steno("fork", id, "--at", "3")
    with world.start("run", "hi", "--session", id) as program:
        program.wait_shown("going")
        world.steno("delete", id, "--yes", expect=1)
        assert [one["reason"] for one in told(world)] == ["left"]
        world.steno("delete", id, "--yes", "--with-forks")
        program.end()
    assert [one["reason"] for one in told(world)] == ["left", "deleted"]


def kill_often(world: World, server: ModelServer, times: int, sample: int = 0) -> None:
    """Killed at random instants, from before the first request to after the last commit: each visit
    that began has one end, and the plugin has heard of each, under one key."""
    chance = chance_of("ends", times, sample)
    install(world)
    server.choose = lambda _: Reply(("one ", "two"), delay_s=0.02)
    for i in range(times):
        with world.start("run", "hi", "--key", f"session {i % 3}") as program:
            wait_asked(server, i, program)
            time.sleep(chance.uniform(0, 0.4))
            program.kill()
    world.steno("run", "hi", "--key", "last")
    world.steno("run", "hi", "--key", "last")
    assert wait_gone(world)
    for one in world.sessions():
        heard = {str(end["key"]) for end in told(world) if end["session_id"] == one["id"]}
        facts = journal(world, str(one["id"]))
        visits = {seq for seq, fact in facts if fact["type"] == "session.attended"}
        ends = [fact["attended"] for _, fact in facts if fact["type"] == "session.ended"]
        assert sorted(ends) == sorted(visits), "one end for each visit"
        owed = {str(fact["key"]) for _, fact in facts if fact["type"] == "hook.owed"}
        assert heard == owed == {f"{one['id']}:ended:{seq}" for seq in visits}


def wait_asked(server: ModelServer, before: int, program: Program) -> None:
    wait_until(
        lambda: len(server.requests) > before or program.process.poll() is not None, "a request"
    )


def journal(world: World, id: str) -> list[tuple[int, dict[str, Any]]]:
    with BlockingStore(world.home / "store.db") as store:
        return [(record.seq, json.loads(encode(record.fact))) for record in store.read_all(id)]


@pytest.mark.promise(39)
def test_kills_at_random_instants_leave_one_end_for_each_visit_and_each_is_told(
    world: World, server: ModelServer
) -> None:
    kill_often(world, server, 4)


@pytest.mark.torture
@pytest.mark.promise(39)
@pytest.mark.parametrize("sample", range(10))
def test_many_kills_at_random_instants_leave_one_end_for_each_visit(
    world: World, server: ModelServer, sample: int
) -> None:
    kill_often(world, server, 20, sample)


# --- whatever hangs -------------------------------------------------------------------------------


@pytest.mark.promise(6)
@pytest.mark.promise(39)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.suite("SIGTERM")
def test_leaving_takes_less_than_a_second_while_model_tool_and_plugin_hang(
    world: World, server: ModelServer, number: signal.Signals
) -> None:
    install(world)
    world.environment["DIARY_DOES"] = "hang"
    deaf = (
        "trap '' TERM INT HUP; echo $$ > deaf.pid; (trap '' TERM INT HUP; sleep 99) & echo out; "
        "sleep 99"
    )
    server.replies = [
        Reply(("one ",), tools=(("shell", json.dumps({"command": deaf})),)),
        HANG,
        HANG,
    ]
    times = []
    with world.start("run", "go", "--key", "k", "--yes") as program:
        pid = world.work / "deaf.pid"
        wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), "the tool")
        times.append(left_in_s(program, number))
    group = int((world.work / "deaf.pid").read_text())
    wait_until(lambda: not group_lives(group), "the whole group of the tool to end")
    with world.start("run", "more", "--key", "k", "--yes") as program:
        program.wait_shown("going")
        times.append(left_in_s(program, number))
    assert min(times) < LEAVE_S, times
    del world.environment["DIARY_DOES"]
    server.replies = [Reply(("fine",))]
    world.steno("run", "next", "--key", "k")
    heard = told(world)
    assert {one["reason"] for one in heard} <= {SIGNALS[number], "killed", "left"}
    assert len({one["key"] for one in heard}) == 3, "each end was told"
    assert wait_gone(world)


def test_a_command_of_a_process_that_was_killed_is_ended_when_steno_is_next_started(
    world: World, server: ModelServer
) -> None:
    """Whichever session is opened: nobody may go on with this one."""
    command = "echo $$ > group; (sleep 99) & sleep 99"
    server.replies = [Reply(tools=(("shell", json.dumps({"command": command})),)), Reply(("fine",))]
    with world.start("run", "go", "--key", "k", "--yes") as program:
        file = world.work / "group"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the tool")
        program.kill()
    group = int(file.read_text())
    assert group_lives(group)
    world.steno("sessions")
    assert group_lives(group), "whoever only looks changes nothing"
    world.steno("run", "another", "--key", "other")
    wait_until(lambda: not group_lives(group), "the whole group of the tool to end")


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.promise(39)
def test_a_plugin_that_hangs_at_every_start_is_given_up_and_that_is_recorded(
    world: World, server: ModelServer
) -> None:
    install(world)
    world.environment["DIARY_DOES"] = "hang"
    server.replies = [Reply(("fine",)) for _ in range(9)]
    world.steno("run", "first", "--key", "k")
    for i in range(4):
        world.steno("run", f"{i}", "--key", "other")
    first = next(one["id"] for one in world.sessions() if one["name"] == "k")
    assert 2 <= len([one for one in told(world) if one["session_id"] == first]) <= 4
    assert "diary" in log(world)


SLOW = """
import time
""" + PLUGIN.replace('    if DOES == "raise":', "    time.sleep(0.1)\n    if DOES:")

HANGS_AT_IMPORT = "import time\ntime.sleep(60)\n"


@pytest.mark.promise(39)
def test_many_ends_that_are_owed_are_told_one_after_the_other_whatever_another_plugin_does(
    world: World, server: ModelServer
) -> None:
    """A start tells what it has the time for. What it did not come to has had no try, and waits for
    the next one."""
    world.home.mkdir()
    with BlockingStore(world.home / "store.db") as store:
        sessions = [owing_an_end(store) for _ in range(60)]
    install(world, source=SLOW)
    install(world, "broken", HANGS_AT_IMPORT)
    world.steno("run", "hi")
    with BlockingStore(world.home / "store.db") as store:
        stored = [record.fact for id in sessions for record in store.read_all(id)]
    heard = [one["key"] for one in told(world) if one["session_id"] in sessions]
    tries = [fact for fact in stored if isinstance(fact, HookAttempted)]
    done = [(fact.plugin, fact.error) for fact in stored if isinstance(fact, HookDone)]
    assert (
        0
        < len(done)
        <= len(heard)
        == len(set(heard))
        <= len(tries)
        <= len(done) + 1
        < len(sessions)
    )
    assert set(done) == {("diary", "")}


def owing_an_end(store: BlockingStore) -> str:
    """A session that a process left which was killed before it had told anybody."""
    admitted = store.admit(
        Admission(
            input=InputAdmitted((Text("hi"),), "test"),
            create=SessionStarted("chat"),
            visit=SessionAttended("dead", "chat"),
        )
    )
    visit = Visit(admitted.session, admitted.visit or 0, "chat")
    facts = ending(visit, "left", AtEnd("done", False, ""), ("broken", "diary"), "dead")
    store.add(visit.session, facts, key=visit.key)
    return visit.session


# --- what cannot be stored ------------------------------------------------------------------------


@pytest.mark.promise(39)
def test_an_end_that_cannot_be_stored_is_told_all_the_same_and_the_person_too(
    world: World, server: ModelServer
) -> None:
    install(world)
    server.replies = [Reply(("fine",))]
    with world.start_changed("failing_at_the_end.py", "run", "hi") as program:
        assert program.end() == 0
        assert "was not stored" in program.errors()
    assert [one["reason"] for one in told(world)] == ["left"]
    assert ended(world) == "killed", "as far as anybody can tell afterwards"
    server.replies = [Reply(("fine",))]
    world.steno("run", "next")
    assert len({one["key"] for one in told(world)}) == 2
