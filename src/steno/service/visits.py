"""Coming and leaving: who has a session open, and what its end owes to plugins.

    admit       the first input of a visit begins it, in the same commit
    attend      a front end opens a session that exists
    leave       it lets go: the end and what it owes are one commit, then plugins are told
    look        at a start: end the visits and commands of dead processes, tell what they left
    delete      a session that goes for good ends for all its visitors

Nothing here is needed for correctness of what was said. A process that is killed leaves an open
visit behind, and the next one to start ends it. However many start at once: the end is stored under
the key of its visit, and telling is taken over under a key that counts the tries, so one of them
does it.

The end of a visit is the end of the session only if no other visit is open. So dead visits of a
session are ended before a new one begins:

    attended 2 · killed · attended 9 · ended 10 (of 2)      plugins would never hear of the kill
    attended 2 · killed · ended 9 (of 2, owed to plugins) · attended 11
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from steno.engine.visit_end import HOOK, AtEnd, Reason, Visit, at_end, ending, told
from steno.journal.debts import OwedHook
from steno.journal.facts import HookAttempted, HookDone, HookOwed, SessionAttended
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.plugins.protocol import Plugins, Told
from steno.session.load import tail
from steno.store.errors import KeyReused, StoreError, UnknownSession
from steno.store.protocol import Store
from steno.tools.groups import end_group

STORE_S = 2.0
"""For a store that is slow or locked to take the end of a visit. Commonly that takes some
milliseconds."""
TELL_LEAVING_S = 0.4
"""For plugins to answer when a front end leaves. The rest is done at the next start."""
LOOK_LEAVING_S = 0.15
"""For a look around that is under way when its front end leaves."""
TELL_S = 5.0
"""For a plugin to answer at a start, where nothing waits for it."""
TELL_DELETING_S = 2.0
"""For plugins to answer before a session is deleted. What they were not told by then is lost with
the session."""
TRIES_MAX = 3
"""How often telling is taken over from a dead process before it is recorded as failed."""
ABSENT_MS = 30 * 24 * 3_600_000
"""How long a plugin that is not installed here may still be told by another installation."""
OWED_ELSEWHERE = "owed by the store that the session was imported from"
"""What happened before an import did not happen here: the plugins of this place are not told of
it."""
PAGE = 100


class Visits:
    def __init__(self, store: Store, plugins: Plugins, platform: str) -> None:
        self._store = store
        self._plugins = plugins
        self._platform = platform
        self._open: dict[str, Seq] = {}
        self._ending = WeakValueDictionary[str, asyncio.Lock]()
        self._looks: set[asyncio.Task[None]] = set()
        self._looks_until_s = math.inf
        self.reason: Reason = "left"
        """Why this front end leaves, as far as is known."""

    def attending(self, session: str) -> bool:
        return session in self._open

    def attended(self) -> list[str]:
        return list(self._open)

    async def others(self, row: ListingRow) -> list[str]:
        """The other processes that live and have the session open."""
        attending = {
            by for by in row.owed.attending.values() if by and by != self._store.owner
        }
        return [by for by in sorted(attending) if await self._store.alive(by)]

    # --- coming

    async def opening(
        self, session: str | None = None, name: str | None = None
    ) -> SessionAttended | None:
        """What to store with an input, if it begins a visit. The visits of dead processes to the
        session are ended first."""
        if session is None and name is not None:
            session = await self._store.find(name)
        if session in self._open:
            return None
        if session is not None and (debts := await self._end_dead(session)):
            self._beside(self._follow_up(session, debts))
        return SessionAttended(self._store.owner, self._platform)

    def began(self, session: str, visit: Seq | None) -> None:
        if visit is not None:
            self._open[session] = visit
            self._plugins.tell(
                "on_session_start",
                {"session_id": session, "platform": self._platform},
            )

    async def attend(self, session: str) -> None:
        """Open a session in a front end. One in which nothing was ever said has nothing to end."""
        visit = await self.opening(session)
        if visit is not None and (await self._store.glance(session)).row.messages:
            self.began(session, (await self._store.add(session, [visit])).first)

    def _beside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)
        return task

    # --- leaving

    async def leave(
        self, reason: Reason | None = None, session: str | None = None
    ) -> list[str]:
        """Let go of one session, or of all; what went wrong, in words for a person. Where nothing
        is open it does nothing. It takes `STORE_S` and `TELL_LEAVING_S` at most, whatever hangs."""
        leaving = [session] if session is not None else list(self._open)
        visits = [
            Visit(id, seq, self._platform)
            for id in leaving
            if (seq := self._open.pop(id, None)) is not None
        ]
        found = await asyncio.gather(
            *(self._leave(visit, reason or self.reason) for visit in visits)
        )
        return [problem for problem in found if problem]

    async def _leave(self, visit: Visit, reason: Reason) -> str:
        """A store that fails does not keep plugins from being told. A session in which no turn ever
        began has no end to tell of; its visit is ended in the store alone, so that it is not taken
        for a dead process's."""
        at, problem = AtEnd(), ""
        plugins: Sequence[str] = self._plugins.having(HOOK)
        owed: Seq | None = None
        try:
            async with asyncio.timeout(STORE_S):
                at = await self._standing(visit.session)
                plugins = plugins if at.ran else ()
                owed = await self._end(visit, reason, at, plugins)
                plugins = plugins if owed is not None else ()
        except UnknownSession:
            return ""  # deleted since
        except (StoreError, TimeoutError) as error:
            why = str(error).removeprefix("nothing was stored: ")
            why = why or "the store did not answer in time"
            problem = (
                f"the end of session {visit.session} was not stored ({why}); the next start "
                "records it"
            )
        await self._tell(visit.session, owed, plugins, told(visit, reason, at))
        return problem

    async def _end(
        self, visit: Visit, reason: Reason, at: AtEnd, plugins: Sequence[str]
    ) -> Seq | None:
        """End a visit, once. If that was the end of the session and plugins are to be told: the
        fact that says so."""
        facts = ending(visit, reason, at, plugins, self._store.owner)
        try:
            added = await self._store.add(visit.session, facts, key=visit.key)
        except KeyReused:
            return None  # another process ended it
        if not plugins:
            return None
        hooks = (await self._store.glance(visit.session)).row.owed.hooks
        return added.last if added.last in hooks else None

    async def _standing(self, session: str) -> AtEnd:
        glance = await self._store.glance(session)
        return at_end(glance.row, await tail(self._store, session, glance.head))

    async def _tell(
        self,
        session: str,
        owed: Seq | None,
        plugins: Sequence[str],
        arguments: Mapping[str, object],
    ) -> None:
        """`owed` is None if that could not be stored."""
        await asyncio.gather(
            *(
                self._tell_one(session, owed, name, arguments, patient=False)
                for name in plugins
            )
        )

    async def _tell_one(
        self,
        session: str,
        owed: Seq | None,
        plugin: str,
        arguments: Mapping[str, object],
        patient: bool,
    ) -> bool:
        """Whether it answered. A plugin that raised was told. One that did not answer is told again
        at the next start; where it had the time, its silence is recorded. One that cannot be loaded
        may be mended by then."""
        answer = await self._plugins.call(
            plugin, HOOK, arguments, TELL_S if patient else TELL_LEAVING_S
        )
        if owed is not None and isinstance(answer, Told):
            await self._done(session, owed, plugin, answer.error)
        elif (
            owed is not None
            and patient
            and not isinstance(answer, Told)
            and answer.asked
        ):
            await self._done(session, owed, plugin, answer.why)
        return isinstance(answer, Told)

    async def _done(self, session: str, owed: Seq, plugin: str, error: str) -> None:
        with contextlib.suppress(
            KeyReused, StoreError
        ):  # not recorded: told again at the next start
            await self._store.add(
                session, [HookDone(owed, plugin, error)], key=f"told:{owed}:{plugin}"
            )

    # --- what dead processes left

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look around, beside whatever else is done. Leaving waits for a moment: what
        a plugin is being told is recorded then, and it is not told that again."""
        self._beside(self.look())
        try:
            yield
        finally:
            self._looks_until_s = asyncio.get_running_loop().time() + LOOK_LEAVING_S
            if self._looks:
                await asyncio.wait(self._looks, timeout=LOOK_LEAVING_S)
            for look in tuple(self._looks):
                look.cancel()
            await asyncio.gather(*self._looks, return_exceptions=True)

    async def look(self) -> None:
        """End the visits of dead processes, and tell plugins what those left untold."""
        with contextlib.suppress(StoreError):  # the next start looks again
            after, debts = 0, list[_EndOwed]()
            while page := await self._store.list(PAGE, after=after, where="owes"):
                for found in await asyncio.gather(
                    *(self._settle(one.id, one.row) for one in page)
                ):
                    debts += found
                after = page[-1].mark
            await self._tell_all(debts)

    async def _settle(self, session: str, row: ListingRow) -> "list[_EndOwed]":
        """Store what dead processes left to be stored; what is left to be told."""
        dead, debts = await self._dead(row.owed.owners()), list[_EndOwed]()
        with contextlib.suppress(UnknownSession):  # deleted since
            if not dead.isdisjoint(row.owed.attending.values()):
                debts += await self._end_dead(session)
                await self._end_commands(session)
            imported = (await self._store.glance(session)).imported if dead else 0
            for seq, hook in list(row.owed.hooks.items()):
                if hook.by in dead and seq <= imported:
                    await self._done(session, seq, "", OWED_ELSEWHERE)
                elif hook.by in dead:
                    debts += await self._take_over(session, seq, hook)
        return debts

    async def _dead(self, owners: Iterable[str]) -> set[str]:
        return {
            by
            for by in owners
            if not by or (by != self._store.owner and not await self._store.alive(by))
        }

    async def _end_dead(self, session: str) -> "list[_EndOwed]":
        """End the visits of dead processes to a session; what is left to be told of that. One call
        at a time: a second one waits until the ends are stored, and finds none."""
        async with self._ending.setdefault(session, asyncio.Lock()):
            attending = (await self._store.glance(session)).row.owed.attending
            dead = await self._dead(attending.values())
            visits = [seq for seq, by in attending.items() if by in dead]
            imported = (await self._store.glance(session)).imported if visits else 0
            here = self._plugins.having(HOOK)
            ends = [
                await self._end_of(
                    session, seq, "killed", () if seq <= imported else here
                )
                for seq in visits
            ]
        return [debt for debt in ends if debt is not None]

    async def _end_of(
        self, session: str, seq: Seq, reason: Reason, plugins: Sequence[str]
    ) -> "_EndOwed | None":
        """End a visit of another process; what is owed if that was the end of the session."""
        [record] = await self._store.read(session, seq - 1, 1)
        platform = (
            record.fact.platform if isinstance(record.fact, SessionAttended) else ""
        )
        at = await self._standing(session)
        plugins = plugins if at.ran else ()
        owed = await self._end(Visit(session, seq, platform), reason, at, plugins)
        return None if owed is None else _EndOwed(session, owed, tuple(plugins))

    async def _follow_up(self, session: str, debts: "Sequence[_EndOwed]") -> None:
        with contextlib.suppress(StoreError):  # the next start looks again
            await self._end_commands(session)
            await self._tell_all(debts)

    async def delete(self, sessions: Iterable[str]) -> None:
        """End every visit to sessions that are about to be deleted, and tell plugins what they are
        owed: nothing can be stored of them afterwards. It takes `TELL_DELETING_S` at most."""
        await asyncio.gather(*(self._delete(session) for session in sessions))

    async def _delete(self, session: str) -> None:
        row = (await self._store.glance(session)).row
        debts = await self._settle(session, row)
        here = self._plugins.having(HOOK)
        for seq in (await self._store.glance(session)).row.owed.attending:
            debt = await self._end_of(session, seq, "deleted", here)
            debts += () if debt is None else (debt,)
        self._open.pop(session, None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_DELETING_S):
                await self._tell_all(debts)

    async def _end_commands(self, session: str) -> None:
        """Those that a dead process left running: it may be long until a process goes on with the
        session. A group that a live process looks after bears its mark, and is spared."""
        turn = (
            await tail(self._store, session, (await self._store.glance(session)).head)
        ).turn
        groups = (
            []
            if turn is None
            else [
                call.group for call in turn.calls.values() if call.group is not None
            ]
        )
        await asyncio.gather(*(end_group(group) for group in groups))

    async def _take_over(
        self, session: str, seq: Seq, hook: OwedHook
    ) -> "list[_EndOwed]":
        """What can still be told. Plugins that are not installed here may be told elsewhere,
        for a time."""
        [record] = await self._store.read(session, seq - 1, 1)
        if hook.tries >= TRIES_MAX or record.at_ms + ABSENT_MS < time.time() * 1000:
            for name in hook.left:
                await self._done(
                    session,
                    seq,
                    name,
                    f"not told in {TRIES_MAX} starts, or not installed for too long",
                )
            return []
        return [_EndOwed(session, seq, hook.left, hook.tries + 1)]

    async def _tell_all(self, debts: "Sequence[_EndOwed]") -> None:
        names = dict.fromkeys(name for debt in debts for name in debt.left)
        await asyncio.gather(*(self._tell_in_turn(name, debts) for name in names))

    async def _tell_in_turn(self, plugin: str, debts: "Sequence[_EndOwed]") -> None:
        """Tell a plugin that has started, one end after the other: a try is counted when it is
        made, and a process that leaves soon has used up none of the others. One that does not
        answer is told no more by this process."""
        if not await self._plugins.ready(plugin):
            return
        with contextlib.suppress(StoreError):  # the next start tells the rest
            took_s = 0.0
            for debt in [debt for debt in debts if plugin in debt.left]:
                began_s = asyncio.get_running_loop().time()
                if (
                    began_s + took_s > self._looks_until_s
                    or not await self._tell_debt(plugin, debt)
                ):
                    return
                took_s = asyncio.get_running_loop().time() - began_s

    async def _tell_debt(self, plugin: str, debt: "_EndOwed") -> bool:
        """False if the plugin does not answer. The process that owed it may have told some before
        it died."""
        try:
            if debt.attempt and debt.claim is None:
                debt.claim = asyncio.create_task(
                    self._claim(debt.session, debt.seq, debt.attempt)
                )
            if debt.claim is not None and not await debt.claim:
                return True
            hook = (await self._store.glance(debt.session)).row.owed.hooks.get(
                debt.seq, OwedHook()
            )
            if plugin not in hook.left:
                return True
            [record] = await self._store.read(debt.session, debt.seq - 1, 1)
        except UnknownSession:
            return True  # deleted since
        if not isinstance(record.fact, HookOwed):
            return True
        arguments = msgspec.json.decode(record.fact.arguments)
        return await self._tell_one(
            debt.session, debt.seq, plugin, arguments, patient=True
        )

    async def _claim(self, session: str, seq: Seq, attempt: int) -> bool:
        try:
            await self._store.add(
                session,
                [HookAttempted(seq, self._store.owner)],
                key=f"hook:{seq}:{attempt}",
            )
        except KeyReused:
            return False
        return True


class _EndOwed(Struct):
    """An end that plugins are still to be told of. `attempt` counts the tries, this one too; 0 if
    we owe it ourselves. `claim` is whether it was left to us, once that was asked."""

    session: str
    seq: Seq
    left: tuple[str, ...]
    attempt: int = 0
    claim: asyncio.Task[bool] | None = None
