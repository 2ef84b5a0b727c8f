"""Workers, clients and a database under faults, on the running program: every input that was
accepted is answered once, what was shown is what is stored, and the store verifies."""

import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests import postgres
from tests.chance import chance_of
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply

ANSWER = ("One ", "two ", "three.")
PATIENCE_S = 90.0


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that can be killed: the one of the run is others', too. Not in pytest's folder:
    the server's user may not look there."""
    with tempfile.TemporaryDirectory(prefix="steno-pg-") as folder:
        Path(folder).chmod(0o755)
        made = postgres.Server(Path(folder) / "server")
        made.make()
        made.start()
        try:
            yield made
        finally:
            with suppress(RuntimeError):
                made.stop()


class Client(threading.Thread):
    """Says things in a session of its own, to any worker, again and again until it is accepted."""

    def __init__(self, workers: list[Gateway], session: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.workers, self.session = workers, session
        self.chance = chance_of("client", seed)
        self.accepted: list[str] = []
        self.refusals: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        n = 0
        while not self.over.is_set():
            n += 1
            text = f"input {n} of {self.session}"
            if self._say(text, f"{self.session}-{n}"):
                self.accepted.append(text)
                self._wait_for_answer(len(self.accepted))

    def _say(self, text: str, key: str) -> bool:
        """The same key until it is accepted: whatever became of an earlier try, it is one input."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            worker = self.chance.choice(self.workers)
            with suppress(OSError, ValueError, ConnectionError):
                status = worker.say(self.session, text, key).status
                if status in (200, 202):
                    return True
                self.refusals.append(status)
            time.sleep(0.05)
        return False

    def _wait_for_answer(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with suppress(OSError, ValueError, KeyError):
                worker = self.chance.choice(self.workers)
                shown = worker.ask("GET", f"/api/sessions/{self.session}").json()
                if sum(one["outcome"] is not None for one in shown["turns"]) >= count:
                    return
            time.sleep(0.05)


Fault = Callable[[], None]


def check(workers: list[Gateway], clients: list[Client]) -> None:
    """Every accepted input is in one turn, in order, and that turn ended."""
    for client in clients:
        shown = workers[0].ask("GET", f"/api/sessions/{client.session}").json()
        said = [one["text"] for one in shown["messages"] if one["role"] == "user"]
        assert said == client.accepted, "each once, in the order in which they were accepted"
        outcomes = [one["outcome"] for one in shown["turns"]]
        assert len(outcomes) == len(said), (outcomes, said)
        assert set(outcomes) <= {"done", "interrupted"}, outcomes
        for one in shown["messages"]:
            if one["role"] == "assistant":
                assert "".join(ANSWER).startswith(one["text"]), one
        seqs = [one["seq"] for one in shown["messages"]]
        assert seqs == sorted(set(seqs))
    assert workers[0].world.steno("verify").endswith("no damage\n")


def under(
    workers: list[Gateway], clients: list[Client], faults: list[Fault], pause_s: float
) -> None:
    for client in clients:
        client.start()
    wait_until(lambda: all(one.accepted for one in clients), "the first inputs")
    for fault in faults:
        fault()
        time.sleep(pause_s)
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(2 * PATIENCE_S)
        assert not client.is_alive(), "a client still waits"


def restart(worker: Gateway) -> None:
    worker.kill()
    worker.start()


def freeze(worker: Gateway, seconds: float) -> None:
    worker.program.signal(signal.SIGSTOP)
    time.sleep(seconds)
    worker.program.signal(signal.SIGCONT)


def end_all_connections(url: str) -> None:
    with closing(postgres.connect(url)) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'steno:%%' and pid <> pg_backend_pid()"
        )


def crash(server: postgres.Server, away_s: float) -> None:
    server.stop("immediate")
    time.sleep(away_s)
    server.start()


@pytest.mark.promise(2, 16, 17, 48, 72, 73)
def test_kills_freezes_and_crashes_of_the_database_lose_and_double_nothing(
    start: Callable[..., list[Gateway]], server: ModelServer, own_server: postgres.Server
) -> None:
    server.replies = [Reply(ANSWER, delay_s=0.05)]
    url = own_server.new_store()
    workers = start(3, url)
    clients = [Client(workers, workers[n % 3].make(), n) for n in range(6)]
    faults: list[Fault] = [
        lambda: end_all_connections(url),
        lambda: crash(own_server, 0.5),
        lambda: restart(workers[1]),
        lambda: freeze(workers[2], 0.5),
    ]
    under(workers, clients, faults, 1.0)
    check(workers, clients)


@pytest.mark.torture
@pytest.mark.promise(48, 72, 73)
@pytest.mark.timeout(3_600)
def test_half_an_hour_of_faults(
    start: Callable[..., list[Gateway]], server: ModelServer, own_server: postgres.Server
) -> None:
    server.replies = [Reply(ANSWER, delay_s=0.05)]
    url = own_server.new_store()
    workers = start(3, url)
    clients = [Client(workers, workers[n % 3].make(), n) for n in range(40)]
    chance = chance_of("faults")
    kinds: list[Fault] = [
        lambda: end_all_connections(url),
        lambda: crash(own_server, chance.uniform(0, 5)),
        lambda: restart(chance.choice(workers)),
        lambda: freeze(chance.choice(workers), chance.uniform(0, 20)),
    ]
    until = time.monotonic() + 1_800

    def some() -> Iterator[Fault]:
        while time.monotonic() < until:
            yield chance.choice(kinds)

    under(workers, clients, some(), 3.0)  # type: ignore[arg-type]
    check(workers, clients)


@pytest.mark.promise(3)
def test_while_the_database_is_away_inputs_are_refused_with_that_reason(
    start: Callable[..., list[Gateway]], server: ModelServer, own_server: postgres.Server
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
