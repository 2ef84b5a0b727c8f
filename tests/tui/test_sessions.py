"""Sessions in the chat: found, resumed, renamed, deleted, forked and edited; what was left open is
said."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.widgets import Input

import steno
from steno.config import ConfigError
from steno.journal.facts import (
    ContextSet,
    HelperEnded,
    HelperFact,
    HelperStarted,
    SessionAttended,
    SessionEnded,
)
from steno.runtimes.distil import TITLE_S
from steno.service import Summary
from steno.service.edits import Edits
from steno.service.views import Views
from steno.store.errors import JournalCorrupt
from steno.tui import actions, status_line
from steno.tui.blocks import Block
from steno.tui.composer import Composer
from steno.tui.dialogs import Finder, Row
from steno.tui.painting.markdown import one_line
from steno.tui.scroll import LINES_MAX, Scroll
from tests.program.distilling import facts
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import ASKING, Person, chat_with, elsewhere, setup_of


def said(world: World, *texts: str) -> str:
    """A session in which this was said; its id."""
    first = world.steno("run", texts[0], "--output", "ndjson")
    id = str(json.loads(first.splitlines()[0])["id"])
    for text in texts[1:]:
        world.steno("run", text, "--session", id)
    return id


def test_the_list_finds_as_one_types_and_enter_resumes(world: World, server: ModelServer) -> None:
    said(world, "about the mountains, a test")
    sea = said(world, "about the sea")

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "Sessions", "about the mountains", "about the sea")
        await person.press(*sea[:5])
        await person.sees_no_more("about the mountains")
        await person.press(*["backspace"] * 2, "0")  # no id has one, and no folder has that
        await person.sees("No matches")
        await person.press(*["backspace"] * 4)
        await person.sees("about the mountains")
        await person.press(*"test")  # also the name of the model of both
        rows = re.compile("mountains.*about the sea", re.DOTALL)
        await person.until(
            lambda: rows.search(person.screen()) is not None, "the one that is called so first"
        )
        await person.press("ctrl+u", *"sea")
        await person.sees_no_more("about the mountains")
        await person.press("enter")
        await person.sees("▌ about the sea", "resumed")
        assert person.session == sea

    chat_with(world, talk)


def test_every_session_is_found_and_the_latest_are_shown_first(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is up when a part of them is read. What was said in them is not looked through: a
    hit would stand there before the rest of the list does."""
    ids = [said(world, text) for text in ("the oldest", "apples", "pears", "plums", "the newest")]
    monkeypatch.setattr(actions, "SESSIONS_AT_ONCE", 2)
    sessions, reading_on = Views.sessions, asyncio.Event()

    async def slow(
        self: Views, limit: int, before: int | None = None, folder: str = ""
    ) -> list[Summary]:
        if before is not None:
            await reading_on.wait()
        return await sessions(self, limit, before)

    async def nothing_said(self: object, text: str) -> AsyncIterator[list[Row]]:
        for none in list[list[Row]]():
            yield none

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "the newest", "plums")
        await person.press(*"oldest")
        await person.sees("No matches; there are more")
        reading_on.set()
        await person.sees("the oldest")
        await person.press("enter")
        await person.sees("▌ the oldest", "resumed")
        assert person.session == ids[0]

    monkeypatch.setattr(Views, "sessions", slow)
    monkeypatch.setattr(actions.Acts, "_said", nothing_said)
    chat_with(world, talk)


def test_a_list_that_cannot_be_read_to_its_end_says_so(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("the oldest", "pears", "plums"):
        said(world, text)
    monkeypatch.setattr(actions, "SESSIONS_AT_ONCE", 2)
    sessions = Views.sessions

    async def broken(
        self: Views, limit: int, before: int | None = None, folder: str = ""
    ) -> list[Summary]:
        if before is not None:
            raise JournalCorrupt("a row is damaged")
        return await sessions(self, limit, before)

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "pears", "plums")
        await person.press(*"oldest")
        await person.sees("the rest could not be read: a row is damaged")

    monkeypatch.setattr(Views, "sessions", broken)
    chat_with(world, talk)


