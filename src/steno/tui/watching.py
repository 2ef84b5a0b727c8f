"""A session while a terminal shows it: follows it whoever runs it, runs it if nobody else does, and
says what changed.

What is shown comes from the service as it is stored. Nothing that was typed is shown as said before
it is accepted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from steno.config import ConfigError
from steno.frontend.answers import Answer
from steno.journal.facts import Record, TurnStarted
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.service import Attachment, Misused, Page, Service, Tail
from steno.service.approvals import always
from steno.store.errors import OutcomeUnknown, StoreError, StoreUnwritable, UnknownSession
from steno.store.protocol import Event
from steno.tui.blocks import Block, Call, Said
from steno.tui.status_line import is_ours, problem
from steno.tui.to_blocks import Folded, earlier_blocks
from steno.tui.wording import CAUSES

OWNER_LOOK_S = 0.5
LOOKS_ALONE = 2
"""So often in a row nobody runs an open turn before it counts as left behind: whoever runs it may
just begin."""


class Watched:
    """`changed` is called when there is something else to see, `failed` with what a person must be
    told."""

    def __init__(
        self, service: Service, changed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self.id: str | None = None
        self.folded = Folded.empty()
        self.row = ListingRow()
        self.owner: str | None = None
        self.leaving = asyncio.Event()
        self.driving = False
        self.deleted = False
        self._alone = 0
        self._left_behind = asyncio.Event()
        self._service = service
        self._changed = changed
        self._failed = failed
        self._earlier: list[Block] = []
        self._first: Page | None = None
        self._reaching: tuple[Record, ...] = ()
        self._provisional = False
        self._wake = asyncio.Event()
        self._again: TurnStarted | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._driver: asyncio.Task[None] | None = None

    # --- coming and going

    async def open(self, session: str) -> None:
        """Show a session. When this returns, its end is folded."""
        self.id = session
        with contextlib.suppress(StoreUnwritable):  # one can look at what cannot be written
            await self._service.visits.attend(session)
        self._take_end(await self._service.views.end(session))
        self._tasks = [self._start(self._follow()), self._start(self._look_who_runs())]

    async def leave(self, limit_s: float) -> None:
        """Stop what this process runs, in order and within the limit, and look away."""
        self.leaving.set()
        if self._driver is not None:
            await asyncio.wait([self._driver], timeout=limit_s)
        tasks = [*self._tasks, *([self._driver] if self._driver is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.05)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(self._report)
        return task

    def _report(self, task: "asyncio.Task[None]") -> None:
        """What nobody foresaw is said too: a chat that stands still in silence looks as if it
        worked."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(
                f"something went wrong here ({type(error).__name__}: {error}); what was stored is "
                "kept"
            )

    # --- what there is to see

    def blocks(self) -> list[Block]:
        return self._earlier + self.folded.blocks()

    def waiting(self) -> list[Said]:
        return self.folded.waiting()

    def asked(self) -> list[Call]:
        return self.folded.asked()

    def turn(self) -> Seq | None:
        open = self.folded.state.turn
        return None if open is None or self.deleted else open.seq

    def runs_here(self) -> bool:
        """Whether a turn would end with this process. What waits for another process does not."""
        runs = self.turn() is not None or bool(self.folded.state.pending)
        return self.driving and runs and (self.owner is None or is_ours(self.owner))

    def left_behind(self) -> bool:
        """Whether a turn is open that nobody runs any more."""
        return self._alone >= LOOKS_ALONE and self.turn() is not None

    async def earlier(self) -> list[Block]:
        """The blocks of the page before what is loaded; none at the beginning."""
        if self.id is None or self._first is None:
            return []
        page = await self._service.views.before(self.id, self._first)
        if page is None:
            return []
        shown = frozenset(record.seq for record in self._first.waited)
        blocks = earlier_blocks(page, self._reaching, shown)
        self._first, self._reaching = page, page.reaching() + self._reaching
        self._earlier = blocks + self._earlier
        return blocks

    # --- following

    async def _follow(self) -> None:
        session = self.id or ""
        try:
            while True:
                if await self._follow_while_run(session):
                    return
                since = self._end.page.first
                self._take_end(
                    await self._service.views.end(session, max(self._end.head - since + 2, 1))
                )
                self._changed()
        except UnknownSession:
            self.deleted = True
            self._failed(
                "this session was deleted; Ctrl-N begins another one, Ctrl-O lists those that "
                "there are"
            )
        except StoreError as error:
            self._failed(f"{error}; what comes now is not shown")

    async def _follow_while_run(self, session: str) -> bool:
        """Take in what comes. False if the end must be read anew, also because whoever ran the turn
        is gone: no fact says so yet."""
        self._left_behind.clear()
        following = asyncio.ensure_future(self._follow_from(session))
        left_behind = asyncio.ensure_future(self._left_behind.wait())
        try:
            await asyncio.wait([following, left_behind], return_when=asyncio.FIRST_COMPLETED)
            return following.done() and following.result()
        finally:
            following.cancel()
            left_behind.cancel()
            await asyncio.gather(following, left_behind, return_exceptions=True)

    async def _follow_from(self, session: str) -> bool:
        """Take in what comes. False if the end must be read anew: somebody has closed what was
        open."""
        async with contextlib.aclosing(self._service.turns.watch(session, self._end)) as events:  # type: ignore[type-var]
            async for event in events:
                if self._provisional and isinstance(event, Record):
                    return False
                self._take(event)
        return True

    def _take(self, event: Event) -> None:
        if isinstance(event, Record):
            self.folded.apply(event)
            self.row.apply(event)
            if isinstance(event.fact, TurnStarted):
                self._wake_looking()
        else:
            self.folded.piece(event)
        self._changed()

    def _take_end(self, end: Tail) -> None:
        self._end = end
        self.folded = Folded.of_end(end)
        self.row, self.owner = end.row, end.owner
        self._provisional = bool(end.closing)
        if self._first is None:
            self._first, self._reaching = end.page, end.page.reaching()

    def _wake_looking(self) -> None:
        self._looking.set()

    async def _look_who_runs(self) -> None:
        self._looking = asyncio.Event()
        while self.id is not None:
            with contextlib.suppress(StoreError):
                owner = await self._service.views.owner(self.id)
                if owner != self.owner:
                    self.owner = owner
                    self._changed()
                self._look_whether_alone()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._looking.wait(), OWNER_LOOK_S if self.turn() is not None else 2.0
                )
            self._looking.clear()

    def _look_whether_alone(self) -> None:
        run = (
            self.driving
            or self._provisional
            or (self.owner is not None and not is_ours(self.owner))
        )
        self._alone = 0 if run or self.turn() is None or self.folded.asks() else self._alone + 1
        if self._alone == LOOKS_ALONE:
            self._left_behind.set()
            self._changed()

    # --- acting

    async def say(
        self,
        text: str,
        mode: Literal["queue", "steer"],
        model: str,
        attachments: Sequence[Attachment] = (),
    ) -> None:
        """Have an input accepted, then run the session. A new session begins with its first
        input."""
        admitted = await self._service.admit(text, self.id, None, None, model, mode, attachments)
        if self.id is None:
            await self.open(admitted.session)
        self.run()

    def run(self, again: TurnStarted | None = None) -> None:
        """Run what waits, unless somebody else does; first a turn that is taken up or run again."""
        self._again = again or self._again
        self._wake.set()
        if self._driver is None or self._driver.done():
            self._driver = self._start(self._drive())

    async def _drive(self) -> None:
        session = self.id or ""
        while self._wake.is_set() and not self.leaving.is_set():
            self._wake.clear()
            again, self._again = self._again, None
            self.driving = True
            try:
                if again is not None:
                    await self._service.turns.run_again(session, again, self.leaving)
                else:
                    await self._service.turns.run_pending(session, self.leaving)
            except UnknownSession:
                return
            except (StoreUnwritable, OutcomeUnknown) as error:
                self._failed(
                    f"{CAUSES[error.cause]}; what you said and what was shown is kept; when that is "
                    "mended, /continue goes on"
                )
            except (StoreError, ConfigError, Misused) as error:
                if not await self._is_gone(session):
                    self._failed(f"{problem(error)}; what was shown is kept")
            finally:
                self.driving = False
                self._changed()

    async def _is_gone(self, session: str) -> bool:
        """Whether it was deleted: whoever follows it says so."""
        try:
            await self._service.views.owner(session)
        except UnknownSession:
            return True
        except StoreError:
            return False
        return False

    async def stop(self) -> bool:
        """Ask the running turn to stop, whoever runs it; whether there is one."""
        turn = self.turn()
        if self.id is None or turn is None or self._provisional:
            return False
        if self.owner is None and not self.driving and not self.folded.asks():
            return False
        return await self._service.turns.interrupt(self.id, turn=turn) is not None

    async def decide(self, call: Call, answer: Answer) -> bool:
        """Answer a question about a call. False if it was decided elsewhere before."""
        if self.id is None or call.asked is None:
            return False
        approvals = self._service.approvals
        rules = always(await approvals.choose(self.id, call.asked)) if answer.always else ()
        first = await approvals.decide(
            self.id, call.asked, answer.decision, answer.reason, rules=rules
        )
        self.run()
        return first

    async def withdraw(self, input: Seq) -> None:
        if self.id is not None:
            await self._service.withdraw(self.id, input)
