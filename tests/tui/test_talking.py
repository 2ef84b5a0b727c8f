"""A talk in the chat: what is said, answered, run, asked, queued and stopped, as it stands on the
screen."""

import asyncio
import json
import re
from contextlib import closing

import apsw
import pytest

from steno.store.sqlite.database import checked_pages
from steno.tui import composer
from steno.tui.blocks import Call
from steno.tui.painting.block import Look, paint
from steno.tui.painting.palette import DARK
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import Person, chat_with


@pytest.mark.promise(9)
@pytest.mark.promise(46)
def test_an_answer_is_on_the_screen_and_in_the_session(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("The *sea* ", "keeps `what` it is given."))]

    async def talk(person: Person) -> None:
        await person.say("What is the sea?")
        await person.sees("▌ What is the sea?", "The sea keeps what it is given.")
        await person.rests()

    chat_with(world, talk)
    messages = world.messages(world.only_session())
    assert [(message["role"], message["text"]) for message in messages] == [
        ("user", "What is the sea?"),
        ("assistant", "The *sea* keeps `what` it is given."),
    ]


@pytest.mark.promise(3)
def test_a_store_that_is_locked_in_a_turn_is_the_cause_on_the_screen_and_all_is_kept(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_STORE_LOCK_WAIT_MS"] = "200"
    server.replies = [Reply(("shown ", "and lost"), held=True), Reply(("the rest",))]

    async def talk(person: Person) -> None:
        await person.say("hi")
        await person.sees("shown")
        store = str(world.home / "store.db")
        with closing(apsw.Connection(store, vfs=checked_pages())) as other:
            other.execute("begin immediate")
            server.go_on()
            await person.sees("what you said and what was shown is kept", "/continue goes on")
            other.execute("rollback")
        assert not person.shows("nothing was stored")
        await person.say("/continue")
        await person.sees("the rest", "another process kept the store locked for too long")
        await person.rests()

    chat_with(world, talk)
    shown = world.show(world.only_session())
    assert [turn["cause"] for turn in shown["turns"]] == ["store_locked", ""]
    assert [m["text"] for m in shown["messages"]] == ["hi", "shown ", "the rest"]


def test_markdown_is_laid_out_and_code_is_coloured(world: World, server: ModelServer) -> None:
    server.replies = [
        Reply(("# Title\n\n- one\n- two\n\n```python\ndef f():\n    return 1\n```\n",))
    ]

    async def talk(person: Person) -> None:
        await person.say("show")
        await person.sees("  Title", "• one", "python", "def f():")
        colours = {
            segment.style.color.name
            for strip in person.chat.screen._compositor.render_strips(person.chat.screen.size)
            for segment in strip
            if segment.text.strip() in ("def", "return", "1")
            and segment.style
            and segment.style.color
        }
        assert len(colours) >= 2

    chat_with(world, talk)


def test_a_tool_call_is_a_card_with_its_output_and_outcome(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("Look: ",), tools=(("shell", '{"command": "echo hello-$((6*7))"}'),)),
        Reply(("Done.",)),
    ]

    async def talk(person: Person) -> None:
        await person.say("run it")
        await person.sees("echo hello-$((6*7))", "waits for you")
        await person.allow("shell")
        await person.sees("hello-42", "Done.", "✓")
        await person.rests()

    chat_with(world, talk)


def test_of_the_long_output_of_a_call_that_failed_the_end_is_shown() -> None:
    call = Call(
        "c1.x",
        1,
        "shell",
        '{"command": "make"}',
        "failed",
        "\n".join(f"line {i}" for i in range(40)) + "\nwhy",
    )
    for opened in (False, True):
        lines = paint(call, Look(DARK, 60, opened=opened))
        assert any("why" in segment.text for line in lines for segment in line)
    assert any(
        "35 lines before" in segment.text
        for line in paint(call, Look(DARK, 60))
        for segment in line
    )


SENTENCES = [
    "you should use sed",
    "actually no, stop",
    "a different file, please",
    "no: it is the wrong folder",
]
CALL = Reply(tools=(("shell", '{"command": "touch made"}'),))


