"""The chat, driven as a person drives it, against a model server that does what it is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer
from tests.program.world import World


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def world(tmp_path: Path, server: ModelServer) -> World:
    return World(tmp_path, server.url)
