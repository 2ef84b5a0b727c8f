"""Searching what was said, over a real store."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from steno.journal.facts import (
    Compacted,
    InputAdmitted,
    MessageHidden,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.listing import DELEGATED, author
from steno.journal.parts import Outcome, Reasoning, Returned, Text, ToolCall
from steno.search.keeper import Search
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.store import SqliteStore
from steno.tools.protocol import BadArguments
from steno.tools.search import SearchSessions
from tests.tools.calls import Pieces, said

T = TypeVar("T")


def with_store(folder: Path, test: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await SqliteStore.open(folder / "store.db", Settings(durability="process"))
        try:
            return await test(store)
        finally:
            await store.close()

    return asyncio.run(run())


async def talked(store: SqliteStore, asked: str, answered: str, platform: str = "cli") -> str:
    """A session with one turn in which a tool ran and a summary was made; its id."""
    admitted = await store.admit(
        Admission(
            input=InputAdmitted((Text(asked),), "test"), create=SessionStarted(platform=platform)
        )
    )
    lease = await store.acquire(admitted.session)
    parts = (
        Reasoning("thought of apples"),
        Text(answered),
        ToolCall("c", "shell", '{"command":"apples"}'),
    )
    facts = (
        TurnStarted(Takes(admitted.seq)),
        StepStarted("m"),
        StepSealed(admitted.seq + 2, parts),
        ToolStarted(admitted.seq + 2, "c"),
        ToolSettled(admitted.seq + 2, "c", Returned((Text("output of apples"),)), admitted.seq + 4),
        TurnEnded(admitted.seq + 1, "done"),
        Compacted(admitted.seq + 5, "a summary of apples"),
    )
    head = admitted.seq
    for fact in facts:
        head = (await store.append(lease, [fact], head)).last
    await store.release(lease, head)
    return admitted.session


async def searched(store: SqliteStore, by: str, **asked: object) -> Outcome:
    search = Search(store.blocking, None)
    prepared = await SearchSessions(lambda: search, store, by).prepare(json.dumps(asked))
    return await prepared.run(Pieces())


def test_what_people_and_the_assistant_said_is_found_and_nothing_else(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        one = await talked(store, "I like Apples", "Noted.")
        two = await talked(store, "and pears?", "Better than APPLES\nby far.")
        found = said(await searched(store, two, query="apples"))
        lines = found.splitlines()
        assert lines[0].startswith(f"{one} message 2 (")
        assert lines[1] == "  I like Apples"
        assert lines[2].startswith(f"{two} message 4 (")
        assert lines[2].endswith("assistant, this session) 'and pears?'")
        assert lines[3] == "  Better than APPLES by far."
        assert lines[4:] == ["[2 messages with 'apples' in 2 sessions]"]
        for word in ("summary", "thought", "output of", "shell"):
            assert (
                said(await searched(store, two, query=word))
                == f"[0 messages with {word!r} in 0 sessions]"
            )
        output = said(await searched(store, two, query="apples in:tools", all=True))
        assert "output of apples" in output

    with_store(tmp_path, run)


@pytest.mark.parametrize("query", ["漢", "ÄPFEL", "a  b"])
def test_text_is_looked_for_as_it_is_in_any_case(tmp_path: Path, query: str) -> None:
    async def run(store: SqliteStore) -> None:
        id = await talked(store, "漢字 und äpfel, a  b", "ok")
        assert "[1 messages" in said(await searched(store, id, query=query))

    with_store(tmp_path, run)


def test_hidden_and_redacted_messages_are_not_found(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        id = await talked(store, "the first secret", "the second secret")
        await store.add(id, [MessageHidden(2)])
        await store.redact(id, 4)
        assert (
            said(await searched(store, id, query="secret"))
            == "[0 messages with 'secret' in 0 sessions; 1 hidden messages are left out]"
        )
        await store.add(id, [MessageHidden(2, hidden=False)])
        assert "the first secret" in said(await searched(store, id, query="secret"))

    with_store(tmp_path, run)


@pytest.mark.promise(60)
def test_a_chat_sees_itself_and_a_terminal_sees_no_chats(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        terminal = await talked(store, "plum at the terminal", "ok")
        ours = await talked(store, "plum in our chat", "ok", "telegram")
        await talked(store, "plum in their chat", "ok", "telegram")
        here = said(await searched(store, ours, query="plum"))
        assert "plum in our chat" in here
        assert "their" not in here
        assert "terminal" not in here
        assert "2 sessions of other platforms are not searched from here" in here
        there = said(await searched(store, terminal, query="plum"))
        assert "plum at the terminal" in there
        assert "chat" not in there

    with_store(tmp_path, run)


async def delegated(store: SqliteStore, parent: str, prompt: str) -> str:
    """A helper's session, as `delegate` begins one."""
    said = InputAdmitted((Text(prompt),), DELEGATED, author=author(parent))
    return (await store.admit(Admission(input=said, create=SessionStarted(DELEGATED)))).session


