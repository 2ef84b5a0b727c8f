"""Eight processes that append to one store, each to a session of its own, as fast as they can."""

import sys
from pathlib import Path

from bench import child
from bench.baseline import Raw
from bench.building import Writer, warm
from bench.result import Plan, Result, at_most
from bench.timing import each_ms, percentile
from steno.store.sqlite.store import BlockingStore

NAME = "processes"
PROCESSES = 8
LIMIT_S = 120


def run(plan: Plan) -> list[Result]:
    path = Path(plan.folder) / "processes.db"
    with BlockingStore(path) as store:
        warm(store)
        count = plan.pick(1_000, 250)
        children = [child.start("bench.processes", path, count) for _ in range(PROCESSES)]
        for process in children:
            child.go(process)
        waits_ms = [
            wait_ms
            for process in children
            for wait_ms in child.finish(process, list[float], LIMIT_S)
        ]
        log_mb = path.with_name(path.name + "-wal").stat().st_size / 1e6
    raw = Raw(Path(plan.folder) / "raw.db")
    single_ms = percentile(each_ms(raw.append, 300), 0.5)
    raw.close()
    what = f"{PROCESSES} processes appending"
    p50_ms, p99_ms = percentile(waits_ms, 0.5), percentile(waits_ms, 0.99)
    detail = (
        f"N={len(waits_ms):,}; p50 {p50_ms:.1f} ms; a one-row transaction of one process "
        f"{single_ms:.2f} ms"
    )
    return [
        at_most(NAME, f"{what}: p99", p99_ms, 30, "ms", detail),
        at_most(
            NAME,
            f"{what}: longest wait",
            max(waits_ms),
            200,
            "ms",
            f"{max(waits_ms) / single_ms:,.0f} × that; log of {log_mb:.1f} MB",
        ),
    ]


def main(path: str, count: int) -> None:
    with BlockingStore(Path(path)) as store:
        writer = Writer(store)
        child.ready()
        child.wait_for_go()
        child.answer(each_ms(writer.append, count))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