@pytest.mark.promise(37)
@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.suite("actually no, stop", "no: it is the wrong folder")
def test_a_sentence_typed_at_a_question_refuses_the_call_and_the_model_is_told_it(
    world: World, server: ModelServer, sentence: str
) -> None:
    server.replies = [CALL, Reply(("As you like.",))]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.is_asked("shell")
        await person.press(*sentence)
        await person.sees(f"> {sentence}", "Allow shell?", "Enter denies it")
        assert world.messages(person.session, "tool") == []
        await person.press("enter")
        await person.sees("not run", "As you like.")
        await person.rests()
        assert sentence not in person.status()

    chat_with(world, talk)
    id = world.only_session()
    (outcome,) = world.messages(id, "tool")
    assert sentence in outcome["text"]
    assert sentence in json.dumps(server.requests[-1]["messages"])
    assert f'"reason":{json.dumps(sentence)}' in world.steno("export", id)
    assert world.show(id)["rules"] == []
    assert len(world.messages(id, "user")) == 1
    assert not (world.work / "made").exists()


@pytest.mark.promise(37)
@pytest.mark.parametrize(
    ("keys", "made", "rules"),
    [
        (("right", "enter"), True, 0),
        (("tab", "enter"), True, 0),
        (("right", "right", "enter", "enter"), True, 1),
        (("left", "enter"), False, 0),
        (("tab", "tab", "tab", "enter"), False, 0),
        ((*"yes", "enter"), True, 0),
        (("Y", "enter"), True, 0),
        (("a", "enter"), True, 1),
        ((*"always", "enter"), True, 1),
        (("n", "enter"), False, 0),
        ((*"no", "enter"), False, 0),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, tuple) else None,
)
@pytest.mark.suite(
    "right-enter-True-0",
    "right-right-enter-enter-True-1",
    "left-enter-False-0",
    "Y-enter-True-0",
    "a-l-w-a-y-s-enter-True-1",
    "n-o-enter-False-0",
)
def test_a_question_is_answered_by_a_choice_or_a_whole_word_and_enter(
    world: World, server: ModelServer, keys: tuple[str, ...], made: bool, rules: int
) -> None:
    server.replies = [CALL, Reply(("Settled.",))]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.is_asked("shell")
        await person.press(*keys[:-1])
        await person.pilot.pause(0.1)
        assert world.messages(person.session, "tool") == []
        await person.press(keys[-1])
        await person.sees("Settled.")

    chat_with(world, talk)
    assert (world.work / "made").exists() == made
    assert len(world.show(world.only_session())["rules"]) == rules


def test_a_single_key_or_enter_alone_answers_nothing(world: World, server: ModelServer) -> None:
    server.replies = [CALL, Reply(("never",))]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.is_asked("shell")
        await person.press("enter", "enter", "y", "backspace", "a", "backspace", "n", "backspace")
        await person.press("enter", "space", "enter")
        await person.pilot.pause(0.2)
        assert person.shows("Allow shell?")
        assert world.messages(person.session, "tool") == []

    chat_with(world, talk)
    assert not (world.work / "made").exists()
    assert len(server.requests) == 1


def test_keys_typed_as_the_question_came_up_do_not_answer_it(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composer, "GUARD_S", 60.0)  # no machine is so slow that a key comes late
    server.replies = [CALL, Reply(("ok",))]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.sees("Allow shell?")
        await person.press("right", "enter", "y", "enter")
        await person.sees("queued  y", "Allow shell?")

    chat_with(world, talk)
    assert not (world.work / "made").exists()


def test_a_message_begun_before_the_question_is_queued_and_the_question_stays_open(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("so ",), tools=(("shell", '{"command": "touch made"}'),), held=True),
        Reply(("ok",)),
    ]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.press(*"yes, and")
        server.go_on()
        await person.is_asked("shell")
        await person.press(*" more")
        await person.sees("> yes, and more", "Enter queues your message")
        await person.press("enter")
        await person.sees("queued  yes, and more", "Allow shell?")

    chat_with(world, talk)
    assert not (world.work / "made").exists()


def test_a_refusal_typed_for_a_call_that_is_decided_elsewhere_stays_in_the_input(
    world: World, server: ModelServer
) -> None:
    server.replies = [CALL, Reply(("ok",), then="hang")]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.is_asked("shell")
        await person.press(*"rather not")
        await asyncio.to_thread(world.steno, "approve", person.session)
        await person.sees_no_more("Allow shell?")
        await person.sees("> rather not")
        assert len(world.messages(person.session, "user")) == 1
        await person.until(lambda: (world.work / "made").exists(), "the call to run")

    chat_with(world, talk)


