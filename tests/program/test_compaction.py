"""Long sessions: what a summary changes and what it never does; what a kill, a stop or a silent
summariser leave."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.journal.facts import Compacted, HelperEnded, HelperStarted, Record
from steno.journal.history import Entry, History
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.session.lease import HeldSession
from steno.session.load import Sessions
from steno.store.sqlite.store import SqliteStore
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

CONTEXT = 1_500
FILLER = "lorem ipsum dolor " * 50
"""About 225 tokens."""


class Talk:
    """A session that grows by about 250 tokens a turn, with a model that takes 1,500, and a
    summariser."""

    def __init__(self, world: World, server: ModelServer) -> None:
        self.world, self.server = world, server
        self.world.environment |= {
            "STENO_MODEL_CONTEXT_TOKENS": str(CONTEXT),
            "STENO_LIMITS_SUMMARY_S": "3",
            "STENO_TOOLS_ENABLED": "false",
        }
        self.summary = Reply(("They spoke ", "of many things."), usage=False)
        self.said: list[str] = []
        server.choose = self._choose
        self.id = ""

    def _choose(self, request: dict[str, Any]) -> Reply:
        if is_summary(request):
            return self.summary
        return Reply((f"answer to {last_user(request)[:12]}",), usage=False)

    def say(self, expect: int | None = 0) -> str:
        prompt = f"prompt {len(self.said):02} {FILLER}"
        self.said.append(prompt)
        words = ["--session", self.id] if self.id else []
        out = self.world.steno("run", prompt, *words, expect=expect)
        self.id = self.id or self.world.only_session()
        return out

    def say_until_compacted(self, times: int = 1) -> None:
        for _ in range(40):
            self.say()
            if len(self.facts(Compacted)) >= times:
                return
        raise AssertionError(f"{len(self.facts(Compacted))} summaries after {len(self.said)} turns")

    def say_until_nearly_full(self) -> None:
        """As many turns as fit before a summary is due: the next one makes it."""
        for _ in range(4):
            self.say()
        assert self.facts(HelperStarted) == []

    def facts(self, *kinds: type) -> list[Any]:
        with steno.open(self.world.home / "store.db") as library:
            return [
                record.fact
                for record in library.store.read_all(self.id)
                if isinstance(record.fact, kinds)
            ]

    def summary_requests(self) -> list[dict[str, Any]]:
        return [request for request in self.server.requests if is_summary(request)]

    def requests(self) -> list[dict[str, Any]]:
        return [request for request in self.server.requests if not is_summary(request)]

    def check_kept(self) -> None:
        """Everything that was said and answered is shown, once, in order, and nothing else."""
        texts = [(message["role"], message["text"]) for message in self.world.messages(self.id)]
        expected = []
        for prompt in self.said:
            expected += [("user", prompt), ("assistant", f"answer to {prompt[:12]}")]
        assert texts == expected
        (listed,) = self.world.sessions()
        assert listed["messages"] == len(expected)


def is_summary(request: dict[str, Any]) -> bool:
    return "You keep the memory of a long conversation" in json.dumps(request)


def last_user(request: dict[str, Any]) -> str:
    texts = [message["content"] for message in request["messages"] if message["role"] == "user"]
    last = texts[-1]
    return str(last if isinstance(last, str) else last[-1]["text"])


@pytest.fixture
def talk(world: World, server: ModelServer) -> Talk:
    return Talk(world, server)


@pytest.mark.promise(8, 25, 26, 29, 32, 33)
def test_three_summaries_change_what_the_model_is_told_and_nothing_else(talk: Talk) -> None:
    talk.say_until_compacted()
    title = talk.world.sessions()[0]["title"]
    talk.world.steno("rename", talk.id, "my title")
    talk.say_until_compacted(3)
    talk.check_kept()
    assert title.startswith("prompt 00")
    assert talk.world.show(talk.id)["title"] == "my title"
    assert talk.world.show(talk.id[:6])["id"] == talk.id
    shown = json.dumps(talk.world.show(talk.id))
    assert "of many things" not in shown
    for request in talk.requests():
        assert last_user(request) in talk.said
        check("openai-chat", request)
        assert len(json.dumps(request)) < CONTEXT * 6
    latest = json.dumps(talk.requests()[-1])
    assert latest.count("They spoke of many things.") == 1
    assert talk.said[0] not in latest
    # each summary after the first was given the one before it as a summary, never as something that
    # was said
    for request in talk.summary_requests()[1:]:
        text = last_user(request)
        assert text.startswith("Summary of what came before:\nThey spoke of many things.\n")
        assert text.count("They spoke") == 1
    assert len(talk.facts(HelperStarted)) == len(talk.summary_requests())
    assert [ended.outcome for ended in talk.facts(HelperEnded)] == ["done"] * len(
        talk.summary_requests()
    )
    assert talk.world.steno("verify")


@pytest.mark.promise(40)
def test_a_runner_begins_at_the_summary_and_has_what_reading_everything_gives(talk: Talk) -> None:
    talk.say_until_compacted(2)
    last = talk.facts(Compacted)[-1]
    assert last.carries is not None
    assert len(last.carries) < last.upto
    read, state, entries = asyncio.run(held(talk))
    assert read < last.upto
    with steno.open(talk.world.home / "store.db") as library:
        records = list(library.store.read_all(talk.id))
    whole = History()
    everything = State()
    for record in records:
        whole.apply(record)
        everything.apply(record)
    assert entries == whole.entries()
    assert state == everything


async def held(talk: Talk) -> tuple[int, State, list[Entry]]:
    """How many facts a runner reads when it opens the session, and what it has then."""
    read = 0

    class Counting(SqliteStore):
        async def read(
            self, session: str, after: Seq = 0, limit: int = 1_000, kinds: Sequence[str] = ()
        ) -> list[Record]:
            nonlocal read
            page = await super().read(session, after, limit, kinds)
            read += len(page)
            return page

    async with await Counting.open(talk.world.home / "store.db") as store:
        session = await HeldSession.open(Sessions(store), talk.id)
        state, entries = session.state, session.history.entries()
        await session.release()
    return read, state, entries


@pytest.mark.promise(27)
def test_a_silent_summariser_holds_up_neither_an_input_nor_the_answers(talk: Talk) -> None:
    talk.say_until_nearly_full()
    talk.summary = Reply(then="hang")
    talk.said += [f"prompt 04 {FILLER}", "prompt 05 and a few words"]
    with talk.world.start("run", talk.said[4], "--session", talk.id) as first:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        before_s = time.monotonic()
        with talk.world.start(
            "run", talk.said[5], "--session", talk.id, "--output", "ndjson"
        ) as second:
            wait_until(
                lambda: "accepted" in second.shown() or '"session"' in second.shown(), "acceptance"
            )
            pending = [m for m in talk.world.messages(talk.id, "user") if m["state"] == "pending"]
            took_s = time.monotonic() - before_s
            assert [message["text"] for message in pending] == [talk.said[5]]
            assert first.end() == 0
            assert second.end() == 0
    assert took_s < 3, "one second, and two programs that had to start"
    talk.check_kept()
    assert talk.facts(Compacted) == []
    assert {ended.outcome for ended in talk.facts(HelperEnded)} == {"failed"}


def said_all(talk: Talk, count: int) -> bool:
    return len(talk.world.messages(talk.id, "user")) == count


@pytest.mark.promise(21, 27)
def test_five_inputs_while_a_summary_is_made_are_all_kept_and_answered_in_order(talk: Talk) -> None:
    talk.say_until_nearly_full()
    talk.summary = Reply(("They spoke ", "of much."), held=True, usage=False)
    talk.world.environment["STENO_LIMITS_SUMMARY_S"] = "60"
    talk.said += [f"prompt {i:02} {FILLER}" for i in range(4, 10)]
    with talk.world.start("run", talk.said[4], "--session", talk.id) as first:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        waiting: list[threading.Thread] = []
        for i in range(5, 10):
            waiting.append(
                threading.Thread(
                    target=talk.world.steno, args=("run", talk.said[i], "--session", talk.id)
                )
            )
            waiting[-1].start()
            wait_until(partial(said_all, talk, i + 1), "acceptance")
        talk.server.go_on()
        assert first.end() == 0
        for thread in waiting:
            thread.join(30)
    talk.check_kept()


@pytest.mark.promise(28)
def test_a_stop_while_a_summary_is_made_leaves_the_old_context(talk: Talk) -> None:
    talk.say_until_nearly_full()
    talk.summary = Reply(("half a summary",), then="hang")
    talk.world.environment["STENO_LIMITS_SUMMARY_S"] = "60"
    with talk.world.start("run", f"prompt 04 {FILLER}", "--session", talk.id) as running:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        talk.world.steno("interrupt", talk.id)
        assert running.end() == 130
    assert talk.facts(Compacted) == []
    assert [ended.outcome for ended in talk.facts(HelperEnded)] == ["stopped"]
    assert talk.world.show(talk.id)["turns"][-1]["outcome"] == "interrupted"
    talk.summary = Reply(("They spoke ", "of many things."), usage=False)
    talk.world.steno("run", "and now?", "--session", talk.id)
    check("openai-chat", talk.requests()[-1])
    assert "half a summary" not in json.dumps(talk.requests()[-1])


@pytest.mark.promise(31)
def test_a_summary_that_does_not_help_is_asked_for_a_few_times_and_the_outcome_says_so(
    talk: Talk,
) -> None:
    talk.say_until_nearly_full()
    talk.summary = Reply(("no shorter than before " * 400,), usage=False)
    long = f"prompt 04 {FILLER * 6}"
    assert talk.world.steno("run", long, "--session", talk.id, expect=1) == ""
    assert 1 <= len(talk.summary_requests()) <= 8
    last = talk.world.show(talk.id)["turns"][-1]
    assert (last["outcome"], last["cause"]) == ("failed", "too_long")
    asked = len(talk.requests())
    talk.world.steno("run", "short", "--session", talk.id)
    assert len(talk.requests()) == asked + 1
    assert long not in json.dumps(talk.requests()[-1])


# --- killed ---------------------------------------------------------------------------------------


def grown(tmp_path: Path, server: ModelServer) -> Talk:
    talk = Talk(World(tmp_path, server.url), server)
    talk.say_until_nearly_full()
    return talk


def go_on(talk: Talk, world: World) -> None:
    """One session, with the old context or the new, and it goes on."""
    (listed,) = world.sessions()
    assert listed["id"] == talk.id
    users = [message["text"] for message in world.messages(talk.id, "user")]
    assert users[:4] == talk.said[:4]
    asked = len(talk.requests())
    world.steno("run", "and now?", "--session", talk.id)
    request = talk.requests()[asked]
    check("openai-chat", request)
    text = json.dumps(request)
    compacted = "They spoke of many things." in text
    assert text.count("They spoke of many things.") == compacted
    if not compacted:
        assert all(prompt[:60] in text for prompt in talk.said[:4])
    with steno.open(world.home / "store.db") as library:
        facts = [record.fact for record in library.store.read_all(talk.id)]
        assert library.store.verify().damage == ()
    started = sum(isinstance(fact, HelperStarted) for fact in facts)
    assert started == sum(isinstance(fact, HelperEnded) for fact in facts)
    assert sum(isinstance(fact, Compacted) for fact in facts) == compacted


@pytest.mark.promise(8, 28)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.suite("1")
def test_a_kill_at_any_boundary_of_a_compaction_leaves_the_old_context_or_the_new(
    tmp_path: Path, server: ModelServer, part: int
) -> None:
    talk = grown(tmp_path, server)
    for n in range(1 + part, 8, 3):
        for when in ("before", "after"):
            world = talk.world.copied(f"{when}-{n}")
            with world.start_dying(
                when, n, "run", f"prompt 04 {FILLER}", "--session", talk.id
            ) as dying:
                status = dying.end()
            assert status in (-9, 0), dying.errors()
            go_on(talk, world)
            if status == 0:
                return


@pytest.mark.promise(28)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
@pytest.mark.suite("0.4")
def test_a_kill_at_any_instant_of_a_compaction_leaves_the_old_context_or_the_new(
    tmp_path: Path, server: ModelServer, share: float
) -> None:
    talk = grown(tmp_path, server)
    talk.summary = Reply(("They ", "spoke ", "of ", "many ", "things."), delay_s=0.05, usage=False)
    with talk.world.start("run", f"prompt 04 {FILLER}", "--session", talk.id) as dying:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        time.sleep(0.3 * share)
        dying.kill()
    go_on(talk, talk.world)
