"""Editing what a model is told of a session. Everything is addressed by seq, and all but a
redaction can be taken back: people still read everything."""

import asyncio
import contextlib
from typing import Protocol

from msgspec.structs import replace

from steno.journal.facts import (
    ContextSet,
    FolderSet,
    GoalSet,
    InputAdmitted,
    MessageHidden,
    Mode,
    ModeSet,
    Record,
    RewindWithdrawn,
    Rewound,
    SessionRenamed,
    SessionStarted,
    TurnEnded,
    TurnFact,
)
from steno.journal.listing import DELEGATED, parent_in
from steno.journal.parts import Seq, text_of
from steno.journal.transcript import Message, Transcript
from steno.journal.turns import Turns
from steno.runtimes.compact import Compaction
from steno.runtimes.protocol import Runtime
from steno.service.redaction_traces import Copy, Redaction, Texts
from steno.session.errors import Misused, NoSuch
from steno.session.lease import hold, refuse_waiting
from steno.session.load import Sessions, context_of
from steno.store.errors import NotAllowed, SessionBusy
from steno.store.protocol import Shares, list_all, read_all


class Held(Protocol):
    async def record(self, *facts: TurnFact) -> Seq: ...

    async def close(self) -> None: ...


class Holding(Protocol):
    def __call__(
        self, sessions: Sessions, id: str, *, to_run: bool = True
    ) -> contextlib.AbstractAsyncContextManager[Held]: ...


class Edits:
    """`hold` takes a session for one edit: by default as long as that may take, with an event loop
    that renews its lease. Without a `runtime`, nothing is compacted."""

    def __init__(
        self,
        sessions: Sessions,
        runtime: Runtime | None,
        platform: str,
        hold: Holding = hold,
    ) -> None:
        self._hold = hold
        self._sessions = sessions
        self._store = sessions.store
        self._runtime = runtime
        self._platform = platform

    async def rename(self, session: str, title: str) -> None:
        if not title.strip():
            raise Misused(
                f"the title is empty; session {session!r} keeps the one it has"
            )
        await self._store.add(session, [SessionRenamed(title)])

    async def set_goal(self, session: str, goal: str) -> bool:
        """Say what a session is for; "" takes it away. False if it was so before."""
        if (await self._sessions.load(session)).state.goal == goal.strip():
            return False
        await self._store.add(session, [GoalSet(goal.strip())])
        return True

    async def move(self, session: str, folder: str) -> None:
        """Have a session belong to another folder: its tools work there from the next turn on."""
        await self._store.add(session, [FolderSet(folder)])

    async def set_mode(self, session: str, mode: Mode) -> bool:
        """Say what runs without asking. False if it was so before."""
        if (await self._sessions.load(session)).state.mode == mode:
            return False
        await self._store.add(session, [ModeSet(mode)])
        return True

    async def last_turn(self, session: str) -> Seq:
        """The last turn that is not undone."""
        turns = Turns()
        await self._sessions.whole(session, turns)
        turn = turns.last_standing()
        if turn is None:
            raise NotAllowed(
                f"session {session!r} has no turn to undo; nothing was changed"
            )
        return turn

    async def undo(self, session: str) -> tuple[Seq, Seq]:
        """Take the last turn that is not undone out of the model's view; that turn, and the fact
        that says so."""
        async with self._hold(self._sessions, session, to_run=False) as held:
            turn = await self.last_turn(session)
            return turn, await _last(held, Rewound(turn))

    async def rewind(self, session: str, to: Seq) -> Seq:
        """Take what follows a message, or a turn and all after it, out of the model's view; the
        fact that says so."""
        async with self._hold(self._sessions, session, to_run=False) as held:
            turns, transcript = Turns(), Transcript()
            await self._sessions.whole(session, turns, transcript)
            if to not in turns.origins:
                message = _message(transcript, session, to)
                if message.state == "pending":
                    raise NotAllowed(
                        f"message {to} of session {session!r} still waits; nothing was changed"
                    )
            return await _last(held, Rewound(to))

    async def rewinds(self, session: str) -> tuple[Seq, ...]:
        """The undos and rewinds that can be taken back, the oldest first."""
        turns = Turns()
        await self._sessions.whole(session, turns)
        return tuple(turns.rewinds)

    async def redo(self, session: str, rewind: Seq) -> None:
        """Take an undo or a rewind back."""
        standing = await self.rewinds(session)
        if rewind not in standing:
            valid = ", ".join(map(str, standing))
            there = (
                f"those that can be taken back are {valid}"
                if valid
                else "none can be taken back"
            )
            raise NotAllowed(
                f"session {session!r} has no undo {rewind}: {there}; nothing was changed"
            )
        async with self._hold(self._sessions, session, to_run=False) as held:
            await _last(held, RewindWithdrawn(rewind))

    async def hide(self, session: str, seq: Seq, hidden: bool) -> bool:
        """Take one message out of the model's view, or put it back. False if it was so before."""
        transcript = Transcript()
        await self._sessions.whole(session, transcript)
        if _message(transcript, session, seq).hidden == hidden:
            return False
        await self._store.add(session, [MessageHidden(seq, hidden)])
        return True

    async def redactable(self, session: str, seq: Seq) -> str:
        """What would be taken away, in a few words."""
        texts = await self._texts(session)
        if seq in texts.summaries:
            return f"the summary at {seq}"
        if seq in texts.distillates:
            return f"the distillate at {seq}"
        if seq in texts.files:
            return (
                f"what is kept of a file at {seq}; the change cannot be undone then"
            )
        if seq in texts.said_of:
            return f"the text of what was set at {seq}"
        if texts.message(seq) is None and texts.beside.get(seq):
            return f"the text beside the messages at {seq}"
        message = _message(texts.transcript, session, seq)
        if message.state == "streaming":
            raise NotAllowed(
                f"message {seq} of session {session!r} is being written; stop the turn first"
            )
        return f"the text of message {seq} ({message.role}, {len(message.text)} characters)"

    async def redact(self, session: str, seq: Seq) -> Redaction:
        """Take the text of one message, or of a summary, out of the store for good."""
        await self._settle(session)
        texts = await self._texts(session)
        copies: list[Copy] = []
        threads: list[tuple[str, str]] = []
        holder, *forks = tuple(
            [
                one.id
                for one in await self._store.list(1 << 31, where=Shares(session, seq))
            ]
        )
        helpers = await self._helpers(
            frozenset((session, holder)), texts.delegated(seq)
        )
        for one in (holder, *forks):
            theirs = texts if one == session else await self._texts(one)
            shared = 0 if one == holder else theirs.shared
            copies += [
                Copy(one, at) for at in texts.copies_in(seq, theirs) if at > shared
            ]
            threads += theirs.threads_with(seq)
        at = await self._store.redact(session, seq)
        for one in (holder, *forks):
            self._sessions.forget(one)
        return Redaction(at, tuple(copies), helpers, tuple(dict.fromkeys(threads)))

    async def fork(self, session: str, at: Seq) -> str:
        """A session of its own with everything up to the end of a message or of a turn; its id."""
        await self._settle(session)
        points = _ForkPoints()
        loaded = await self._sessions.whole(
            session, points.transcript, points.turns, points
        )
        end = points.end(session, at)
        answered = [model for seq, model in points.models.items() if seq <= end]
        begun_with = (
            "" if loaded.state.started is None else loaded.state.started.model
        )
        started = SessionStarted(
            self._platform, answered[-1] if answered else begun_with
        )
        return await self._store.fork(session, end, started)

    async def compact(self, session: str, leaving: asyncio.Event) -> Compaction:
        if self._runtime is None:
            raise Misused("no model runs here: nothing was summarised")
        return await self._runtime.compact(session, leaving)

    async def choose_model(self, session: str, model: str) -> None:
        """Have another model answer from the next request on. That is a fact, so it holds in every
        process."""
        async with hold(self._sessions, session) as held:
            refuse_waiting(held)
            before = context_of(held.state)
            await held.record(
                ContextSet(model)
                if before is None
                else replace(before, model=model, instead_of="")
            )
            await held.close()

    async def _texts(self, session: str) -> Texts:
        texts = Texts()
        await self._sessions.whole(session, texts.transcript, texts)
        return texts

    async def _helpers(
        self, parents: frozenset[str], prompts: frozenset[str | None]
    ) -> tuple[str, ...]:
        """The sessions that these prompts were delegated to, by what those say of their origin. For
        a prompt that cannot be read any more, all that these parents delegated to."""
        if not prompts:
            return ()
        helpers = [
            one.id
            async for one in list_all(self._store)
            if one.row.platform == DELEGATED
        ]
        return tuple(
            [one for one in helpers if await self._began_with(one, parents, prompts)]
        )

    async def _began_with(
        self, child: str, parents: frozenset[str], prompts: frozenset[str | None]
    ) -> bool:
        async for record in read_all(self._store, child):
            if isinstance(record.fact, InputAdmitted):
                told = None in prompts or text_of(record.fact.parts) in prompts
                return told and parent_in(record.fact) in parents
        return False

    async def _settle(self, session: str) -> None:
        """Store what closes a turn that a dead process left open, so that its facts can be
        addressed. A session that runs has nothing to be closed."""
        with contextlib.suppress(SessionBusy):
            async with self._hold(self._sessions, session) as held:
                await held.close()


