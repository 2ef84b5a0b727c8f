"""What a store should hold, worked out without a store.

Each verb says what becomes of a world and what the answer is (`expect`), and how a program asks a
store for it (`perform`). A script is a list of verbs; the worlds between them are what a reader may
find, whatever happens.
"""

import contextlib
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from unittest import mock

import apsw
from msgspec import Struct, structs

from steno.journal.drafts import Draft, Stream, sealed_by
from steno.journal.facts import (
    AnyFact,
    ForkPoint,
    FreeFact,
    InputAdmitted,
    MessageRedacted,
    Record,
    SessionStarted,
    TurnFact,
    payloads_of,
)
from steno.journal.parts import Hash, Seq
from steno.journal.redaction import redact
from steno.store import import_session
from steno.store.protocol import (
    Admission,
    Admitted,
    Appended,
    Carried,
    Keyed,
    Lease,
    Payload,
    Release,
    Settings,
)
from steno.store.sqlite import checkpoint
from steno.store.sqlite.store import BlockingStore

NOW_MS = 1_800_000_000_000
PLATFORM = "crash"


class Journal(Struct, frozen=True):
    """A session as its readers know it. A fork holds the very objects that its parent holds, up to
    its base."""

    facts: tuple[AnyFact, ...] = ()
    drafts: dict[Stream, str] = {}

    @property
    def head(self) -> Seq:
        return len(self.facts)

    def plus(self, *facts: AnyFact) -> "Journal":
        sealed = {sealed_by(fact) for fact in facts}
        drafts = {
            stream: text for stream, text in self.drafts.items() if stream.started not in sealed
        }
        return Journal(self.facts + facts, drafts)


class World(Struct, frozen=True):
    """Everything in a store. `gone` are texts that were removed: no file may hold them."""

    journals: dict[str, Journal] = {}
    names: dict[str, str] = {}
    payloads: dict[Hash, str] = {}
    tokens: dict[str, int] = {}
    gone: frozenset[str] = frozenset()

    def with_journal(self, id: str, journal: Journal) -> "World":
        return structs.replace(self, journals={**self.journals, id: journal})

    def with_payload(self, hash: Hash, session: str) -> "World":
        return structs.replace(self, payloads={**self.payloads, hash: session})

    def readable(self) -> tuple[object, ...]:
        """What readers can tell worlds apart by."""
        return self.journals, self.names, self.payloads.keys()


class Hands:
    """What a program that carries out verbs holds on to."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.fresh_id = ""
        self.settings = structs.replace(
            settings, now_ms=lambda: NOW_MS, new_id=lambda: self.fresh_id
        )
        self.leases: dict[str, Lease] = {}
        self._store: BlockingStore | None = None

    @property
    def store(self) -> BlockingStore:
        """The open store; opened if it is not."""
        if self._store is None:
            self._store = BlockingStore(self.path, self.settings)
        return self._store

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


class Verb(Struct, frozen=True):
    """One thing that a program asks of a store. The world given is the one before it."""

    def expect(self, world: World) -> tuple[World, object]:
        raise NotImplementedError

    def perform(self, hands: Hands, world: World) -> object:
        raise NotImplementedError


class Open(Verb, frozen=True):
    def expect(self, world: World) -> tuple[World, object]:
        return world, True

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store is not None


class Close(Verb, frozen=True):
    def expect(self, world: World) -> tuple[World, object]:
        return world, None

    def perform(self, hands: Hands, world: World) -> object:
        hands.close()
        return None


class Checkpoint(Verb, frozen=True):
    """What the store's own thread does from time to time; a failure leaves it for the next time."""

    def expect(self, world: World) -> tuple[World, object]:
        return world, None

    def perform(self, hands: Hands, world: World) -> object:
        store = hands.store
        with contextlib.suppress(apsw.Error):
            store.backend.exclusively(lambda: checkpoint._copy(store.backend.connection))
        return None


