"""steno acp, before the client of the protocol's own package: a real process, real kills."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from acp import schema as s
from acp import text_block
from acp.exceptions import RequestError
from jsonschema_rs import validator_for

from tests.clients.editor import Editor, editing
from tests.clients.process import Home

SHELL = {"name": "shell", "arguments": {"command": "echo 42"}}
LONG = "".join(f"{n:>5}" for n in range(400))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def begin(editor: Editor, home: Home) -> str:
    return (await editor.agent.new_session(cwd=str(home.work))).session_id


async def say(editor: Editor, session: str, text: str) -> str:
    answer = await editor.agent.prompt(session_id=session, prompt=[text_block(text)])
    return answer.stop_reason


@pytest.mark.promise(9)
def test_an_editor_begins_prompts_allows_lists_forks_and_chooses(home: Home) -> None:
    home.script(
        {"reasoning": "Hm.", "text": "I look.", "tool_calls": [SHELL], "pieces": 2},
        {"text": "It says 42."},
        {"text": "Again.", "then": "length"},
    )

    async def run() -> str:
        async with editing(home, "always") as editor:
            session = await begin(editor, home)
            assert await say(editor, session, "look") == "end_turn"
            assert editor.text() == "I look.It says 42."
            assert editor.text("agent_thought_chunk") == "Hm."
            assert editor.text("user_message_chunk") == ""
            [states] = editor.calls().values()
            assert (states[0], states[-1]) == ("pending", "completed")
            assert len(editor.asked) == 1

            listed = await editor.agent.list_sessions(cwd=str(home.work))
            assert [one.session_id for one in listed.sessions] == [session]
            forked = await editor.agent.fork_session(session_id=session, cwd=str(home.work))
            assert forked.session_id != session
            await editor.agent.set_session_mode(session_id=session, mode_id="plan")
            chosen = await editor.agent.set_config_option(
                config_id="model", session_id=session, value="scripted:echo"
            )
            assert chosen is not None
            values = {one.id: one.current_value for one in chosen.config_options}
            assert values == {"mode": "plan", "model": "scripted:echo"}
            with pytest.raises(RequestError):
                await editor.agent.set_session_mode(session_id=session, mode_id="nope")
            assert await say(editor, forked.session_id, "more") == "max_tokens"
            check_wire(editor)
            return session

    session = asyncio.run(run())
    said = [one["text"] for one in home.show(session)["messages"] if one["role"] == "assistant"]
    assert said == ["I look.", "It says 42."]


@pytest.mark.promise(2)
@pytest.mark.promise(5)
def test_after_a_kill_in_mid_stream_a_load_shows_every_character_again(home: Home) -> None:
    home.script({"text": LONG, "pieces": 7, "delay_s": 0.002, "then": "hang"}, {"text": "Next."})

    async def killed() -> tuple[str, str]:
        async with editing(home) as editor:
            session = await begin(editor, home)
            prompting = asyncio.create_task(say(editor, session, "count"))
            await editor.until(lambda one: len(one.text()) > len(LONG) // 3)
            editor.kill()
            await editor.process.wait()
            with pytest.raises((RequestError, ConnectionError)):
                await prompting
            return session, editor.text()

    async def loaded(session: str, shown: str) -> None:
        async with editing(home) as editor:
            await editor.agent.load_session(session_id=session, cwd=str(home.work))
            assert editor.text("user_message_chunk") == "count"
            assert editor.text().startswith(shown)
            assert LONG.startswith(editor.text())
            before = editor.text()
            assert await say(editor, session, "and now") == "end_turn"
            assert editor.text() == before + "Next."
            check_wire(editor)

    session, shown = asyncio.run(killed())
    assert shown
    asyncio.run(loaded(session, shown))


@pytest.mark.promise(34)
def test_a_permission_asked_before_a_kill_is_asked_after_it(home: Home) -> None:
    home.script({"text": "I look.", "tool_calls": [SHELL]}, {"text": "It says 42."})

    async def killed() -> tuple[str, Any]:
        async with editing(home) as editor:
            session = await begin(editor, home)
            prompting = asyncio.create_task(say(editor, session, "look"))
            await editor.until(lambda one: bool(one.asked))
            editor.kill()
            await editor.process.wait()
            with pytest.raises((RequestError, ConnectionError)):
                await prompting
            return session, editor.asked[0]

    async def loaded(session: str, before: Any) -> None:
        async with editing(home, "allow") as editor:
            await editor.agent.load_session(session_id=session, cwd=str(home.work))
            await editor.until(lambda one: one.text().endswith("It says 42."))
            assert [one.tool_call_id for one in editor.asked] == [before.tool_call_id]
            check_wire(editor)

    asyncio.run(loaded(*asyncio.run(killed())))


@pytest.mark.promise(23)
def test_cancel_stops_the_turn_and_resume_shows_nothing_again(home: Home) -> None:
    home.script(
        {"text": "Half of it", "pieces": 3, "then": "hang"}, {"text": "Next."}, {"text": "Last."}
    )

    async def run() -> None:
        async with editing(home) as editor, editing(home) as second:
            session = await begin(editor, home)
            prompting = asyncio.create_task(say(editor, session, "go"))
            await editor.until(lambda one: one.text() == "Half of it")
            await second.agent.load_session(session_id=session, cwd=str(home.work))
            assert second.text() == "Half of it"
            await editor.agent.cancel(session_id=session)
            assert await prompting == "cancelled"
            await editor.agent.cancel(session_id=session)
            assert await say(editor, session, "on") == "end_turn"
            assert editor.text() == "Half of itNext."
            await second.until(lambda one: one.text() == "Half of itNext.")
            await second.agent.close_session(session_id=session)
            await second.agent.resume_session(session_id=session, cwd=str(home.work))
            assert second.text() == "Half of itNext.", "what a client has is not shown again"
            assert await say(second, session, "more") == "end_turn"
            assert second.text() == "Half of itNext.Last."
            check_wire(second)

    asyncio.run(run())


@pytest.mark.promise(17)
@pytest.mark.promise(47)
@pytest.mark.promise(75)
def test_what_two_editors_say_at_once_is_answered_one_after_the_other(home: Home) -> None:
    async def run() -> str:
        async with editing(home) as one, editing(home) as two:
            session = await begin(one, home)
            assert await say(one, session, "first") == "end_turn"
            await two.agent.load_session(session_id=session, cwd=str(home.work))
            with pytest.raises((RequestError, ValueError)):
                await one.agent.prompt(session_id=session, prompt=[])
            texts = {one: "left", two: "\ud800 right"}
            prompting = [say(editor, session, text) for editor, text in texts.items()]
            assert await asyncio.gather(*prompting) == ["end_turn", "end_turn"]
            check_wire(one)
            return session

    session = asyncio.run(run())
    said = [message["text"] for message in home.show(session)["messages"]]
    assert said[::2] == said[1::2], "each has its own answer, before the next is asked"
    assert sorted(said[2::2]) in (["left", "\ud800 right"], ["left", "\ufffd right"])


@pytest.mark.promise(19)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.promise(50)
def test_a_call_that_a_kill_cut_off_is_not_made_again_and_damage_is_told(home: Home) -> None:
    ran = home.work / "ran"
    waits = {"name": "shell", "arguments": {"command": f"echo x >> {ran}; sleep 600"}}
    home.script({"text": "I run.", "tool_calls": [waits]}, {"text": "Unknown."})

    async def killed() -> str:
        async with editing(home, "allow") as editor:
            session = await begin(editor, home)
            prompting = asyncio.create_task(say(editor, session, "run it"))
            while not ran.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
            editor.kill()
            await editor.process.wait()
            with pytest.raises((RequestError, ConnectionError)):
                await prompting
            return session

    async def loaded(session: str) -> None:
        async with editing(home) as editor:
            await editor.agent.load_session(session_id=session, cwd=str(home.work))
            [states] = editor.calls().values()
            assert states[-1] == "failed"
            assert await say(editor, session, "and now") == "end_turn"
            assert editor.text().endswith("Unknown.")

    async def refused(session: str) -> None:
        async with editing(home) as editor:
            with pytest.raises(RequestError):
                await editor.agent.load_session(session_id=session, cwd=str(home.work))

    session = asyncio.run(killed())
    asyncio.run(loaded(session))
    assert ran.read_text() == "x\n"
    home.damage(b"run it")
    asyncio.run(refused(session))


def check_wire(editor: Editor) -> None:
    """Every message that went out of the agent is what the published schema says."""
    asked: dict[Any, str] = {}
    for direction, message in editor.wire:
        if direction == "outgoing" and "method" in message:
            asked[message.get("id")] = message["method"]
            continue
        if direction == "outgoing":
            continue
        if "method" in message:
            validator(_FROM_AGENT[message["method"]]).validate(message["params"])
        elif "error" not in message:
            validator(_ANSWERS[asked[message["id"]]]).validate(message["result"])


@cache
def validator(shape: Any) -> Any:
    """The package's models forgive; the schema that they were made from does not."""
    return validator_for(shape.model_json_schema(by_alias=True))


_FROM_AGENT: dict[str, Any] = {
    "session/update": s.SessionNotification,
    "session/request_permission": s.RequestPermissionRequest,
}
_ANSWERS: dict[str, Any] = {
    "initialize": s.InitializeResponse,
    "session/new": s.NewSessionResponse,
    "session/load": s.LoadSessionResponse,
    "session/resume": s.ResumeSessionResponse,
    "session/close": s.CloseSessionResponse,
    "session/prompt": s.PromptResponse,
    "session/list": s.ListSessionsResponse,
    "session/fork": s.ForkSessionResponse,
    "session/set_mode": s.SetSessionModeResponse,
    "session/set_config_option": s.SetSessionConfigOptionResponse,
}
