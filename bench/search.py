"""Search in a large store: how long each kind of query takes, against a scan of the same rows; how
big the index is, how fast it is built, and what writers notice of that.

`--quick` has 100,000 messages. Queries are pieces of stored messages. p95, files warm; a scan reads
and folds all texts. The index is built in a process of its own: `python -m bench.search PATH`.
"""

import contextlib
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw
from msgspec import Struct

from bench import search_corpus
from bench.child import answer, finish, ready, start
from bench.machine import rss_peak_mb
from bench.result import Plan, Result, at_least, at_most, noted, unless_busy
from bench.search_corpus import COMMON, ENDS_MS, texts
from bench.timing import percentile, timed_ms
from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.search import beside
from steno.search.documents import documents
from steno.search.feed import told
from steno.search.index_file import SEQ_END, IndexFile
from steno.search.indexer import BULK, START, Indexer
from steno.search.keeper import Search
from steno.search.query import Query, literal, parse
from steno.search.searching import Asked, Order
from steno.store.protocol import Admission, FactAdded
from steno.store.sqlite.store import BlockingStore

NAME = "search"
QUERIES = 40
ROUNDS = 4
APPENDS_S = 3.0
_LIMITS_MS = {
    "rare": 15.0,
    "inside": 15.0,
    "cjk1": 15.0,
    "cjk2": 15.0,
    "short": 60.0,
    "common": 50.0,
    "three": 250.0,
    "phrase": 250.0,
    "prefix": 250.0,
    "filter": 60.0,
    "hard": 3_000.0,
}
_SAYS = {
    "rare": "a rare word, newest 20",
    "inside": "three letters inside a word, newest 20",
    "cjk1": "one CJK character, newest 20",
    "cjk2": "two CJK characters, newest 20",
    "short": "one or two Latin letters, newest 20",
    "common": "a common word, ranked, one a session",
    "three": "three words of one message, ranked",
    "phrase": "a phrase of 30 characters, ranked",
    "prefix": "the beginning of a word, ranked",
    "filter": "a word of one role in 60 days, ranked",
    "hard": "a phrase of very common words, ranked",
}
_NEWEST = frozenset(("rare", "inside", "cjk1", "cjk2", "short"))


def run(plan: Plan) -> list[Result]:
    messages = plan.pick(1_000_000, 100_000)
    path = Path(plan.folder) / "store.db"
    search_corpus.build(path, messages)
    with BlockingStore(path) as store:
        results = _build(store, path, messages)
        search = Search(store, beside(path))
        scan_ms = _scan_ms(store)
        results.append(noted(NAME, "a folded scan of all texts", scan_ms, "ms"))
        results += _queries(store, search, scan_ms)
        search.close()
        results.append(_first_result(path))
        results += _beside_writers(store, path)
        results += _redaction(store, path)
    return results


