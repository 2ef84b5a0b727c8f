"""Three gateways, each with a home of its own, on one store in PostgreSQL."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import postgres
from tests.gateway.client import Gateway
from tests.program.conftest import server as server
from tests.program.model_server import ModelServer
from tests.program.world import World

Workers = list[Gateway]


@pytest.fixture
def url() -> str:
    return postgres.server().new_store()


@pytest.fixture
def start(server: ModelServer, tmp_path: Path, url: str) -> Iterator[Callable[[int], Workers]]:
    """Starts some workers, on one store or on another address of it."""
    started: Workers = []

    def start(
        count: int,
        address: str = "",
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Workers:
        made: Workers = []
        for _ in range(count):
            folder = tmp_path / f"worker-{len(started) + len(made)}"
            folder.mkdir()
            world = World(folder, server.url)
            if home is not None:
                world.home = home
                world.environment["STENO_HOME"] = str(home)
            world.environment["STENO_STORE"] = address or url
            world.environment["STENO_GATEWAY_APPROVAL"] = "allow"
            world.environment["STENO_GATEWAY_NAMES"] = "127.0.0.1"
            world.environment["STENO_GATEWAY_PROXIES"] = "127.0.0.1"
            world.environment |= {f"STENO_GATEWAY_{name}": it for name, it in settings.items()}
            world.environment |= environment or {}
            made.append(Gateway(world, folder, name=folder.name))
        started.extend(made)
        return made

    yield start
    for one in started:
        one.close()
