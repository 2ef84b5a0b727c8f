"""Workers, clients and a database under faults, on the running program: every input that was
accepted is answered once, what was shown is what is stored, and the store verifies."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests import postgres
from tests.chance import chance_of
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.workers.cutting import CuttingProxy
from tests.workers.history import PATIENCE_S, Client, check

ANSWER = ("One ", "two ", "three.")
DISK = 256 << 20
"""Of the small one that is filled."""

Fault = Callable[[], None]
Start = Callable[..., list[Gateway]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not in pytest's folder: the server's user may not look there."""
    with tempfile.TemporaryDirectory(prefix="steno-pg-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def own_server(folder: Path) -> Iterator[postgres.Server]:
    """A server that can be killed: the one of the run is others', too."""
    made = postgres.Server(folder / "server")
    made.make()
    made.start()
    try:
        yield made
    finally:
        with suppress(RuntimeError):
            made.stop()


class Pair:
    """A primary on a small disk and its synchronous standby, each behind a proxy that cuts."""

    def __init__(self, folder: Path) -> None:
        self.primary = postgres.Server(folder / "primary")
        self.primary.folder.mkdir()
        self.small = os.geteuid() == 0
        if self.small:
            self._mount(f"size={DISK}")
        self.primary.make("--wal-segsize=1")
        self.primary.start(
            "-c synchronous_standby_names='*' -c max_wal_size=8MB -c min_wal_size=2MB"
        )
        self.standby = postgres.Server(folder / "standby")
        self.standby.follow(self.primary)
        self.standby.start("-c synchronous_standby_names='' -c wal_retrieve_retry_interval=100ms")
        self.proxies = [
            CuttingProxy(folder / f"proxy-{n}", one.folder)
            for n, one in enumerate((self.primary, self.standby))
        ]
        self.promoted = False

    def _mount(self, *options: str) -> None:
        words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(self.primary.folder)]
        subprocess.run(words, check=True)

    @property
    def url(self) -> str:
        hosts = ",".join(str(one.folder) for one in self.proxies)
        words = {"host": hosts, "target_session_attrs": "read-write"}
        return f"postgresql://{postgres.USER}@/postgres?{urlencode(words)}"

    @property
    def running(self) -> postgres.Server:
        return self.standby if self.promoted else self.primary

    def each(self, fault: Callable[[CuttingProxy], None]) -> None:
        for proxy in self.proxies:
            fault(proxy)

    def delay(self, delay_s: float, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.delay_s = delay_s
        time.sleep(seconds)
        for proxy in self.proxies:
            proxy.delay_s = 0.0

    def end_connections(self) -> None:
        with closing(postgres.connect(self.running.url)) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name like 'steno:%%' and pid <> pg_backend_pid()"
            )

    def crash(self, away_s: float) -> None:
        server = self.running
        server.stop("immediate")
        time.sleep(away_s)
        server.start_again()

    def fill_disk(self, clients: list[Client], seconds: float) -> None:
        """Until something was refused, or for some time; a server that gave up is started again."""
        if self.promoted or not self.small:
            return
        ballast = self.primary.folder / "ballast"
        before = sum(len(one.refusals) for one in clients)
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65_536)
        until = time.monotonic() + seconds
        while time.monotonic() < until and sum(len(one.refusals) for one in clients) == before:
            time.sleep(0.1)
        ballast.unlink(missing_ok=True)
        self.primary.start_again()

    def promote(self) -> None:
        """The primary is lost, with its disk."""
        if self.promoted:
            return
        self.primary.stop("immediate")
        self.standby.promote()
        self.promoted = True

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        for server in (self.primary, self.standby):
            with suppress(RuntimeError):
                server.stop()
        if self.small:
            subprocess.run(["umount", "-l", str(self.primary.folder)], check=False)


@pytest.fixture
def pair(folder: Path) -> Iterator[Pair]:
    made = Pair(folder)
    try:
        yield made
    finally:
        made.close()


def under(clients: list[Client], faults: Iterable[Fault], pause_s: float = 0.0) -> None:
    """After each fault some time, or else until each client has had an answer."""
    for client in clients:
        client.start()
    wait_until(lambda: all(one.history.said for one in clients), "the first inputs")
    for n, fault in enumerate(faults):
        ends = [len(one.history.ends) for one in clients]
        began_s = time.monotonic()
        fault()
        took_s = time.monotonic() - began_s
        time.sleep(pause_s)
        if not pause_s:
            _answered(clients, ends)
        print(f"fault {n}: {took_s:.1f} s, over after {time.monotonic() - began_s:.1f}", flush=True)
    for client in clients:
        client.over.set()
    for client in clients:
        client.join()


def _answered(clients: list[Client], ends: list[int]) -> None:
    wait_until(
        lambda: all(len(one.history.ends) > n for one, n in zip(clients, ends, strict=True)),
        "each client's answer",
        PATIENCE_S,
    )


def restart(worker: Gateway) -> None:
    worker.kill()
    worker.start()


