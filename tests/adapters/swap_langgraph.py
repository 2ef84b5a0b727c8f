"""A plugin for LangGraph's own tests: our saver in the place of their SQLite savers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from steno.adapters.langgraph import StenoSaver


class InPlaceOfSqlite(StenoSaver):
    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str) -> Iterator[StenoSaver]:
        saver = cls(conn_string)
        yield saver
        saver.chats.close()


class InPlaceOfAsyncSqlite(StenoSaver):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str) -> AsyncIterator[StenoSaver]:
        saver = cls(conn_string)
        yield saver
        saver.chats.close()


def pytest_configure() -> None:
    from langgraph.checkpoint import sqlite
    from langgraph.checkpoint.sqlite import aio

    modules: list[tuple[Any, str, type]] = [
        (sqlite, "SqliteSaver", InPlaceOfSqlite),
        (aio, "AsyncSqliteSaver", InPlaceOfAsyncSqlite),
    ]
    for module, name, ours in modules:
        setattr(module, name, ours)