@pytest.mark.promise(60)
def test_a_helper_sees_what_its_session_sees_and_is_seen_as_that(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        terminal = await talked(store, "plum at the terminal", "ok")
        ours = await talked(store, "plum in our chat", "ok", "telegram")
        theirs = await talked(store, "plum in their chat", "ok", "telegram")
        at_home, of_us, of_them = [
            await delegated(store, one, f"plum of {one}") for one in (terminal, ours, theirs)
        ]

        async def seen(by: str) -> set[str]:
            found = said(await searched(store, by, query="plum"))
            return {
                one
                for one in (terminal, ours, theirs, at_home, of_us, of_them)
                if f"{one} message" in found
            }

        assert await seen(of_us) == await seen(ours) == {ours, of_us}
        assert await seen(of_them) == await seen(theirs) == {theirs, of_them}
        assert await seen(at_home) == await seen(terminal) == {terminal, at_home}
        await store.delete(ours)
        assert await seen(of_us) == {of_us}

    with_store(tmp_path, run)


def test_results_are_bounded_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        ids = [await talked(store, f"needle {i} {'x' * 1000}", "ok") for i in range(10)]
        found = said(await searched(store, ids[0], query="needle", limit=3))
        assert found.count(" message ") == 3
        assert "…" in found
        assert len(found) < 2_000
        about, _, following = found.rpartition("next: ")
        assert about.endswith("[3 of 10 messages with 'needle' in 10 sessions; ")
        seen = {line.split()[0] for line in found.splitlines() if " message " in line}
        for _ in range(3):
            more = said(
                await searched(
                    store, ids[0], query="needle", limit=3, next=following.rstrip("]").strip('"')
                )
            )
            seen |= {line.split()[0] for line in more.splitlines() if " message " in line}
            following = more.rpartition("next: ")[2]
        assert seen == set(ids)

    with_store(tmp_path, run)


def test_a_result_can_be_followed(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        ours = await talked(store, "the needle", "found it")
        theirs = await talked(store, "their needle", "ok", "telegram")
        around = said(await searched(store, ours, session=ours, message=2))
        assert around.splitlines()[0] == "2 user: the needle"
        assert "4 assistant: found it" in around
        for session, seq in ((theirs, 2), (ours, 99), ("nowhere", 2)):
            outcome = await searched(store, ours, session=session, message=seq)
            assert "that you can read" in str(outcome)

    with_store(tmp_path, run)


def test_a_result_in_a_long_message_is_read_where_it_matches(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        id = await talked(store, "begin " + "hay " * 9_000 + "the needle" + " straw" * 9_000, "ok")
        begun = said(await searched(store, id, session=id, message=2))
        there = said(await searched(store, id, query="needle", session=id, message=2))
        assert "begin hay" in begun
        assert "needle" not in begun
        assert "hay the needle straw" in there
        assert 3_000 < len(there) < 9_000

    with_store(tmp_path, run)


def test_a_scan_ends_in_time_and_says_so(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        ids = [await talked(store, f"needle {i}", "ok") for i in range(5)]
        search = Search(store.blocking, None)
        tool = SearchSessions(lambda: search, store, ids[0], time_limit_s=0.0)
        prepared = await tool.prepare('{"query":"needle"}')
        assert "the time was over" in said(await prepared.run(Pieces()))

    with_store(tmp_path, run)


@pytest.mark.parametrize(
    "arguments", ["{}", '{"query":""}', '{"query":"a","limit":51}', '{"query":"a","x":1}']
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, arguments: str) -> None:
    async def run(store: SqliteStore) -> None:
        with pytest.raises(BadArguments):
            search = Search(store.blocking, None)
            await SearchSessions(lambda: search, store, "s").prepare(arguments)

    with_store(tmp_path, run)
