"""What a person can do with sessions, for every front end: the only way from a front end to the
store.

    service.admit       accept an input (or withdraw it while it waits); then
    service.turns       run it, follow it, continue, retry, stop
    service.approvals   decide about calls
    service.edits       undo, rewind, hide, redact, fork, rename, compact
    service.files       how files differ, and putting them back
    service.visits      come and leave: ends, and what they owe to plugins
    service.chats       people in chats, and what those are to show
    service.jobs        what runs at its times by itself
    service.deliveries  what is owed to places outside
    service.views       look
    service.memories    distil, list and remove what sessions have to remember
    service.searches    find what was said
    service.transfers   export to a file, import from one
    service.moving_in   import what other agents keep

Misused   what was asked means nothing; nothing was stored; say what would

Each part is loaded when it is first used: a command that looks at sessions needs few of them.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from steno.journal.facts import (
    DeliveryOwed,
    InputAdmitted,
    InputWithdrawn,
    Label,
    MessageGiven,
    SessionStarted,
)
from steno.journal.listing import ONE_OFF
from steno.journal.parts import Seq, Text
from steno.service.views import Approval, Shown, Summary, Views
from steno.session.errors import Misused
from steno.session.load import Loaded, Sessions
from steno.session.page import Page, Tail
from steno.store.errors import UnknownSession
from steno.store.protocol import Admission, Admitted, Report, Shares

if TYPE_CHECKING:
    from steno.runtimes.protocol import Runtime
    from steno.search.keeper import Search
    from steno.service.approvals import Approvals
    from steno.service.attachments import Attachment
    from steno.service.chats import Chats
    from steno.service.deliveries import Deliveries
    from steno.service.edits import Edits
    from steno.service.files import Files
    from steno.service.jobs import Jobs
    from steno.service.memory import Memories
    from steno.service.moving_in import MovingIn
    from steno.service.searches import Searches
    from steno.service.transfers import Transfers
    from steno.service.visits import Visits
    from steno.session.live import Live
    from steno.tools.protocol import Workspace

__all__ = [
    "Approval",
    "Framing",
    "Loaded",
    "Misused",
    "Page",
    "Service",
    "Shown",
    "Summary",
    "Tail",
]


class Framing(Struct, frozen=True):
    """What a client says about an input beside its text. `given`: what was said elsewhere before a
    session that begins with this input. `one_off`: that session is for this input alone."""

    instructions: str | None = None
    labels: tuple[Label, ...] = ()
    given: tuple[MessageGiven, ...] = ()
    payloads: tuple[bytes, ...] = ()
    one_off: bool = False


class Service:
    """`platform`: where its callers are. `ephemeral`: its sessions live in the memory of this
    process, and end with it. `folder`: the one that new sessions belong to. `workspace_in`: where
    tools work, by the folder of their session."""

    def __init__(
        self,
        sessions: Sessions,
        runtime: "Runtime",
        platform: str,
        visits: "Visits",
        deliveries: "Deliveries",
        memories: "Memories",
        ephemeral: bool = False,
        search: "Callable[[], Search] | None" = None,
        folder: str = "",
        workspace_in: "Callable[[str], Workspace] | None" = None,
    ) -> None:
        self.ephemeral = ephemeral
        self.folder = folder
        self.views = Views(sessions)
        self.visits = visits
        self.deliveries = deliveries
        self.memories = memories
        self._runtime = runtime
        self._workspace_in = workspace_in
        self._sessions = sessions
        self._store = sessions.store
        self._platform = platform
        self._search = search

    @cached_property
    def turns(self) -> "Live":
        from steno.session.live import Live

        return Live(self._sessions, self._runtime)

    @cached_property
    def approvals(self) -> "Approvals":
        from steno.service.approvals import Approvals

        return Approvals(self._store, self.views)

    @cached_property
    def chats(self) -> "Chats":
        from steno.service.chats import Chats

        return Chats(self._sessions, self.views, self.visits)

    @cached_property
    def edits(self) -> "Edits":
        from steno.service.edits import Edits

        return Edits(self._sessions, self._runtime, self._platform)

    @property
    def searches(self) -> "Searches":
        from steno.service.searches import Searches

        if self._search is None:
            raise Misused("there is no search here")
        return Searches(self._search(), self._sessions)

    @cached_property
    def jobs(self) -> "Jobs":
        from steno.service.jobs import Jobs
        from steno.session.jobs import JobBook

        return Jobs(JobBook(self._store), self.chats)

    @property
    def transfers(self) -> "Transfers":
        from steno.service.transfers import Transfers

        return Transfers(self._store, self.views)

    def moving_in(self, dry: bool) -> "MovingIn":
        """Import from other agents; `dry` stores nothing."""
        from steno.service.moving_in import MovingIn

        return MovingIn(self._store, dry)

    @cached_property
    def files(self) -> "Files":
        from steno.service.files import Files

        if self._workspace_in is None:
            raise Misused("no tool changes files here")
        return Files(self._sessions, self._workspace_in)

    async def close(self) -> None:
        await self._store.close()

    async def admit(
        self,
        text: str,
        session: str | None,
        name: str | None,
        key: str | None,
        model: str,
        mode: Literal["queue", "steer"] = "queue",
        attachments: "Sequence[Attachment]" = (),
        visit: bool = True,
        owes: tuple[DeliveryOwed, ...] = (),
        framing: Framing = Framing(),  # noqa: B008 - it is frozen
    ) -> Admitted:
        """Accept an input. When this returns, it is stored, with its attachments and with whom its
        answer is owed to. If this front end has not opened the session yet, its visit begins with
        it."""
        if not text.strip() and not attachments:
            raise Misused("the prompt is empty; nothing was stored")
        if name is not None and not name.strip():
            raise Misused("the name of a session is empty; nothing was stored")
        if key == "":
            raise Misused("the id of an input is empty; nothing was stored")
        if attachments:
            from steno.service.attachments import check_together

            check_together(attachments)
        known = (
            await self._store.find(name)
            if session is None and name is not None
            else session
        )
        if known is not None:
            await self._sessions.check(known)
        parts = (
            *(one.part for one in attachments),
            *((Text(text),) if text.strip() else ()),
        )
        said = InputAdmitted(
            parts,
            self._platform,
            key,
            mode=mode,
            instructions=framing.instructions,
            labels=framing.labels,
        )
        platform = ONE_OFF if framing.one_off else self._platform
        create = None if session is not None else self._started(model, name, platform)
        payloads = tuple({one.part.hash: one.data for one in attachments}.values())
        came = await self.visits.opening(session, name) if visit else None
        admitted = await self._store.admit(
            Admission(
                input=said,
                session=session,
                create=create,
                payloads=payloads + framing.payloads,
                visit=came,
                owes=owes,
                given=framing.given,
            )
        )
        self.visits.began(admitted.session, admitted.visit)
        if owes and visit:
            self.deliveries.get_ready()
        return admitted

    async def admitted(self, key: str) -> Admitted | None:
        """What an input with this key, from here, was given back, if there was one."""
        return await self._store.admitted(self._platform, key)

    async def begin(
        self, model: str, name: str | None = None, title: str | None = None
    ) -> str:
        """Make a session in which nothing is said yet; its id."""
        if name is not None and not name.strip():
            raise Misused("the name of a session is empty; nothing was stored")
        started = self._started(model, name)
        id = await (
            self._store.create(started)
            if name is None
            else self._store.ensure(started)
        )
        if title is not None:
            await self.edits.rename(id, title)
        return id

    def _started(
        self, model: str, name: str | None, platform: str = ""
    ) -> SessionStarted:
        return SessionStarted(
            platform or self._platform, model, name, folder=self.folder
        )

    async def withdraw(self, session: str, input: Seq) -> None:
        """Take an input back that waits. `NotPending` if it was taken first: then it is being
        answered."""
        await self._store.add(
            session, [InputWithdrawn(input)], key=f"withdrawn:{input}"
        )

    async def delete(self, id: str, with_forks: bool) -> int:
        """Remove a session for good; how many went. Plugins are told first that it ends, if it is
        open. For one that is gone already, remove what a kill left of it."""
        with contextlib.suppress(UnknownSession):
            id = await self.views.resolve(id)
            forked_from = (await self._store.glance(id)).row.forked_from
            own = 1 if forked_from is None else forked_from.seq + 1
            doomed = tuple(
                [
                    one.id
                    for one in await self._store.list(1 << 31, where=Shares(id, own))
                ]
            )
            if with_forks or len(doomed) == 1:
                await self.visits.delete(doomed)
        return await self._store.delete(id, with_forks)

    async def verify(self, tell: Callable[[int, int], None] | None = None) -> Report:
        return await self._store.verify(tell)
