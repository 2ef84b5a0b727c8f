"""Bytes on disk per 500-character message, over whole turns as a runtime stores them, search aside.

Turns of many sessions interleave in time, as they do in life: a session's facts lie side by side,
so a fact of an older session goes into the middle of the table, where pages are less full than at
its end.
"""

from collections.abc import Callable
from pathlib import Path

from bench.building import FAST, MESSAGES_PER_TURN, asked, sealed, text
from bench.result import Plan, Result, at_most, noted
from bench.timing import bounded
from bench.words import TEXT_LEN
from steno.journal.drafts import Stream
from steno.journal.facts import InputAdmitted, SessionStarted, TurnEnded
from steno.journal.parts import Seq
from steno.store.protocol import Admission, Lease
from steno.store.sqlite.store import BlockingStore

NAME = "disk"
BYTES_MAX = 1_100
PIECE_LEN = 20


def run(plan: Plan) -> list[Result]:
    sessions, turns = plan.pick(100, 40), plan.pick(50, 25)
    folder = Path(plan.folder)
    shape = f"{sessions} × {turns} turns"
    mixed = _bytes(folder / "mixed.db", sessions, turns, lambda i: (i % sessions, i // sessions))
    apart = _bytes(folder / "apart.db", sessions, turns, lambda i: (i // turns, i % turns))
    plain = _bytes(
        folder / "plain.db", sessions, turns, lambda i: (i % sessions, i // sessions), keyed=False
    )
    streamed = _bytes(
        folder / "streamed.db",
        sessions,
        turns,
        lambda i: (i % sessions, i // sessions),
        streamed=True,
    )
    return [
        at_most(
            NAME, "per message, sessions by turns, with keys", mixed, BYTES_MAX, "bytes", shape
        ),
        at_most(NAME, "per message, one session after another", apart, BYTES_MAX, "bytes", shape),
        at_most(
            NAME,
            "per message, sessions by turns, streamed",
            streamed,
            BYTES_MAX,
            "bytes",
            "and sealed",
        ),
        noted(NAME, "per message, sessions by turns, without keys", plain, "bytes", shape),
    ]


def _bytes(
    path: Path,
    sessions: int,
    turns: int,
    order: Callable[[int], tuple[int, int]],
    *,
    keyed: bool = True,
    streamed: bool = False,
) -> float:
    """Bytes per message of a store that was closed: everything is in the one file then."""
    with BlockingStore(path, FAST) as store:
        ids = [store.create(SessionStarted("bench", name=f"chat/{i}")) for i in range(sessions)]
        leases = [store.acquire(id) for id in ids]
        for i in bounded(sessions * turns):
            session, turn = order(i)
            _turn(store, leases[session], i, f"{session}/{turn}" if keyed else None, streamed)
    files = [path, path.with_name(path.name + "-wal")]
    return sum(file.stat().st_size for file in files if file.exists()) / (
        sessions * turns * MESSAGES_PER_TURN
    )


def _turn(store: BlockingStore, lease: Lease, i: int, key: str | None, streamed: bool) -> None:
    said = InputAdmitted((text(i),), "bench", key)
    input = store.admit(Admission(input=said, session=lease.session)).seq
    step = store.append(lease, asked(input), input).last
    if streamed:
        _stream(store, lease, step, i + 1)
    store.append(lease, (sealed(step, i + 1), TurnEnded(input + 1, "done")), step)


def _stream(store: BlockingStore, lease: Lease, step: Seq, i: int) -> None:
    whole = text(i).text
    for start in range(0, TEXT_LEN, PIECE_LEN):
        store.draft(lease, Stream(step, "text"), whole[start : start + PIECE_LEN])
