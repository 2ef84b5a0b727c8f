"""Editing what a model is told of a session. Everything is addressed by seq, and all but a
redaction can be taken back: people still read everything."""

import asyncio
import contextlib

from msgspec.structs import replace

from steno.journal.facts import (
    ContextSet,
    GoalSet,
    MessageHidden,
    RewindWithdrawn,
    Rewound,
    SessionRenamed,
    SessionStarted,
)
from steno.journal.parts import Seq
from steno.journal.transcript import Message
from steno.runtimes.compacting import Compaction
from steno.runtimes.held import HeldSession
from steno.runtimes.holding import context_of, refuse_waiting
from steno.runtimes.protocol import Runtime
from steno.service.copies import Copy, Redaction, copies_of, helpers_of, threads_with
from steno.service.misuse import Misused
from steno.service.views import View, Views
from steno.store.errors import NotAllowed, SessionBusy
from steno.store.protocol import Store


class Edits:
    def __init__(
        self, store: Store, runtime: Runtime, views: Views, platform: str, lease_ms: int
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._views = views
        self._platform = platform
        self._lease_ms = lease_ms

    async def rename(self, session: str, title: str) -> None:
        if not title.strip():
            raise Misused(f"the title is empty; session {session!r} keeps the one it has")
        await self._store.add(session, [SessionRenamed(title)])

    async def set_goal(self, session: str, goal: str) -> bool:
        """Say what a session is for; "" takes it away. False if it was so before."""
        if (await self._views.view(session)).state.goal == goal.strip():
            return False
        await self._store.add(session, [GoalSet(goal.strip())])
        return True

    async def undo(self, session: str) -> tuple[Seq, Seq]:
        """Take the last turn that is not undone out of the model's view; that turn, and the fact
        that says so."""
        held = await HeldSession.open(self._store, session, self._lease_ms)
        try:
            turn = (await self._views.view(session)).turns.last_standing()
            if turn is None:
                raise NotAllowed(f"session {session!r} has no turn to undo; nothing was changed")
            return turn, await _last(held, Rewound(turn))
        finally:
            await held.leave()

    async def rewind(self, session: str, to: Seq) -> Seq:
        """Take what follows a message, or a turn and all after it, out of the model's view; the
        fact that says so."""
        held = await HeldSession.open(self._store, session, self._lease_ms)
        try:
            view = await self._views.view(session)
            if to not in view.turns.origins:
                message = _message(view, session, to)
                if message.state == "pending":
                    raise NotAllowed(
                        f"message {to} of session {session!r} still waits; nothing was changed"
                    )
            return await _last(held, Rewound(to))
        finally:
            await held.leave()

    async def redo(self, session: str, rewind: Seq) -> None:
        """Take an undo or a rewind back."""
        standing = (await self._views.view(session)).turns.rewinds
        if rewind not in standing:
            valid = ", ".join(map(str, standing))
            there = (
                f"those that can be taken back are {valid}" if valid else "none can be taken back"
            )
            raise NotAllowed(
                f"session {session!r} has no undo {rewind}: {there}; nothing was changed"
            )
        held = await HeldSession.open(self._store, session, self._lease_ms)
        try:
            await _last(held, RewindWithdrawn(rewind))
        finally:
            await held.leave()

    async def hide(self, session: str, seq: Seq, hidden: bool) -> bool:
        """Take one message out of the model's view, or put it back. False if it was so before."""
        if _message(await self._views.view(session), session, seq).hidden == hidden:
            return False
        await self._store.add(session, [MessageHidden(seq, hidden)])
        return True

    async def redactable(self, session: str, seq: Seq) -> str:
        """What would be taken away, in a few words."""
        view = await self._views.view(session)
        if seq in view.summaries:
            return f"the summary at {seq}"
        if seq in view.distillates:
            return f"the distillate at {seq}"
        if seq in view.said_of:
            return f"the text of what was set at {seq}"
        if view.message(seq) is None and view.beside.get(seq):
            return f"the text beside the messages at {seq}"
        message = _message(view, session, seq)
        if message.state == "streaming":
            raise NotAllowed(
                f"message {seq} of session {session!r} is being written; stop the turn first"
            )
        return f"the text of message {seq} ({message.role}, {len(message.text)} characters)"

    async def redact(self, session: str, seq: Seq) -> Redaction:
        """Take the text of one message, or of a summary, out of the store for good."""
        await self._settle(session)
        view = await self._views.view(session)
        copies: list[Copy] = []
        threads: list[tuple[str, str]] = []
        holder, *forks = await self._store.sharing(session, seq)
        for one in (holder, *forks):
            theirs = await self._views.view(one)
            own = 0 if one == holder else _begins(theirs)
            copies += [Copy(one, at) for at in copies_of(view, seq, theirs) if at > own]
            threads += threads_with(seq, theirs)
        at = await self._store.redact(session, seq)
        return Redaction(at, tuple(copies), helpers_of(view, seq), tuple(dict.fromkeys(threads)))

    async def fork(self, session: str, at: Seq) -> str:
        """A session of its own with everything up to the end of a message or of a turn; its id."""
        await self._settle(session)
        view = await self._views.view(session)
        end = _end(view, session, at)
        answered = [model for seq, model in view.models.items() if seq <= end]
        begun_with = "" if view.state.started is None else view.state.started.model
        started = SessionStarted(self._platform, answered[-1] if answered else begun_with)
        return await self._store.fork(session, end, started)

    async def compact(self, session: str, leaving: asyncio.Event) -> Compaction:
        return await self._runtime.compact(session, leaving)

    async def choose_model(self, session: str, model: str) -> None:
        """Have another model answer from the next request on. That is a fact, so it holds in every
        process."""
        held = await HeldSession.open(self._store, session, self._lease_ms, to_run=True)
        try:
            refuse_waiting(held)
            before = context_of(held.state)
            await held.record(
                ContextSet(model) if before is None else replace(before, model=model, instead_of="")
            )
            while not await held.release():
                pass
        finally:
            await held.leave()

    async def _settle(self, session: str) -> None:
        """Store what closes a turn that a dead process left open, so that its facts can be
        addressed. A session that runs has nothing to be closed."""
        with contextlib.suppress(SessionBusy):
            held = await HeldSession.open(self._store, session, self._lease_ms, to_run=True)
            try:
                while not await held.release():
                    pass
            finally:
                await held.leave()


async def _last(held: HeldSession, fact: Rewound | RewindWithdrawn) -> Seq:
    """Record a fact and let go; where it stands."""
    seq = await held.record(fact)
    while not await held.release():
        pass
    return seq


def _begins(view: View) -> Seq:
    """The last fact that a fork shares with its parent."""
    forked = None if view.state.started is None else view.state.started.forked_from
    return 0 if forked is None else forked.seq


def _message(view: View, session: str, seq: Seq) -> Message:
    message = view.message(seq)
    if message is None:
        raise Misused(
            f"session {session!r} has no message {seq}; steno show {session} has the numbers; "
            "nothing was changed"
        )
    return message


def _end(view: View, session: str, at: Seq) -> Seq:
    """The last fact of a message, or of the turn that it is the last of."""
    turn, end = at, 0
    if at not in view.turns.origins:
        message = _message(view, session, at)
        if message.turn is None or message.state in ("pending", "streaming"):
            raise NotAllowed(
                f"message {at} of session {session!r} is not finished; fork at an earlier one"
            )
        turn = message.turn
        end = max(message.end, view.turns.taken_at(at) or 0)
        if any(other.end > end for other in view.transcript.messages if other.turn == turn):
            return end
    if turn not in view.ends:
        if end:
            return end
        raise NotAllowed(
            f"turn {turn} of session {session!r} is not over; fork at one of its messages"
        )
    return view.ends[turn]
