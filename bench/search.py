"""Search in a large store: how long each kind of query takes, against a scan of the same rows; how
big the index is, how fast it is built, and what writers notice of that.

`--quick` has 100,000 messages. Queries are pieces of stored messages. p95, files warm; a scan is
what `search_sessions` did before there was an index, with the same folding.
"""

import gc
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

from bench import search_corpus
from bench.result import Plan, Result, at_least, at_most, noted
from bench.search_corpus import COMMON, texts
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
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore

NAME = "search"
QUERIES = 40
APPENDS = 300
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
    "hard": "a phrase of very common words, ranked",
}
_NEWEST = frozenset(("rare", "inside", "cjk1", "cjk2", "short"))


def run(plan: Plan) -> list[Result]:
    messages = plan.pick(1_000_000, 100_000)
    path = Path(plan.folder) / "store.db"
    search_corpus.build(path, messages)
    with BlockingStore(path) as store:
        results = _build(store, path)
        search = Search(store, beside(path))
        scan_ms = _scan_ms(store)
        results.append(noted(NAME, "a folded scan of all texts", scan_ms, "ms"))
        results += _queries(store, search, scan_ms)
        search.close()
        results.append(_first_result(path))
        results += _beside_writers(store, path)
        results.append(_redaction(store, path))
    return results


def _build(store: BlockingStore, path: Path) -> list[Result]:
    file = IndexFile(beside(path))
    indexer, longest_ms = Indexer(store, file), 0.0
    commit = file.connection
    times: list[float] = []
    began: list[float] = []

    def traced(_cursor: object, sql: str, _values: object) -> bool:
        if sql == "begin immediate":
            began.append(time.perf_counter())
        elif sql == "commit" and began:
            times.append((time.perf_counter() - began.pop()) * 1000)
        return True

    commit.exec_trace = traced
    before_s = time.process_time()
    while indexer.step(BULK):
        pass
    took_s = time.process_time() - before_s
    longest_ms = max(times)
    progress = indexer.progress()
    file.close()
    text_bytes = sum(
        len(one.text.encode("utf-8", "replace"))
        for batch in told(store, START, (store.changes(None).mark, SEQ_END))
        for fact in batch
        for one in documents(fact.record)
    )
    size = beside(path).stat().st_size
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        at_least(NAME, "build, per second of CPU", progress.texts / took_s, 5_000, "texts/s"),
        at_most(NAME, "size of the index to text", size / text_bytes, 1.0),
        noted(NAME, "memory of the process", memory_mb, "MB"),
        at_most(NAME, "longest transaction before its commit", longest_ms, 1_000, "ms", "bulk"),
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
        for query in found[:QUERIES]:
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
            long = [word for word in text.split() if len(word) > 12]
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
    took_ms = timed_ms(
        lambda: subprocess.run(
            [sys.executable, "-m", "steno", "search", COMMON[0], "--json"],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    )
    return at_most(NAME, "steno search, from start to end, cold files", took_ms, 400, "ms")


def _beside_writers(store: BlockingStore, path: Path) -> list[Result]:
    """Durable appends while the index is filled in the background, and while it is not."""
    session = store.create(SessionStarted("cli"))

    def appends_ms() -> list[float]:
        return [
            timed_ms(lambda i=i: _say(store, session, f"append {i}"))  # type: ignore[misc]
            for i in range(APPENDS)
        ]

    alone, filling = list[float](), list[float]()
    spare = path.with_name("spare-search")
    for _ in range(3):
        alone += appends_ms()
        search = Search(store, spare)
        search.keep_up()
        filling += appends_ms()
        search.close()
    p50 = percentile(filling, 0.5) / percentile(alone, 0.5)
    p99 = percentile(filling, 0.99) / percentile(alone, 0.99)
    return [
        at_most(NAME, "durable append while the index is filled, p50", p50, 1.05),
        at_most(NAME, "durable append while the index is filled, p99", p99, 1.3),
    ]


def _say(store: BlockingStore, session: str, text: str) -> int:
    said = InputAdmitted((Text(text),), "bench")
    return store.admit(Admission(input=said, session=session)).seq


def _redaction(store: BlockingStore, path: Path) -> Result:
    """Until a redacted text is out of the index's files; the journal's own part is not counted."""
    session = store.create(SessionStarted("cli"))
    seq = _say(store, session, "the secret to redact")
    search = Search(store, beside(path))
    stop = threading.Event()
    search.build(lambda _: None, stop.is_set)
    store.redact(session, seq)
    took_ms = timed_ms(search.clear)
    search.close()
    return at_most(NAME, "redacted text out of the index's files", took_ms, 1_000, "ms")
