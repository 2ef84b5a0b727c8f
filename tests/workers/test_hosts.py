"""The example on hosts of its own: PostgreSQL, two workers and the proxy, each with an address."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import postgres
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import Program, World
from tests.workers import hosts
from tests.workers.history import Client, check
from tests.workers.test_proxy import proxy, ready
from tests.workers.test_takeover import answers, runner

PASSWORD = "between-hosts"
PUBLISHED_S = 10.0
"""A worker whose connections are there, but silent, is replaced after the long term."""
BUSY_S = 10.0
"""What a machine under load is given beyond that."""
ANSWER = ("One ", "two ", "three.")

pytestmark = pytest.mark.torture


@pytest.fixture
def network() -> Iterator[hosts.Network]:
    if not hosts.there():
        pytest.skip("network namespaces need root and ip")
    made = hosts.Network()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def url(network: hosts.Network) -> Iterator[str]:
    """A server that wants a password, on a host of its own."""
    host = network.host()
    with tempfile.TemporaryDirectory(prefix="steno-pg-") as name:
        Path(name).chmod(0o755)
        server = postgres.Server(Path(name) / "server")
        server.within = host.within
        server.make()
        with (server.data / "pg_hba.conf").open("a") as access:
            access.write("host all all 0.0.0.0/0 scram-sha-256\n")
        server.start("-c listen_addresses='*'")
        try:
            with postgres.connect(server.url) as connection:
                connection.execute(f"alter role {postgres.USER} password '{PASSWORD}'".encode())
            yield f"postgresql://{postgres.USER}:{PASSWORD}@{host.address}/postgres"
        finally:
            with suppress(RuntimeError):
                server.stop()


class _World(World):
    """Its gateway runs on another host; its commands here."""

    within: tuple[str, ...] = ()

    def start(self, *words: str) -> Program:
        return Program(self, (*self.within, sys.executable, "-m", "steno", *words))


class Service:
    """Two workers with one home, and the proxy in front of them."""

    def __init__(self, folder: Path, network: hosts.Network, url: str, model: str) -> None:
        self.proxy = network.host()
        self.hosts = [network.host(), network.host()]
        self.url = url
        self.workers = [self._worker(folder / one.name, model, one, folder) for one in self.hosts]

    def _worker(self, folder: Path, model: str, host: hosts.Host, shared: Path) -> Gateway:
        folder.mkdir()
        world = _World(folder, model)
        world.within, world.home = host.within, shared / "home"
        world.environment |= {
            "STENO_HOME": str(world.home),
            "STENO_STORE": self.url,
            "STENO_GATEWAY_APPROVAL": "allow",
            "STENO_GATEWAY_NAMES": f"{self.proxy.address},{host.address}",
            "STENO_GATEWAY_PROXIES": self.proxy.address,
        }
        made = type("_Gateway", (Gateway,), {"host": host.address})
        return made(world, folder, name=folder.name)  # type: ignore[no-any-return]

    def front(self, port: int) -> Gateway:
        """The service as clients see it."""
        front: Gateway = object.__new__(Gateway)
        front.world, front.token = self.workers[0].world, self.workers[0].token
        front.host, front.port = self.proxy.address, port
        return front

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


@pytest.fixture
def model(network: hosts.Network) -> Iterator[ModelServer]:
    with ModelServer(host=network.address) as serving:
        yield serving


@pytest.fixture
def service(
    tmp_path: Path, network: hosts.Network, url: str, model: ModelServer
) -> Iterator[Service]:
    made = Service(tmp_path, network, url, model.url)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def front(service: Service) -> Iterator[Gateway]:
    addresses = (f"{one.host}:{one.port}" for one in service.workers)
    place = service.proxy
    with proxy(*addresses, host=place.address, within=place.within) as port:
        made = service.front(port)
        wait_until(lambda: ready(made), "the proxy")
        yield made


@pytest.mark.promise(18, 36, 61, 72)
@pytest.mark.timeout(300)
def test_a_worker_that_is_cut_off_is_replaced_and_adds_nothing_when_it_is_back(
    service: Service, front: Gateway, model: ModelServer
) -> None:
    model.replies = [Reply(("first ", "second"), held=True), Reply(("another",))]
    session = front.make()
    assert front.say(session, "begin", "key-1").status == 202
    wait_until(lambda: answers(front, session) == ["first "], "the first piece")
    owner = str(runner(service.url, session))
    at = next(
        n for n, one in enumerate(service.workers)
        if one.program.process.pid == int(owner.split(".")[-2])
    )  # fmt: skip
    other = service.workers[1 - at]
    service.hosts[at].unplug()
    wait_until(
        lambda: runner(service.url, session) != owner, "another runner", PUBLISHED_S + BUSY_S
    )
    assert other.say(session, "go on", "key-2").status == 202
    wait_until(lambda: answers(other, session) == ["first ", "another"], "the other's answer")
    model.go_on()
    service.hosts[at].plug_in()
    back = service.workers[at]
    wait_until(lambda: ready(back), "the one that is back", 60)
    wait_until(
        lambda: back.say(session, "are you there?", "key-3").status in (200, 202), "its yes", 60
    )
    wait_until(lambda: len(answers(other, session)) == 3, "an answer after it came back")
    assert answers(front, session)[:2] == ["first ", "another"]
    assert len(model.requests) == 3, "nothing was asked twice"
    listed = other.world.steno("workers", "--json")
    assert owner in listed
    assert other.world.steno("verify").endswith("no damage\n")


@pytest.mark.promise(16, 17, 36, 62, 63, 72)
@pytest.mark.timeout(300)
def test_clients_behind_the_proxy_see_nothing_of_workers_that_are_cut_off_killed_and_started(
    service: Service, front: Gateway, model: ModelServer
) -> None:
    model.replies = [Reply(ANSWER, delay_s=0.05)]
    clients = [Client([front], front.make(), n, "".join(ANSWER)) for n in range(6)]
    for client in clients:
        client.start()
    for n in range(2):
        said = [len(one.history.ends) for one in clients]
        service.hosts[n].unplug()
        _each_further(clients, said)
        service.hosts[n].plug_in()
        wait_until(lambda n=n: ready(service.workers[n]), "the one that is back", 60)  # type: ignore[misc]
        said = [len(one.history.ends) for one in clients]
        service.workers[1 - n].kill()
        _each_further(clients, said)
        service.workers[1 - n].start()
    for client in clients:
        client.over.set()
    for client in clients:
        client.join()
    check(clients, front)


def _each_further(clients: list[Client], before: list[int]) -> None:
    wait_until(
        lambda: all(len(one.history.ends) > n for one, n in zip(clients, before, strict=True)),
        "each client's answer",
        120,
    )