class Create(Verb, frozen=True):
    session: str

    def expect(self, world: World) -> tuple[World, object]:
        return world.with_journal(self.session, Journal((SessionStarted(PLATFORM),))), self.session

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.create(SessionStarted(PLATFORM), self.session)


class Ensure(Verb, frozen=True):
    name: str
    session: str

    def expect(self, world: World) -> tuple[World, object]:
        made = world.with_journal(
            self.session, Journal((SessionStarted(PLATFORM, name=self.name),))
        )
        return structs.replace(made, names={**world.names, self.name: self.session}), self.session

    def perform(self, hands: Hands, world: World) -> object:
        hands.fresh_id = self.session
        return hands.store.ensure(SessionStarted(PLATFORM, name=self.name))


class Fork(Verb, frozen=True):
    parent: str
    at: Seq
    session: str

    def expect(self, world: World) -> tuple[World, object]:
        origin = SessionStarted(PLATFORM, forked_from=ForkPoint(self.parent, self.at))
        shared = world.journals[self.parent].facts[: self.at]
        return world.with_journal(self.session, Journal((*shared, origin))), self.session

    def perform(self, hands: Hands, world: World) -> object:
        hands.fresh_id = self.session
        return hands.store.fork(self.parent, self.at, SessionStarted(PLATFORM))


class Admit(Verb, frozen=True):
    session: str
    input: InputAdmitted
    payloads: tuple[bytes, ...] = ()

    def expect(self, world: World) -> tuple[World, object]:
        journal = world.journals[self.session].plus(self.input)
        world = world.with_journal(self.session, journal)
        for payload in self.payloads:
            world = world.with_payload(sha256(payload).hexdigest(), self.session)
        return world, Admitted(self.session, journal.head, True)

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.admit(
            Admission(input=self.input, session=self.session, payloads=self.payloads)
        )


class Add(Verb, frozen=True):
    session: str
    facts: tuple[FreeFact, ...]
    key: str

    def expect(self, world: World) -> tuple[World, object]:
        before = world.journals[self.session]
        after = before.plus(*self.facts)
        return world.with_journal(self.session, after), Appended(
            before.head + 1, after.head, (), NOW_MS
        )

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.add(self.session, self.facts, self.key)


class Acquire(Verb, frozen=True):
    """Answers with the token: it only grows."""

    session: str

    def expect(self, world: World) -> tuple[World, object]:
        token = world.tokens.get(self.session, 0) + 1
        return structs.replace(world, tokens={**world.tokens, self.session: token}), token

    def perform(self, hands: Hands, world: World) -> object:
        hands.leases[self.session] = lease = hands.store.acquire(self.session)
        return lease.token


class Renew(Verb, frozen=True):
    session: str

    def expect(self, world: World) -> tuple[World, object]:
        return world, world.tokens[self.session]

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.renew(hands.leases[self.session]).token


class GiveUp(Verb, frozen=True):
    """Release a lease."""

    session: str

    def expect(self, world: World) -> tuple[World, object]:
        return world, Release(True, ())

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.release(hands.leases[self.session], world.journals[self.session].head)


class Append(Verb, frozen=True):
    session: str
    facts: tuple[TurnFact, ...]

    def expect(self, world: World) -> tuple[World, object]:
        before = world.journals[self.session]
        after = before.plus(*self.facts)
        return world.with_journal(self.session, after), Appended(
            before.head + 1, after.head, (), NOW_MS
        )

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.append(
            hands.leases[self.session], self.facts, world.journals[self.session].head
        )


class Write(Verb, frozen=True):
    """Add a piece to a draft; answers with the end of the stream."""

    session: str
    stream: Stream
    text: str

    def expect(self, world: World) -> tuple[World, object]:
        journal = world.journals[self.session]
        text = journal.drafts.get(self.stream, "") + self.text
        drafts = {**journal.drafts, self.stream: text}
        return world.with_journal(self.session, Journal(journal.facts, drafts)), len(text)

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.draft(hands.leases[self.session], self.stream, self.text)


