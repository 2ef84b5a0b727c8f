"""A plugin for the Agents SDK's own tests: our session in the place of one of theirs.

STENO_SWAP=double    the session in a list that their tests use
STENO_SWAP=sqlite    their `SQLiteSession`
"""

import os
from typing import Any

from steno.adapters.openai_agents import StenoSession


class Double(StenoSession):
    """Made like their session in a list, and as easy to look into."""

    def __init__(self, session_id: str = "test", history: list[Any] | None = None) -> None:
        super().__init__(session_id)
        self._ignore_ids_for_matching = False
        if history:
            self.items.add(history)

    @property
    def _items(self) -> list[Any]:
        return [item.value for item in self.items.last().items]

    @property
    def saved_items(self) -> list[Any]:
        return self._items


class InPlaceOfSqlite(StenoSession):
    def __init__(
        self,
        session_id: str,
        db_path: Any = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        super().__init__(session_id, str(db_path), session_settings)

    async def _get_compaction_snapshot(self, limit: int, *, prune_prefix: Any = None) -> Any:
        return await self._snapshot(limit, prune_prefix) if type(self) is InPlaceOfSqlite else None


def pytest_configure() -> None:
    if os.environ.get("STENO_SWAP") == "sqlite":
        import agents
        from agents import memory
        from agents.memory import sqlite_session

        for module in (agents, memory, sqlite_session):
            setattr(module, "SQLiteSession", InPlaceOfSqlite)  # noqa: B010
    else:
        from importlib import import_module

        theirs: Any = import_module("tests.utils.simple_session")
        theirs.SimpleListSession = Double
