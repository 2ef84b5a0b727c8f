"""Whether anything that a person waits for grows with the store: 1,000,000 messages against
1,000."""

import time
from collections.abc import Callable
from pathlib import Path

import steno
from bench.building import MESSAGES_PER_TURN, build, said, some, warm
from bench.result import Plan, Result, at_most, noted
from bench.timing import interleaved, percentile, timed_ms
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore

NAME = "scale"
MESSAGES_PER_SESSION = 100
SMALL = 1_000
LISTED = SMALL // MESSAGES_PER_SESSION
"""As many as the small store has, so that both lists are equally long."""

FED = 100
"""How many changes a reader of the feed has not seen yet."""

Act = Callable[[int], object]


class Built:
    """A store of so many messages, and how long each visit to it takes."""

    def __init__(self, path: Path, messages: int) -> None:
        before_s = time.perf_counter()
        self.path = path
        self.ids = build(
            path, messages // MESSAGES_PER_SESSION, MESSAGES_PER_SESSION // MESSAGES_PER_TURN
        )
        self.took_s = time.perf_counter() - before_s
        self.size_mb = path.stat().st_size / 1e6
        self._visits = 0

    def next(self) -> str:
        self._visits += 1
        return some(self.ids, self._visits)

    def append_ms(self, store: BlockingStore) -> float:
        admission = Admission(input=said(self._visits), session=self.next())
        return timed_ms(lambda: store.admit(admission))

    def list_ms(self, store: BlockingStore) -> float:
        return timed_ms(lambda: store.list(limit=LISTED))

    def feed_ms(self, store: BlockingStore) -> float:
        mark = store.changes(None).mark - FED
        return timed_ms(lambda: store.changes(mark))

    def open_ms(self) -> float:
        before_s = time.perf_counter()
        with steno.open(self.path) as library:
            library.store.read(self.next())
            return (time.perf_counter() - before_s) * 1000

    def resume_ms(self) -> float:
        before_s = time.perf_counter()
        with steno.open(self.path) as library:
            library.open(self.next()).transcript()
            return (time.perf_counter() - before_s) * 1000


def run(plan: Plan) -> list[Result]:
    many, visits = plan.pick(1_000_000, 50_000), plan.pick(400, 100)
    small, large = (
        Built(Path(plan.folder) / "small.db", SMALL),
        Built(Path(plan.folder) / "large.db", many),
    )
    against = f"{many:,} messages against {SMALL:,}, p95"
    opened = [
        _judged(f"open + first read: {against}", interleaved(large.open_ms, small.open_ms, visits)),
        _judged(
            f"resume (open + fold 100 messages): {against}",
            interleaved(large.resume_ms, small.resume_ms, visits),
        ),
    ]
    with BlockingStore(large.path) as far, BlockingStore(small.path) as near:
        warm(far)
        warm(near)
        kept = [
            _judged(
                f"append: {against}",
                interleaved(
                    lambda: large.append_ms(far), lambda: small.append_ms(near), visits * 5
                ),
            ),
            _judged(
                f"list {LISTED} sessions: {against}",
                interleaved(lambda: large.list_ms(far), lambda: small.list_ms(near), visits),
            ),
            _judged(
                f"the {FED} newest changes of the feed: {against}",
                interleaved(lambda: large.feed_ms(far), lambda: small.feed_ms(near), visits),
            ),
        ]
    built = noted(
        NAME,
        f"building the store of {many:,} messages",
        large.took_s,
        "s",
        f"{large.size_mb:,.0f} MB",
    )
    return [*kept, *opened, built]


def _judged(what: str, pairs: list[tuple[float, float]]) -> Result:
    large_ms, small_ms = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    p95_ms = percentile(large_ms, 0.95), percentile(small_ms, 0.95)
    p50_ms = percentile(large_ms, 0.5), percentile(small_ms, 0.5)
    detail = (
        f"p95 {p95_ms[0]:.2f} / {p95_ms[1]:.2f} ms, p50 {p50_ms[0]:.2f} / {p50_ms[1]:.2f} ms; "
        f"N={len(pairs)}"
    )
    return at_most(NAME, what, p95_ms[0] / p95_ms[1], 2, detail=detail)
