"""Stands between steno and the real codex, passes everything on, and kills at a given message.

    dying.py VICTIM WHEN N CODEX [WORDS...]

VICTIM is steno, codex or both; N counts the notifications that codex sends, or is what the one in
question says; WHEN says whether that is passed on first. Each message is written to the file that
STENO_TEST_WIRE names, if it names one. An input that steers is passed on only after the
notification of its turn that STENO_TEST_STEER_AFTER names, if any.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

WIRE = os.environ.get("STENO_TEST_WIRE", "")
STEER_AFTER = os.environ.get("STENO_TEST_STEER_AFTER", "")
BEGAN_S = time.monotonic()
may_steer = threading.Event()


def main() -> None:
    victim, when, n, *command = sys.argv[1:]
    codex = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert codex.stdin is not None
    assert codex.stdout is not None
    threading.Thread(target=pass_on, args=(sys.stdin.buffer, codex.stdin), daemon=True).start()
    seen, done = 0, False
    for line in codex.stdout:
        seen += line.startswith(b'{"method"')
        now = not done and (seen == int(n) > 0 if n.isdecimal() else n.encode() in line)
        done = done or now
        if STEER_AFTER.encode() in line:
            may_steer.set()
        if now and when == "before":
            kill(victim, codex)
        write(sys.stdout.buffer, line, b"<")
        if now and when == "after":
            kill(victim, codex)
    sys.exit(codex.wait())


def pass_on(source: BinaryIO, target: BinaryIO) -> None:
    for line in source:
        if STEER_AFTER and b'"turn/steer"' in line:
            may_steer.wait(10)
        if b'"turn/start"' in line:
            may_steer.clear()
        write(target, line, b">")
    target.close()


def write(target: BinaryIO, line: bytes, direction: bytes) -> None:
    target.write(line)
    target.flush()
    if WIRE:
        with Path(WIRE).open("ab") as log:
            dt = time.monotonic() - BEGAN_S
            log.write(b'{"dt": %.3f, "dir": "%s", "msg": %s}\n' % (dt, direction, line.rstrip()))


def kill(victim: str, codex: "subprocess.Popen[bytes]") -> None:
    if victim in ("codex", "both"):
        codex.kill()
    if victim in ("steno", "both"):
        os.kill(os.getppid(), signal.SIGKILL)
    if victim == "codex":
        codex.wait()
        sys.exit(1)
    time.sleep(60)


if __name__ == "__main__":
    main()
