"""Those outside whom a process tells something: a plugin, and a place that answers are delivered
to."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from steno.delivery.outbox import Answer, Replied
from steno.plugins.protocol import NoPlugins, Told, Untold


class Ear(NoPlugins):
    """One plugin, which hears of ends."""

    names: tuple[str, ...] = ("ear",)

    def __init__(self) -> None:
        self.heard: list[Mapping[str, object]] = []

    def having(self, hook: str) -> tuple[str, ...]:
        return self.names

    async def ready(self, name: str) -> bool:
        return name in self.names

    async def call(
        self, name: str, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> Told | Untold:
        await asyncio.sleep(0)
        self.heard.append(arguments)
        return Told()


class Inbox:
    """A place. It knows by the key what it has had before."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []

    async def send(self, body: bytes, key: str) -> Answer:
        await asyncio.sleep(0)
        self.got.append((key, json.loads(body)))
        return Replied(200)
