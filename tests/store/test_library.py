"""steno in other people's programs."""

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path

import apsw
import pytest

import steno
from steno.journal.facts import StepLost, TurnEnded
from steno.journal.transcript import Turn
from steno.store.errors import JournalCorrupt, LeaseLost, NotAllowed, SessionBusy, UnknownSession
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


def test_a_conversation_is_there_when_it_is_opened_again(path: Path) -> None:
    with steno.open(path) as chats:
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
    with steno.open(path) as chats:
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


def test_each_name_has_one_session_and_each_session_one_entry(path: Path) -> None:
    with steno.open(path) as chats:
        made = [chats.session(f"user {i}").id for i in range(120)]
        assert [chats.session(f"user {i}").id for i in range(120)] == made
        assert [entry.id for entry in chats.sessions()] == made[::-1]
        with pytest.raises(UnknownSession):
            chats.open("nobody")


@pytest.mark.promise(16)
def test_the_same_key_is_accepted_once(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        first = chat.say("hello", key="1")
        assert chat.say("hello", key="1").seq == first.seq
        assert len(chat.messages()) == 1
        assert chats.session("bob").say("hello", key="1").first


@pytest.mark.promise(5)
def test_a_piece_is_stored_before_it_may_be_shown(path: Path) -> None:
    with steno.open(path) as chats, steno.open(path) as elsewhere:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            for piece in ("one ", "two"):
                reply.write(piece)
                shown = elsewhere.open(chat.id).messages()[-1]
                assert (shown.text, shown.state) == (reply.text, "streaming")


@pytest.mark.promise(6, 12)
def test_ctrl_c_seals_a_reply_as_interrupted(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(KeyboardInterrupt):
            answer_until(chat, lambda: signal.raise_signal(signal.SIGINT))
        answer = chat.messages()[-1]
        assert (answer.text, answer.state) == ("so far", "interrupted")
        assert chat.transcript().turns == [Turn(answer.turn or 0, "interrupted", "user")]
        assert chats.store.drafts(chat.id) == []


@pytest.mark.promise(6, 24)
def test_an_exception_ends_a_reply_as_failed(path: Path) -> None:
    with steno.open(path) as chats:
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


def test_a_reply_that_failed_before_its_first_word_is_lost(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(ConnectionError), chat.reply("model"):
            raise ConnectionError
        facts = [record.fact for record in chats.store.read_all(chat.id)]
        assert isinstance(facts[-2], StepLost)
        assert isinstance(facts[-1], TurnEnded)


def test_after_any_end_the_next_reply_goes_on(path: Path) -> None:
    with steno.open(path) as chats:
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
def test_a_crash_in_a_reply_is_shown_at_once_and_recovered_by_the_next_reply(path: Path) -> None:
    crashed = subprocess.run([sys.executable, "-c", CRASHES, str(path)], check=False)
    assert crashed.returncode == -signal.SIGKILL
    with steno.open(path) as chats:
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


def test_inputs_are_answered_oldest_first(path: Path) -> None:
    with steno.open(path) as chats:
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


def test_a_session_has_one_reply_at_a_time(path: Path) -> None:
    with steno.open(path) as chats, steno.open(path) as elsewhere:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            reply.write("answer")
            for other in (chat, elsewhere.open(chat.id)):
                with pytest.raises(SessionBusy), other.reply("model"):
                    pass


def test_with_nothing_to_answer_there_is_no_reply(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        with pytest.raises(NotAllowed), chat.reply("model"):
            pass
        assert chats.store.running(chat.id) is None
        assert chat.messages() == []


def test_a_reply_that_is_over_takes_no_more(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with chat.reply("model") as reply:
            reply.write("answer")
        with pytest.raises(NotAllowed):
            reply.write("more")


@pytest.mark.promise(55)
def test_a_reply_whose_session_was_deleted_ends_with_that(path: Path) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        chat.say("hello")
        with pytest.raises(LeaseLost):
            answer_until(chat, lambda: chats.store.delete(chat.id))


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
def test_what_is_said_to_a_session_with_a_damaged_fact_is_not_accepted(path: Path) -> None:
    """The damage is in an old fact, which storing an input does not touch."""
    with steno.open(path) as chats:
        for i in range(300):
            chats.session("damaged").say(f"said {i}")
    other = apsw.Connection(str(path), vfs=checked_pages())
    other.execute("update facts set body = replace(body, 'said 1\"', 'Said 1\"')")
    stored = other.execute("select max(id) from facts").get
    with steno.open(path) as chats:
        chat = chats.session("damaged")
        for refused in (partial(chat.say, "and now?"), chat.reply("model").__enter__):
            with pytest.raises(JournalCorrupt, match="fact 3 "):
                refused()
        assert chats.session("whole").say("heard").first
    assert other.execute("select count(*) from facts where id > ?", (stored,)).get == 2
    other.close()
