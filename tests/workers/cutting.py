"""A proxy between steno and a database that cuts connections, closes half of each, delays what goes
through, or says nothing any more."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"


class CuttingProxy:
    """Listens in one folder, and passes on to the server whose socket is in another."""

    def __init__(self, folder: Path, server: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.folder, self._server = folder, server
        self.delay_s = 0.0
        self.silent = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        (folder / _SOCKET).chmod(0o777)
        self._listener.listen(200)
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server / _SOCKET))
            except OSError:
                client.close()
                server.close()
                continue
            self._pairs.append((client, server))
            for a, b in ((client, server), (server, client)):
                self._begin(self._pass_on, a, b)

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        silent = False
        with suppress(OSError):
            while data := one.recv(65_536):
                if self.delay_s:
                    time.sleep(self.delay_s)
                silent = silent or self.silent.is_set()
                if not silent:
                    other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        one.close()  # the other is closed by who passes on what it says

    def cut(self) -> None:
        """All connections, at once."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def half_close(self) -> None:
        """The server hears no more; what it says still arrives."""
        for _, server in self._pairs:
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)

    def say_nothing(self, seconds: float) -> None:
        """Everything is taken and nothing passed on; then the connections go. What connects after
        that is heard."""
        self.silent.set()
        time.sleep(seconds)
        self.silent.clear()
        self.cut()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()
