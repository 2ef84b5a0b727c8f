"""A place outside is told how a turn ended: once, whatever was killed when, or a record says why
not."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.delivery.outbox import WAIT_FIRST_S
from tests.program.diary import install, told
from tests.program.model_server import ModelServer, Reply
from tests.program.receiver import Receiver, Sent, configure, deliveries, states
from tests.program.test_approvals_elsewhere import ASKS, pending, wait_pending
from tests.program.test_cli_views import complaint
from tests.program.test_detach import detach, processes
from tests.program.world import Program, World, wait_until

__all__ = ["processes"]

HANG = Reply(("going ",), then="hang")
FINE = Reply(("it is ", "fine"))
DAY_S = 86_400


@pytest.fixture
def receiver(world: World) -> Iterator[Receiver]:
    with Receiver() as receiving:
        configure(world, receiving)
        yield receiving


def next_start(world: World, server: ModelServer, until: Any, what: str) -> None:
    """Somebody starts steno for something else, when another try is due, and has it open until what
    is owed is settled."""
    server.choose = lambda request: (
        Reply(("", "other"), held=True) if "SOMETHING ELSE" in str(request) else FINE
    )
    server.hold_again()
    later_s = str(WAIT_FIRST_S)
    with world.start_changed("shifted.py", later_s, "run", "SOMETHING ELSE") as program:
        wait_until(until, what)
        server.go_on()
        assert program.end() == 0


def settled(world: World) -> bool:
    return all(state not in ("owed", "sending") for state, _ in states(world))


def settle(world: World, server: ModelServer) -> None:
    """Whoever is not told in the fraction of a second in which a command leaves is told at the next
    start."""
    if not settled(world):
        next_start(world, server, lambda: settled(world), "the place to be told")


def leave_a_debt(world: World, server: ModelServer) -> None:
    """A turn has ended, and its process dies before it tells anybody."""
    server.replies = [FINE]
    with dying(world, "before", "DeliveryAttempted") as program:
        assert program.end() == -signal.SIGKILL


def dying(world: World, when: str, which: str) -> Program:
    return world.start_changed("dying_anywhere.py", when, which, "run", "hi", "--deliver", "phone")


# --- told -----------------------------------------------------------------------------------------


@pytest.mark.promise(13, 14)
def test_a_place_is_told_the_answer_once_and_only_what_is_stored(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int]
) -> None:
    server.replies = [FINE]
    stored: list[list[dict[str, Any]]] = []
    attempts: list[list[tuple[str, str]]] = []

    def look(sent: Sent) -> None:
        stored.append(world.messages(sent.told["session"], "assistant"))
        attempts.append(states(world))

    receiver.on_receipt = look
    id, _, _ = detach(world, processes, "hi", "--deliver", "phone")
    wait_until(lambda: states(world) == [("delivered", "")], "the place to be told")
    (turn,) = world.show(id)["turns"]
    (one,) = deliveries(world)
    expected = {
        "session": id,
        "turn": turn["id"],
        "outcome": "done",
        "cause": "",
        "text": "it is fine",
        "key": one["key"],
    }
    assert receiver.told() == expected
    assert receiver.sent[0].headers["content-type"] == "application/json"
    ((answer,),) = stored
    assert (answer["text"], answer["state"]) == ("it is fine", "complete"), (
        "another process read it at that moment"
    )
    assert attempts == [[("sending", "")]], "the attempt is stored before it is made"
    assert (one["state"], one["channel"], one["address"]) == (
        "delivered",
        "phone",
        f"127.0.0.1:{receiver.port}",
    )
    world.steno("run", "next")
    assert receiver.keys() == {one["key"]: 1}


@pytest.mark.promise(14, 38)
def test_a_detached_turn_tells_two_places_when_it_ends(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int]
) -> None:
    server.replies = [Reply(("I look. ",), tools=(("read_file", '{"path": "none"}'),)), FINE]
    with Receiver() as other:
        configure(world, other, "desk")
        detach(
            world, processes, "hi", "--deliver", "phone", "--deliver", "desk", "--deliver", "phone"
        )
        for place in (receiver, other):
            wait_until(lambda place=place: len(place.sent) == 1, "the place to be told")  # type: ignore[misc]
            assert (place.told()["outcome"], place.told()["text"]) == ("done", "I look. it is fine")
        wait_until(lambda: settled(world), "both to be recorded")
    assert receiver.told()["key"] != other.told()["key"]


@pytest.mark.promise(14)
@pytest.mark.parametrize("how", ["failed", "stopped", "terminated"])
def test_a_place_is_told_of_a_turn_that_did_not_end_well(
    world: World, server: ModelServer, receiver: Receiver, how: str
) -> None:
    server.replies = [Reply(status=400)] if how == "failed" else [HANG]
    with world.start("run", "hi", "--deliver", "phone") as program:
        if how != "failed":
            program.wait_shown("going")
            program.signal(signal.SIGINT if how == "stopped" else signal.SIGTERM)
        program.end()
    (turn,) = world.show(world.only_session())["turns"]
    settle(world, server)
    heard = receiver.told()
    assert (heard["outcome"], heard["cause"]) == (turn["outcome"], turn["cause"])
    assert heard["outcome"] == ("failed" if how == "failed" else "interrupted")
    assert heard["text"] == ("" if how == "failed" else "going ")


@pytest.mark.promise(14)
def test_a_turn_whose_process_was_killed_is_told_at_the_next_start_with_what_was_shown(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int]
) -> None:
    server.replies = [HANG]
    with world.start("run", "hi", "--deliver", "phone") as program:
        program.wait_shown("going")
        program.kill()
    next_start(world, server, lambda: settled(world), "the place to be told")
    heard = receiver.told()
    assert (heard["outcome"], heard["cause"], heard["text"]) == ("interrupted", "killed", "going ")


@pytest.mark.promise(14)
def test_a_turn_that_is_continued_is_told_as_one_with_its_whole_answer(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = [HANG, Reply(("on and on",))]
    with world.start("run", "hi", "--deliver", "phone") as program:
        program.wait_shown("going")
        program.kill()
    world.steno("continue", world.only_session())
    settle(world, server)
    heard = receiver.told()
    assert (heard["outcome"], heard["text"]) == ("done", "going on and on")


@pytest.mark.promise(14, 37)
def test_a_turn_that_waits_for_approval_has_not_ended(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int]
) -> None:
    leave_a_debt(world, server)
    server.choose = lambda request: ASKS
    id, _, process = detach(world, processes, "go", "--deliver", "phone")
    (asked,) = wait_pending(world, 1)
    os.kill(process, signal.SIGKILL)
    next_start(world, server, lambda: bool(receiver.sent), "the other debt to be paid")
    assert (receiver.told()["session"] != id, pending(world)) == (True, [asked])
    world.steno("deny", id)
    world.steno("continue", id)
    settle(world, server)
    assert {one.told["outcome"] for one in receiver.sent if one.told["session"] == id} == {"done"}


@pytest.mark.promise(14)
def test_an_input_that_steers_is_told_what_came_after_it(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = [
        Reply(("before ", "it"), held=True, tools=(("read_file", '{"path": "none"}'),)),
        FINE,
    ]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("before")
        with world.start(
            "run", "and this", "--key", "k", "--steer", "--deliver", "phone"
        ) as steering:
            wait_until(lambda: bool(deliveries(world)), "the second input to be accepted")
            server.go_on()
            assert (program.end(), steering.end()) == (0, 0)
    settle(world, server)
    assert receiver.told()["text"] == "it is fine"


# --- places that do not answer well ---------------------------------------------------------------


@pytest.mark.promise(14)
def test_a_place_that_is_down_is_told_once_at_a_later_start(
    world: World, server: ModelServer
) -> None:
    place = Receiver()
    configure(world, place)
    server.replies = [FINE]
    assert world.steno("run", "hi", "--deliver", "phone") == "it is fine\n"
    assert [state for state, _ in states(world)] == ["owed"]
    with place:
        next_start(world, server, lambda: settled(world), "the place to be told")
        world.steno("run", "and again")
        assert place.told()["text"] == "it is fine"
        assert (list(place.keys().values()), states(world)) == ([1], [("delivered", "")])


@pytest.mark.promise(14, 59)
def test_what_a_session_owed_where_it_came_from_is_not_sent_from_here(
    tmp_path: Path, world: World, server: ModelServer
) -> None:
    """A channel of the same name must not be told twice, by two machines."""
    with Receiver() as place:
        configure(world, place)
        leave_a_debt(world, server)
        world.steno("export", world.only_session(), str(world.work / "moved.steno"))
        there = World(tmp_path / "there", server.url)
        configure(there, place)
        install(there)
        there.steno("import", str(world.work / "moved.steno"))
        next_start(there, server, lambda: settled(there), "it to be settled")
        assert (place.keys(), states(there)) == ({}, [("expired", "elsewhere")])
        assert "delivery" not in str(told(there))
        next_start(world, server, lambda: settled(world), "the place to be told")
        assert (list(place.keys().values()), states(world)) == ([1], [("delivered", "")])


@pytest.mark.promise(14)
@pytest.mark.parametrize("first", [500, 503, 429, 302, "drop"])
@pytest.mark.suite("drop")
def test_a_detached_process_stays_and_tries_again_under_the_same_key(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int], first: Any
) -> None:
    receiver.acts = [first, 200]
    server.replies = [FINE]
    id, _, _ = detach(world, processes, "hi", "--deliver", "phone")
    wait_until(lambda: len(receiver.sent) == 2, "the place to be told again")
    wait_until(lambda: states(world) == [("delivered", "")], "that to be recorded")
    assert [one.told for one in receiver.sent] == [receiver.told()] * 2
    failed, came = [one["outcome"] for one in facts(world, id, "delivery.settled")]
    assert (failed["type"], failed["cause"]) == (
        "delivery_failed",
        "dropped" if first == "drop" else f"status {first}",
    )
    assert failed.get("unknown", False) is (first in (500, "drop")), "whether it may have arrived"
    assert came == {"type": "delivered", "receipt": "status 200"}


def facts(world: World, id: str, tag: str) -> list[dict[str, Any]]:
    """As they are stored, read with a tool of SQLite's own."""
    import sqlite3

    with sqlite3.connect(f"file:{world.home / 'store.db'}?mode=ro", uri=True) as store:
        rows = store.execute(
            "select fact from journal where session = ? order by seq", (id,)
        ).fetchall()
    store.close()
    return [fact for (body,) in rows if (fact := json.loads(body))["type"] == tag]


