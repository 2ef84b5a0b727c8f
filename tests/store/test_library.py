"""steno in other people's programs: the same claims for the blocking and the asynchronous face."""

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steno
from steno.journal.facts import (
    InputWithdrawn,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import File, Returned, Text, ToolCall
from steno.journal.transcript import Turn
from steno.store.errors import (
    JournalCorrupt,
    LeaseLost,
    NotAllowed,
    NotPending,
    SessionBusy,
    StoreLocked,
    UnknownSession,
)
from steno.store.facade import BlockingStore
from steno.store.protocol import Listed
from steno.store.sqlite.database import checked_pages


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """A job in the background of a shell is born deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


class Faced(Protocol):
    """What a test uses of a library, whichever face it has."""

    @property
    def store(self) -> BlockingStore: ...

    def __enter__(self) -> "Faced": ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def session(self, name: str) -> steno.Session: ...
    def open(self, id: str) -> steno.Session: ...
    def sessions(self) -> Iterable[Listed]: ...


class Looped:
    """An asynchronous library, session or reply, each verb awaited by an event loop."""

    def __init__(self, face: object, loop: asyncio.Runner) -> None:
        self._face = face
        self._loop = loop

    @property
    def store(self) -> BlockingStore:
        assert isinstance(self._face, steno.AsyncLibrary)
        return self._face.store.blocking

    def __getattr__(self, name: str) -> object:
        found = getattr(self._face, name)
        return self._verb(found) if callable(found) else found

    def _verb(self, verb: Callable[..., object]) -> Callable[..., object]:
        def awaited(*arguments: object, **named: object) -> object:
            came = verb(*arguments, **named)
            if isinstance(came, AsyncIterator):
                came = self._all(came)
            if isinstance(came, Coroutine):
                came = self._loop.run(came)
            return (
                Looped(came, self._loop)
                if isinstance(came, steno.AsyncSession | steno.AsyncReply)
                else came
            )

        return awaited

    async def _all(self, found: AsyncIterator[object]) -> list[object]:
        return [one async for one in found]

    def __enter__(self) -> "Looped":
        self._loop.run(self._face.__aenter__())  # type: ignore[attr-defined]
        return self

    def __exit__(self, *left: object) -> None:
        self._loop.run(self._face.__aexit__(*left))  # type: ignore[attr-defined]
        if isinstance(self._face, steno.AsyncLibrary):
            self._loop.close()


class Open(Protocol):
    def __call__(self, path: Path, settings: steno.Settings | None = None) -> Faced: ...


def _looped(path: Path, settings: steno.Settings | None = None) -> Faced:
    return cast(Faced, Looped(steno.aopen(path, settings), asyncio.Runner()))


FACES: dict[str, Open] = {"blocking": steno.open, "async": _looped}


@pytest.fixture(params=FACES)
def opened(request: pytest.FixtureRequest) -> Open:
    return FACES[request.param]


def answer_until(chat: steno.Session, end: Callable[[], object]) -> None:
    """A reply that has begun when something happens."""
    with chat.reply("model") as reply:
        reply.write("so far")
        end()


def hang_up() -> None:
    raise ConnectionError("the provider hung up")


def test_the_example_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.search(r"(?:^    .*\n|^\n)+", steno.__doc__ or "", re.MULTILINE)
    assert example is not None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(re.sub(r"^    ", "", example[0], flags=re.MULTILINE), {})
    assert printed.getvalue() == "Something that remembers." * 2 + "\n"
    assert example[0].count("\n") <= 12


def test_the_example_of_many_requests_gives_each_its_own_answer() -> None:
    example = Path(__file__).parents[2] / "examples" / "many_requests.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    expected = [f"question {n}: answer to question {n}" for n in range(5)]
    assert done.stdout.splitlines() == [*expected, *expected]


def test_a_conversation_is_there_when_it_is_opened_again(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("What is a journal?", author="Alice")
        with chat.reply("model") as reply:
            assert [reply.write(piece) for piece in ("It ", "", "remembers.")] == [
                "It ",
                "",
                "remembers.",
            ]
            assert reply.text == "It remembers."
        chat.rename("Journals")
    with opened(path) as chats:
        again = chats.session("alice")
        assert again.id == chat.id == chats.open(chat.id).id
        assert [(m.role, m.text, m.state) for m in again.messages()] == [
            ("user", "What is a journal?", "complete"),
            ("assistant", "It remembers.", "complete"),
        ]
        assert [(entry.id, entry.row.title, entry.row.messages) for entry in chats.sessions()] == [
            (chat.id, "Journals", 2)
        ]
        assert chats.store.verify().damage == ()


def test_each_name_has_one_session_and_each_session_one_entry(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        made = [chats.session(f"user {i}").id for i in range(120)]
        assert [chats.session(f"user {i}").id for i in range(120)] == made
        assert [entry.id for entry in chats.sessions()] == made[::-1]
        with pytest.raises(UnknownSession):
            chats.open("nobody")


@pytest.mark.promise(16)
def test_the_same_key_is_accepted_once(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        first = chat.say("hello", key="1")
        assert chat.say("hello", key="1").seq == first.seq
        assert len(chat.messages()) == 1
        assert chats.session("bob").say("hello", key="1").first


@pytest.mark.promise(5)
def test_a_piece_is_stored_before_it_may_be_shown(path: Path, opened: Open) -> None:
    with opened(path) as chats, opened(path) as elsewhere:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            for piece in ("one ", "two"):
                reply.write(piece)
                shown = elsewhere.open(chat.id).messages()[-1]
                assert (shown.text, shown.state) == (reply.text, "streaming")


@pytest.mark.promise(6, 12)
def test_ctrl_c_seals_a_reply_as_interrupted(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(KeyboardInterrupt):
            answer_until(chat, lambda: signal.raise_signal(signal.SIGINT))
        answer = chat.messages()[-1]
        assert (answer.text, answer.state) == ("so far", "interrupted")
        assert chat.transcript().turns == [Turn(answer.turn or 0, "interrupted", "user")]
        assert chats.store.drafts(chat.id) == []


@pytest.mark.promise(6, 24)
def test_an_exception_ends_a_reply_as_failed(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(ConnectionError):
            answer_until(chat, hang_up)
        turn = chat.transcript().turns[-1]
        assert (turn.outcome, turn.cause, turn.detail) == (
            "failed",
            "ConnectionError",
            "the provider hung up",
        )
        assert [(m.text, m.state) for m in chat.messages()] == [
            ("hello", "failed"),
            ("so far", "incomplete"),
        ]


def test_a_reply_that_failed_before_its_first_word_is_lost(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(ConnectionError), chat.reply("model"):
            raise ConnectionError
        facts = [record.fact for record in chats.store.read_all(chat.id)]
        assert isinstance(facts[-2], StepLost)
        assert isinstance(facts[-1], TurnEnded)


def test_after_any_end_the_next_reply_goes_on(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        for end in (str, hang_up, lambda: signal.raise_signal(signal.SIGINT), sys.exit):
            chat.say("hello")
            with suppress(ConnectionError, KeyboardInterrupt, SystemExit):
                answer_until(chat, end)
        outcomes = [turn.outcome for turn in chat.transcript().turns]
        assert outcomes == ["done", "failed", "interrupted", "interrupted"]
        assert chats.store.verify().damage == ()


CRASHES = """
import os, signal, sys, steno
chat = steno.open(sys.argv[1]).session("alice")
chat.say("hello")
reply = chat.reply("model").__enter__()
reply.write("so far")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.promise(34)
def test_a_crash_in_a_reply_is_shown_at_once_and_recovered_by_the_next_reply(
    path: Path, opened: Open
) -> None:
    crashed = subprocess.run([sys.executable, "-c", CRASHES, str(path)], check=False)
    assert crashed.returncode == -signal.SIGKILL
    with opened(path) as chats:
        chat = chats.session("alice")
        seen = [(m.text, m.state) for m in chat.messages()]
        assert seen == [("hello", "complete"), ("so far", "interrupted")]
        chat.say("go on")
        with chat.reply("model") as reply:
            reply.write("gladly")
        assert [(m.text, m.state) for m in chat.messages()] == [
            *seen,
            ("go on", "complete"),
            ("gladly", "complete"),
        ]
        turns = [(turn.outcome, turn.cause) for turn in chat.transcript().turns]
        assert turns == [("interrupted", "killed"), ("done", "")]
        assert (
            sum(isinstance(record.fact, TurnEnded) for record in chats.store.read_all(chat.id)) == 2
        )


def test_inputs_are_answered_oldest_first(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        for text in ("one", "two"):
            chat.say(text)
        for text in ("answer one", "answer two"):
            with chat.reply("model") as reply:
                chat.say("and " + text)
                reply.write(text)
        taken = {m.text: m.turn for m in chat.messages()}
        assert taken["one"] == taken["answer one"]
        assert taken["two"] == taken["answer two"]
        assert [m.text for m in chat.messages() if m.state == "pending"] == [
            "and answer one",
            "and answer two",
        ]


def pairs(chat: steno.Session) -> list[tuple[str, str]]:
    """Each answer with the input of its turn."""
    said = {m.turn: m.text for m in chat.messages() if m.role == "user"}
    return [(said[m.turn], m.text) for m in chat.messages() if m.role == "assistant"]


def test_a_reply_answers_the_input_that_it_is_given(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        one, two, three = (chat.say(text) for text in ("one", "two", "three"))
        answered = []
        for to in (two, three.seq, None):
            with chat.reply("model", to=to) as reply:
                reply.write(f"answer to {reply.input.text}")
                answered.append(reply.input.seq)
        assert answered == [two.seq, three.seq, one.seq]
        assert pairs(chat) == [(text, f"answer to {text}") for text in ("two", "three", "one")]
        assert chats.store.verify().damage == ()


@pytest.mark.promise(16)
def test_an_input_that_waits_no_longer_is_refused_with_what_became_of_it(
    path: Path, opened: Open
) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        answered, failed, withdrawn, other = (chat.say(text) for text in ("a", "b", "c", "d"))
        with chat.reply("model", to=answered) as reply:
            reply.write("yes")
        with suppress(ConnectionError), chat.reply("model", to=failed):
            hang_up()
        chats.store.add(chat.id, [InputWithdrawn(withdrawn.seq)])
        before = chats.store.read(chat.id)
        for to, why in (
            (answered, "was answered in turn 6"),
            (failed, "was taken and failed in turn"),
            (withdrawn, "was withdrawn"),
        ):
            with pytest.raises(NotPending, match=f"input {to.seq} .*{why}"):
                chat.reply("model", to=to).__enter__()
        with pytest.raises(NotAllowed, match="has no input 1"):
            chat.reply("model", to=1).__enter__()
        with pytest.raises(ValueError, match="to is an input of session"):
            chat.reply("model", to=chats.session("bob").say("hello"))
        assert chats.store.read(chat.id) == before
        assert chats.store.running(chat.id) is None
        with chat.reply("model", to=other) as reply:
            reply.write("still goes")


def test_an_input_that_is_being_answered_is_not_answered_again(path: Path, opened: Open) -> None:
    with opened(path) as chats, opened(path) as elsewhere:
        chat = chats.session("alice")
        said = chat.say("hello")
        with chat.reply("model", to=said) as reply:
            reply.write("so")
            with pytest.raises(SessionBusy):
                elsewhere.open(chat.id).reply("model", to=said, wait=0.05).__enter__()
        with pytest.raises(NotPending, match="was answered"):
            elsewhere.open(chat.id).reply("model", to=said, wait=5).__enter__()


@pytest.mark.promise(17)
def test_of_many_requests_at_once_each_has_its_own_answer_in_order(
    path: Path, opened: Open
) -> None:
    """Each is a thread, as in a web server: the first to reply is not the first that spoke."""

    def request(n: int) -> None:
        with opened(path) as chats:
            chat = chats.session("alice")
            said = chat.say(f"question {n}")
            time.sleep(0.01 * (n % 3))
            with chat.reply("model", to=said, wait=30) as reply:
                assert reply.input.seq == said.seq
                for piece in ("answer ", str(n)):
                    reply.write(piece)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(request, range(12)))
    with opened(path) as chats:
        chat = chats.session("alice")
        found = pairs(chat)
        assert all(answer == question.replace("question", "answer") for question, answer in found)
        questions = [m.text for m in sorted(chat.messages(), key=lambda m: m.seq)]
        assert [question for question, _ in found] == [
            text for text in questions if text.startswith("question")
        ]
        assert chats.store.verify().damage == ()


@pytest.mark.promise(17)
def test_threads_that_share_a_library_keep_their_pairs_in_every_session(path: Path) -> None:
    """More sessions than the library keeps in memory."""
    with steno.open(path, steno.Settings(durability="process")) as chats:

        def request(n: int) -> None:
            chat = chats.session(f"user {n % 6}")
            said = chat.say(f"question {n}")
            with chat.reply("model", to=said, wait=30) as reply:
                reply.write(f"answer {n}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(request, range(120)))
        for name in range(6):
            found = pairs(chats.session(f"user {name}"))
            assert len(found) == 20
            assert all(said == answer.replace("answer", "question") for said, answer in found)
        assert chats.store.verify().damage == ()


REQUEST = """
import sys, time, steno
with steno.open(sys.argv[1]) as chats:
    chat = chats.session("alice")
    for n in range(5):
        said = chat.say(f"{sys.argv[2]} {n}")
        with chat.reply("model", to=said, wait=30) as reply:
            reply.write(f"answer to {sys.argv[2]} {n}")
"""


@pytest.mark.promise(17)
def test_processes_that_answer_at_once_keep_their_pairs(path: Path) -> None:
    words = [sys.executable, "-c", REQUEST, str(path)]
    running = [subprocess.Popen([*words, name]) for name in ("left", "right", "middle")]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    with steno.open(path) as chats:
        found = pairs(chats.session("alice"))
        assert len(found) == 15
        assert all(answer == f"answer to {question}" for question, answer in found)


def test_an_older_input_that_is_never_answered_holds_up_others_for_a_bounded_time(
    path: Path, opened: Open
) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("its request died")
        began_s = time.monotonic()
        for n in range(3):
            with chat.reply("model", to=chat.say(f"{n}"), wait=0.3) as reply:
                reply.write("answer")
        assert 0.2 < time.monotonic() - began_s < 2, "once, not three times"
        assert [question for question, _ in pairs(chat)] == ["0", "1", "2"]
        assert [m.text for m in chat.messages() if m.state == "pending"] == ["its request died"]


def test_a_session_has_one_reply_at_a_time(path: Path, opened: Open) -> None:
    with opened(path) as chats, opened(path) as elsewhere:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            reply.write("answer")
            for other in (chat, elsewhere.open(chat.id)):
                with pytest.raises(SessionBusy), other.reply("model"):
                    pass


def test_with_nothing_to_answer_there_is_no_reply(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        with pytest.raises(NotAllowed), chat.reply("model"):
            pass
        assert chats.store.running(chat.id) is None
        assert chat.messages() == []


def test_a_reply_that_is_over_takes_no_more(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            reply.write("answer")
        with pytest.raises(NotAllowed):
            reply.write("more")


@pytest.mark.promise(34)
@pytest.mark.parametrize("freed", ["in the block", "afterwards"])
def test_a_reply_that_could_not_be_stored_says_why(path: Path, opened: Open, freed: str) -> None:
    with opened(path, steno.Settings(lock_wait_ms=50)) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        another = closing(apsw.Connection(str(path), vfs=checked_pages()))
        with another as other, pytest.raises(StoreLocked), chat.reply("model") as reply:
            reply.write("so far")
            other.execute("begin immediate")
            try:
                reply.write("not stored")
            finally:
                if freed == "in the block":
                    other.execute("rollback")
        for _ in range(2):
            turn = chat.transcript().turns[0]
            assert (turn.outcome, turn.cause) == ("interrupted", "store_locked")
            assert [(m.text, m.state) for m in chat.messages()][:2] == [
                ("hello", "complete"),
                ("so far", "interrupted"),
            ]
            chat.say("go on")
            with chat.reply("model") as reply:
                reply.write("gladly")


@pytest.mark.promise(55)
def test_a_reply_whose_session_was_deleted_ends_with_that(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(LeaseLost):
            answer_until(chat, lambda: chats.store.delete(chat.id))


@pytest.mark.promise(53)
def test_a_long_output_of_a_tool_has_its_text_and_all_of_it_can_be_read(
    path: Path, opened: Open
) -> None:
    long = "".join(f"line {n}\n" for n in range(50_000))
    with opened(path) as chats:
        chat = chats.session("alice")
        said = chat.say("hello")
        ran_a_tool(chats.store, chat.id, said.seq, long)
        message = next(m for m in chat.messages() if m.role == "tool")
        assert message.text.startswith("line 0\nline 1\n")
        assert message.text.endswith("line 49999\n")
        assert f"output({message.seq}) has all of them" in message.text
        assert len(message.text) < 20_000
        assert chat.output(message) == chat.output(message.seq) == long
        (file,) = message.attachments
        assert chats.store.get(file.hash) == long.encode()
        assert chat.output(said.seq) == "hello"
        with pytest.raises(NotAllowed, match="has no message 99"):
            chat.output(99)


def ran_a_tool(store: BlockingStore, session: str, input: int, output: str) -> None:
    lease = store.acquire(session)
    body = output.encode()
    file = File(store.put(session, body), "text/plain", len(body))
    turn = store.append(lease, [TurnStarted(Takes(input)), StepStarted("model")], input)
    call = ToolCall("call", "shell", "{}")
    sealed = store.append(
        lease, [StepSealed(turn.last, (call,)), ToolStarted(turn.last, "call")], turn.last
    )
    settled = ToolSettled(turn.last, "call", Returned((file,)), sealed.last)
    ended = store.append(lease, [settled, TurnEnded(turn.first, "done")], sealed.last)
    store.release(lease, ended.last)


WRONG = {
    "nothing": None,
    "a number": 5,
    "a fraction": 0.5,
    "bytes": b"x",
    "a list": [{"type": "text", "text": "hi"}],
    "a dict": {"role": "user"},
    "a set": {1},
    "a truth": True,
    "a part": Text("x"),
    "an object": object(),
    "a class": str,
}


@pytest.mark.promise(75)
@given(
    wrong=st.sampled_from(sorted(WRONG)),
    text=st.text() | st.text(st.characters(categories=["Cs", "Cc"]), max_size=3),
    number=st.floats() | st.integers(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_passed_nothing_is_stored_that_cannot_be_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    opened: Open,
    wrong: str,
    text: str,
    number: float,
) -> None:
    path = tmp_path_factory.mktemp("any") / "chats.db"
    with opened(path) as chats:
        chat = chats.session("alice")
        said = chat.say("hello")
        before = chats.store.read(chat.id)
        for name, refused in misuses(chats, chat, WRONG[wrong], number):
            with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
                refused()
        assert chats.store.read(chat.id) == before
        assert len(list(chats.sessions())) == 1
        chat.say(text, author=text)
        chat.rename(text)
        with chat.reply(text, to=said) as reply:
            for wrongly in (value for value in WRONG.values()):
                with pytest.raises(TypeError, match="piece must be a str, not"):
                    reply.write(cast(str, wrongly))
            reply.write(text)
        assert [m.text for m in chat.messages()] == ["hello", text, text]
        assert chats.store.verify().damage == ()
    with opened(path) as chats:
        assert chats.session("alice").transcript().title == text


def misuses(
    chats: Faced, chat: steno.Session, wrong: Any, number: float
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls that must be refused, each with the argument that the error must name."""
    yield "path", lambda: steno.open(wrong)
    yield "path", lambda: steno.aopen(wrong)
    yield "text", lambda: chat.say(wrong)
    yield "model", lambda: chat.reply(wrong)
    yield "title", lambda: chat.rename(wrong)
    yield "name", lambda: chats.session(wrong)
    yield "id", lambda: chats.open(wrong)
    yield "wait", lambda: chat.reply("model", wait=cast(float, str(wrong)))
    if wrong is not None:
        yield "key", lambda: chat.say("hi", key=wrong)
        yield "author", lambda: chat.say("hi", author=wrong)
        yield "settings", lambda: steno.open("chats.db", wrong)
    if wrong is not None and not (isinstance(wrong, int) and wrong is not True):
        yield "to", lambda: chat.reply("model", to=wrong)
        yield "message", lambda: chat.output(wrong)
    if not isinstance(wrong, int | float) or isinstance(wrong, bool):
        yield "wait", lambda: chat.reply("model", wait=wrong)
    if not 0 <= number < float("inf"):
        yield "wait", lambda: chat.reply("model", wait=number)


class Named(str):
    """A kind of text that some frameworks pass."""


def test_a_subclass_of_str_is_stored_as_its_text(path: Path, opened: Open) -> None:
    with opened(path) as chats:
        chat = chats.session(Named("alice"))
        chat.say(Named("hello"), key=Named("k"), author=Named("a"))
        with chat.reply(Named("model")) as reply:
            reply.write(Named("hi"))
        assert [m.text for m in chats.open(Named(chat.id)).messages()] == ["hello", "hi"]


@pytest.mark.parametrize("verb", ["say", "write", "rename"])
def test_no_verb_of_the_asynchronous_face_stalls_the_event_loop(path: Path, verb: str) -> None:
    """While another program has the store locked."""

    async def gaps(stop: asyncio.Event) -> float:
        worst_s = 0.0
        while not stop.is_set():
            began_s = time.monotonic()
            await asyncio.sleep(0.005)
            worst_s = max(worst_s, time.monotonic() - began_s)
        return worst_s

    async def act() -> tuple[float, float]:
        async with steno.aopen(path) as chats:
            chat = await chats.session("alice")
            await chat.say("hello")
            async with chat.reply("model") as reply:
                verbs: dict[str, Callable[[str], Awaitable[object]]]
                verbs = {"say": chat.say, "write": reply.write, "rename": chat.rename}
                with closing(apsw.Connection(str(path), vfs=checked_pages())) as other:
                    other.execute("begin immediate")
                    stop = asyncio.Event()
                    ticking = asyncio.create_task(gaps(stop))
                    asyncio.get_running_loop().call_later(0.5, other.execute, "rollback")
                    began_s = time.monotonic()
                    await verbs[verb]("more")
                    took_s = time.monotonic() - began_s
                    stop.set()
                    return took_s, await ticking

    took_s, worst_s = asyncio.run(act())
    assert took_s > 0.4
    assert worst_s < 0.25


def test_a_cancelled_reply_is_interrupted_and_the_session_is_free(path: Path) -> None:
    async def act() -> None:
        async with steno.aopen(path) as chats:
            chat = await chats.session("alice")
            await chat.say("hello")
            written = asyncio.Event()

            async def answer() -> None:
                async with chat.reply("model") as reply:
                    await reply.write("so far")
                    written.set()
                    await asyncio.sleep(60)

            answering = asyncio.create_task(answer())
            await written.wait()
            answering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answering
            assert [(m.text, m.state) for m in await chat.messages()] == [
                ("hello", "complete"),
                ("so far", "interrupted"),
            ]
            await chat.say("again")
            async with chat.reply("model") as reply:
                await reply.write("fine")

    asyncio.run(act())


def test_an_asynchronous_library_can_be_awaited(path: Path) -> None:
    async def act() -> list[str]:
        chats = await steno.aopen(path)
        for name in ("alice", "bob"):
            await (await chats.session(name)).say(f"I am {name}")
        titles = [listed.row.title async for listed in chats.sessions()]
        await chats.close()
        return titles

    assert asyncio.run(act()) == ["I am bob", "I am alice"]


HEAVY = (
    "asyncio",
    "aiohttp",
    "apsw",
    "msgspec",
    "ssl",
    "sqlite3",
    "subprocess",
    "logging",
    "typing_extensions",
)


def loaded(statement: str) -> set[str]:
    code = (
        f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_steno_loads_nothing_heavy() -> None:
    modules = loaded("import steno")
    assert "steno" in modules
    assert modules.isdisjoint(HEAVY)


def test_the_library_needs_no_event_loop_and_no_network(path: Path) -> None:
    modules = loaded(f"import steno; steno.open({str(path)!r}).session('alice').say('hello')")
    assert "steno.library" in modules
    assert modules.isdisjoint({"asyncio", "aiohttp", "ssl", "socket"})


def test_steno_has_what_it_names_and_nothing_else() -> None:
    for name in steno.__all__:
        assert getattr(steno, name) is not None
    with pytest.raises(AttributeError, match="telepathy"):
        steno.telepathy  # noqa: B018


@pytest.mark.promise(50)
def test_what_is_said_to_a_session_with_a_damaged_fact_is_not_accepted(
    path: Path, opened: Open
) -> None:
    """The damage is in an old fact, which storing an input does not touch."""
    with opened(path) as chats:
        for i in range(300):
            chats.session("damaged").say(f"said {i}")
    other = apsw.Connection(str(path), vfs=checked_pages())
    other.execute("update facts set body = replace(body, 'said 1\"', 'Said 1\"')")
    stored = other.execute("select max(id) from facts").get
    with opened(path) as chats:
        chat = chats.session("damaged")
        for refused in (partial(chat.say, "and now?"), chat.reply("model").__enter__):
            with pytest.raises(JournalCorrupt, match="fact 3 "):
                refused()
        assert chats.session("whole").say("heard").first
    assert other.execute("select count(*) from facts where id > ?", (stored,)).get == 2
    other.close()


@pytest.mark.parametrize("kind", ["openai-chat", "openai-responses", "anthropic"])
def test_a_history_comes_in_the_words_of_a_provider(tmp_path: Path, kind: Any) -> None:
    with steno.open(tmp_path / "chats.db") as chats:
        chat = chats.session("alice")
        said = chat.say("What is a journal?")
        with chat.reply(model="m", to=said) as reply:
            reply.write("It remembers.")
        chat.say("Still waits")
        told = json.dumps(chat.history(kind))
        assert told.index("What is a journal?") < told.index("It remembers.")
        assert "Still waits" not in told
        assert "Note from the runtime" not in told
        assert len(chat.history(kind)) == 2
        with pytest.raises(ValueError, match="format"):
            chat.history("odd")  # type: ignore[arg-type]
        texts = [message.text for message in chat.messages()]
        assert [one.text for one in chat.messages(limit=2)] == texts[-2:]
        assert [one.text for one in chat.messages(after=said.seq)] == texts[1:]
        assert chat.messages(limit=0) == []