def freeze(worker: Gateway, seconds: float) -> None:
    worker.program.signal(signal.SIGSTOP)
    time.sleep(seconds)
    worker.program.signal(signal.SIGCONT)


@pytest.mark.promise(2, 5, 16, 17, 22, 36, 48, 62, 72, 73)
@pytest.mark.timeout(300)
def test_faults_of_every_kind_lose_and_double_nothing(
    start: Start, server: ModelServer, pair: Pair
) -> None:
    server.replies = [Reply(ANSWER, delay_s=0.05)]
    workers = start(3, f"{pair.url}&schema=faults")
    clients = [Client(workers, workers[n % 3].make(), n, "".join(ANSWER)) for n in range(4)]
    checked = workers[0].world.steno("doctor", expect=None)
    for said in ("PostgreSQL 15", "synchronous_commit on; commits wait for 1 standby", "its clock"):
        assert said in checked, checked
    faults: list[Fault] = [
        pair.end_connections,
        lambda: pair.each(CuttingProxy.cut),
        lambda: pair.each(CuttingProxy.half_close),
        lambda: pair.delay(0.05, 0.5),
        lambda: pair.proxies[0].say_nothing(0.5),
        lambda: restart(workers[1]),
        lambda: freeze(workers[2], 0.5),
        lambda: pair.crash(0.3),
        lambda: pair.fill_disk(clients, 5.0),
        pair.promote,
    ]
    under(clients, faults)
    check(clients, workers[0])


@pytest.mark.torture
@pytest.mark.promise(72, 73)
@pytest.mark.timeout(300)
def test_crashes_and_a_failover_of_the_database_interrupt_no_turn(
    start: Start, server: ModelServer, pair: Pair
) -> None:
    server.replies = [Reply(ANSWER, delay_s=0.3)]
    workers = start(3, f"{pair.url}&schema=faults")
    clients = [Client(workers, workers[n % 3].make(), n, "".join(ANSWER)) for n in range(12)]
    away_s = (0.0, 0.5, 1.0, 2.0, 5.0)
    crashes: list[Fault] = [lambda it=it: pair.crash(it) for it in away_s]  # type: ignore[misc]
    under(clients, [*crashes, pair.promote])
    check(clients, workers[0])
    assert {end for one in clients for end in one.history.ends} == {"done"}


def _minutes(minutes: float, start: Start, server: ModelServer, pair: Pair) -> None:
    """Three workers and 40 clients. The primary is lost at the end: then all that was acknowledged
    is on its standby."""
    server.replies = [Reply(ANSWER, delay_s=0.05)]
    workers = start(3, f"{pair.url}&schema=faults")
    clients = [Client(workers, workers[n % 3].make(), n, "".join(ANSWER)) for n in range(40)]
    chance = chance_of("faults")
    kinds: list[Fault] = [
        pair.end_connections,
        lambda: pair.each(CuttingProxy.cut),
        lambda: pair.each(CuttingProxy.half_close),
        lambda: pair.delay(chance.uniform(0, 0.2), chance.uniform(0, 5)),
        lambda: pair.proxies[0].say_nothing(chance.uniform(0, 15)),
        lambda: pair.crash(chance.uniform(0, 5)),
        lambda: restart(chance.choice(workers)),
        lambda: freeze(chance.choice(workers), chance.uniform(0, 3)),
        lambda: freeze(chance.choice(workers), 20.0),
        lambda: pair.fill_disk(clients, 10.0),
    ]
    until = time.monotonic() + 60 * minutes

    def some() -> Iterator[Fault]:
        while time.monotonic() < until:
            at = chance.randrange(len(kinds))
            print(f"{until - time.monotonic():6.0f} s left: fault {at}", flush=True)
            yield kinds[at]
        yield pair.promote

    under(clients, some(), 3.0)
    check(clients, workers[0])
    print(f"{sum(len(one.history.said) for one in clients)} inputs", flush=True)


@pytest.mark.torture
@pytest.mark.promise(48, 72, 73)
@pytest.mark.timeout(3_600)
def test_half_an_hour_of_faults(start: Start, server: ModelServer, pair: Pair) -> None:
    _minutes(float(os.environ.get("STENO_TESTS_FAULT_MINUTES", "30")), start, server, pair)


@pytest.mark.promise(3)
def test_while_the_database_is_away_inputs_are_refused_with_that_reason(
    start: Start, server: ModelServer, own_server: postgres.Server
) -> None:
    [worker] = start(1, own_server.new_store())
    session = worker.make()
    own_server.stop()
    refused = worker.say(session, "hello", "key")
    assert refused.status in (500, 503), refused.body
    assert "database" in refused.json()["detail"]
    assert server.requests == [], "nothing is asked that was not stored"
    own_server.start()
    wait_until(lambda: worker.say(session, "hello", "key").status == 202, "the database")
    wait_until(lambda: len(server.requests) == 1, "the answer")
    shown = worker.ask("GET", f"/api/sessions/{session}").json()
    assert json.dumps(shown["messages"]).count("hello") == 1