class _Timed(IndexFile):
    """Knows how long its transactions took, with their commits, and how much CPU."""

    def __init__(self, path: Path) -> None:
        self.times_ms: list[float] = []
        self.cpu_ms: list[float] = []
        super().__init__(path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        before_s, before_cpu_s = time.perf_counter(), time.thread_time()
        with super().writing() as connection:
            yield connection
        self.times_ms.append((time.perf_counter() - before_s) * 1000)
        self.cpu_ms.append((time.thread_time() - before_cpu_s) * 1000)


class _Built(Struct):
    cpu_s: float
    longest_ms: float
    longest_cpu_ms: float
    memory_mb: float


def _build_here(path: Path) -> _Built:
    with BlockingStore(path) as store:
        file = _Timed(beside(path))
        indexer = Indexer(store, file)
        before_s = time.process_time()
        while indexer.step(BULK):
            pass
        took_s = time.process_time() - before_s
        file.close()
    return _Built(took_s, max(file.times_ms), max(file.cpu_ms), rss_peak_mb())


def _build(store: BlockingStore, path: Path, messages: int) -> list[Result]:
    built = finish(start("bench.search", path), _Built, 3_600)
    text_bytes = sum(
        len(one.text.encode("utf-8", "replace"))
        for batch in told(store, START, (store.changes(None).mark, SEQ_END))
        for fact in batch
        for one in documents(fact.record)
    )
    size = beside(path).stat().st_size
    rate = messages / built.cpu_s
    return [
        at_least(NAME, "build, per second of CPU", rate, 5_000, "messages/s"),
        at_most(NAME, "memory of the process that builds", built.memory_mb, 100, "MB"),
        at_most(NAME, "size of the index to text", size / text_bytes, 1.0),
        at_most(
            NAME,
            "longest transaction of the index, building",
            built.longest_ms,
            150,
            "ms",
            f"{built.longest_cpu_ms:.0f} ms of CPU at most",
        ),
    ]


def _scan_ms(store: BlockingStore) -> float:
    search = Search(store, None)
    return timed_ms(lambda: search.find(_asked(literal("q\u2603q"), "newest")))


def _asked(query: Query, order: Order) -> Asked:
    return Asked(
        query=query,
        order=order,
        all=order == "newest",
        now_ms=time.time_ns() // 1_000_000,
        time_limit_s=600,
    )


def _queries(store: BlockingStore, search: Search, scan_ms: float) -> list[Result]:
    results: list[Result] = []
    for kind, limit_ms in _LIMITS_MS.items():
        chance = Random(kind)
        said = texts(store, 40 * QUERIES, 3)
        found = [query for text in said if (query := _query(kind, text, chance))]
        times = []
        for query in found[: QUERIES // 4 if kind == "hard" else QUERIES]:
            asked = _asked(query, "newest" if kind in _NEWEST else "best")
            search.find(asked)
            gc.collect(0)
            times.append(timed_ms(lambda asked=asked: search.find(asked)))  # type: ignore[misc]
        p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
        detail = (
            f"p50 {p50:.1f} ms; 1/{scan_ms / max(p95, 0.001):,.0f} of a scan; {len(times)} queries"
        )
        results.append(at_most(NAME, f"{_SAYS[kind]}, p95", p95, limit_ms, "ms", detail))
    return results


def _query(kind: str, text: str, chance: Random) -> Query | None:
    """A query of this kind, of a stored message; None if it has none."""
    words = [word for word in text.split() if word.isascii() and word.isalpha()]
    wide = [letter for letter in text if "\u4e00" <= letter <= "\u9fff"]
    place = chance.randrange(max(len(text) - 30, 1))
    match kind:
        case "rare":
            long = [word for word in text.split() if 12 < len(word) <= 40]
            return literal(chance.choice(long)) if long else None
        case "inside":
            inner = [word[1:4] for word in words if len(word) > 6]
            return literal(chance.choice(inner)) if inner else None
        case "cjk1":
            return literal(chance.choice(wide)) if wide else None
        case "cjk2":
            at = text.find(chance.choice(wide)) if wide else -1
            return literal(text[at : at + 2]) if at >= 0 and at + 2 <= len(text) else None
        case "short":
            return literal(chance.choice(words)[: chance.randint(1, 2)]) if words else None
        case "common":
            return parse(chance.choice(COMMON), 0)
        case "three":
            return parse(" ".join(chance.sample(words, 3)), 0) if len(words) > 10 else None
        case "phrase":
            return literal(text[place : place + 30].strip()) if len(text) > 40 else None
        case "prefix":
            long = [word[:4] for word in words if len(word) > 5]
            return parse(f"{chance.choice(long)}*", 0) if long else None
        case "filter":
            return parse(f"{chance.choice(words)} role:user after:60d", ENDS_MS) if words else None
        case _:
            return literal(" ".join(chance.sample(COMMON[:6], 4)))


def _first_result(path: Path) -> Result:
    """`steno search` as a person starts it, with the files out of the system's cache."""
    home = path.parent / "home"
    home.mkdir(exist_ok=True)
    for file in path.parent.glob("store.db*"):
        if file.is_file():
            os.link(file, home / file.name)
            with file.open("rb") as handle:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    environment = os.environ | {"STENO_HOME": str(home)}
    command = [sys.executable, "-m", "steno", "search", COMMON[0]]
    before_s = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        first = b"" if process.stdout is None else process.stdout.readline()
        took_ms = (time.perf_counter() - before_s) * 1000
        process.communicate()
    if not first.strip().startswith(b"1 "):
        raise subprocess.SubprocessError("steno search found nothing")
    return at_most(NAME, "steno search, from start to first result, cold files", took_ms, 400, "ms")


def _beside_writers(store: BlockingStore, path: Path) -> list[Result]:
    """Durable appends while the index is filled in the background, and while it is not: one after
    another, and with pauses as an agent makes them."""
    session = store.create(SessionStarted("cli"))
    results: list[Result] = []
    for says, pause_s in (("", 0.0), (" with pauses", 0.03)):
        before, filling, after, taken = list[float](), list[float](), list[float](), 0
        chance = Random(says)

        def appends_ms(pause_s: float = pause_s, chance: Random = chance) -> Iterator[float]:
            ends_s = time.perf_counter() + APPENDS_S
            while time.perf_counter() < ends_s:
                yield timed_ms(lambda: _say(store, session, "append"))
                if pause_s:
                    time.sleep(chance.uniform(0, pause_s))

        for _ in range(ROUNDS):
            before += appends_ms()
            search = Search(store, path.with_name("spare-search"))
            search.keep_up()
            had = search.progress().texts
            filling += appends_ms()
            taken += search.progress().texts - had
            search.close()
            after += appends_ms()
        told = f"{len(filling):,} appends; {taken / ROUNDS / APPENDS_S:.0f} texts/s were taken in"
        for part, limit in ((0.5, 1.05), (0.99, 1.3)):
            alone = percentile(before + after, part)
            itself = percentile(after, part) / percentile(before, part)
            name = f"durable append{says} while the index is filled, p{part * 100:.0f}"
            detail = f"{told}; without, against itself {itself:.2f}"
            result = at_most(NAME, name, percentile(filling, part) / alone, limit, detail=detail)
            results.append(unless_busy(result, 1 / limit <= itself <= limit))
    return results


def _say(store: BlockingStore, session: str, text: str) -> int:
    said = InputAdmitted((Text(text),), "bench")
    return store.admit(Admission(input=said, session=session)).seq


def _redaction(store: BlockingStore, path: Path) -> list[Result]:
    """Until a redacted text of a full part is out of the index's files; the journal's own share is
    not counted."""
    file = _Timed(beside(path))
    indexer = Indexer(store, file)
    first = next(one for one in store.changes(0, 100).changes if isinstance(one, FactAdded))
    store.redact(first.session, store.read(first.session, 0, 1, ("input.admitted",))[0].seq)
    file.times_ms.clear()
    took_ms = timed_ms(indexer.clear)
    longest_ms = max(file.times_ms, default=0.0)
    file.close()
    return [
        at_most(NAME, "redacted text out of the index's files", took_ms, 1_000, "ms"),
        at_most(NAME, "longest transaction of the index, redacting", longest_ms, 150, "ms"),
    ]


if __name__ == "__main__":
    ready()
    answer(_build_here(Path(sys.argv[1])))
