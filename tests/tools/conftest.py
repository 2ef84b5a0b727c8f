"""A workspace to work in."""

from pathlib import Path

import pytest

from steno.tools.protocol import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Workspace(folder)