def test_a_key_in_the_list_counts_for_what_is_typed_however_late_the_list_is(
    world: World, server: ModelServer
) -> None:
    for text in ("tides", "tea one", "tea two"):
        said(world, text)

    async def talk(person: Person) -> None:
        await person.say("/sessions")
        await person.sees("type to find", "tea two", "tides")
        finder = person.chat.screen
        assert isinstance(finder, Finder)
        finder.query_one(Input).value = "tides"
        finder.on_key(events.Key("delete", None))  # before anything has heard of the change
        await person.sees("Delete “tides” for good?")
        await person.press("enter")
        await person.sees("type to find")
        finder = person.chat.screen
        assert isinstance(finder, Finder)
        finder.query_one(Input).value = "tea"
        finder.action_move(1)
        await person.press("enter")
        await person.sees("steno tea one")

    chat_with(world, talk)


def test_a_row_of_the_list_fits_any_width(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide characters too: a session has one line, and the border of the list stays straight."""
    monkeypatch.setattr(status_line, "ago", lambda at_ms, now_s: "just now")
    titles = ["about the mountains " * 5, "山の話をしよう。" * 9, "🏔️👩‍👩‍👧 " * 20, "short"]
    for title in titles:
        said(world, title)
    shown = [one_line(title, 12).removesuffix("…") for title in titles]

    async def talk(person: Person) -> None:
        def rows() -> list[str]:
            return [
                line
                for line in person.screen().splitlines()
                if any(title in line for title in shown)
            ]

        def straight(beside: str) -> bool:
            borders = [line for line in person.screen().splitlines() if line.endswith("╮")]
            ends = {cell_len(line) for line in borders + rows()}
            fits = (
                len(rows()) == len(titles)
                and len(ends) == 1
                and max(ends) <= person.chat.size.width
            )
            cut = ["…" in row for row in rows()] == ["short" not in row for row in rows()]
            return fits and cut and all(row.endswith(f"{beside} │") for row in rows())

        await person.press("ctrl+o")
        for width, beside in (
            (80, "2 msg  just now"),
            (60, "2 msg  just now"),
            (40, "just now"),
            (24, ""),
        ):
            await person.pilot.resize_terminal(width, 24)
            await person.until(lambda beside=beside: straight(beside), f"a list in {width} columns")  # type: ignore[misc]

    chat_with(world, talk)


def test_a_session_is_renamed_and_deleted_from_the_list(world: World, server: ModelServer) -> None:
    said(world, "keep me")
    doomed = said(world, "delete me")

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "delete me")
        await person.press("f2")
        await person.sees("A title for")
        await person.press("end", *" now", "enter")
        await person.sees("delete me now")
        await person.press("delete")
        await person.sees("for good?")
        await person.press("y", "enter")  # "No" is chosen until an arrow key chooses "Yes"
        await person.sees("Sessions", "delete me now")
        await person.press("delete")
        await person.sees("for good?")
        await person.press("down", "enter")
        await person.sees("type to find", "keep me")
        assert "delete me now" not in person.screen()
        await person.press("escape")

    chat_with(world, talk)
    assert [one["title"] for one in world.sessions()] == ["keep me"]
    world.steno("show", doomed, expect=2)


def test_this_session_is_renamed_and_deleted_by_commands(world: World, server: ModelServer) -> None:
    id = said(world, "first words")

    async def talk(person: Person) -> None:
        await person.say("/rename Of the sea")
        await person.sees("steno Of the sea")
        await person.say("/delete")
        await person.sees("Delete “Of the sea” for good?")
        await person.press("down", "enter")
        await person.sees("deleted", "a new session")

    chat_with(world, talk, id)
    assert world.sessions() == []


def test_messages_are_chosen_with_keys_forked_hidden_and_rewound(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("answer one",)), Reply(("answer two",)), Reply(("after all",))]
    id = said(world, "question one", "question two")

    async def talk(person: Person) -> None:
        await person.press("tab", "up", "up")
        await person.press("h")
        await person.sees("hidden: the model is not told this")
        await person.press("h")
        await person.sees_no_more("hidden: the model is not told this")
        await person.press("r")
        await person.sees("Rewind to this message?")
        await person.press("down", "enter")
        await person.sees("undone: the model is not told this")
        await person.press("escape")
        await person.say("/redo")
        await person.sees_no_more("undone: the model is not told this")
        await person.press("tab", "up", "up", "f")
        await person.sees("forked from", "a session of its own")
        assert person.session != id
        assert "question two" not in person.screen()
        await person.press("escape")
        await person.say("and then?")
        await person.sees("after all")

    chat_with(world, talk, id)
    assert len(world.sessions()) == 2
    told = json.dumps(server.requests[-1]["messages"])
    assert "answer one" in told
    assert "question two" not in told


def test_what_cannot_be_done_says_what_to_do(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("ok",)), Reply(status=401), Reply(("ok",))]
    id = said(world, "one")

    async def talk(person: Person) -> None:
        await person.say("/hide")
        await person.sees("usage: /hide SEQ; or Tab, choose a message with ↑ and ↓, and press h")
        await person.say("/resume zzzz")
        await person.sees("no session 'zzzz'", "Ctrl-O lists those that there are")
        await person.say("/model anthropic:other")
        await person.say("two")
        await person.sees(
            "there is no key that the provider accepts",
            "Everything is kept; /login takes its key",
            "/model",
        )
        await person.say("/model openai-chat:test")
        await person.say("/retry")
        await person.until(lambda: len(server.requests) == 3, "another request")
        await person.rests()

    chat_with(world, talk, id)
    assert [message["state"] for message in world.messages(id, "user")] == ["complete"] * 2


def test_what_changes_a_session_goes_in_the_order_in_which_it_is_typed(
    world: World, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = [Reply(status=400), Reply(("Now it works.",))]
    choose, may_store = Edits.choose_model, asyncio.Event()

    async def slow(self: Edits, session: str, model: str) -> None:
        await may_store.wait()
        await choose(self, session, model)

    async def talk(person: Person) -> None:
        await person.say("try")
        await person.sees("failed: the provider refused the request")
        await person.say("/model anthropic:other")
        await person.say("/retry")
        may_store.set()
        await person.sees("Now it works.")

    monkeypatch.setattr(Edits, "choose_model", slow)
    chat_with(world, talk)
    assert server.requests[-1]["model"] == "other"


def test_undo_and_redo(world: World, server: ModelServer) -> None:
    id = said(world, "one", "two")

    async def talk(person: Person) -> None:
        await person.say("/undo")
        await person.sees("undone: the model is not told this")
        composer = person.chat.query_one(Composer)
        await person.until(lambda: composer.text == "two", "the prompt to come back")
        composer.replace_text("")
        await person.say("/redo")
        await person.sees_no_more("undone: the model is not told this")

    chat_with(world, talk, id)


def test_the_model_is_switched_by_a_fact_and_checked_first(
    world: World, server: ModelServer
) -> None:
    id = said(world, "one")

    async def talk(person: Person) -> None:
        await person.say("/model nonsense")
        await person.sees("unknown model 'nonsense'", "(chosen for this session)")
        assert "nonsense" not in person.status()
        await person.say("/model anthropic:other")
        await person.sees("anthropic:other answers from the next request on")
        assert "anthropic:other" in person.status()
        await person.say("/model")
        await person.sees("Models", " now ")
        await person.press("escape")
        await person.say("two")
        await person.rests()

    chat_with(world, talk, id)
    assert server.requests[-1]["model"] == "other"
    world.steno("run", "three", "--session", id)
    assert server.requests[-1]["model"] == "other"  # it holds in every process


def test_the_model_that_the_chat_is_started_with_answers_in_a_session_that_had_another(
    world: World, server: ModelServer
) -> None:
    id = said(world, "one")
    terms = replace(ASKING, model="anthropic:other")

    async def talk(person: Person) -> None:
        await person.sees("anthropic:other")
        await person.say("two")
        await person.rests()

    chat_with(world, talk, id, terms=terms)
    assert server.requests[-1]["model"] == "other"


def test_what_is_said_to_a_model_that_cannot_be_used_stays_in_the_input(
    world: World, server: ModelServer
) -> None:
    id = said(world, "one")

    def refuse(context: ContextSet) -> None:
        raise ConfigError("its package is not installed")

    async def talk(person: Person) -> None:
        person.chat.wiring.check = refuse  # type: ignore[method-assign, assignment]
        await person.say("two")
        await person.sees("its package is not installed", "> two")

    chat_with(world, talk, id)
    assert len(world.messages(id, "user")) == 1


def test_compaction_on_demand_says_what_came_of_it(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("long " * 400,))] * 6 + [Reply(("They spoke at length.",))]
    id = said(world, *(f"{i} " + "word " * 2_000 for i in range(6)))

    async def talk(person: Person) -> None:
        await person.say("/compact")
        await person.sees("summarised: about")

    chat_with(world, talk, id)


@pytest.mark.promise(34)
def test_resuming_says_what_was_cut_off_and_continue_takes_it_up(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half of ",), then="hang"), Reply(("the rest",))]
    with elsewhere(world, "run", "tell me") as running:
        running.wait_shown("half of ")
        running.kill()

    async def talk(person: Person) -> None:
        await person.sees(
            "half of",
            "process was killed",
            "/continue takes it up, /retry runs it again, /undo forgets it",
        )
        said = person.screen().rpartition("\n")[0]
        assert said.count("/continue") == 1  # what to do is said once, and not of turns of long ago
        await person.say("/continue")
        await person.sees("taken up where it was cut off", "the rest")
        await person.rests()
        assert person.screen().count("process was killed") == 1

    chat_with(world, talk, world.only_session())


def test_resuming_says_which_inputs_wait_and_continue_runs_them(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("second answer",))]

    async def talk(person: Person) -> None:
        await person.until(lambda: len(person.chat.watched.waiting()) == 1, "the second input")

    with elsewhere(world, "run", "one") as running:
        running.wait_shown("going")
        id = world.only_session()
        with elsewhere(world, "run", "two", "--session", id) as waiting:
            chat_with(world, talk, id)
            waiting.kill()
            running.kill()

    async def resume(person: Person) -> None:
        await person.sees(
            "an input waits unanswered", "queued  two", "ready  /continue takes it up"
        )
        await person.type("half a thought")
        await person.press("ctrl+c")
        await person.sees("forgotten, ↑ brings it back")
        await person.press("up")
        await person.sees("> half a thought", "queued  two")
        await person.press("ctrl+u")
        await person.say("/undo")
        await person.sees("undone", "ready  /continue runs what waits")
        await person.say("/continue")
        await person.sees("second answer")

    chat_with(world, resume, id)


@pytest.mark.promise(37)
def test_a_call_that_waits_for_approval_is_asked_about_after_a_restart(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(tools=(("shell", '{"command": "echo was-$((1+1))-run"}'),)),
        Reply(("Done.",)),
    ]

    async def ask(person: Person) -> None:
        await person.say("run it")
        await person.sees("Allow shell?")

    chat_with(world, ask)

    async def answer(person: Person) -> None:
        await person.sees("Allow shell?", "a tool call waits for your answer")
        await person.allow("shell")
        await person.sees("was-2-run", "Done.")
        await person.sees_no_more("a tool call waits")

    chat_with(world, answer, world.only_session())


@pytest.mark.promise(36)
def test_a_second_terminal_follows_says_who_runs_it_and_can_send(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("a slow ", "answer"), held=True), Reply(("to the second",))]
    with elsewhere(world, "run", "go") as running:
        running.wait_shown("a slow ")
        id = world.only_session()

        async def talk(person: Person) -> None:
            await person.sees(f"process {running.process.pid} on", "you follow it live", "a slow")
            assert f"in process {running.process.pid}" in person.status()
            await person.say("from here")
            await person.sees("queued  from here")
            server.go_on()
            await person.sees("a slow answer", "to the second")
            await person.rests()

        chat_with(world, talk, id, size=(110, 30))
        assert running.end() == 0
    said = [(message["role"], message["text"]) for message in world.messages(id)]
    assert said == [
        ("user", "go"),
        ("assistant", "a slow answer"),
        ("user", "from here"),
        ("assistant", "to the second"),
    ]


def test_a_turn_of_another_process_is_stopped_from_here(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("going",), then="hang")]

    async def talk(person: Person) -> None:
        await person.sees("answering in process")
        await person.press("ctrl+c")
        await person.sees("stopped by you")

    with elsewhere(world, "run", "go") as running:
        running.wait_shown("going")
        chat_with(world, talk, world.only_session())
        assert running.end() == 130


def test_leaving_a_session_that_another_process_runs_does_not_stop_it(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going ", "on"), held=True)]

    async def talk(person: Person) -> None:
        await person.sees("going")
        await person.say("and this")
        await person.sees("queued  and this")
        await person.press("ctrl+d")
        await person.until(lambda: person.chat.left == 0, "leaving")

    with elsewhere(world, "run", "go") as running:
        running.wait_shown("going")
        chat_with(world, talk, world.only_session())
        assert running.process.poll() is None
        server.go_on()
        assert running.end() == 0


@pytest.mark.promise(34)
def test_whoever_follows_a_session_sees_that_its_process_was_killed(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half of ", "it"), then="hang")]
    with elsewhere(world, "run", "go") as running:
        running.wait_shown("half of it")

        async def talk(person: Person) -> None:
            await person.sees("answering in process", "half of it", "runs this session")
            running.process.kill()
            await person.sees("the process was killed", "/continue")
            await person.sees_no_more("runs this session")
            assert "ready" in person.status()
            assert person.screen().count("half of it") == 1

        chat_with(world, talk, world.only_session())


def test_a_session_that_is_deleted_elsewhere_says_so_and_nothing_runs_any_more(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("a new one",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("going")
        await asyncio.to_thread(world.steno, "delete", person.session, "--yes")
        await person.sees("was deleted")
        await person.until(lambda: "deleted" in person.status(), "the state")
        await person.pilot.pause(0.3)
        assert "lease" not in person.screen()
        await person.press("ctrl+d")
        await person.until(lambda: person.chat.left == 0, "leaving")

    chat_with(world, talk)


def test_whoever_waits_for_an_input_that_is_taken_back_is_told(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]

    async def talk(person: Person) -> None:
        await person.sees("queued  mine")
        await person.press("up")
        await person.sees_no_more("queued  mine")
        await person.sees("> mine")

    with elsewhere(world, "run", "go") as running:
        running.wait_shown("going")
        id = world.only_session()
        with elsewhere(world, "run", "mine", "--session", id) as waiting:
            chat_with(world, talk, id)
            assert waiting.end() == 130
            assert "taken back" in waiting.errors()
    assert len(server.requests) == 1


@pytest.mark.promise(39)
def test_a_chat_that_nobody_uses_ends_its_visit_and_the_next_message_begins_another(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("fine",)), Reply(("here again",))]
    setup = setup_of(world, limits={"chat_idle_s": 0.4})

    async def talk(person: Person) -> None:
        await person.say("hello")
        await person.sees("fine", "this visit has ended")
        assert world.sessions()[0]["ended"] == "idle"
        await person.say("anybody?")
        await person.sees("here again")
        await person.until(
            lambda: not person.service.visits.attending(person.session), "a second end"
        )

    chat_with(world, talk, setup=setup)
    visits = [
        fact
        for fact in facts(world, world.only_session())
        if isinstance(fact, SessionAttended | SessionEnded)
    ]
    reasons = [fact.reason if isinstance(fact, SessionEnded) else "came" for fact in visits]
    assert reasons == ["came", "idle", "came", "idle"]


@pytest.mark.promise(46)
def test_a_long_session_is_read_from_its_end_as_far_as_one_scrolls(
    world: World, server: ModelServer
) -> None:
    said(world, "something else")
    with steno.open(world.home / "store.db", steno.Settings(durability="process")) as chats:
        chat = chats.session("long")
        for i in range(120):
            chat.say(f"question {i}")
            with chat.reply(model="openai-chat:test") as reply:
                reply.write(f"answer {i}")
        id = chat.id

    async def talk(person: Person) -> None:
        await person.sees("question 119")
        scroll: Scroll = person.scroll
        loaded = len(scroll._blocks)
        assert loaded < 150
        await person.press("tab")
        for _ in range(60):
            await person.press("pageup")
        await person.until(lambda: len(scroll._blocks) > loaded, "an earlier page")
        await person.press("home")
        await person.until(lambda: "question 0" in _all(scroll), "the beginning")
        await person.pilot.pause(0.3)
        asked: list[None] = []

        async def earlier() -> list[Block]:
            asked.append(None)
            return []

        person.chat.watched.earlier = earlier  # type: ignore[method-assign]
        await person.press("home", "pageup", "home")
        assert asked == []  # at the beginning nothing more is asked for
        assert _all(scroll).count("question 60") == 1
        assert scroll.laid_out <= LINES_MAX + 200
        await person.press("end")
        await person.sees("question 119")
        await person.press("home", "escape")
        await person.sees_no_more("question 119")
        await person.say("/nosuch")  # whoever sends something wants to see what comes of it
        await person.sees("there is no command /nosuch", "question 119")

    chat_with(world, talk, id)


def _all(scroll: Scroll) -> str:
    return "\n".join(getattr(block, "text", "") for block in scroll._blocks)


def title_asked(request: dict[str, Any]) -> bool:
    return "give it a title" in json.dumps(request)


@pytest.mark.promise(8)
@pytest.mark.promise(33)
def test_a_session_gets_a_title_and_neither_a_message_nor_a_request_shows_that(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_MEMORY_TITLES"] = "true"
    server.choose = lambda asked: Reply(
        ('**"Keeping the sea."**\nor another',) if title_asked(asked) else ("it stays",)
    )

    async def talk(person: Person) -> None:
        await person.say("what of the sea? my word is swordfish")
        await person.sees("steno Keeping the sea")
        await person.rests()
        await person.say("and then?")
        await person.until(lambda: len(server.requests) == 3, "another answer")
        await person.rests()

    chat_with(world, talk)
    [listed] = world.sessions()
    assert (listed["title"], listed["messages"]) == ("Keeping the sea", 4)
    assert [m["text"] for m in world.messages(listed["id"], "assistant")] == ["it stays"] * 2
    assert [title_asked(one) for one in server.requests] == [False, True, False]
    assert "Keeping" not in json.dumps(server.requests[2]["messages"])
    [asked, ended] = [one for one in facts(world, listed["id"]) if isinstance(one, HelperFact)]
    assert isinstance(asked, HelperStarted)
    assert asked.purpose == "title"
    assert isinstance(ended, HelperEnded)
    assert (ended.outcome, ended.usage is None) == ("done", False)
    seq = world.messages(listed["id"])[0]["seq"]
    world.steno("redact", listed["id"], str(seq), "--yes")
    assert world.sessions()[0]["title"] == "[redacted]"
    assert "Keeping" not in world.steno("export", listed["id"])
    world.steno("rename", listed["id"], "Mine")
    assert world.sessions()[0]["title"] == "Mine"


@pytest.mark.promise(27)
def test_a_title_that_hangs_holds_no_input_up_and_is_asked_for_twice_at_most(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_MEMORY_TITLES"] = "true"
    server.choose = lambda asked: (
        Reply((), then="hang") if title_asked(asked) else Reply((f"answer {len(server.requests)}",))
    )

    async def talk(person: Person) -> None:
        for said, asked in (("one", 0), ("two", 2), ("three", 4)):
            begun = time.monotonic()
            await person.say(said)
            await person.sees(f"answer {asked}")
            assert time.monotonic() - begun < TITLE_S / 2
            if asked < 4:
                await person.until(lambda: len(server.requests) % 2 == 0, "a request for a title")
        await person.rests()

    chat_with(world, talk)
    assert sum(map(title_asked, server.requests)) == 2
    assert world.sessions()[0]["title"] == "one"
