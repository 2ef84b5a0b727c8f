"""Sessions as values: reading from a place, following with cursors, editing, files. Each claim for
the blocking and for the asynchronous face."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.journal.parts import File
from steno.store.errors import NotAllowed, SessionBusy, UnknownSession
from steno.transfer import FileExists


async def settled(given: Any) -> Any:
    """What a verb of either face gives."""
    return await given if inspect.isawaitable(given) else given


def faces(claim: Callable[..., Any]) -> Any:
    """A test for each face, over a file and over memory; the claim is given an open library."""

    @pytest.mark.parametrize("path", ["chats.db", ":memory:"])
    @pytest.mark.parametrize("opened", [steno.open, steno.aopen], ids=["open", "aopen"])
    def test(opened: Callable[..., Any], path: str, tmp_path: Path) -> None:
        async def run() -> None:
            library = opened(path if path == ":memory:" else tmp_path / path)
            if opened is steno.aopen:
                async with library as chats:
                    await claim(chats, tmp_path)
            else:
                with library as chats:
                    await claim(chats, tmp_path)

        asyncio.run(run())

    test.__name__ = claim.__name__
    test.__doc__ = claim.__doc__
    return test


async def said(chat: Any, text: str, *answer: str) -> Any:
    """An input with its answer."""
    admitted = await settled(chat.say(text))
    reply = chat.reply("my-model", to=admitted)
    if hasattr(reply, "__aenter__"):
        async with reply:
            for piece in answer:
                await reply.write(piece)
    else:
        with reply:
            for piece in answer:
                reply.write(piece)
    return admitted


async def events(chat: Any, after: str | None, upto: int) -> list[steno.Followed]:
    found: list[steno.Followed] = []
    follow = chat.follow(after)
    if hasattr(follow, "__aiter__"):
        async for one in follow:
            found.append(one)
            if getattr(one.event, "seq", 0) >= upto:
                await follow.aclose()
                break
    else:
        for one in follow:
            found.append(one)
            if getattr(one.event, "seq", 0) >= upto:
                break
    return found


async def told(chat: Any) -> list[str]:
    """What a model is told."""
    return [one["content"] for one in await settled(chat.history("openai-chat"))]


@faces
async def test_what_was_undone_hidden_or_rewound_comes_back(chats: Any, tmp_path: Path) -> None:
    chat = await settled(chats.session("alice"))
    first = await said(chat, "one", "1")
    await said(chat, "two", "2")
    whole = ["one", "1", "two", "2"]
    assert await told(chat) == whole
    undone = await settled(chat.undo())
    assert await told(chat) == ["one", "1"]
    await settled(chat.redo(undone))
    assert await told(chat) == whole
    rewound = await settled(chat.rewind(first.seq))
    assert await told(chat) == ["one"]
    await settled(chat.redo(rewound))
    assert await settled(chat.hide(first.seq)) is True
    assert await settled(chat.hide(first.seq)) is False
    assert "one" not in await told(chat)
    await settled(chat.hide(first.seq, hidden=False))
    assert await told(chat) == whole
    assert [message.text for message in await settled(chat.messages())] == whole
    with pytest.raises(NotAllowed, match="no undo"):
        await settled(chat.redo(undone))


@faces
async def test_a_redacted_text_is_gone_from_forks_too(chats: Any, tmp_path: Path) -> None:
    chat = await settled(chats.session("alice"))
    first = await said(chat, "my key is 0451", "noted")
    fork = await settled(chat.fork(first.seq))
    assert [one.text for one in await settled(fork.messages())] == ["my key is 0451"]
    await settled(chat.redact(first.seq))
    for one in (chat, fork):
        messages = await settled(one.messages())
        assert "0451" not in "".join(message.text for message in messages)
    assert "0451" not in await settled(chat.markdown())
    assert "0451" not in await settled(fork.markdown())


@faces
async def test_a_session_leaves_and_comes_back(chats: Any, tmp_path: Path) -> None:
    chat = await settled(chats.session("alice"))
    await settled(chat.say("look", attach=[("notes.txt", b"inside")]))
    await said(chat, "and?", "seen")
    await settled(chat.export(tmp_path / "alice.steno"))
    before = [message.text for message in await settled(chat.messages())]
    with pytest.raises(FileExists):
        await settled(chat.export(tmp_path / "alice.steno"))
    assert await settled(chat.delete()) == 1
    with pytest.raises(UnknownSession):
        await settled(chat.messages())
    back = await settled(chats.bring(tmp_path / "alice.steno"))
    messages = await settled(back.messages())
    assert (back.id, [message.text for message in messages]) == (chat.id, before)
    [part] = [part for message in messages for part in message.attachments]
    assert isinstance(part, File)
    assert await settled(chats.store.get(part.hash)) == b"inside"
    assert (await settled(chats.bring(tmp_path / "alice.steno"))).id == chat.id


@pytest.mark.promise(9)
@faces
async def test_a_reader_goes_on_from_any_cursor_without_a_gap(chats: Any, tmp_path: Path) -> None:
    chat = await settled(chats.session("alice"))
    await said(chat, "one", "Hel", "lo")
    head = 6
    whole = await events(chat, None, head)
    assert [one.event.seq for one in whole if hasattr(one.event, "seq")] == [1, 2, 3, 4, 5, 6]
    assert "".join(one.text for one in whole) in ("", "Hello")
    for at, one in enumerate(whole[:-1]):
        rest = await events(chat, one.cursor, head)
        assert [later.cursor for later in rest] == [later.cursor for later in whole[at + 1 :]]
    with pytest.raises(ValueError, match="not a cursor"):
        await events(chat, "<script>", head)


@faces
async def test_a_piece_is_followed_with_a_cursor_in_the_middle_of_it(
    chats: Any, tmp_path: Path
) -> None:
    chat = await settled(chats.session("alice"))
    await settled(chat.say("one"))
    reply = chat.reply("my-model")
    waits = hasattr(reply, "__aenter__")
    await reply.__aenter__() if waits else reply.__enter__()
    await settled(reply.write("Hello"))
    follow = chat.follow("4~4t2")
    one = await anext(follow) if waits else next(follow)
    assert (one.text, one.cursor) == ("llo", "4~4t5")
    await follow.aclose() if waits else follow.close()
    with pytest.raises(SessionBusy):
        await settled(chat.undo())
    await reply.__aexit__(None, None, None) if waits else reply.__exit__(None, None, None)


@faces
async def test_messages_are_read_from_a_place_and_used_is_counted(
    chats: Any, tmp_path: Path
) -> None:
    chat = await settled(chats.session("alice"))
    for n in range(4):
        await said(chat, f"q{n}", f"a{n}")
    last = await said(chat, "q4", "a4")
    await settled(chat.rename("About letters"))
    assert [one.text for one in await settled(chat.messages(limit=3))] == ["a3", "q4", "a4"]
    assert [one.text for one in await settled(chat.messages(after=last.seq))] == ["a4"]
    assert (await settled(chat.usage())).calls == 5
    assert (await settled(chat.transcript())).title == "About letters"
