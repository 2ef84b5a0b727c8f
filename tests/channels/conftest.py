"""A fresh home, a model server, a Telegram and a running gateway for each test."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.telegram_stub import TOKEN, Telegram
from tests.gateway.client import Gateway
from tests.program.conftest import server as server
from tests.program.conftest import world as world
from tests.program.world import World

OWNER = 7
Serve = Callable[..., Gateway]


@pytest.fixture
def telegram() -> Iterator[Telegram]:
    with Telegram() as running:
        yield running


@pytest.fixture
def serve(world: World, telegram: Telegram, tmp_path: Path) -> Iterator[Serve]:
    """Start the gateway with a Telegram channel called tg, set as said."""
    running: list[Gateway] = []

    def start(**settings: Any) -> Gateway:
        channel = {
            "kind": "telegram",
            "url": telegram.url,
            "token_env": "TG_TOKEN",
            "owners": [str(OWNER)],
            "options": {"poll_s": 2, "chat_per_s": 100, "edit_s": 0.1},
        } | settings
        world.environment["TG_TOKEN"] = TOKEN
        world.environment["STENO_CHANNELS"] = json.dumps({"tg": channel})
        folder = tmp_path / f"gateway-{len(running)}"
        folder.mkdir()
        running.append(Gateway(world, folder, name=f"test-{len(running)}"))
        return running[-1]

    try:
        yield start
    finally:
        for one in running:
            one.close()
