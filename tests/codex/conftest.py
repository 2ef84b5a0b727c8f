"""One aimock for all tests of a worker; a fresh home of steno and of codex for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codex.world import FIXTURES, CodexWorld, begin, real_codex
from tests.models.aimock import Aimock, aimock


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    real_codex()
    with aimock(FIXTURES, tmp_path_factory.mktemp("aimock")) as running:
        yield running


@pytest.fixture(scope="session")
def codex_began(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which codex has made its databases and its skills: half of what its start costs."""
    home = tmp_path_factory.mktemp("codex-began")
    begin(home)
    return home


@pytest.fixture
def world(tmp_path: Path, provider: Aimock, codex_began: Path) -> CodexWorld:
    shutil.copytree(codex_began, tmp_path / "codex")
    return CodexWorld(tmp_path, provider)
