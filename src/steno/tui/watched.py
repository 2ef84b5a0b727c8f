"""A session while a terminal shows it: its blocks, as what is stored of it arrives.

What is shown comes from the service as it is stored. Nothing that was typed is shown as said before
it is accepted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

from steno.config import ConfigError
from steno.engine.approval import EDITS
from steno.frontend.answers import Answer
from steno.journal.facts import Mode, Record, TurnStarted
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.service import Misused, Page, Service, Tail
from steno.service.approvals import always
from steno.service.attachments import Attachment
from steno.session.live import LiveSession
from steno.store.errors import (
    OutcomeUnknown,
    StoreError,
    StoreUnwritable,
    UnknownSession,
)
from steno.tui.blocks import Block, Call, Said
from steno.tui.status_line import problem
from steno.tui.to_blocks import Folded, earlier_blocks
from steno.tui.wording import CAUSES
from steno.workspace.diffs import Diff

DIFFS_MAX = 200
"""How many of the last blocks show how files differ."""


class Watched:
    """`changed` is called when there is something else to see, `failed` with what a person must be
    told."""

    def __init__(
        self,
        service: Service,
        changed: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self.folded = Folded.empty()
        self.deleted = False
        self.cost: float | None = None
        """In US dollars, as far as prices are known."""
        self.leaving = asyncio.Event()
        self._service = service
        self._changed = changed
        self._failed = failed
        self._live: LiveSession | None = None
        self._earlier: list[Block] = []
        self._first: Page | None = None
        self._reaching: tuple[Record, ...] = ()
        self._following: asyncio.Task[None] | None = None

    # --- coming and going

    async def open(self, session: str) -> None:
        """Show a session. When this returns, its end is folded."""
        with contextlib.suppress(
            StoreUnwritable
        ):  # one can look at what cannot be written
            await self._service.visits.attend(session)
        self._live = await self._service.turns.show(
            session, self.leaving, self._changed, self._tell
        )
        self._take_end(self._live.end)
        self._following = asyncio.create_task(self._follow(self._live))

    async def leave(self, limit_s: float) -> None:
        """Stop what this process runs, in order and within the limit, and look away."""
        self.leaving.set()
        if self._live is not None:
            await self._live.leave(limit_s)
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following], timeout=0.05)

    def _tell(self, error: Exception) -> None:
        """What was not foreseen is said too: a chat that stands still in silence looks as if it
        worked."""
        if isinstance(error, StoreUnwritable | OutcomeUnknown):
            self._failed(
                f"{CAUSES[error.cause]}; what you said and what was shown is kept; when that is "
                "mended, /continue goes on"
            )
        elif isinstance(error, StoreError | ConfigError | Misused):
            self._failed(f"{problem(error)}; what was shown is kept")
        else:
            what = f"{type(error).__name__}: {error}"
            self._failed(
                f"something went wrong here ({what}); what was stored is kept"
            )

    # --- what there is to see

    @property
    def id(self) -> str | None:
        return None if self._live is None else self._live.id

    @property
    def row(self) -> ListingRow:
        return ListingRow() if self._live is None else self._live.row

    @property
    def owner(self) -> str | None:
        return None if self._live is None else self._live.owner

    @property
    def driving(self) -> bool:
        return self._live is not None and self._live.driving

    def elsewhere(self) -> str | None:
        """The process that runs it, if that is another one."""
        return (
            None if self._live is None or self._live.is_ours() else self._live.owner
        )

    def blocks(self) -> list[Block]:
        return self._earlier + self.folded.blocks()

    def streams(self) -> bool:
        """Whether some of the answer that is being given is there."""
        turn = self.folded.state.turn
        return turn is None or turn.step is None or self.folded.streams(turn.step)

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
        return self.driving and runs and self.elsewhere() is None

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

    def without_diff(self) -> list[Call]:
        """Calls that change files, or would, and of which it is not known yet how."""
        diffs = self.folded.diffs
        return [
            block
            for block in self.folded.blocks()[-DIFFS_MAX:]
            if isinstance(block, Call)
            and block.key not in diffs
            and (
                block.file is not None
                or (block.state == "asked" and block.name in EDITS)
            )
        ]

    async def load_diffs(self) -> None:
        """Find out how calls change files."""
        for call in self.without_diff():
            files, folded = self._service.files, self.folded
            folded.diffs[call.key] = None
            if call.file is not None:
                found: Diff | None = await files.diff(call.file)
            else:
                found = await files.preview(
                    folded.state.folder, call.name, call.arguments
                )
            folded.diffs[call.key] = found
            folded.forget_blocks()
            self._changed()

    async def _follow(self, live: LiveSession) -> None:
        """The first end is the one that was folded when the session was opened."""
        opened = live.end
        try:
            async for event in live.events():
                match event:
                    case Tail():
                        if event is not opened:
                            self._take_end(event)
                    case Record():
                        self.folded.apply(event)
                    case _:
                        self.folded.piece(event)
                self._changed()
        except UnknownSession:
            self.deleted = True
            self._failed(
                "this session was deleted; Ctrl-N begins another one, Ctrl-O lists those that "
                "there are"
            )
        except StoreError as error:
            self._failed(f"{error}; what comes now is not shown")
        except Exception as error:  # noqa: BLE001 - what is not foreseen is said, too
            self._tell(error)

    def _take_end(self, end: Tail) -> None:
        self.folded = Folded.of_end(end)
        if self._first is None:
            self._first, self._reaching = end.page, end.page.reaching()

    # --- acting

    async def say(
        self,
        text: str,
        mode: Literal["queue", "steer"],
        model: str,
        attachments: Sequence[Attachment] = (),
        rights: Mode | None = None,
    ) -> None:
        """Have an input accepted, then run the session. A new session begins with its first
        input."""
        admitted = await self._service.admit(
            text, self.id, None, None, model, mode, attachments
        )
        if rights is not None:
            await self._service.edits.set_mode(admitted.session, rights)
        if self.id is None:
            await self.open(admitted.session)
        self.run()

    def run(self, again: TurnStarted | None = None) -> None:
        """Run what waits, unless another process does; first a turn that is taken up or run
        again."""
        if self._live is not None:
            self._live.run(again)

    async def stop(self) -> bool:
        """Ask the running turn to stop, whichever process runs it; whether there is one."""
        return self._live is not None and await self._live.stop()

    async def decide(
        self, call: Call, answer: Answer, given: tuple[str, ...] | None = None
    ) -> bool:
        """Answer a question about a call, with the rules that are given or those of "always". False
        if it was decided elsewhere before."""
        if self.id is None or call.asked is None:
            return False
        approvals = self._service.approvals
        rules = (
            always(await approvals.choose(self.id, call.asked))
            if answer.always
            else ()
        )
        rules = rules if given is None else given
        first = await approvals.decide(
            self.id, call.asked, answer.decision, answer.reason, rules=rules
        )
        self.run()
        return first

    async def withdraw(self, input: Seq) -> None:
        if self.id is not None:
            await self._service.withdraw(self.id, input)
