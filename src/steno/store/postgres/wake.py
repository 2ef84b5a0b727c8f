"""Notices what other processes commit, and tells them what this one did.

A notification is sent after a commit, in a transaction of its own: inside, it would make all
commits of the server wait for each other. One that is lost is made up for by a look each second.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable

import psycopg

from steno.store.errors import StoreError
from steno.store.postgres.database import Connected, Connector

LOOK_S = 1.0
_AGAIN_S = 0.25


class Wake:
    """`listens` waits for others, `tells` says that this process has committed."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._channel = f"steno_{connector.where.schema}"
        self._told: tuple[Callable[[], None], ...] = ()
        self._change = threading.Lock()
        self._closed = threading.Event()
        self._due = threading.Event()
        self._threads: list[threading.Thread] = []
        self._bell, self._push = socket.socketpair()

    # --- telling

    def committed(self) -> None:
        """From the committing thread: it waits for nothing."""
        if not self._due.is_set():
            self._due.set()
            if not any(thread.name == "steno-tell" for thread in self._threads):
                self._start("steno-tell", self._tell_others)

    def _tell_others(self) -> None:
        connection: Connected | None = None
        while not self._closed.is_set():
            self._due.wait()
            self._due.clear()
            try:
                if connection is None:
                    connection = self._connector.connect()
                said = (self._channel, self._connector.owner)
                connection.execute("select pg_notify(%s, %s)", said)
            except (psycopg.Error, StoreError):
                if connection is not None:
                    connection.close()
                connection = None
                self._closed.wait(_AGAIN_S)
        if connection is not None:
            connection.close()

    # --- listening

    def add(self, tell: Callable[[], None]) -> None:
        """Have a function called, from the listening thread, when others may have committed
        something since now."""
        with self._change:
            self._told += (tell,)
            if self._closed.is_set():
                tell()
            elif not any(thread.name == "steno-listen" for thread in self._threads):
                self._start("steno-listen", self._listen)

    def discard(self, tell: Callable[[], None]) -> None:
        with self._change:
            self._told = tuple(each for each in self._told if each != tell)

    def _start(self, name: str, serve: Callable[[], None]) -> None:
        thread = threading.Thread(target=serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tell(self) -> None:
        for tell in self._told:
            tell()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(psycopg.Error, StoreError):
                self._hear()
            self._tell()  # those who look find out themselves what is wrong
            self._closed.wait(_AGAIN_S)

    def _hear(self) -> None:
        with contextlib.closing(self._connector.connect()) as connection:
            if not self._connector.settings.pooled:
                connection.execute(f"listen {self._channel}".encode())
            self._tell()  # of what came before
            while not self._closed.is_set():
                ready, _, _ = select.select(
                    [connection.fileno(), self._bell.fileno()], [], [], LOOK_S
                )
                heard = list(connection.notifies(timeout=0)) if connection.fileno() in ready else []
                if not ready or any(one.payload != self._connector.owner for one in heard):
                    self._tell()

    def close(self) -> None:
        """Those who wait are told once more, and find the store closed."""
        with self._change:
            self._closed.set()
        self._due.set()
        self._push.close()
        self._tell()

    def join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LOOK_S + 1)
        self._bell.close()
