"""https: whoever has a certificate that this machine trusts is told what was said, and nobody
else."""

import ssl
from pathlib import Path

import pytest
import trustme

from tests.program.model_server import ModelServer, Reply
from tests.program.receiver import Receiver, configure, deliveries
from tests.program.world import World

HERE, ELSEWHERE = "127.0.0.1", "model.example"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(tls)
    return tls


@pytest.fixture
def trusting(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "trusted.pem"
    authority.cert_pem.write_to_path(path)
    return {"SSL_CERT_FILE": str(path)}


def test_a_model_and_a_place_that_are_trusted_are_talked_to(
    tmp_path: Path, authority: trustme.CA, trusting: dict[str, str]
) -> None:
    tls = serving(authority, HERE)
    with ModelServer(Reply(("it is ", "fine")), tls=tls) as server, Receiver(tls=tls) as receiver:
        world = World(tmp_path, server.url)
        world.environment |= trusting
        configure(world, receiver)
        with world.start_anew("run", "hi", "--deliver", "phone") as program:
            assert (program.end(), program.shown()) == (0, "it is fine\n")
        assert receiver.told()["text"] == "it is fine"
        assert [one["state"] for one in deliveries(world)] == ["delivered"]


@pytest.mark.parametrize(
    ("name", "known", "why"),
    [
        (HERE, False, "unable to get local issuer certificate"),
        (ELSEWHERE, True, "not valid for '127.0.0.1'"),
    ],
)
def test_who_is_not_trusted_or_is_somebody_else_is_told_nothing(
    tmp_path: Path,
    authority: trustme.CA,
    trusting: dict[str, str],
    name: str,
    known: bool,
    why: str,
) -> None:
    tls = serving(authority, name)
    with ModelServer(tls=tls) as server, Receiver(tls=tls) as receiver:
        world = World(tmp_path, server.url)
        world.environment |= trusting if known else {}
        configure(world, receiver)
        with world.start_anew("run", "hi", "--deliver", "phone") as program:
            assert program.end() == 1
            told = program.errors()
        assert (why in told, "SSL_CERT_FILE" in told, "_ssl.c" in told) == (True, True, False)
        assert (server.requests, receiver.sent) == ([], [])
        (turn,) = world.show(world.only_session())["turns"]
        assert (turn["outcome"], turn["cause"]) == ("failed", "not_trusted")
        (owed,) = deliveries(world)
        assert (owed["state"], owed["cause"]) == ("owed", "its certificate is not trusted")
