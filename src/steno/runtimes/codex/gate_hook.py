"""Codex runs this script before a call: it tells steno of the call and waits for the answer. Only a
yes lets the call run.

It is run by its path, with nothing but Python itself, and starts before each call: it imports as
little as it can.
"""

import socket
import sys


def main(address: str) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as steno:
            steno.connect(address)
            steno.sendall(sys.stdin.buffer.read() + b"\n")
            with steno.makefile("rb") as said:
                answer = said.read()
    except OSError:
        answer = b""
    if answer == b"yes":
        return 0
    sys.stderr.buffer.write(
        answer.removeprefix(b"no ") or b"not run: steno was asked and is gone"
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