def test_while_a_question_is_open_the_scroll_keys_scroll_and_commands_work(
    world: World, server: ModelServer
) -> None:
    lines = "\n\n".join(f"paragraph {i}" for i in range(60))
    server.replies = [Reply((lines,), tools=(("shell", '{"command": "touch made"}'),))]

    async def talk(person: Person) -> None:
        await person.say("make it")
        await person.is_asked("shell")
        await person.press("pageup", "pageup")
        await person.sees("paragraph 40", "Allow shell?")
        await person.press("pagedown", "pagedown")
        await person.sees("waits for you")
        await person.press("tab", "tab", "tab", "tab", "home")
        await person.sees("make it", "paragraph 1", "Allow shell?")
        await person.press("escape", "f1")
        await person.sees("Keys and commands")
        await person.press("escape")
        await person.say("/stop")
        await person.sees("stopped by you")

    chat_with(world, talk)
    assert not (world.work / "made").exists()


def test_always_allows_later_calls_of_the_session_too(world: World, server: ModelServer) -> None:
    call = Reply(tools=(("shell", '{"command": "echo again"}'),))
    server.replies = [call, call, Reply(("Both ran.",))]

    async def talk(person: Person) -> None:
        await person.say("twice")
        await person.is_asked("shell")
        await person.sees("Always in this session")
        await person.press("right", "right", "enter")
        await person.sees("This call: ")
        await person.press("enter")
        await person.sees("Both ran.")

    chat_with(world, talk)
    states = [message["state"] for message in world.messages(world.only_session(), "tool")]
    assert states == ["complete", "complete"]


@pytest.mark.promise(12)
def test_ctrl_c_stops_the_turn_and_keeps_what_was_shown(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("It goes ", "on and on"), then="hang"), Reply(("ok",))]

    async def talk(person: Person) -> None:
        await person.say("tell me")
        await person.sees("It goes on and on")
        await person.press("ctrl+c")
        await person.sees("stopped by you", "Ctrl-C again leaves")
        await person.rests()
        await person.say("and now?")
        await person.sees("  ok")

    chat_with(world, talk)
    told = json.dumps(server.requests[-1]["messages"])
    assert "It goes on and on" in told
    assert "stopped" in told


