"""Every act of /api on the running service, and who may do it."""

import base64
import json
import socket
from pathlib import Path

import pytest

from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World


def post(
    gateway: Gateway, session: str, act: str, body: object = None, status: int = 200
) -> object:
    answer = gateway.ask("POST", f"/api/sessions/{session}/{act}", body)
    assert answer.status == status, answer.body
    return answer.json()


@pytest.mark.promise(15, 46)
def test_messages_are_counted_alike_everywhere_and_edited_by_their_numbers(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply((f"answer {i}",)) for i in range(4)]
    session = gateway.make(title="first", name="bound")
    assert gateway.make(name="bound") == session, "a name is bound to one session"
    picture = base64.b64encode(b"some notes").decode()
    body = {"text": "say 0", "attachments": [{"name": "notes.txt", "data": picture}]}
    gateway.ask("POST", f"/api/sessions/{session}/inputs?wait=10", body)
    for i in (1, 2):
        assert gateway.say(session, f"say {i}", wait=10).json()["text"] == f"answer {i}"
    shown = gateway.ask("GET", f"/api/sessions/{session}").json()
    roles = [one["role"] for one in shown["messages"]]
    assert roles == ["user", "assistant"] * 3
    assert shown == world.show(session)
    assert shown["messages"][0]["attachments"][0]["name"] == "notes.txt"
    (row,) = gateway.ask("GET", "/api/sessions?title=FIRST").json()["sessions"]
    assert row["messages"] == 6
    assert {one["id"]: one for one in world.sessions()}[session]["messages"] == 6
    second = shown["messages"][2]["seq"]
    post(gateway, session, "hide", {"seq": second})
    assert world.messages(session)[2]["hidden"]
    fork = post(gateway, session, "fork", {"at": shown["messages"][1]["seq"]}, 201)
    assert isinstance(fork, dict)
    assert len(world.messages(fork["id"])) == 2
    undone = post(gateway, session, "undo")
    assert isinstance(undone, dict)
    assert world.show(session)["turns"][-1]["undone"]
    post(gateway, session, "rewind", {"withdraw": undone["seq"]})
    assert not world.show(session)["turns"][-1]["undone"]
    post(gateway, session, "rewind", {"to": second})
    answer = gateway.ask("PATCH", f"/api/sessions/{session}", {"title": "renamed"})
    assert answer.status == 200
    assert world.show(session)["title"] == "renamed"
    exported = gateway.ask("GET", f"/api/sessions/{session}/export").body
    assert json.loads(exported.splitlines()[0])
    assert b"answer 0" in gateway.ask("GET", f"/api/sessions/{session}/export?format=markdown").body
    used = gateway.ask("GET", "/api/usage?name=bound").json()
    assert used["total"]["calls"] == used["sessions"][0]["usage"]["calls"] == 3


