"""Our own loop in other people's programs: `steno.Agent` and `steno.AsyncAgent`."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

import steno
from steno.programs.functions import FunctionTool, schema_of
from steno.service.views import Approval
from steno.session.errors import Refusal
from steno.store.errors import JournalCorrupt, KeyReused
from tests.models.rules import check


class Point(msgspec.Struct):
    x: int


class PydanticPoint(pydantic.BaseModel):
    x: int


def script(folder: Path, *replies: dict[str, Any]) -> str:
    file = folder / "script.json"
    file.write_text(json.dumps(replies))
    return f"scripted:{file}"


def calls(name: str, **arguments: object) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def test_three_lines_are_a_durable_agent(path: Path) -> None:
    with steno.Agent(path, model="scripted:echo") as agent:
        assert agent.run("alice", "Hello").text == "Hello"
    with steno.open(path) as chats:
        said = [(one.role, one.state, one.text) for one in chats.session("alice").messages()]
    assert said == [("user", "complete", "Hello"), ("assistant", "complete", "Hello")]


@pytest.mark.promise(5)
@pytest.mark.promise(9)
def test_pieces_come_as_they_are_stored_and_are_the_answer(path: Path) -> None:
    with steno.Agent(path, model="scripted:pieces?n=50&size=4") as agent:
        turn, shown = agent.stream("alice", "Count"), ""
        with steno.open(path) as elsewhere:
            for piece in turn:
                shown += piece
                if len(shown) < 20:
                    stored = elsewhere.session("alice").messages()[-1].text
                    assert stored.startswith(shown)
        assert turn.answer().text == shown
        assert turn.answer().outcome == "done"


@pytest.mark.promise(16)
def test_the_same_key_is_answered_once(path: Path) -> None:
    with steno.Agent(path, model="scripted:echo") as agent:
        first = agent.run("alice", "Hello", key="1")
        again = agent.stream("alice", "Hello", key="1")
        assert list(again) == ["Hello"]
        assert again.answer().turn == first.turn
        with pytest.raises(KeyReused):
            agent.run("alice", "Other words", key="1")
        assert len(agent.messages("alice")) == 2


def test_in_memory_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with steno.Agent(":memory:", model="scripted:echo") as agent:
        assert agent.run("alice", "Hello").text == "Hello"
    assert list(tmp_path.iterdir()) == []


# --- functions as tools ---------------------------------------------------------------------------


def test_types_and_docstring_become_the_schema() -> None:
    @steno.tool(repeat="safe")
    def look(where: Point, names: list[str], near: PydanticPoint | None = None) -> None:
        """Look at
        a place.

        where: the place
        """

    assert isinstance(look, FunctionTool)
    schema = json.loads(look.spec.schema)
    assert (look.spec.name, look.spec.description) == ("look", "Look at a place.")
    assert look.spec.repeat == "safe"
    assert schema["required"] == ["where", "names"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["names"] == {"type": "array", "items": {"type": "string"}}
    assert "the place" in json.dumps(schema["properties"]["where"])
    assert json.loads(schema_of(PydanticPoint))["properties"]["x"]["type"] == "integer"


@pytest.mark.parametrize("wrong", ["untyped", "star"])
def test_a_function_that_cannot_be_a_tool_is_refused_by_name(wrong: str) -> None:
    def untyped(city) -> str:  # type: ignore[no-untyped-def]
        return str(city)

    def star(*cities: str) -> str:
        return "".join(cities)

    with pytest.raises(TypeError, match=wrong):
        steno.tool(untyped if wrong == "untyped" else star)


async def piecewise(n: int) -> AsyncIterator[str]:
    """Says so many words."""
    for i in range(n):
        yield f"word{i} "


def test_plain_asynchronous_and_generating_functions_run_and_errors_are_told(
    tmp_path: Path, path: Path
) -> None:
    ran: list[object] = []

    def plain(place: Point) -> Point:
        """Moves."""
        ran.append(threading.current_thread())
        return Point(place.x + 1)

    async def waits(seconds: float) -> str:
        """Waits."""
        await asyncio.sleep(seconds)
        return "waited"

    def breaks() -> None:
        """Breaks."""
        raise LookupError("nothing there")

    model = script(
        tmp_path,
        calls("plain", place={"x": 1}),
        calls("waits", seconds=0.0),
        calls("piecewise", n=2),
        calls("breaks"),
        calls("plain", place="wrong"),
        {"text": "Done."},
    )
    with steno.Agent(path, model=model, tools=[plain, waits, piecewise, breaks]) as agent:
        assert agent.run("alice", "Go").text == "Done."
        told = [one.text for one in agent.messages("alice") if one.role == "tool"]
    assert told[:4] == ['{"x":2}', "waited", "word0 word1 ", "LookupError: nothing there"]
    assert "cannot be used" in told[4]
    assert len(ran) == 1
    assert ran[0] is not threading.main_thread()


def test_a_stop_ends_a_turn_whose_tool_runs(tmp_path: Path, path: Path) -> None:
    began = threading.Event()

    async def sleeps() -> None:
        """Sleeps."""
        began.set()
        await asyncio.sleep(600)

    with steno.Agent(path, model=script(tmp_path, calls("sleeps")), tools=[sleeps]) as agent:
        turn = agent.stream("alice", "Go")
        stopper = threading.Thread(
            target=lambda: (began.wait(60), agent.interrupt("alice")), daemon=True
        )
        stopper.start()
        assert turn.answer().outcome == "interrupted"
        stopper.join()
        assert agent.interrupt("alice") is False


def test_plugins_bring_tools(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "ops.py").write_text(OPS)
    (home / "plugins" / "mute.py").write_text("")
    monkeypatch.setenv("STENO_HOME", str(home))
    model = script(tmp_path, calls("deploy", version="7"), {"text": "Done."})
    with steno.Agent(path, model, approve="allow", plugins=["ops"]) as agent:
        assert agent.run("alice", "Go").text == "Done."
        assert told(agent) == "version 7 is out"
    for names in (["none"], ["mute"]):
        with pytest.raises(ValueError, match=f"^plugins: .*'{names[0]}'"):
            steno.Agent(path, model, plugins=names)
    with pytest.raises(ValueError, match="the same name"):
        steno.Agent(path, model, plugins=["ops", "ops"])


OPS = """
import steno

