"""steno under pydantic-ai: what it asks of a store of conversations, beside its own in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from steno.adapters.pydantic_ai import StenoConversationStore

Make = Callable[[], ConversationStore]


def turn(text: str) -> list[ModelMessage]:
    asked = ModelRequest(parts=[UserPromptPart(content=text)])
    return [asked, ModelResponse(parts=[TextPart(content=f"re: {text}")])]


def texts(messages: list[ModelMessage]) -> list[str]:
    return [str(getattr(message.parts[0], "content", "")) for message in messages]


@pytest.fixture(params=["steno", "theirs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ConversationStore:
    if request.param == "theirs":
        return InMemoryConversationStore()
    return StenoConversationStore(tmp_path / "chats.db")


async def said(store: ConversationStore, id: str, *said: str, scope: str | None = None) -> None:
    for text in said:
        chat = await store.load(id) or Conversation(messages=[], conversation_id=id)
        chat.messages.extend(turn(text))
        await store.save(chat, scope=scope)


async def read(store: ConversationStore, id: str, limit: int | None = None) -> list[str] | None:
    chat = await store.load(id, limit=limit)
    return None if chat is None else texts(chat.messages)


@pytest.mark.promise(76)
@pytest.mark.promise(16)
def test_messages_are_stored_once_and_read_back(store: ConversationStore) -> None:
    async def use() -> None:
        assert await read(store, "alice") is None
        await said(store, "alice", "a", "b")
        assert await read(store, "alice") == ["a", "re: a", "b", "re: b"]
        assert await read(store, "alice", limit=1) == ["re: b"]
        assert await read(store, "alice", limit=0) == []
        chat = await store.load("alice")
        assert chat is not None
        assert await store.save(chat) == []
        entries = await store.load_entries("alice")
        assert entries is not None
        assert [one.parent_id for one in entries] == [None, *(one.id for one in entries[:-1])]
        assert await store.read_entry(entries[1].id) == entries[1]
        with pytest.raises(LookupError):
            await store.read_entry("nothing")

    asyncio.run(use())


@pytest.mark.promise(76)
@pytest.mark.promise(17)
@pytest.mark.promise(18)
def test_a_conversation_that_was_saved_since_is_refused(store: ConversationStore) -> None:
    async def use() -> None:
        await said(store, "alice", "a")
        one, two = await store.load("alice"), await store.load("alice")
        assert one is not None
        assert two is not None
        one.messages.extend(turn("b"))
        two.messages.extend(turn("c"))
        await store.save(one)
        with pytest.raises(ConversationConflict):
            await store.save(two)
        with pytest.raises(ConversationConflict):
            await store.save(Conversation(messages=[], conversation_id="alice"))
        assert await read(store, "alice") == ["a", "re: a", "b", "re: b"]

    asyncio.run(use())


def test_a_branch_leaves_a_history_and_comes_back_to_it(store: ConversationStore) -> None:
    async def use() -> None:
        await said(store, "alice", "a", "b")
        chat = await store.load("alice")
        assert chat is not None
        assert chat.revision is not None
        left = await store.load_entries("alice")
        assert left is not None
        branched = await store.branch("alice", at=2, expected_revision=chat.revision)
        branched.messages.extend(turn("c"))
        await store.save(branched)
        assert await read(store, "alice") == ["a", "re: a", "c", "re: c"]
        now = await store.load("alice")
        assert now is not None
        assert now.revision is not None
        await store.branch("alice", from_entry=left[-1].id, expected_revision=now.revision)
        assert await read(store, "alice") == ["a", "re: a", "b", "re: b"]

    asyncio.run(use())


def test_a_fork_goes_on_when_what_it_came_from_is_deleted(store: ConversationStore) -> None:
    async def use() -> None:
        await said(store, "alice", "a", "b")
        await store.fork("alice", at=2, new_conversation_id="bob", scope="other")
        await store.fork("bob", new_conversation_id="carol")
        await said(store, "bob", "c")
        await said(store, "alice", "d")
        for gone in ("alice", "bob"):
            await store.delete(gone)
            assert await read(store, gone) is None
        assert await read(store, "carol") == ["a", "re: a"]
        await said(store, "alice", "new")
        assert await read(store, "alice") == ["new", "re: new"]
        with pytest.raises(UserError):
            await store.fork("bob")

    asyncio.run(use())


def test_conversations_are_listed_by_scope_the_last_first(store: ConversationStore) -> None:
    async def use() -> None:
        await said(store, "a", "x", scope="one")
        await said(store, "b", "x", scope="two")
        await said(store, "c", "x", scope="one")
        await said(store, "a", "y")
        assert [one.conversation_id for one in await store.list_conversations()] == ["a", "c", "b"]
        only = await store.list_conversations(scope="one", limit=1)
        assert [one.conversation_id for one in only] == ["a"]
        assert await store.load("b", scope="one") is None
        await store.delete("b", scope="one")
        assert await read(store, "b") == ["x", "re: x"]

    asyncio.run(use())
