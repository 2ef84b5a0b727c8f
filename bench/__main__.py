"""`python -m bench`: measure, print the table, write the figures. A missed target is a figure, not
a failure."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import (
    adapters,
    append,
    channels,
    codex,
    crowd,
    disk,
    engine_crowd,
    engine_long,
    engine_request,
    engine_start,
    engine_stream,
    fold,
    follow,
    gateway,
    imports,
    leaving,
    machine,
    page,
    postgres,
    processes,
    scale,
    search,
    stalls,
    stream,
    tui_open,
    tui_stream,
)
from bench.result import Plan, Result, failed, table
from steno.store.errors import StoreError

DRIFT_MAX = 2
"""How far a bare sync may drift during a run before the reader is told that the figures are of a
busy machine."""

RESULTS = Path(__file__).parent / "results"

BENCHMARKS: dict[str, Callable[[Plan], list[Result]]] = {
    append.NAME: append.run,
    crowd.NAME: crowd.run,
    stream.NAME: stream.run,
    follow.NAME: follow.run,
    processes.NAME: processes.run,
    postgres.NAME: postgres.run,
    scale.NAME: scale.run,
    fold.NAME: fold.run,
    disk.NAME: disk.run,
    imports.NAME: imports.run,
    engine_stream.NAME: engine_stream.run,
    engine_crowd.NAME: engine_crowd.run,
    engine_request.NAME: engine_request.run,
    engine_start.NAME: engine_start.run,
    engine_long.NAME: engine_long.run,
    tui_open.NAME: tui_open.run,
    tui_stream.NAME: tui_stream.run,
    leaving.NAME: leaving.run,
    codex.NAME: codex.run,
    gateway.NAME: gateway.run,
    channels.NAME: channels.run,
    page.NAME: page.run,
    search.NAME: search.run,
    adapters.NAME: adapters.run,
    stalls.NAME: stalls.run,
}


def main() -> None:
    options = _options()
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stores-", dir=options.dir) as folder:
        place = Path(folder)
        if machine.in_memory(place):
            sys.exit(
                f"{options.dir} is in memory, where a sync costs nothing; name a folder on a disk "
                "with --dir"
            )
        before_s = time.perf_counter()
        facts = machine.describe(place)
        _say("  ".join(f"{name}={value}" for name, value in msgspec.to_builtins(facts).items()))
        syncs_ms = [facts.fdatasync_p50_ms]
        results = []
        for name in options.only or BENCHMARKS:
            results += _measure(name, place, options.quick)
            syncs_ms.append(machine.fdatasync_p50_ms(place))
    took_s = round(time.perf_counter() - before_s, 1)
    print(table(results))
    if max(syncs_ms) > DRIFT_MAX * min(syncs_ms):
        print(
            f"Not a quiet machine: p50 of a bare fdatasync went from {min(syncs_ms)} to "
            f"{max(syncs_ms)} ms meanwhile."
        )
    report = {
        "machine": facts,
        "fdatasync_p50_ms": syncs_ms,
        "quick": options.quick,
        "took_s": took_s,
    }
    report["results"] = results
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    _say(f"{took_s:.0f} s; figures in {options.json}")


def _measure(name: str, place: Path, quick: bool) -> list[Result]:
    """Run one benchmark in a folder of its own, which is gone after it."""
    before_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place) as folder:
        try:
            return BENCHMARKS[name](Plan(folder, quick))
        except (StoreError, TimeoutError, subprocess.SubprocessError) as error:
            return [failed(name, f"{type(error).__name__}: {error}")]
        finally:
            _say(f"{name}: {time.perf_counter() - before_s:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=BENCHMARKS, help="run this one; may be given again"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", metavar="FILE")
    parser.add_argument(
        "--dir", type=Path, default=RESULTS, help="where stores are made: a folder on a disk"
    )
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
