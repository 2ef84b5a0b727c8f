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

from steno.store.errors import StoreError, warn
from steno.store.postgres.database import Connected, Connector

LOOK_S = 1.0
_AGAIN_S = 0.25


class Wake:
    """`listens` waits for others, `tells` says that this process has committed."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._told: tuple[Callable[[], None], ...] = ()
        self._change = threading.Lock()
        self._closed = threading.Event()
        self._due = threading.Event()
        self._offers = False
        self._threads: list[threading.Thread] = []
        self._bell, self._push = socket.socketpair()
        self._worked: Callable[[], None] = lambda: None

    # --- telling

    def committed(self) -> None:
        """From the committing thread: it waits for nothing."""
        if not self._due.is_set():
            self._due.set()
            if not any(thread.name == "steno-tell" for thread in self._threads):
                self._start("steno-tell", self._tell_others)

    def offer(self) -> None:
        """Tell others that there is work for which there is no room here."""
        self._offers = True
        self.committed()

    def _tell_others(self) -> None:
        connection: Connected | None = None
        while not self._closed.is_set():
            self._due.wait()
            self._due.clear()
            try:
                if connection is None:
                    connection = self._connector.connect()
                notify, me = self._connector.statements["notify"], self._connector.owner
                connection.execute(notify, (self._connector.channel, me))
                if self._offers:
                    self._offers = False
                    connection.execute(notify, (self._connector.work_channel, me))
            except (psycopg.Error, StoreError):
                if connection is not None:
                    connection.close()
                connection = None
                self._closed.wait(_AGAIN_S)
        if connection is not None:
            connection.close()

    # --- listening

    def on_work(self, tell: Callable[[], None]) -> None:
        """Have a function called, from the listening thread, when there may be work to claim."""
        self._worked = tell
        self.add(lambda: None)

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
        if not self._connector.listens:
            warn(
                "behind a pooler nothing tells at once what others store, so it is looked for once "
                "a second; name the server's own address: [store] direct"
            )
        while not self._closed.is_set():
            with contextlib.suppress(psycopg.Error, StoreError):
                self._hear()
            self._tell()  # those who look find out themselves what is wrong
            self._closed.wait(_AGAIN_S)

    def _hear(self) -> None:
        with contextlib.closing(self._connector.connect_to_listen()) as connection:
            if self._connector.listens:
                for channel in (self._connector.channel, self._connector.work_channel):
                    connection.execute(f"listen {channel}".encode())
            self._tell()  # of what came before
            while not self._closed.is_set():
                ready, _, _ = select.select(
                    [connection.fileno(), self._bell.fileno()], [], [], LOOK_S
                )
                heard = list(connection.notifies(timeout=0)) if connection.fileno() in ready else []
                commits = [one for one in heard if one.channel == self._connector.channel]
                if not ready or any(one.payload != self._connector.owner for one in commits):
                    self._tell()
                if len(commits) < len(heard):
                    self._worked()

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
