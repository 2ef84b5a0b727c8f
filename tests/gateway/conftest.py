"""A fresh home, a model server and a running gateway for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.client import Gateway
from tests.program.conftest import server as server
from tests.program.conftest import world as world
from tests.program.world import World


@pytest.fixture
def gateway(world: World, tmp_path: Path) -> Iterator[Gateway]:
    running = Gateway(world, tmp_path)
    try:
        yield running
    finally:
        running.close()