async def _last(held: Held, fact: Rewound | RewindWithdrawn) -> Seq:
    """Record a fact and let go; where it stands."""
    seq = await held.record(fact)
    await held.close()
    return seq


def _message(transcript: Transcript, session: str, seq: Seq) -> Message:
    message = next((one for one in transcript.messages if one.seq == seq), None)
    if message is None:
        raise NoSuch("message", seq, session)
    return message


class _ForkPoints:
    """Where a session can be forked. `ends` are where turns ended, `models` were chosen from a seq
    on; transcript and turns are folded beside it."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.turns = Turns()
        self.ends: dict[Seq, Seq] = {}
        self.models: dict[Seq, str] = {}

    def apply(self, record: Record) -> None:
        if isinstance(record.fact, TurnEnded):
            self.ends[record.fact.turn] = record.seq
        elif isinstance(record.fact, ContextSet):
            self.models[record.seq] = record.fact.own_model

    def end(self, session: str, at: Seq) -> Seq:
        """The last fact of a message, or of the turn that it is the last of."""
        turn, end = at, 0
        if at not in self.turns.origins:
            message = _message(self.transcript, session, at)
            if message.state in ("pending", "streaming"):
                raise NotAllowed(
                    f"message {at} of session {session!r} is not finished; fork at an earlier one"
                )
            if message.turn is None:
                return message.end
            turn = message.turn
            end = max(message.end, self.turns.taken_at(at) or 0)
            if any(
                other.end > end
                for other in self.transcript.messages
                if other.turn == turn
            ):
                return end
        if turn not in self.ends:
            if end:
                return end
            raise NotAllowed(
                f"turn {turn} of session {session!r} is not over; fork at one of its messages"
            )
        return self.ends[turn]
