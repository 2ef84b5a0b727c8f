"""Ports for servers that must be told theirs. They lie below those that the system gives to whoever
asks for any: one of those may belong to another test before the server has come up."""

import os
import socket
from itertools import count

FIRST, LAST = 20_000, 32_000
_asked = count(os.getpid() * 41)


def free_port() -> int:
    for number in _asked:
        port = FIRST + number % (LAST - FIRST)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError
