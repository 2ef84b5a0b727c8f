"""One aimock for all tests of a worker; a fresh home of steno and of codex for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codex.world import FIXTURES, CodexWorld, real_codex
from tests.models.aimock import Aimock, aimock


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    real_codex()
    with aimock(FIXTURES, tmp_path_factory.mktemp("aimock")) as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, provider: Aimock) -> CodexWorld:
    return CodexWorld(tmp_path, provider)
