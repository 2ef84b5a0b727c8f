"""A turn by codex, from its notification to what is shown: what the journal costs a stream of
another runtime."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.building import AsyncWriter, warm
from bench.engine_turns import Shown, admitted, driven
from bench.result import Plan, Result, at_least, at_most
from bench.timing import percentile
from steno.journal.facts import ContextSet
from steno.runtimes.codex import protocol
from steno.runtimes.codex.driver import Codex
from steno.runtimes.codex.turn import CodexAgent
from steno.store.sqlite.store import BlockingStore, SqliteStore
from steno.tools.child import Command

NAME = "codex"
PER_SECOND = 500
SERVER = Path(__file__).with_name("codex_server.py")


def run(plan: Plan) -> list[Result]:
    with BlockingStore(Path(plan.folder) / "codex.db") as store, asyncio.Runner() as runner:
        warm(store)
        return runner.run(_measure(plan, store))


async def _measure(plan: Plan, store: BlockingStore) -> list[Result]:
    shared = SqliteStore(store.core)
    return [await _paced(plan, shared), await _first(plan, shared)]


async def _paced(plan: Plan, store: SqliteStore) -> Result:
    """From the first notification to the last, over from the first notification to the last piece
    shown."""
    count = plan.pick(10, 3) * PER_SECOND
    shown = await _turn(store, plan, count, PER_SECOND)
    said_s = [float(moment) for moment in "".join(piece.text for piece in shown).split()]
    if len(said_s) != count:
        raise TimeoutError(f"{count - len(said_s)} of {count} pieces were not shown")
    alone_s, ours_s = said_s[-1] - said_s[0], shown[-1].at_s - said_s[0]
    late_ms = [(piece.at_s - float(piece.text.split()[-1])) * 1000 for piece in shown]
    spread = (
        f"a piece is shown {median(late_ms):.2f} ms after it was said (p50), "
        f"{percentile(late_ms, 0.95):.2f} (p95)"
    )
    detail = (
        f"{alone_s:.3f} s said, {ours_s:.3f} s stored and shown; N={count:,} in {len(shown):,} "
        f"commits; {spread}"
    )
    return at_least(
        NAME, f"{PER_SECOND} notifications/s: in time", alone_s / ours_s, 0.98, "of 1", detail
    )


async def _first(plan: Plan, store: SqliteStore) -> Result:
    """How late the first piece is shown, beyond one commit of the same store."""
    rounds, writer = plan.pick(40, 10), AsyncWriter(store)
    late_ms, said_ms, commits_ms = [], [], []
    for _ in range(rounds):
        before_s = time.monotonic()
        await writer.draft("word")
        commits_ms.append((time.monotonic() - before_s) * 1000)
        with _received() as received_s:
            shown = await _turn(store, plan, 2, 20)
        late_ms.append((shown[0].at_s - received_s[0]) * 1000)
        said_ms.append((shown[0].at_s - float(shown[0].text.split()[0])) * 1000)
    commit_ms, beyond_ms = median(commits_ms), median(late_ms) - median(commits_ms)
    spread = f"p50 {median(late_ms):.2f}, p95 {percentile(late_ms, 0.95):.2f} ms"
    detail = (
        f"{spread}, from when it was said {median(said_ms):.2f}; a commit alone takes "
        f"{commit_ms:.2f} ms; N={rounds}"
    )
    return at_most(
        NAME, "first piece, notified to shown, beyond one commit", beyond_ms, 2, "ms", detail
    )


@contextmanager
def _received() -> Iterator[list[float]]:
    """The moments at which notifications with text came in."""
    moments: list[float] = []
    read = protocol.line

    def noted(data: bytes) -> protocol.Line:
        if b"agentMessage/delta" in data:
            moments.append(time.monotonic())
        return read(data)

    protocol.line = noted
    try:
        yield moments
    finally:
        protocol.line = read


async def _turn(store: SqliteStore, plan: Plan, pieces: int, per_second: int) -> list[Shown]:
    """One turn in a session of its own; every piece as it is shown."""
    words = (sys.executable, str(SERVER), str(pieces), str(per_second))
    command = Command(words, dict(os.environ) | {"CODEX_HOME": str(plan.folder)}, Path(plan.folder))
    context = ContextSet("codex:bench")
    agent = CodexAgent(
        command=command, version="bench", context=context, sandbox="danger-full-access"
    )
    codex = Codex(store, lambda _: agent)
    session, input = await admitted(store)
    return await driven(store, codex, session, input)
