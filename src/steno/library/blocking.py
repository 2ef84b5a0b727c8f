"""The verbs of the asynchronous face, blocking: the same coroutines, over a store whose verbs never
suspend."""

from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from steno.journal.parts import Seq
from steno.library.given import a_str
from steno.library.library import AsyncLibrary
from steno.library.means import (
    SOURCE,
    Means,
    asked,
    at_once,
    keep_clear,
    path_of,
    search_of,
    sleep,
)
from steno.library.reply import AsyncReply
from steno.library.session import (
    AsyncSession,
    Attached,
    Followed,
    WireFormat,
    bring,
    cursor_at,
    followed,
)
from steno.session.cursors import Place
from steno.store import facade
from steno.store.facade import now
from steno.store.protocol import Admitted, Keeping, Kept, Listed, Store

if TYPE_CHECKING:
    from steno.items import Items
    from steno.journal.transcript import Message, Transcript
    from steno.journal.usage import UsageTotal
    from steno.search.keeper import Search
    from steno.search.searching import Found
    from steno.service.redaction_traces import Redaction


class Library:
    """All sessions of one store."""

    def __init__(self, store: facade.BlockingStore) -> None:
        self.store = store
        self._means = Means(cast(Store, facade.AtOnce(store)), sleep, at_once)
        self._search: Search | None = None
        keep_clear(store, path_of(store))

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
        self.store.close()

    def session(self, name: str) -> "Session":
        """The session bound to a name of yours (a user, a ticket, a chat), made if there is
        none."""
        return Session(
            AsyncSession(self._means, now(self._means.ensure(name))), self.store
        )

    def open(self, id: str) -> "Session":
        """The session with this id."""
        return Session(
            AsyncSession(self._means, now(self._means.known(id))), self.store
        )

    def sessions(self) -> Iterator[Listed]:
        """Every session, the most recently used first."""
        page = self.store.list()
        while page:
            yield from page
            page = self.store.list(before=page[-1].mark)

    def items(self, name: str, format: str, platform: str = SOURCE) -> "Items":
        """What another program keeps under a name, in a format of its own. Nothing is made until
        something is kept."""
        from steno.items import AsyncItems, Items

        kept = AsyncItems(
            self._means.store, a_str("name", name), a_str("format", format), platform
        )
        return Items(kept)

    def bring(self, file: str | PathLike[str], trust: bool = False) -> "Session":
        from asyncio import run
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(
            1
        ) as thread:  # a file is read beside the loop, so there must be one
            brought = thread.submit(run, bring(self._means, file, trust)).result()
        return Session(brought, self.store)

    def keep_all(self, changes: Sequence[Keeping]) -> tuple[Kept, ...]:
        """Several changes of items, each of another name, in one commit: see `Items.keeping`."""
        return self.store.keep_all(changes)

    def named(self, prefix: str) -> Iterator[Listed]:
        """Every session whose name begins with a prefix, in the order of the names."""
        page = self.store.named(a_str("prefix", prefix))
        while page:
            yield from page
            page = self.store.named(prefix, page[-1].row.name or "")

    def search(
        self,
        query: str,
        limit: int = 20,
        all: bool = False,
        newest: bool = False,
        before: str | None = None,
        literal: bool = False,
    ) -> "Found":
        if self._search is None:
            self._search = search_of(self.store, path_of(self.store))
        return self._search.find(asked(query, limit, all, newest, before, literal))

    bring.__doc__ = AsyncLibrary.bring.__doc__
    search.__doc__ = AsyncLibrary.search.__doc__


class Session:
    """The verbs of `AsyncSession`, blocking."""

    def __init__(self, session: AsyncSession, store: facade.BlockingStore) -> None:
        self.store = store
        self.id = session.id
        self._session = session

    def say(
        self,
        text: str,
        key: str | None = None,
        author: str | None = None,
        attach: Sequence[Attached] = (),
    ) -> Admitted:
        return now(self._session.say(text, key, author, attach))

    def reply(
        self, model: str, to: Admitted | Seq | None = None, wait: float = 0.0
    ) -> "Reply":
        return Reply(self._session.reply(model, to, wait))

    def follow(self, after: str | None = None) -> Iterator[Followed]:
        place = Place(cursor_at(after))
        for event in self.store.follow(self.id, place.cursor()):
            yield followed(event, place)

    def rename(self, title: str) -> None:
        now(self._session.rename(title))

    def undo(self) -> Seq:
        return now(self._session.undo())

    def rewind(self, to: "Message | Seq") -> Seq:
        return now(self._session.rewind(to))

    def redo(self, undone: Seq) -> None:
        now(self._session.redo(undone))

    def hide(self, message: "Message | Seq", hidden: bool = True) -> bool:
        return now(self._session.hide(message, hidden))

    def redact(self, message: "Message | Seq") -> "Redaction":
        return now(self._session.redact(message))

    def fork(self, at: "Message | Seq") -> "Session":
        return Session(now(self._session.fork(at)), self.store)

    def delete(self, with_forks: bool = False) -> int:
        return now(self._session.delete(with_forks))

    def export(self, to: str | PathLike[str], overwrite: bool = False) -> None:
        now(self._session.export(to, overwrite))

    def markdown(self) -> str:
        return now(self._session.markdown())

    def usage(self) -> "UsageTotal":
        return now(self._session.usage())

    def messages(self, limit: int | None = None, after: Seq = 0) -> "list[Message]":
        return now(self._session.messages(limit, after))

    def history(self, format: WireFormat) -> list[Any]:
        return now(self._session.history(format))

    def output(self, message: "Message | Seq") -> str:
        return now(self._session.output(message))

    def transcript(self) -> "Transcript":
        return now(self._session.transcript())

    say.__doc__ = AsyncSession.say.__doc__
    reply.__doc__ = AsyncSession.reply.__doc__
    follow.__doc__ = AsyncSession.follow.__doc__
    undo.__doc__ = AsyncSession.undo.__doc__
    rewind.__doc__ = AsyncSession.rewind.__doc__
    redo.__doc__ = AsyncSession.redo.__doc__
    hide.__doc__ = AsyncSession.hide.__doc__
    redact.__doc__ = AsyncSession.redact.__doc__
    fork.__doc__ = AsyncSession.fork.__doc__
    delete.__doc__ = AsyncSession.delete.__doc__
    export.__doc__ = AsyncSession.export.__doc__
    markdown.__doc__ = AsyncSession.markdown.__doc__
    usage.__doc__ = AsyncSession.usage.__doc__
    messages.__doc__ = AsyncSession.messages.__doc__
    history.__doc__ = AsyncSession.history.__doc__
    output.__doc__ = AsyncSession.output.__doc__
    transcript.__doc__ = AsyncSession.transcript.__doc__


class Reply:
    """One turn: takes an input, stores every piece before you show it, and ends however you leave
    the block."""

    def __init__(self, reply: AsyncReply) -> None:
        self._reply = reply
        self._write = reply.write

    @property
    def text(self) -> str:
        return self._reply.text

    @property
    def input(self) -> "Message":
        """What is answered."""
        return self._reply.input

    def __enter__(self) -> "Reply":
        now(self._reply.__aenter__())
        return self

    def write(self, piece: str) -> str:
        """Store a piece of the answer; returned when it is durable and may be shown."""
        return now(self._write(piece))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        now(self._reply.__aexit__(kind, error, at))
