"""What must be true of a store after anything at all has happened to the program that wrote it."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from steno.engine.recover import recover, waits_for_approval
from steno.journal.drafts import Stream, streams_of
from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Hash, Text
from steno.journal.state import State
from steno.store.errors import UnknownPayload
from steno.store.protocol import Admission, Admitted
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore
from tests.crash.world import NOW_MS, PLATFORM, Admit, Bring, Journal, Script, World
from tests.store.index import assert_tells_all

SETTINGS = SqliteSettings(now_ms=lambda: NOW_MS)


def check(path: Path, script: Script, done: int) -> None:
    """`done` verbs were acknowledged before the end, and no verb after the next one was begun."""
    acknowledged = script.worlds[done]
    assert_absent(path.parent, acknowledged.gone)
    with BlockingStore(path, SETTINGS) as store:
        found = observed(store, script)
        assert_one_of(found, script.worlds[done : done + 2])
        assert store.verify().damage == ()
        assert_keys_hold(store, script, found, done)
        for session in found.journals:
            assert_recovers(store, session, acknowledged.tokens.get(session, 0))
        assert_goes_on(store, sorted(found.journals))
        assert_tells_all(store)
        assert store.verify().damage == ()
    assert_absent(path.parent, acknowledged.gone)


def observed(store: BlockingStore, script: Script) -> World:
    """The world as readers of a store find it."""
    ids = [listed.id for listed in store.list(limit=1_000)]
    journals = {id: _journal(store, id) for id in ids}
    names = {name: id for name in script.names if (id := store.find(name)) is not None}
    payloads = {hash: "" for hash in script.payloads if _has(store, hash)}
    return World(journals, names, payloads)


def _journal(store: BlockingStore, id: str) -> Journal:
    records = list(store.read_all(id))
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    drafts = {draft.stream: draft.text for draft in store.drafts(id)}
    return Journal(tuple(record.fact for record in records), drafts)


def _has(store: BlockingStore, hash: Hash) -> bool:
    try:
        store.get(hash)
    except UnknownPayload:
        return False
    return True


def assert_absent(folder: Path, gone: frozenset[str]) -> None:
    """Removed text is in no file: not in the database, not in a log, not in a journal."""
    for file in folder.iterdir():
        if file.is_file():
            content = file.read_bytes()
            assert [text for text in gone if text.encode() in content] == [], (
                f"removed text is left in {file.name}"
            )


def assert_one_of(found: World, allowed: Sequence[World]) -> None:
    """Equal to the world that was acknowledged, or to the one that was being made: nothing in
    between."""
    if any(found.readable() == world.readable() for world in allowed):
        return
    difference = difflib.unified_diff(
        _lines(allowed[0]), _lines(found), "acknowledged", "found", lineterm="", n=1
    )
    raise AssertionError(
        "the store holds neither what was acknowledged nor what was next:\n" + "\n".join(difference)
    )


def _lines(world: World) -> list[str]:
    lines = [f"{name} -> {id}" for name, id in sorted(world.names.items())] + sorted(world.payloads)
    for id, journal in sorted(world.journals.items()):
        lines += [f"{id} {seq} {fact!r:.200}" for seq, fact in enumerate(journal.facts, start=1)]
        lines += [f"{id} {stream} {text!r:.200}" for stream, text in sorted(journal.drafts.items())]
    return lines


def assert_keys_hold(store: BlockingStore, script: Script, found: World, done: int) -> None:
    """What was admitted under a key is not admitted again."""
    for verb, answer in zip(script.verbs[:done], script.answers, strict=False):
        if (
            isinstance(verb, Admit)
            and isinstance(answer, Admitted)
            and verb.session in found.journals
        ):
            again = store.admit(
                Admission(input=verb.input, session=verb.session, payloads=verb.payloads)
            )
            assert again == Admitted(answer.session, answer.seq, False)
        if isinstance(verb, Bring):
            for seq, fact in enumerate(verb.facts, start=1):
                if isinstance(fact, InputAdmitted):
                    assert store.admit(Admission(input=fact)) == Admitted(verb.session, seq, False)


def assert_recovers(store: BlockingStore, session: str, token: int = 0) -> None:
    """Recovery closes what was open, keeps every character that was shown, and is done once."""
    lease = store.acquire(session)
    assert lease.token > token, "an old writer would not be fenced out"
    state, drafts = fold(store, session), store.drafts(session)
    closing = recover(state, drafts)
    if closing:
        store.append(lease, closing, state.head)
    kept = {whole.stream: whole.text for fact in closing for whole in streams_of(fact)}
    assert {draft.stream: draft.text for draft in drafts} == kept
    state = fold(store, session)
    assert state.turn is None or waits_for_approval(state.turn)
    assert recover(state, store.drafts(session)) == ()
    assert store.drafts(session) == []
    assert store.release(lease, state.head).released


def fold(store: BlockingStore, session: str) -> State:
    state = State()
    for record in store.read_all(session):
        state.apply(record)
    return state


def assert_goes_on(store: BlockingStore, sessions: Sequence[str]) -> None:
    """One more turn, in a session that was there or, if there is none, in the first."""
    session = sessions[0] if sessions else store.create(SessionStarted(PLATFORM))
    said = store.admit(
        Admission(input=InputAdmitted((Text("go on"),), "check", "go-on"), session=session)
    )
    assert said.first
    lease = store.acquire(session)
    turn = store.append(lease, [TurnStarted(Takes(said.seq))], said.seq).last
    step = store.append(lease, [StepStarted("model")], turn).last
    for end, letter in enumerate("gone on", start=1):
        assert store.draft(lease, Stream(step, "text"), letter) == end
    ended = store.append(
        lease, [StepSealed(step, (Text("gone on"),)), TurnEnded(turn, "done")], step
    )
    assert store.release(lease, ended.last).released
    assert store.read(session, after=step)[0].fact == StepSealed(step, (Text("gone on"),))
