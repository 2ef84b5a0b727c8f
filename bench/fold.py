"""Open a session of 10,000 messages and fold it, against reading and decoding the same rows with
sqlite3 and json."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from bench.building import MESSAGES_PER_TURN, build
from bench.result import Plan, Result, at_most, noted
from bench.timing import interleaved, median_ratio, medians, timed_ms
from steno.journal.facts import Record
from steno.journal.history import History
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.store.sqlite.store import BlockingStore

NAME = "fold"
MESSAGES = 10_000

Fold = State | Transcript | History


def run(plan: Plan) -> list[Result]:
    path = Path(plan.folder) / "fold.db"
    [id] = build(path, 1, MESSAGES // MESSAGES_PER_TURN)
    rounds = plan.pick(15, 7)
    both = interleaved(
        lambda: timed_ms(lambda: _open_and_fold(path, id)), lambda: _base_ms(path), rounds
    )
    our_ms, base_ms = medians(both)
    facts = MESSAGES // MESSAGES_PER_TURN * 5
    detail = f"{our_ms:.1f} / {base_ms:.1f} ms; {facts:,} facts, {rounds} rounds"
    return [
        at_most(
            NAME,
            f"open, read and fold the state of {MESSAGES:,} messages",
            median_ratio(both),
            3,
            detail=detail,
        ),
        *_apart(path, id, rounds),
    ]


def _base_ms(path: Path) -> float:
    return timed_ms(lambda: _read_raw(path))


def _read_raw(path: Path) -> list[object]:
    connection = sqlite3.connect(path)
    try:
        return [
            json.loads(body)
            for (body,) in connection.execute("select body from facts order by session, seq")
        ]
    finally:
        connection.close()


def _open_and_fold(path: Path, id: str) -> State:
    with BlockingStore(path) as store:
        state = State()
        for record in store.read_all(id):
            state.apply(record)
        return state


def _apart(path: Path, id: str, rounds: int) -> list[Result]:
    """Each fold alone, of records that are in memory already."""
    with BlockingStore(path) as store:
        records = list(store.read_all(id))
        reading = _against(
            path, "reading alone", lambda: sum(1 for _ in store.read_all(id)), rounds
        )
    folds: list[tuple[str, Callable[[], Fold]]] = [
        ("folding the state alone", State),
        ("folding the transcript alone", Transcript),
        ("folding the history for a model alone", History),
    ]
    return [
        reading,
        *(
            _against(path, what, lambda new=new: _fold(new(), records), rounds)  # type: ignore[misc]
            for what, new in folds
        ),
    ]


def _fold(view: Fold, records: list[Record]) -> Fold:
    for record in records:
        view.apply(record)
    return view


def _against(path: Path, what: str, act: Callable[[], object], rounds: int) -> Result:
    pairs = interleaved(lambda: timed_ms(act), lambda: _base_ms(path), rounds)
    our_ms, base_ms = medians(pairs)
    return noted(NAME, what, median_ratio(pairs), detail=f"{our_ms:.1f} / {base_ms:.1f} ms")
