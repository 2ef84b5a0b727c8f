"""Notices what other processes commit: one thread per open store, however many wait for it.

SQLite says whether another connection has committed (`data_version`) but tells nothing by itself.
So the thread sleeps until the system says that the log's file was written, and then looks:

    rest             the log is written, or 0.5 s are over      -> look
    look: news       all who wait are told, unless it was this store that wrote (its followers are
                     handed that), and the store counts as busy
    look: no news    what wakes us is written before its commit counts (a sync lies between), so
                     look again after 4, 4, 8, 16, 32 … ms; after 0.25 s without news, rest

Where the system cannot say it, and in the first moments, a busy store is looked at every 5 ms.
While none waits, the thread does not wake at all.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import apsw

from steno.store.errors import StoreError

if TYPE_CHECKING:
    from selectors import BaseSelector

REST_S = 0.5
BUSY_S = 0.25
_PACE_S = 0.004
_BLIND_PACE_S = 0.005


class Alarm(Protocol):
    """What the system offers to wait for writes to a file: something that can be waited for, and
    that says, and forgets, whether it rang."""

    def fileno(self) -> int: ...
    def rang(self) -> bool: ...
    def close(self) -> None: ...


class Watch:
    """`reader` lends a connection; `log` is the file that commits are written to, if there is one.
    `others` says whether other processes have committed since it was last asked, or None for not
    now."""

    def __init__(
        self,
        log: Path | None,
        reader: Callable[[], AbstractContextManager[apsw.Connection]],
        others: Callable[[], bool | None] = lambda: True,
    ) -> None:
        self._log = log
        self._reader = reader
        self._others = others
        self._told: tuple[Callable[[], None], ...] = ()
        self._change = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._alarm: Alarm | None = None

    def add(self, tell: Callable[[], None], hand: object = None) -> None:
        """Have a function called, from the watching thread, when others may have committed
        something since now."""
        with self._change:
            self._told += (tell,)
            if self._closed.is_set():
                tell()
            elif self._thread is None:
                self._start()
            else:
                self._rouse()

    def _start(self) -> None:
        import socket  # a program that never follows needs none

        self._bell, self._bell_push = socket.socketpair()
        self._bell_push.setblocking(False)
        self._thread = threading.Thread(
            target=self._serve, name="steno-watch", daemon=True
        )
        self._thread.start()

    def discard(self, tell: Callable[[], None]) -> None:
        with self._change:
            self._told = tuple(each for each in self._told if each != tell)

    def close(self) -> None:
        """Those who wait are told once more, and find the store closed."""
        with self._change:
            self._closed.set()
        if self._thread is not None:
            self._rouse()
            self._thread.join()
            self._bell.close()
            self._bell_push.close()
        self._tell()

    def _rouse(self) -> None:
        with contextlib.suppress(
            BlockingIOError
        ):  # then it has been roused often enough
            self._bell_push.send(b".")

    def _tell(self) -> None:
        for tell in self._told:
            tell()

    # --- the thread

    def _serve(self) -> None:
        from selectors import EVENT_READ, DefaultSelector

        with DefaultSelector() as selector:
            selector.register(self._bell, EVENT_READ)
            while not self._closed.is_set():
                with (
                    contextlib.suppress(StoreError, apsw.Error),
                    self._reader() as connection,
                ):
                    self._watch(connection, selector)
                self._disarm(selector)
                self._tell()  # those who look find out themselves what is wrong
                self._closed.wait(REST_S)

    def _watch(self, connection: apsw.Connection, selector: "BaseSelector") -> None:
        version: int | None = None
        written = False
        busy_s = time.monotonic()
        while not self._closed.is_set():
            first = version is None
            rang = self._alarm is not None and self._alarm.rang()
            if news := version != (version := connection.pragma("data_version")):
                written = True
            if written:
                theirs = self._others()
                written = theirs is None
                if theirs or first:
                    self._tell()
            now_s = time.monotonic()
            busy_s = now_s if news or rang else busy_s
            calm_s = now_s - busy_s
            if not self._told:
                self._disarm(selector)
                self._sleep(selector, None)
                version = None  # so that the next one is told of what came before the first look
            elif calm_s < BUSY_S:
                self._closed.wait(
                    _BLIND_PACE_S if self._alarm is None else max(_PACE_S, calm_s)
                )
            elif self._alarm is not None or not self._arm(selector):
                self._sleep(selector, REST_S)

    def _sleep(self, selector: "BaseSelector", seconds: float | None) -> None:
        for key, _ in selector.select(seconds):
            if key.fileobj is self._bell:
                self._bell.recv(1 << 10)

    def _arm(self, selector: "BaseSelector") -> bool:
        """Whether there is an alarm now. What was written before it was set did not ring: look
        again before resting."""
        if self._log is None:
            return False
        self._alarm = _alarm(self._log)
        if self._alarm is None:
            self._log = None
            return False
        selector.register(self._alarm.fileno(), selector.get_key(self._bell).events)
        return True

    def _disarm(self, selector: "BaseSelector") -> None:
        if self._alarm is not None:
            selector.unregister(self._alarm.fileno())
            self._alarm.close()
            self._alarm = None


class _Inotify:
    def __init__(self, log: Path) -> None:
        import ctypes  # here, since it takes longer to load than a short command waits

        modified, nonblocking, close_on_exec = 0x2, os.O_NONBLOCK, os.O_CLOEXEC
        system = ctypes.CDLL(None, use_errno=True)
        self._handle: int = system.inotify_init1(nonblocking | close_on_exec)
        if self._handle < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if system.inotify_add_watch(self._handle, os.fsencode(log), modified) < 0:
            self.close()
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def fileno(self) -> int:
        return self._handle

    def rang(self) -> bool:
        try:
            return bool(os.read(self._handle, 1 << 12))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._handle)


_ALARMS: dict[str, Callable[[Path], Alarm]] = {"linux": _Inotify}

if sys.platform == "darwin":
    import select

    class _Kqueue:
        def __init__(self, log: Path) -> None:
            self._file = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            self._queue = select.kqueue()
            written = select.kevent(
                self._file,
                select.KQ_FILTER_VNODE,
                select.KQ_EV_ADD | select.KQ_EV_CLEAR,
                select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND,
            )
            self._queue.control([written], 0)

        def fileno(self) -> int:
            return self._queue.fileno()

        def rang(self) -> bool:
            return bool(self._queue.control(None, 8, 0))

        def close(self) -> None:
            self._queue.close()
            os.close(self._file)

    _ALARMS["darwin"] = _Kqueue


def _alarm(log: Path) -> Alarm | None:
    """None where the system has no such thing, or refuses one more."""
    kind = _ALARMS.get(sys.platform)
    try:
        return None if kind is None else kind(log)
    except (OSError, AttributeError):
        return None