@steno.tool(approval="ask")
def deploy(version: str) -> str:
    "Deploys a version."
    return f"version {version} is out"

tools = [deploy]
"""


# --- approvals ------------------------------------------------------------------------------------


@steno.tool(approval="ask")
def send(to: str) -> str:
    """Sends."""
    return f"sent to {to}"


def told(agent: steno.Agent) -> str:
    return next(one.text for one in agent.messages("alice") if one.role == "tool")


@pytest.mark.parametrize("said", [True, False, "not to bob"])
def test_a_function_decides(tmp_path: Path, path: Path, said: bool | str) -> None:
    seen: list[Approval] = []

    def decide(call: Approval) -> bool | str:
        seen.append(call)
        return said

    model = script(tmp_path, calls("send", to="bob"), {"text": "Done."})
    with steno.Agent(path, model=model, tools=[send], approve=decide) as agent:
        assert agent.run("alice", "Go").text == "Done."
        assert (told(agent) == "sent to bob") is (said is True)
        assert not isinstance(said, str) or said in told(agent)
    assert [(one.tool, json.loads(one.arguments)) for one in seen] == [("send", {"to": "bob"})]


def test_a_function_that_fails_denies(tmp_path: Path, path: Path) -> None:
    def decide(call: Approval) -> bool:
        raise OSError("no answer")

    model = script(tmp_path, calls("send", to="bob"), {"text": "Done."})
    with steno.Agent(path, model=model, tools=[send], approve=decide) as agent:
        agent.run("alice", "Go")
        assert "no answer" in told(agent)


def test_unless_told_a_call_that_needs_a_yes_is_refused(tmp_path: Path, path: Path) -> None:
    model = script(tmp_path, calls("send", to="bob"), {"text": "Done."})
    with steno.Agent(path, model=model, tools=[send]) as agent:
        assert agent.run("alice", "Go").text == "Done."
        assert "nobody to ask" in told(agent)


def test_a_turn_left_waiting_goes_on_after_the_decision(tmp_path: Path, path: Path) -> None:
    model = script(tmp_path, calls("send", to="bob"), {"text": "Done."})
    with steno.Agent(path, model=model, tools=[send], approve="leave") as agent:
        answer = agent.run("alice", "Go")
        assert answer.outcome == "waiting"
        assert [one.tool for one in answer.asked] == ["send"]
    with steno.Agent(path, model=model, tools=[send], approve="leave") as agent:
        [call] = agent.asked("alice")
        assert agent.decide(call, True)
        assert agent.resume("alice").answer().text == "Done."
        assert told(agent) == "sent to bob"


# --- answers of a type ----------------------------------------------------------------------------


@pytest.mark.parametrize("meant", [Point, PydanticPoint])
def test_an_answer_is_of_the_type_that_was_asked_for(
    tmp_path: Path, path: Path, meant: type
) -> None:
    model = script(tmp_path, {"text": "three"}, {"text": '```json\n{"x": 3}\n```'})
    with steno.Agent(path, model=model) as agent:
        answer = agent.run("alice", "Where?", output=meant)
        assert isinstance(answer.value, meant)
        assert answer.value.x == 3  # type: ignore[attr-defined]


def test_an_answer_that_is_never_of_the_type_fails_and_is_kept(tmp_path: Path, path: Path) -> None:
    model = script(tmp_path, *[{"text": "three"}] * 3)
    with steno.Agent(path, model=model) as agent:
        with pytest.raises(steno.TurnFailed) as failed:
            agent.run("alice", "Where?", output=Point)
        assert failed.value.answer.text == "three"
        assert len(agent.messages("alice")) == 6


def test_a_model_that_does_not_answer_fails_the_turn(tmp_path: Path, path: Path) -> None:
    with (
        steno.Agent(path, model=script(tmp_path, {"then": "error:refused"})) as agent,
        pytest.raises(steno.TurnFailed) as failed,
    ):
        agent.run("alice", "Go")
    assert failed.value.answer.outcome == "failed"


def test_a_budget_ends_the_turn_and_usage_is_told(tmp_path: Path, path: Path) -> None:
    asks = calls("send", to="bob") | {"usage": {"input": 10, "output": 2}}
    limits = steno.Limits(steps_max=2)
    model = script(tmp_path, *[asks] * 5)
    with steno.Agent(path, model=model, tools=[send], approve="allow", limits=limits) as agent:
        answer = agent.stream("alice", "Go")
        list(answer)
        with pytest.raises(steno.TurnFailed) as failed:
            answer.answer()
    assert (failed.value.answer.usage.input, failed.value.answer.usage.output) == (20, 4)


# --- awaited --------------------------------------------------------------------------------------


def test_many_turns_at_once_in_one_event_loop(path: Path) -> None:
    async def converse() -> list[str]:
        async with steno.AsyncAgent(path, model="scripted:echo") as agent:
            names = [f"user{i}" for i in range(10)]
            answers = await asyncio.gather(*(agent.run(name, f"I am {name}") for name in names))
            pieces = [piece async for piece in agent.stream("user0", "Once more")]
            assert "".join(pieces) == "Once more"
            session = await agent.session("user0")
            assert len(await session.messages()) == 4
            return [answer.text for answer in answers]

    assert asyncio.run(converse()) == [f"I am user{i}" for i in range(10)]


def test_there_is_nothing_to_resume_in_a_session_at_rest(path: Path) -> None:
    with steno.Agent(path, model="scripted:echo") as agent:
        agent.run("alice", "Hello")
        with pytest.raises(Refusal):
            agent.resume("alice").answer()


@pytest.mark.promise(17)
def test_many_turns_at_once_in_one_session_are_answered_one_after_the_other(path: Path) -> None:
    async def converse() -> list[str]:
        async with (
            steno.AsyncAgent(path, model="scripted:echo") as one,
            steno.AsyncAgent(path, model="scripted:echo") as two,
        ):
            texts = [f"text {n}" for n in range(6)]
            both = enumerate(texts)
            runs = [(one if n % 2 else two).run("alice", text) for n, text in both]
            assert [answer.text for answer in await asyncio.gather(*runs)] == texts
            return [message.text for message in await one.messages("alice")]

    said = asyncio.run(converse())
    assert sorted(said[::2]) == [f"text {n}" for n in range(6)]
    assert said[::2] == said[1::2]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("session", {"session": None}),
    ("session", {"session": 3}),
    ("text", {"text": None}),
    ("text", {"text": b"bytes"}),
    ("key", {"key": 1}),
    ("author", {"author": object()}),
    ("output", {"output": object()}),
]


@pytest.mark.promise(75)
@pytest.mark.parametrize(("name", "given"), WRONG, ids=[f"{name}" for name, _ in WRONG])
def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_stored(
    path: Path, name: str, given: dict[str, Any]
) -> None:
    with steno.Agent(path, model="scripted:echo") as agent:
        agent.run("alice", "Hello")
        with pytest.raises(TypeError, match=f"^{name} must be"):
            agent.run(**({"session": "alice", "text": "x"} | given))
        assert agent.run("alice", "\ud800 is kept").text == "\ud800 is kept"
        assert len(agent.messages("alice")) == 4


@pytest.mark.promise(75)
@pytest.mark.parametrize("given", [{"limits": 3}, {"system": 3}, {"model": 3}, {"settings": 3}])
def test_an_agent_on_wrong_terms_is_not_made(path: Path, given: dict[str, Any]) -> None:
    [name] = given
    with pytest.raises(TypeError, match=f"^{name} must be"):
        steno.Agent(path, **({"model": "scripted:echo"} | given))


@pytest.mark.promise(50)
def test_a_damaged_session_takes_no_input_and_asks_no_model(path: Path) -> None:
    with steno.Agent(path, model="scripted:echo") as agent:
        agent.run("alice", "a zebra crossing")
    damaged = bytearray(path.read_bytes())
    at = damaged.index(b"a zebra crossing")
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with steno.Agent(path, model="scripted:echo") as agent, pytest.raises(JournalCorrupt):
        agent.run("alice", "And now?")
    assert b"And now?" not in path.read_bytes()


# --- kills ----------------------------------------------------------------------------------------

SHOWS = """
import sys, steno
agent = steno.Agent(sys.argv[1], model=sys.argv[2])
for piece in agent.stream("alice", "Count"):
    print(piece, end="", flush=True)