@pytest.mark.promise(14)
def test_a_refusal_is_final(world: World, server: ModelServer, receiver: Receiver) -> None:
    receiver.acts = [400, 200]
    server.replies = [FINE]
    world.steno("run", "hi", "--deliver", "phone")
    settle(world, server)
    assert states(world) == [("refused", "status 400")]
    world.steno("run", "next")
    assert len(receiver.sent) == 1


@pytest.mark.promise(14)
def test_what_cannot_be_delivered_expires_with_a_record(world: World, server: ModelServer) -> None:
    place = Receiver()
    configure(world, place, expires_s=DAY_S)
    server.replies = [FINE]
    world.steno("run", "hi", "--deliver", "phone")
    with place:
        wait_until(lambda: a_day_later(world), "somebody to look at it")
        assert (states(world), place.sent) == ([("expired", "undelivered")], [])


@pytest.mark.promise(14)
def test_an_input_that_nobody_ever_answers_expires_too_and_one_that_waits_does_not(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    """The input is stored with its debt, and the process dies before it takes the input."""
    with dying(world, "before", "TurnStarted") as program:
        assert program.end() == -signal.SIGKILL
    world.steno("run", "next")
    assert states(world) == [("owed", "")]
    wait_until(lambda: a_day_later(world), "somebody to look at it")
    assert (states(world), receiver.sent) == ([("expired", "unanswered")], [])


def a_day_later(world: World) -> bool:
    """Somebody starts steno then; whether what was owed is settled. Who leaves at once may not have
    looked."""
    with world.start_changed("shifted.py", str(DAY_S + 60), "run", "a day later") as program:
        assert program.end() == 0
    return settled(world)


def test_a_place_that_hangs_keeps_nobody_from_leaving(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    leave_a_debt(world, server)
    receiver.acts = ["hold"]
    server.choose = lambda request: Reply(("", "other"), held=True)
    with world.start("run", "another", "--deliver", "phone") as program:
        wait_until(lambda: len(receiver.sent) == 1, "what was left to be told")
        began_s = time.monotonic()
        server.go_on()
        assert (program.end(), program.shown()) == (0, "other\n")
        assert time.monotonic() - began_s < 5, "a try may take ten seconds, and there are two"
    assert [state for state, _ in states(world)] == ["owed", "owed"]
    receiver.go_on()
    settle(world, server)
    assert len(receiver.keys()) == 2


WHEN = ("before", "after")

# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.promise(14)
@pytest.mark.parametrize(("when", "first"), [(when, n) for when in WHEN for n in range(1, 5)])
@pytest.mark.suite("before-2", "after-3")
def test_killed_at_any_write_the_place_is_told_once_or_nothing_was_accepted(
    world: World, server: ModelServer, receiver: Receiver, when: str, first: int
) -> None:
    """At the first of its writes and at each fourth after it, to the last; from the others on, in
    the long run."""
    server.choose = lambda request: FINE
    fates: list[str] = []
    n = first - 4
    while not fates or fates[-1] != "lived":
        n += 4
        one = World(world.work / str(n), server.url)
        configure(one, receiver)
        receiver.sent.clear()
        with dying(one, when, str(n)) as program:
            fates.append("killed" if program.end() == -signal.SIGKILL else "lived")
        owed = deliveries(one)
        if not owed:
            assert (one.sessions(), receiver.sent) == ([], []), "no input without its debt"
            continue
        one.steno("continue", one.only_session(), expect=None)
        if not settled(one):
            wait_until(lambda one=one: started_until_settled(one), "the place to be told")  # type: ignore[misc]
        assert states(one) == [("delivered", "")]
        assert len(receiver.keys()) == 1
        heard = receiver.told()
        assert heard["outcome"] in [
            turn["outcome"]
            for turn in one.show(heard["session"])["turns"]
            if turn["id"] == heard["turn"]
        ]
    assert n > 8, "input, turn, context, step, text, seal, end, attempt, outcome"


def started_until_settled(world: World) -> bool:
    world.steno("run", "SOMETHING ELSE", "--key", "other")
    return settled(world)


@pytest.mark.promise(14)
def test_of_several_that_start_at_once_one_tells(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    leave_a_debt(world, server)
    receiver.acts = ["hold"]
    assert (states(world), receiver.sent) == ([("owed", "")], [])
    server.choose = lambda request: (
        Reply(("", "other"), held=True) if "SOMETHING ELSE" in str(request) else FINE
    )
    server.hold_again()
    programs = [world.start("run", "SOMETHING ELSE", "--key", f"k{number}") for number in range(4)]
    try:
        wait_until(lambda: len(receiver.sent) == 1, "the place to be told")
        assert not a_day_later(world), (
            "one whose clock is ahead neither tries nor gives it up while another tries"
        )
        receiver.go_on()
        wait_until(lambda: len(server.requests) == 6, "all to have started")
        wait_until(lambda: settled(world), "that to be recorded")
        server.go_on()
        assert [program.end() for program in programs] == [0] * 4
    finally:
        for program in programs:
            program.__exit__()
    assert (list(receiver.keys().values()), states(world)) == ([1], [("delivered", "")])


# --- secrets, redaction, deletion -----------------------------------------------------------------


def test_the_token_is_sent_along_and_is_in_no_file_and_no_command_sees_it(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    secret = "s3cret-of-the-phone"
    configure(world, receiver, token_env="PHONE_WORD")
    world.environment["PHONE_WORD"] = secret
    server.replies = [Reply((), tools=(("shell", '{"command": "env; echo looked"}'),)), FINE]
    receiver.acts = [500, 200]
    shown = world.steno("run", "hi", "--yes", "--deliver", "phone") + world.steno("doctor")
    settle(world, server)
    assert {one.headers["authorization"] for one in receiver.sent} == {f"Bearer {secret}"}
    (tool,) = world.messages(world.sessions()[1]["id"], "tool")
    assert "looked" in tool["text"]
    assert secret not in shown + world.steno("deliveries", "--json") + str(tool)
    found = subprocess.run(
        ["grep", "-rl", secret, str(world.home)], capture_output=True, check=False
    )
    assert found.stdout == b""


@pytest.mark.promise(14, 60)
def test_what_was_redacted_before_it_was_delivered_is_not_delivered(
    world: World, server: ModelServer
) -> None:
    place = Receiver()
    configure(world, place)
    server.replies = [FINE]
    world.steno("run", "hi", "--deliver", "phone")
    id = world.only_session()
    (said,) = world.messages(id, "assistant")
    world.steno("redact", id, "--seq", str(said["seq"]), "--yes")
    with place:
        next_start(world, server, lambda: settled(world), "the place to be told")
        assert place.told()["text"] == "[10 characters redacted]"


@pytest.mark.promise(55)
def test_a_deleted_session_owes_nothing(world: World, server: ModelServer) -> None:
    place = Receiver()
    configure(world, place)
    server.replies = [FINE]
    world.steno("run", "hi", "--deliver", "phone")
    world.steno("delete", world.only_session(), "--yes")
    with place:
        world.steno("run", "next")
        assert (deliveries(world), place.sent) == ([], [])


# --- asking for it --------------------------------------------------------------------------------


def test_a_channel_that_cannot_be_used_is_refused_and_nothing_is_stored(
    world: World, server: ModelServer
) -> None:
    place = Receiver()
    configure(world, place, token_env="PHONE_WORD")
    assert "no channel 'desk'" in complaint(world, "run", "hi", "--deliver", "desk", expect=2)
    assert "PHONE_WORD" in complaint(world, "run", "hi", "--deliver", "phone", expect=2)
    assert "--deliver" in complaint(
        world, "run", "hi", "--ephemeral", "--deliver", "phone", expect=2
    )
    for url in (
        "http://example.com/x",
        "https://me:word@example.com",
        "ftp://127.0.0.1/",
        "https:///hook",
        "/hook",
    ):
        world.environment["STENO_CHANNELS"] = json.dumps({"phone": {"url": url}})
        said = complaint(world, "run", "hi", "--deliver", "phone", expect=2)
        assert "a channel needs a url with https" in said
        assert url not in said
    del world.environment["STENO_CHANNELS"]
    assert (world.sessions(), server.requests) == ([], [])


def test_the_same_input_given_again_owes_no_more(
    world: World, server: ModelServer, receiver: Receiver
) -> None:
    server.replies = [FINE]
    for _ in range(2):
        assert world.steno("run", "hi", "--input-id", "one", "--deliver", "phone") == "it is fine\n"
    settle(world, server)
    assert (len(receiver.keys()), len(deliveries(world))) == (1, 1)


@pytest.mark.promise(14)
@pytest.mark.parametrize(
    ("act", "outcome"), [(200, "delivered"), (400, "refused"), ("drop", "unknown")]
)
def test_plugins_hear_what_became_of_it(
    world: World, server: ModelServer, receiver: Receiver, act: Any, outcome: str
) -> None:
    leave_a_debt(world, server)
    id = world.only_session()
    install(world)
    receiver.acts = [act, 400]
    next_start(
        world, server, lambda: bool(told(world, hook="delivery")), "the plugin to hear of it"
    )
    address = f"127.0.0.1:{receiver.port}"
    first = {"session_id": id, "channel": "phone", "address": address, "outcome": outcome}
    assert told(world, hook="delivery")[0] == first


def test_plugins_hear_that_a_delivery_expired(world: World, server: ModelServer) -> None:
    configure(world, Receiver())
    server.replies = [FINE]
    world.steno("run", "hi", "--deliver", "phone")
    id = world.only_session()
    install(world)
    server.choose = lambda request: Reply(("", "other"), held=True)
    with world.start_changed("shifted.py", str(DAY_S + 60), "run", "a day later") as program:
        wait_until(lambda: bool(told(world, hook="delivery")), "the plugin to hear of it")
        server.go_on()
        assert program.end() == 0
    assert [(one["session_id"], one["outcome"]) for one in told(world, hook="delivery")] == [
        (id, "expired")
    ]


def test_the_list_says_what_is_owed_and_what_became_of_it(
    world: World, server: ModelServer, receiver: Receiver, processes: list[int]
) -> None:
    assert world.steno("deliveries").startswith("nothing is owed")
    server.replies = [FINE]
    receiver.acts = [200, 503]
    world.steno("run", "hi", "--deliver", "phone")
    settle(world, server)
    detach(world, processes, "hi", "--deliver", "phone")
    wait_until(
        lambda: ("owed", "status 503") in states(world), "the place to say that it has no time"
    )
    later, first = deliveries(world)
    assert (first["state"], first["cause"], first["tries"]) == ("delivered", "", None)
    assert (later["channel"], later["tries"] > 0, later["turn"]) == ("phone", True, 5)
    lines = world.steno("deliveries").splitlines()
    assert [line.split()[0] for line in lines] == [later["session"], first["session"]]
    assert "  delivered  phone (127.0.0.1:" in lines[1]