class Put(Verb, frozen=True):
    session: str
    payload: bytes

    def expect(self, world: World) -> tuple[World, object]:
        hash = sha256(self.payload).hexdigest()
        return world.with_payload(hash, self.session), hash

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.put(self.session, self.payload)


class Bring(Verb, frozen=True):
    """Import a session, in several commits. Payloads come first, then its facts, its drafts, and
    one key."""

    session: str
    name: str
    facts: tuple[AnyFact, ...]
    drafts: tuple[Draft, ...]
    payloads: tuple[bytes, ...]

    def expect(self, world: World) -> tuple[World, object]:
        drafts = {draft.stream: draft.text for draft in self.drafts}
        world = world.with_journal(self.session, Journal(self.facts, drafts))
        for payload in self.payloads:
            world = world.with_payload(sha256(payload).hexdigest(), self.session)
        return structs.replace(world, names={**world.names, self.name: self.session}), None

    def perform(self, hands: Hands, world: World) -> object:
        records = [Record(seq, NOW_MS, fact) for seq, fact in enumerate(self.facts, start=1)]
        carried: list[Carried] = [
            *map(Payload, self.payloads),
            *records,
            *self.drafts,
            Keyed(2, "told-1", 1),
        ]
        with mock.patch.object(import_session, "STEP_FACTS", 4):
            hands.store.bring(self.session, 0, carried)
        return None


class Redact(Verb, frozen=True):
    """Take the text of one fact out, wherever the session and its forks hold it. `texts` is what
    must be gone."""

    session: str
    target: Seq
    texts: tuple[str, ...]

    def expect(self, world: World) -> tuple[World, object]:
        old = world.journals[self.session].facts[self.target - 1]
        new = redact(old)
        if new is None:
            raise ValueError(f"fact {self.target} has no text")
        journals = {id: _replaced(journal, old, new) for id, journal in world.journals.items()}
        journals[self.session] = journals[self.session].plus(MessageRedacted(self.target))
        payloads = {
            hash: owner for hash, owner in world.payloads.items() if hash not in payloads_of(old)
        }
        after = structs.replace(
            world, journals=journals, payloads=payloads, gone=world.gone | set(self.texts)
        )
        return after, journals[self.session].head

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.redact(self.session, self.target)


class Delete(Verb, frozen=True):
    """Remove a session that has no forks. `texts` is what must be gone."""

    session: str
    texts: tuple[str, ...]

    def expect(self, world: World) -> tuple[World, object]:
        journals = {id: journal for id, journal in world.journals.items() if id != self.session}
        names = {name: id for name, id in world.names.items() if id != self.session}
        payloads = {hash: owner for hash, owner in world.payloads.items() if owner != self.session}
        tokens = {id: token for id, token in world.tokens.items() if id != self.session}
        return World(journals, names, payloads, tokens, world.gone | set(self.texts)), 1

    def perform(self, hands: Hands, world: World) -> object:
        return hands.store.delete(self.session)


def _replaced(journal: Journal, old: AnyFact, new: AnyFact) -> Journal:
    return Journal(tuple(new if fact is old else fact for fact in journal.facts), journal.drafts)


class Script:
    """Verbs and the worlds between them: `worlds[k]` is what k verbs have made."""

    def __init__(self) -> None:
        self.verbs: list[Verb] = []
        self.worlds: list[World] = [World()]
        self.answers: list[object] = []

    @property
    def world(self) -> World:
        return self.worlds[-1]

    @cached_property
    def names(self) -> set[str]:
        return {name for world in self.worlds for name in world.names}

    @cached_property
    def payloads(self) -> set[Hash]:
        return {hash for world in self.worlds for hash in world.payloads}

    def then(self, verb: Verb) -> object:
        world, answer = verb.expect(self.world)
        self.verbs.append(verb)
        self.worlds.append(world)
        self.answers.append(answer)
        return answer

    def head(self, session: str) -> Seq:
        return self.world.journals[session].head
