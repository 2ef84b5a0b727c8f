"""Talking to steno in Telegram, on the running program."""

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from steno.config import ChannelConfig
from steno.gateway.channels.protocol import ChannelSetup, Message
from steno.gateway.platforms.telegram import Telegram as TelegramChannel
from tests.channels.conftest import OWNER, Serve
from tests.channels.telegram_stub import NAME, TOKEN, Refused, Telegram
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

GROUP = -100
TOOL = Reply(tools=(("shell", '{"command": "echo run >> ran.txt"}'),))


def test_what_is_said_in_a_chat_is_answered_there(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    server.replies = [Reply(("Hello ", "Ann."))]
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "Hello Ann.")
    assert telegram.texts(OWNER) == ["Hello Ann."]


# --- the inbox ------------------------------------------------------------------------------------


@pytest.mark.promise(67)
@pytest.mark.promise(2)
def test_an_update_is_acknowledged_after_it_is_stored_and_not_before(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    stored: list[bool] = []

    def look(method: str, body: dict[str, object]) -> Refused | None:
        if method == "getUpdates" and int(str(body.get("offset", 0))) > 100:
            stored.append(bool(world.sessions()))
        return None

    telegram.refuse = look
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    wait_until(lambda: telegram.pending() == 0, "the acknowledgement")
    assert stored
    assert all(stored)


@pytest.mark.promise(67)
def test_duplicate_late_and_reordered_updates_give_one_input_each(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    gateway = serve()
    first, second, third = (telegram.say(f"said {n}", quiet=True) for n in range(3))
    for message in (third, first, third, second, first):
        telegram.push({"message": message})
    wait_until(lambda: telegram.texts(OWNER) == ["ok"] * 3, "three answers")
    gateway.kill()
    for message in (first, second, third):
        telegram.push({"message": message})
    gateway.start()
    telegram.say("the end")
    wait_until(lambda: telegram.texts(OWNER) == ["ok"] * 4, "the last answer")
    assert len(server.requests) == 4
    assert world.messages(world.only_session(), "user") != []


@pytest.mark.promise(43)
def test_an_edited_message_is_a_fact_of_its_own_and_told_with_the_next_turn(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    serve()
    said = telegram.say("meet at five")
    telegram.wait_text(OWNER, "ok")
    telegram.change(said, "meet at six")
    telegram.say("when?")
    wait_until(lambda: len(server.requests) == 2, "the second request")
    asked = json.dumps(server.requests[1]["messages"])
    assert "meet at five" in asked
    assert "edited in the chat" in asked
    assert "meet at six" in asked
    inputs = world.messages(world.only_session(), "user")
    assert [one["text"] for one in inputs] == ["meet at five", "when?"]


def test_voice_and_pictures_are_files_of_their_message() -> None:
    setup = ChannelSetup("tg", ChannelConfig(kind="telegram"), TOKEN, Path())
    said = {
        "message_id": 5,
        "from": {"id": OWNER, "first_name": "Ann"},
        "chat": {"id": OWNER, "type": "private"},
        "caption": "listen",
    }
    kinds: dict[str, Any] = {
        "voice": {"file_id": "v", "mime_type": "audio/ogg", "file_size": 7},
        "video_note": {"file_id": "n"},
        "photo": [{"file_id": "s", "file_size": 1}, {"file_id": "l", "file_size": 9}],
    }
    read = TelegramChannel(setup)._read({"update_id": 1, "message": said | kinds})
    assert isinstance(read, Message)
    assert [(one.id, one.name, one.media_type) for one in read.files] == [
        ("l", "photo.jpg", "image/jpeg"),
        ("v", "voice.ogg", "audio/ogg"),
        ("n", "video.mp4", "video/mp4"),
    ]


def test_a_file_that_cannot_be_fetched_is_told_as_such(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    serve()
    telegram.say("look", document={"file_id": "gone", "file_name": "gone.txt"})
    telegram.wait_text(OWNER, "ok")
    assert "gone.txt" in json.dumps(server.requests[0]["messages"])
    assert "not fetched" in json.dumps(server.requests[0]["messages"])


# --- the outbox -----------------------------------------------------------------------------------


@pytest.mark.promise(68)
@pytest.mark.promise(9)
def test_an_answer_is_streamed_by_edits_of_one_message(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    words = tuple(f"word{n} " for n in range(40))
    server.replies = [Reply(words, delay_s=0.02)]
    serve()
    telegram.say("tell me")
    telegram.wait_text(OWNER, "".join(words).rstrip() + " ")
    [(_, history)] = telegram.history.items()
    assert history[0] == "…"
    assert len(history) > 3
    assert all("".join(words).startswith(text) for text in history[1:])
    assert len(telegram.made("sendMessage")) == 1


@pytest.mark.promise(14)
def test_a_flood_limit_is_waited_for_and_the_answer_comes_once(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    refusals = iter([1, 1, 1])

    def refuse(method: str, body: dict[str, object]) -> Refused | None:
        wants = method in ("sendMessage", "editMessageText")
        wait = next(refusals, None) if wants else None
        return None if wait is None else Refused(429, "Too Many Requests", retry_after=wait)

    telegram.refuse = refuse
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    assert telegram.texts(OWNER) == ["ok"]


def test_refused_formatting_goes_out_plain_once(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    def refuse(method: str, body: dict[str, object]) -> Refused | None:
        if "parse_mode" in body:
            return Refused(400, "Bad Request: can't parse entities: unexpected end")
        return None

    telegram.refuse = refuse
    server.replies = [Reply(("so **bold** it is",))]
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "so **bold** it is")
    assert telegram.texts(OWNER) == ["so **bold** it is"]


@pytest.mark.promise(14)
def test_a_reserve_whose_answer_is_lost_costs_a_stray_mark_and_never_doubles_the_text(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    lost = iter([True])
    telegram.lose = lambda method, body: method == "sendMessage" and next(lost, False)
    server.replies = [Reply(("the answer",))]
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "the answer")
    assert sorted(telegram.texts(OWNER)) == ["the answer", "…"]


@pytest.mark.promise(14)
def test_an_unknown_outcome_of_a_final_message_is_recorded_and_never_sent_again(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    lost = iter([True])
    telegram.lose = lambda method, body: method == "sendMessage" and next(lost, False)
    gateway = serve(stream="final")
    telegram.say("hello")
    wait_until(lambda: _states(world) == ["unknown"], "the record")
    gateway.kill()
    gateway.start()
    telegram.say("again")
    wait_until(lambda: len(telegram.texts(OWNER)) == 2, "the next answer")
    assert len(telegram.made("sendMessage")) == 2


def _states(world: World) -> list[str]:
    return [one["state"] for one in json.loads(world.steno("deliveries", "--json"))]


def test_what_expired_while_we_were_away_is_recorded_before_anything_is_sent(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    telegram.refuse = lambda method, body: (
        Refused(429, "Too Many Requests", retry_after=3_600) if method == "sendMessage" else None
    )
    gateway = serve(expires_s=1)
    telegram.say("old")
    wait_until(lambda: telegram.made("sendMessage") != [], "an attempt")
    gateway.kill()
    telegram.refuse = lambda method, body: None
    before = len(telegram.made("sendMessage"))
    time.sleep(1.2)
    gateway.start()
    wait_until(lambda: _states(world) == ["expired"], "the record")
    telegram.say("new")
    telegram.wait_text(OWNER, "ok")
    assert len(telegram.made("sendMessage")) == before + 1


@pytest.mark.promise(63)
def test_a_blocked_bot_gives_up_with_a_record(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    telegram.blocked.add(str(OWNER))
    serve()
    telegram.say("hello")
    wait_until(lambda: _states(world) == ["refused"], "the record")


# --- commands -------------------------------------------------------------------------------------


def test_new_begins_a_session_and_resume_goes_back(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    serve()
    telegram.say("first")
    telegram.wait_text(OWNER, "ok")
    first = world.only_session()
    telegram.say("/new")
    telegram.wait_like(OWNER, "new session begins")
    telegram.say("second")
    wait_until(lambda: len(world.sessions()) == 2, "two sessions")
    wait_until(lambda: telegram.texts(OWNER).count("ok") == 2, "the second answer")
    telegram.say(f"/resume {first}")
    telegram.wait_like(OWNER, "goes on with")
    telegram.say("third")
    wait_until(lambda: telegram.texts(OWNER).count("ok") == 3, "the third answer")
    said = [one["text"] for one in world.messages(first, "user")]
    assert said == ["first", "third"]


@pytest.mark.promise(16)
def test_a_command_that_arrives_twice_is_carried_out_once(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    gateway = serve()
    new = telegram.push({"message": telegram.say("/new", quiet=True)})
    telegram.wait_like(OWNER, "new session begins")
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    telegram.push(new, again=True)
    gateway.kill()
    gateway.start()
    telegram.push(new, again=True)
    telegram.say("more")
    wait_until(lambda: telegram.texts(OWNER).count("ok") == 2, "the second answer")
    assert sum("new session" in one for one in telegram.texts(OWNER)) == 1
    assert [one["messages"] for one in world.sessions() if one["messages"] > 2] != []


@pytest.mark.promise(23)
def test_a_stop_stops_the_turn_that_ran_and_status_says_so(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("Once upon",), then="hang"), Reply(("short",))]
    serve()
    telegram.say("a story")
    telegram.wait_text(OWNER, "Once upon")
    telegram.say("/stop")
    telegram.wait_like(OWNER, "Stopped. What was said is kept.")
    telegram.say("go on")
    telegram.wait_text(OWNER, "short")
    turns = world.show(world.only_session())["turns"]
    assert [(one["outcome"], one["cause"]) for one in turns] == [
        ("interrupted", "user"),
        ("done", ""),
    ]


@pytest.mark.promise(24)
def test_retry_runs_a_failed_message_again_and_undo_takes_a_turn_back(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(status=400, complaint="bad"), Reply(("better",))]
    serve()
    telegram.say("try this")
    telegram.wait_like(OWNER, "/retry runs it again")
    telegram.say("/retry")
    telegram.wait_text(OWNER, "better")
    telegram.say("/undo")
    telegram.wait_like(OWNER, "taken back")
    telegram.say("next")
    wait_until(lambda: len(server.requests) == 3, "the next request")
    assert "try this" not in json.dumps(server.requests[2]["messages"])


@pytest.mark.promise(17, 46, 61)
def test_one_session_in_a_chat_and_over_http_shows_every_input_and_answer_once(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.choose = lambda request: Reply((f"answer {len(request['messages'])}",))
    gateway = serve()
    telegram.say("from the chat")
    telegram.wait_like(OWNER, "answer")
    session = world.only_session()
    assert gateway.say(session, "from the page", wait=20).status == 200
    telegram.wait_like(OWNER, "from the page")
    wait_until(lambda: sum("answer" in one for one in telegram.texts(OWNER)) == 2, "both answers")
    said = [one["text"] for one in world.messages(session) if one["role"] != "notice"]
    assert said[0::2] == ["from the chat", "from the page"]
    assert [one for one in telegram.texts(OWNER) if "answer" in one] == said[1::2]
    shown = gateway.ask("GET", f"/api/sessions/{session}").json()["messages"]
    assert [(one["seq"], one["text"]) for one in shown] == [
        (one["seq"], one["text"]) for one in world.messages(session)
    ]
    [listed] = world.sessions()
    assert listed["messages"] == len(world.messages(session))
    assert said[1] in str(server.requests[1]["messages"]), "the second is told the first's outcome"


@pytest.mark.promise(13)
def test_what_reached_a_chat_is_in_its_history(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    telegram.say("/status")
    telegram.wait_like(OWNER, "resting")
    messages = world.messages(world.only_session())
    assert [one["role"] for one in messages] == ["user", "assistant", "notice"]
    assert [one["text"] for one in messages[1:]] == telegram.texts(OWNER)


# --- approvals ------------------------------------------------------------------------------------


@pytest.mark.promise(70)
@pytest.mark.promise(37)
def test_a_button_works_after_a_restart_and_a_second_tap_hears_what_was_decided(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.replies = [TOOL, Reply(("done",))]
    gateway = serve()
    telegram.say("do it")
    question = telegram.wait_like(OWNER, "May I run shell?")
    data = _data(telegram, question, "Allow")
    session = world.only_session()
    wait_until(lambda: "delivery.placed" in world.steno("export", session), "the receipt")
    gateway.kill()
    gateway.start()
    tap = telegram.tap_data(OWNER, question, data)
    telegram.wait_text(OWNER, "done")
    wait_until(lambda: telegram.answered.get(tap) == "Allowed.", "the word")
    late = telegram.tap_data(OWNER, question, data.replace(":y", ":n"))
    wait_until(lambda: "allowed before" in telegram.answered.get(late, ""), "the honest word")
    telegram.wait_text(OWNER, "Allowed.")
    ran = [file.read_text() for file in world.home.rglob("ran.txt")]
    assert ran == ["run\n"]


def _data(telegram: Telegram, message: int, label: str) -> str:
    rows = telegram.chats[str(OWNER)][message]["reply_markup"]["inline_keyboard"]
    return str(next(one["callback_data"] for row in rows for one in row if one["text"] == label))


@pytest.mark.promise(70)
def test_an_approval_by_text_and_a_tap_after_a_stop_changes_nothing(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.replies = [TOOL, Reply(("refused then",)), TOOL, Reply(("after the stop",))]
    serve()
    telegram.say("do it")
    telegram.wait_like(OWNER, "May I run shell?")
    telegram.say("/deny")
    telegram.wait_text(OWNER, "refused then")
    wait_until(lambda: telegram.texts(OWNER).count("Denied.") == 2, "the question to say so, too")
    telegram.say("do it again")
    question = telegram.wait_like(OWNER, "May I run shell?")
    data = _data(telegram, question, "Allow")
    telegram.say("/stop")
    telegram.wait_like(OWNER, "This question is over")
    tap = telegram.tap_data(OWNER, question, data)
    wait_until(lambda: "will not run" in telegram.answered.get(tap, ""), "the honest word")
    assert list(world.home.rglob("ran.txt")) == []


# --- groups ---------------------------------------------------------------------------------------


def test_in_a_group_it_answers_when_addressed_and_keeps_who_spoke(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    serve(groups=[str(GROUP)])
    telegram.say("just chatting", 8, GROUP, "Bob")
    telegram.say(f"@{NAME} what is up?", 8, GROUP, "Bob")
    telegram.wait_text(GROUP, "ok")
    telegram.say(f"@{NAME} and for me?", 9, GROUP, "Eve")
    wait_until(lambda: len(telegram.texts(GROUP)) == 2, "the second answer")
    asked = json.dumps(server.requests[1]["messages"])
    assert "just chatting" not in asked
    assert "Bob (8)" in asked
    assert "Eve (9)" in asked
    assert all(telegram.history[str(GROUP), id][0] == "ok" for id in telegram.chats[str(GROUP)])


def test_a_group_that_is_not_listed_gets_nothing_and_pairing_gives_no_group(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    serve()
    telegram.say(f"@{NAME} hello", OWNER, GROUP)
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    assert telegram.texts(GROUP) == []
    assert len(server.requests) == 1


# --- restarts and floods --------------------------------------------------------------------------


@pytest.mark.promise(63)
@pytest.mark.parametrize("each", [5, pytest.param(200, marks=pytest.mark.torture)])
def test_start_new_stop_old_moves_the_account_without_a_fight(
    serve: Serve, telegram: Telegram, server: ModelServer, each: int
) -> None:
    """Under load: ten people go on writing while the one starts and the other stops."""
    people = [OWNER, *range(20, 29)]
    server.choose = lambda request: Reply((f"to {_last(request)}",))
    options = {"poll_s": 2, "chat_per_s": 1_000, "all_per_s": 1_000, "edit_s": 0.1}
    old = serve(allow=[str(one) for one in people[1:]], options=options)
    telegram.say("q-0")
    telegram.wait_text(OWNER, "to q-0")
    conflicts = telegram.conflicts

    def write() -> None:
        for number in range(1, each + 1):
            for person in people:
                telegram.say(f"q-{number}", person)
                time.sleep(0.001)

    writing = threading.Thread(target=write)
    writing.start()
    serve(allow=[str(one) for one in people[1:]], options=options)
    assert old.stop() == 0
    writing.join()
    expected = [f"to q-{number}" for number in range(1, each + 1)]
    wait_until(lambda: all(telegram.texts(one)[-1:] == expected[-1:] for one in people), "all", 300)
    assert telegram.texts(OWNER) == ["to q-0", *expected]
    others = {person: telegram.texts(person) for person in people[1:]}
    assert others == dict.fromkeys(people[1:], expected), "no gap, no double, no mark left behind"
    assert telegram.conflicts - conflicts <= 1  # the poll that the old one left open


def _last(request: dict[str, Any]) -> str:
    return str(re.findall(r"q-[0-9]+", str(request["messages"]))[-1])


def test_a_flood_from_a_stranger_costs_nothing_but_one_record(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    serve(allow=["8"])
    for number in range(1_000):
        telegram.say(f"spam {number}", 666, name="Spam")
    telegram.say("hello")
    telegram.wait_text(OWNER, "ok")
    people = json.loads(world.steno("gateway", "people", "--json"))
    assert [one["person"] for one in people["refused"]] == ["666"]
    assert telegram.texts(666) == []
    assert len(server.requests) == 1


def test_a_secret_is_in_no_log_and_no_error(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    telegram.refuse = lambda method, body: (
        Refused(502, "Bad Gateway") if method == "getUpdates" else None
    )
    gateway = serve()
    wait_until(lambda: _health(gateway)["state"] == "trouble", "trouble")
    assert TOKEN not in json.dumps(_health(gateway))
    telegram.refuse = lambda method, body: None
    wait_until(lambda: _health(gateway)["state"] == "receiving", "receiving")
    gateway.kill()
    assert TOKEN not in gateway.program.errors()
    for file in world.home.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()


def _health(gateway: Gateway) -> dict[str, object]:
    [one] = gateway.ask("GET", "/api/channels").json()["channels"]
    return dict(one)


def test_a_chat_whose_session_was_deleted_goes_on_in_another(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    gateway = serve()
    telegram.say("first")
    telegram.wait_text(OWNER, "ok")
    wait_until(lambda: _states(world) == ["delivered"], "the receipt")
    first = world.only_session()
    assert gateway.ask("DELETE", f"/api/sessions/{first}").status == 200
    telegram.say("second")
    wait_until(lambda: telegram.texts(OWNER) == ["ok", "ok"], "the answer")
    assert world.only_session() != first
