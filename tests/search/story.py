"""Sessions in which everything happens that can change what is found."""

import contextlib
from collections.abc import Iterable
from random import Random

from steno.journal.drafts import Stream
from steno.journal.facts import (
    AnyFact,
    Compacted,
    InputAdmitted,
    MessageHidden,
    Record,
    Rewound,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import File, Returned, Seq, Text, ToolCall
from steno.store.errors import ForksRemain, NotAllowed, SessionBusy
from steno.store.facade import BlockingStore
from steno.store.protocol import Admission


class Story:
    """Does one thing after another to a store; what is said comes from `texts`."""

    def __init__(self, store: BlockingStore, chance: Random, texts: Iterable[str]) -> None:
        self.store = store
        self.chance = chance
        self.texts = tuple(texts)
        self.sessions: list[str] = []
        self.messages: list[tuple[str, Seq]] = []
        self._imported = 0

    def say(self) -> None:
        text = self.chance.choice(self.texts)
        old = (
            self.chance.choice(self.sessions)
            if self.sessions and self.chance.random() < 0.7
            else None
        )
        platform = self.chance.choice(("cli", "telegram"))
        create = SessionStarted(platform, "m") if old is None else None
        said = InputAdmitted((Text(text),), "test")
        admitted = self.store.admit(Admission(input=said, session=old, create=create))
        if old is None:
            self.sessions.append(admitted.session)
        self.messages.append((admitted.session, admitted.seq))

    def answer(self) -> None:
        """A whole turn: streamed, with a tool, perhaps compacted or cut off."""
        waiting = [id for id in self.sessions if self.store.glance(id).row.pending]
        if not waiting:
            return
        session = self.chance.choice(waiting)
        try:
            lease = self.store.acquire(session)
        except SessionBusy:
            return
        glance = self.store.glance(session)
        text = self.chance.choice(self.texts)
        begun: list[TurnFact] = [TurnStarted(Takes(glance.row.pending[0])), StepStarted("m")]
        step = self.store.append(lease, begun, glance.head).last
        self.store.draft(lease, Stream(step, "text"), text)
        if self.chance.random() < 0.1:  # killed: the draft stays
            self.store.abandon(lease)
            self.sessions.remove(session)
            return
        output = self.chance.choice(self.texts)
        whole = output.encode("utf-8", "replace")
        parts = (Text(text), ToolCall("c", "shell", '{"command":"ls"}'))
        hash = self.store.put(session, whole)
        kept = File(hash, "text/plain", len(whole), "output")
        started = self.store.append(lease, [StepSealed(step, parts), ToolStarted(step, "c")], step)
        last = self.store.append(
            lease,
            [
                ToolSettled(step, "c", Returned((Text(output[:20]), kept)), step + 2),
                TurnEnded(step - 1, "done"),
                *([Compacted(step, "a summary")] if self.chance.random() < 0.3 else []),
                *([Rewound(step - 1)] if self.chance.random() < 0.2 else []),
            ],
            started.last,
        ).last
        self.store.release(lease, last)
        self.messages += [(session, step), (session, step + 2)]

    def hide(self) -> None:
        if self.messages:
            session, seq = self.chance.choice(self.messages)
            self.store.add(session, [MessageHidden(seq, self.chance.random() < 0.7)])

    def rename(self) -> None:
        if self.sessions:
            title = self.chance.choice(self.texts)
            self.store.add(self.chance.choice(self.sessions), [SessionRenamed(title)])

    def redact(self) -> None:
        if self.messages:
            session, seq = self.chance.choice(self.messages)
            with contextlib.suppress(NotAllowed):
                self.store.redact(session, seq)

    def fork(self) -> None:
        if self.sessions:
            session = self.chance.choice(self.sessions)
            head = self.store.glance(session).head
            started = SessionStarted("cli", "m")
            self.sessions.append(self.store.fork(session, head, started))

    def delete(self) -> None:
        if len(self.sessions) > 2:
            session = self.chance.choice(self.sessions)
            try:
                self.store.delete(session)
            except ForksRemain:
                return
            self.sessions.remove(session)
            self.messages = [one for one in self.messages if one[0] != session]

    def bring(self) -> None:
        """A session of another store comes, whole, at once."""
        self._imported += 1
        id = f"imported{self._imported}"
        facts: list[AnyFact] = [
            SessionStarted("cli", "m"),
            *(InputAdmitted((Text(self.chance.choice(self.texts)),), "test") for _ in range(5)),
        ]
        carried = [Record(seq, 1_600_000_000_000 + seq, fact) for seq, fact in enumerate(facts, 1)]
        self.store.bring(id, 0, carried)
        self.sessions.append(id)
        self.messages += [(id, seq) for seq in range(2, 7)]

    DEEDS = (
        ("say",) * 6
        + ("answer",) * 5
        + ("hide", "hide", "rename", "redact", "fork", "delete", "bring")
    )

    def go_on(self, deeds: int) -> None:
        for _ in range(deeds):
            getattr(self, self.chance.choice(self.DEEDS))()
