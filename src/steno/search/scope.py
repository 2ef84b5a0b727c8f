"""Who may see which sessions.

The owner of a store sees all of them. A session that asks (its model does) sees itself, and those
that began where it did: what was said to one platform is not told on another. A helper sees and is
seen as the session that delegated to it: delegating gives access to nothing more.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from steno.journal.facts import InputAdmitted
from steno.journal.listing import DELEGATED, parent_in
from steno.search.feed import Searched
from steno.search.index_file import IndexFile
from steno.store.errors import UnknownSession
from steno.store.protocol import PAGE

LOCAL = frozenset(("cli", "chat", "acp"))
"""Platforms of the one person who owns the store."""


class Origin(Struct, frozen=True):
    """Where a session began; of a helper's, where the session that delegated to it did."""

    session: str
    platform: str


class Scope(Protocol):
    """`all`: nothing has to be asked."""

    @property
    def all(self) -> bool: ...
    def sees(self, session: str, origin: Origin) -> bool: ...


class Everything:
    all = True

    def sees(self, session: str, origin: Origin) -> bool:
        return True


class OneSession:
    """For a token that is good for one session."""

    all = False

    def __init__(self, session: str) -> None:
        self._session = session

    def sees(self, session: str, origin: Origin) -> bool:
        return session == self._session


class FromSession:
    """What the model of a session may see."""

    all = False

    def __init__(self, session: str, own: Origin) -> None:
        self._session = session
        self._own = own

    def sees(self, session: str, origin: Origin) -> bool:
        if session == self._session or origin.session == self._own.session:
            return True
        return {self._own.platform, origin.platform} <= LOCAL


class Origins:
    """Where sessions began. That never changes, so it is asked once."""

    def __init__(self, store: Searched) -> None:
        self._store = store
        self._known: dict[str, Origin] = {}

    def of(self, session: str) -> Origin:
        if session not in self._known:
            self._known[session] = self._asked(session)
        return self._known[session]

    def _asked(self, session: str) -> Origin:
        row = self._began(session)
        if row.platform != DELEGATED:
            return row
        with suppress(UnknownSession):
            for record in self._store.read(session, 0, PAGE, ("input.admitted",)):
                fact = record.fact
                if (
                    isinstance(fact, InputAdmitted)
                    and (parent := parent_in(fact)) is not None
                ):
                    return self._began(parent)
        return row

    def _began(self, session: str) -> Origin:
        try:
            return Origin(session, self._store.glance(session).row.platform)
        except UnknownSession:
            return Origin(session, "")

    def unseen(
        self, scope: Scope, file: IndexFile | None, begun: Iterable[tuple[str, str]]
    ) -> int:
        """How many sessions a caller may not see. The index knows where most of them began;
        `begun` are those that it does not have yet."""
        if file is None:
            return sum(not scope.sees(id, self.of(id)) for id in self._listed())
        rows = file.rows("select id, platform, parent from sessions")
        for id, platform, _ in [
            *rows,
            *((id, platform, None) for id, platform in begun),
        ]:
            if platform is not None and platform != DELEGATED:
                self._known.setdefault(id, Origin(id, platform))
        ids = dict.fromkeys([*(row[0] for row in rows), *(id for id, _ in begun)])
        return sum(not scope.sees(id, self.of(id)) for id in ids)

    def _listed(self) -> Iterator[str]:
        page = self._store.list(200)
        while page:
            for one in page:
                if one.row.platform != DELEGATED:
                    self._known.setdefault(one.id, Origin(one.id, one.row.platform))
                yield one.id
            page = self._store.list(200, before=page[-1].mark)
