"""Runs steno and kills it, with a real SIGKILL, before or after its n-th write, where a write is a
record of facts or a change of a file in the workspace: python dying_at_files.py before|after N …"""

import os
import signal
import sys
from typing import Any

from steno.cli import main
from steno.session.lease import HeldSession

when, n, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0


def reached(moment: str) -> None:
    if count == n and when == moment:
        os.kill(os.getpid(), signal.SIGKILL)


record, rename, unlink = HeldSession.record, os.rename, os.unlink


async def recorded(self: HeldSession, *facts: Any) -> int:
    global count
    count += 1
    reached("before")
    at = await record(self, *facts)
    reached("after")
    return at


def changed(change: Any) -> Any:
    def dying(path: Any, *rest: Any, **more: Any) -> None:
        global count
        ours = "dir_fd" in more or "src_dir_fd" in more
        if not ours or (change is unlink and str(path).startswith(".steno-")):
            change(path, *rest, **more)  # no file of the workspace
            return
        count += 1
        reached("before")
        change(path, *rest, **more)
        reached("after")

    return dying


HeldSession.record = recorded  # type: ignore[method-assign]
os.rename = changed(rename)
os.unlink = changed(unlink)
sys.exit(main(words))