@pytest.mark.promise(22)
def test_what_is_said_during_a_turn_is_queued_and_can_be_taken_back(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first",), then="hang"), Reply(("second",))]

    async def talk(person: Person) -> None:
        await person.say("one")
        await person.sees("first")
        await person.say("two")
        await person.say("three")
        await person.sees("queued  two", "queued  three", "takes it back")
        assert len(world.messages(person.session, "user")) == 3
        await person.press("up")
        await person.sees_no_more("queued  three")
        await person.sees("> three")
        await person.press("ctrl+c")
        await person.sees("second")
        await person.rests()

    chat_with(world, talk)
    said = [
        (message["text"], message["state"])
        for message in world.messages(world.only_session(), "user")
    ]
    assert sorted(said) == [("one", "complete"), ("three", "withdrawn"), ("two", "complete")]
    assert len(server.requests) == 2
    assert "three" not in json.dumps(server.requests)


def test_ctrl_s_steers_the_running_turn(world: World, server: ModelServer) -> None:
    waits = "until test -e steered; do sleep 0.05; done"
    server.replies = [Reply(tools=(("shell", json.dumps({"command": waits})),)), Reply(("turned",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.allow("shell")
        await person.sees("running shell")
        await person.type("to the left")
        await person.press("ctrl+s")
        await person.sees("» steers  to the left")
        await person.until(
            lambda: len(world.messages(person.session, "user")) == 2, "the second input"
        )
        (world.work / "steered").touch()
        await person.sees("turned", "▌ to the left")
        await person.rests()

    chat_with(world, talk)
    assert len(world.show(world.only_session())["turns"]) == 1
    assert "to the left" in json.dumps(server.requests[-1]["messages"])


def test_a_failed_turn_says_why_and_retry_runs_it_again(world: World, server: ModelServer) -> None:
    server.replies = [Reply(status=400), Reply(("Now it works.",))]

    async def talk(person: Person) -> None:
        await person.say("try")
        await person.sees("failed: the provider refused the request", "/retry")
        await person.say("/retry")
        await person.sees("Now it works.")

    chat_with(world, talk)


@pytest.mark.promise(46)
def test_how_a_turn_ended_stays_under_its_prompt_when_that_is_run_again(
    world: World, server: ModelServer
) -> None:
    stopped = Reply(("half of it", " all"), held=True)
    server.replies = [Reply(status=400), stopped, Reply(("Now it works.",))]

    async def talk(person: Person) -> None:
        await person.say("try")
        await person.sees("failed: the provider refused the request")
        await person.say("/retry")
        await person.sees("half of it")
        await person.press("ctrl+c")
        await person.sees("stopped by you")
        await person.say("/retry")
        await person.sees("Now it works.")
        shown = person.screen()
        ends = [
            "▌ try",
            "failed: the provider refused",
            "half of it",
            "stopped by you",
            "Now it works.",
        ]
        assert sorted(ends, key=shown.index) == ends

    chat_with(world, talk)


def test_the_status_names_the_fallback_while_it_answers_and_then_the_sessions_own_model(
    world: World, server: ModelServer
) -> None:
    world.environment |= {
        "STENO_MODEL_FALLBACK": "openai-chat:other",
        "STENO_LIMITS_ATTEMPTS_MAX": "1",
    }
    held = Reply(("From ", "the other."), held=True)
    server.choose = lambda request: held if request["model"] == "other" else Reply(status=503)

    async def talk(person: Person) -> None:
        await person.say("hello")
        await person.sees("From")
        await person.until(
            lambda: "openai-chat:other" in person.status(), "the fallback in the status"
        )
        server.go_on()
        await person.rests()
        await person.until(
            lambda: "openai-chat:test" in person.status(), "the model of the session"
        )

    chat_with(world, talk)


def test_reasoning_is_folded_and_unfolds(world: World, server: ModelServer) -> None:
    world.environment["STENO_MODEL"] = f"scripted:{world.work / 'thinking.json'}"
    script = [{"reasoning": "First the sea.\nThen the shore.", "text": "The tide."}]
    (world.work / "thinking.json").write_text(json.dumps(script))

    async def talk(person: Person) -> None:
        await person.say("why?")
        await person.sees("▸ thought (2 lines)", "The tide.")
        assert "Then the shore" not in person.screen()
        await person.press("tab")
        await person.press("enter")
        await person.sees("▾ thought (2 lines)", "Then the shore")

    chat_with(world, talk)


def test_several_lines_are_typed_and_pasted_and_sent_as_they_are(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.type("one")
        await person.press("ctrl+j")
        await person.type("two\n  three")
        await person.press("enter")
        await person.sees("▌ one", "▌ two", "▌   three")
        await person.rests()

    chat_with(world, talk)
    assert world.messages(world.only_session(), "user")[0]["text"] == "one\ntwo\n  three"


def test_text_that_acts_on_terminals_is_shown_and_does_not_act(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("red \x1b[31m and \x1b]52;c;aGk=\x07 bell \x00 end",))]

    async def talk(person: Person) -> None:
        await person.say("what?")
        await person.sees("␛[31m", "end")
        assert "\x1b" not in person.screen()

    chat_with(world, talk)
    assert "\x1b[31m" in world.messages(world.only_session(), "assistant")[0]["text"]


def test_what_nobody_foresaw_is_said_too(world: World, server: ModelServer) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a part is broken")

    async def talk(person: Person) -> None:
        person.chat.service.turns.run_pending = broken  # type: ignore[method-assign, assignment]
        await person.say("go")
        await person.sees("a part is broken", "what was stored is kept")

    chat_with(world, talk)
    assert [message["state"] for message in world.messages(world.only_session())] == ["pending"]


def test_the_status_line_says_when_a_lost_request_is_tried_again(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=429, retry_after="60")]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.until(
            lambda: (
                re.search(r"retrying in (60|59) s, attempt 2 of 4", person.status()) is not None
            ),
            "when it is tried again",
        )
        lost, since_s = person.chat._lost
        person.chat._lost = (lost, since_s - 30)
        await person.until(
            lambda: re.search(r"retrying in (30|2\d) s", person.status()) is not None, "the count"
        )
        await person.press("escape")
        await person.sees("stopped")

    chat_with(world, talk)