def test_lists_come_in_pages_and_only_what_is_asked_for(gateway: Gateway) -> None:
    made = [gateway.make(title=f"{'odd' if i % 2 else 'even'} {i}") for i in range(7)]
    seen, before = [], ""
    while True:
        page = gateway.ask("GET", f"/api/sessions?limit=2&title=odd{before}").json()
        seen += [one["id"] for one in page["sessions"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == [made[5], made[3], made[1]]
    assert len(gateway.ask("GET", "/api/sessions?platform=http").json()["sessions"]) == 7
    assert gateway.ask("GET", "/api/sessions?platform=cli").json()["sessions"] == []
    assert gateway.ask("GET", "/api/sessions?waiting=maybe").status == 400


@pytest.mark.promise(24, 34)
def test_a_killed_turn_is_shown_as_interrupted_once_and_run_again_only_when_asked(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("part",), then="hang"), Reply(("whole",))]
    session = gateway.make()
    gateway.say(session, "do it")
    wait_until(lambda: len(world.messages(session, "assistant")) == 1, "some text")
    gateway.kill()

    def ended() -> list[tuple[str, str]]:
        turns = gateway.ask("GET", f"/api/sessions/{session}").json()["turns"]
        return [(one["outcome"], one["cause"]) for one in turns]

    for _ in range(2):
        gateway.start()
        wait_until(lambda: gateway.ask("GET", "/ready").status == 200, "a start")
        wait_until(lambda: ended() == [("interrupted", "killed")], "the turn to be closed")
        shown = gateway.ask("GET", f"/api/sessions/{session}").json()["turns"]
        assert shown == world.show(session)["turns"]
        gateway.stop()
    assert len(server.requests) == 1, "nothing is run again by itself"
    gateway.start()
    post(gateway, session, "retry", None, 202)
    wait_until(lambda: world.messages(session, "assistant")[-1]["text"] == "whole", "the answer")
    assert gateway.ask("POST", f"/api/sessions/{session}/retry").status == 409


@pytest.mark.promise(60, 65)
def test_a_token_for_one_session_sees_no_other_and_an_expired_one_nothing(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    own, other = gateway.make(title="mine"), gateway.make(title="of another")
    add = ("gateway", "token", "add")
    bound = world.steno(*add, "bound", "--scope", "write", "--session", own).strip()
    brief = world.steno(*add, "brief", "--expires", "1s").strip()
    assert gateway.ask("GET", f"/api/sessions/{own}", token=bound).status == 200
    for path in (f"/api/sessions/{other}", f"/api/sessions/{other}/events", "/api/sessions"):
        assert gateway.ask("GET", path, token=bound).status == 403, path
    for path in (f"/s/{own}", f"/s/{own}?before=2"):
        page = gateway.ask("GET", path, token=bound)
        assert (page.status, b"of another" in page.body, other.encode() in page.body) == (
            200,
            False,
            False,
        )
        assert b"mine" in page.body
    wait_until(lambda: gateway.ask("GET", "/ready", token=brief).status == 401, "its end")
    assert "brief" in world.steno("gateway", "token", "list")
    assert brief not in world.steno("gateway", "token", "list", "--json")


@pytest.mark.promise(60)
def test_a_redacted_secret_is_in_no_answer_and_no_file(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    secret = "the-word-is-swordfish"
    server.replies = [Reply(("ok",))]
    session = gateway.make(title="secret")
    said = gateway.say(session, secret, wait=10).json()["seq"]
    post(gateway, session, "redact", {"seq": said})
    assert secret.encode() not in gateway.ask("GET", f"/api/sessions/{session}").body
    assert secret.encode() not in gateway.ask("GET", f"/api/sessions/{session}/export").body
    gateway.stop()
    for file in world.home.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


@pytest.mark.promise(21)
def test_an_input_may_steer_the_running_turn_or_be_taken_back_while_it_waits(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("one", "."), held=True), Reply(("two",))]
    session = gateway.make()
    gateway.say(session, "begin")
    wait_until(lambda: len(server.requests) == 1, "the turn")
    steer = gateway.ask(
        "POST", f"/api/sessions/{session}/inputs", {"text": "and this", "mode": "steer"}
    )
    waits = gateway.say(session, "not this").json()["seq"]
    path = f"/api/sessions/{session}/inputs"
    assert gateway.ask("DELETE", f"{path}/{waits}").status == 200
    server.go_on()
    wait_until(lambda: len(world.messages(session, "assistant")) == 2, "both answers")
    assert gateway.ask("DELETE", f"{path}/{steer.json()['seq']}").status == 409
    told = json.dumps(server.requests[-1]["messages"])
    assert ("and this" in told, "not this" in told) == (True, False)


def test_the_configuration_says_where_tools_work_and_whether_they_ask(
    gateway: Gateway, server: ModelServer, world: World, tmp_path: Path
) -> None:
    call = Reply(tools=(("shell", '{"command": "pwd"}'),))
    server.replies = [call, Reply(("there",))] * 3
    shared = tmp_path / "shared"
    shared.mkdir()

    def where(**settings: str) -> list[str]:
        """What the tool says in a new session, without anybody being asked."""
        world.environment |= {f"STENO_GATEWAY_{name}": value for name, value in settings.items()}
        gateway.stop()
        gateway.start()
        said = gateway.say(gateway.make(), "where?", wait=20).json()
        assert said["text"] == "there"
        return [one["text"] for one in said["messages"] if one["role"] == "tool"]

    assert where(APPROVAL="allow", FOLDER=str(shared)) == [f"{shared}\n"]
    assert where(APPROVAL="refuse") != [f"{shared}\n"]
    (own,) = where(APPROVAL="allow", FOLDER="")
    (newest, *_) = world.sessions()
    assert own == f"{world.home / 'workspaces' / newest['id']}\n"


def test_it_listens_on_both_loopback_addresses_and_on_no_other(gateway: Gateway) -> None:
    gateway.stop()
    port = gateway.port
    with gateway.world.start("gateway", "--listen", f"localhost:{port}") as program:
        program.wait_shown("listens on")
        socket.create_connection(("127.0.0.1", port), 5).close()
        assert _listening(port) == {"0100007F"}


def _listening(port: int) -> set[str]:
    """The IPv4 addresses on which this machine listens on a port, as the kernel prints them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {address for address, its in ours if int(its, 16) == port}


def test_the_checks_are_printed_by_doctor(gateway: Gateway) -> None:
    said = gateway.world.steno("doctor", expect=None)
    lines = [line for line in said.splitlines() if line.startswith("gateway ")]
    assert len(lines) >= 14
    chat = {"kind": "telegram", "token_env": "TG", "owners": ["7"]}
    gateway.world.environment["STENO_CHANNELS"] = json.dumps({"tg": chat})
    with_chats = gateway.world.steno("doctor", expect=None)
    del gateway.world.environment["STENO_CHANNELS"]
    people = [line for line in with_chats.splitlines() if line.startswith("gateway ")]
    assert len(people) - len(lines) == 14, "each check of people, acts and content in chats"
    assert "always ends after 30 days" in with_chats
    assert "test (admin)" in said
    assert gateway.token not in said
