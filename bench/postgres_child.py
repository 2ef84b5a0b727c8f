"""The other processes of the measurements in PostgreSQL: who streams, appends, claims, and a proxy
that delays."""

import asyncio
import select
import socket
import sys
import time
from collections import deque
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from bench import child
from bench.building import AsyncWriter, Writer
from bench.pacing import paced
from bench.timing import each_ms
from steno.store.facade import BlockingStore
from steno.store.postgres.database import PostgresSettings, address, is_address
from steno.store.postgres.store import BlockingPostgresStore, PostgresStore
from steno.store.protocol import Piece
from steno.store.sqlite.store import BlockingStore as SqliteStore

SESSIONS, PER_SECOND, GRACE_S = 100, 100, 0.1
CLAIM = 10
WORKER = PostgresSettings(role="gateway")


def opened(where: str) -> BlockingStore:
    return BlockingPostgresStore(where) if is_address(where) else SqliteStore(Path(where))


def append(where: str, count: int) -> None:
    with opened(where) as store:
        writer = Writer(store)
        child.ready()
        child.wait_for_go()
        began = time.monotonic()
        each_ms(writer.append, count)
        child.answer((began, time.monotonic()))


def stream(where: str, seconds: int) -> None:
    child.ready()
    child.wait_for_go()
    child.answer(asyncio.run(_stream(where, seconds)))


async def _stream(where: str, seconds: int) -> tuple[float, list[float]]:
    """The part that was durable in time, and how long each piece took from when it was due."""
    async with await PostgresStore.open(where) as store:
        writers = [AsyncWriter(store) for _ in range(SESSIONS)]  # type: ignore[arg-type]
        start_s = time.monotonic() + 0.1
        gap_s = 1 / PER_SECOND / SESSIONS
        streams = (
            paced(writer, start_s + i * gap_s, seconds * PER_SECOND, PER_SECOND)
            for i, writer in enumerate(writers)
        )
        waits = [wait for stream in await asyncio.gather(*streams) for wait in stream]
    in_time = sum(done_s <= start_s + seconds + GRACE_S for _, done_s in waits)
    return in_time / len(waits), [(done_s - due_s) * 1000 for due_s, done_s in waits]


def follow(where: str, session: str, pieces: int) -> None:
    child.answer(asyncio.run(_follow(where, session, pieces)))


async def _follow(where: str, session: str, pieces: int) -> list[float]:
    """When each character was seen; clocks are the machine's."""
    seen: list[float] = []
    async with await PostgresStore.open(where) as store:
        child.ready()
        async for event in store.follow(session):
            if isinstance(event, Piece):
                seen.extend([time.monotonic()] * len(event.text))
            if len(seen) >= pieces:
                break
    return seen


def claim(where: str, count: int) -> None:
    """Ten at a time; what was done is put in anew, at the end."""
    schema = address(where).schema
    again = (
        f"update {schema}.work w set owner = null, "
        f"rank = (select last_value from {schema}.served) + 1000 where owner = %s"
    ).encode()
    with (
        BlockingPostgresStore(where, WORKER) as store,
        closing(psycopg.connect(address(where).url, autocommit=True)) as connection,
    ):
        child.ready()
        child.wait_for_go()
        began, took, found = time.monotonic(), [], 0
        for _ in range(count // CLAIM):
            since = time.perf_counter()
            found += len(store.backend.claim(CLAIM, (), False))
            took.append((time.perf_counter() - since) * 1000)
            connection.execute(again, (store.owner,))
        child.answer((began, time.monotonic(), found, took))


def delay(folder: str, to: str, delay_us: int) -> None:
    """Half of the delay on the way there, half on the way back. As on a network, what one
    connection says does not wait for what another says."""
    name = ".s.PGSQL.5432"
    listener = socket.socket(socket.AF_UNIX)
    Path(folder).mkdir()
    listener.bind(f"{folder}/{name}")
    listener.listen(20)
    child.ready()
    others: dict[socket.socket, socket.socket] = {}
    under_way: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        while under_way and under_way[0][0] <= time.perf_counter():
            _, one, data = under_way.popleft()
            with suppress(OSError):
                one.sendall(data) if data else one.shutdown(socket.SHUT_WR)
        ready, _, _ = select.select([listener, *others], [], [], 0 if under_way else None)
        for one in ready:
            if one is listener:
                client, server = listener.accept()[0], socket.socket(socket.AF_UNIX)
                server.connect(f"{to}/{name}")
                others[client], others[server] = server, client
                continue
            data = one.recv(1 << 20)
            under_way.append((time.perf_counter() + delay_us / 2e6, others[one], data))
            if not data:
                del others[one]


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    match what:
        case "append":
            append(rest[0], int(rest[1]))
        case "stream":
            stream(rest[0], int(rest[1]))
        case "follow":
            follow(rest[0], rest[1], int(rest[2]))
        case "claim":
            claim(rest[0], int(rest[1]))
        case "delay":
            delay(rest[0], rest[1], int(rest[2]))
        case _:
            raise SystemExit(f"what is {what!r}?")