"""


@pytest.mark.promise(2)
@pytest.mark.promise(5)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.parametrize("chars", [1, 40, 333])
def test_a_kill_keeps_every_character_shown_and_resume_goes_on(path: Path, chars: int) -> None:
    model = "scripted:pieces?n=2000&size=4&rate=400"
    with subprocess.Popen(
        [sys.executable, "-c", SHOWS, str(path), model], stdout=subprocess.PIPE
    ) as dying:
        assert dying.stdout is not None
        shown = dying.stdout.read(chars)
        dying.kill()
        shown += dying.stdout.read()
    with steno.open(path) as chats:
        message = chats.session("alice").messages()[-1]
        assert message.state == "interrupted"
        assert message.text.startswith(shown.decode())
    with steno.Agent(path, model="scripted:echo") as agent:
        assert agent.resume("alice").answer().outcome == "done"
        states = [one.state for one in agent.messages("alice")]
    with steno.open(path) as chats:
        chat = chats.session("alice")
        told: dict[str, Any] = {"messages": chat.history("openai-chat"), "stream": True}
        asked: dict[str, Any] = {"messages": chat.history("anthropic"), "max_tokens": 1}
    for format, body in (("openai-chat", told), ("anthropic", asked)):
        body["messages"].append({"role": "user", "content": [{"type": "text", "text": "Next."}]})
        check(format, body)
    assert states == ["complete", "interrupted", "complete"]


RUNS_ONCE = """
import os, sys, pathlib, signal, steno

@steno.tool
def count() -> str:
    "Counts."
    with open(sys.argv[3], "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

steno.Agent(sys.argv[1], model=sys.argv[2], tools=[count]).run("alice", "Go")
"""


@pytest.mark.promise(9)
@pytest.mark.promise(19)
def test_a_tool_that_was_cut_off_by_a_kill_is_not_run_again(tmp_path: Path, path: Path) -> None:
    model = script(tmp_path, calls("count"), {"text": "Unknown."})
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", RUNS_ONCE, str(path), model, str(ran)]
    assert subprocess.run(command, check=False).returncode == -9

    def count() -> str:
        """Counts."""
        ran.write_text("again")
        return ""

    with steno.Agent(path, model=model, tools=[count]) as agent:
        assert agent.resume("alice").answer().text == "Unknown."
    assert ran.read_text() == "x"
