"""Runs steno and kills it, with a real SIGKILL, before or after its n-th record: python dying.py before|after N …"""

import os
import signal
import sys

from steno.cli import main
from steno.journal.facts import TurnFact
from steno.journal.parts import Seq
from steno.runtimes.held import HeldSession

when, n, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
record = HeldSession.record
count = 0


async def record_or_die(self: HeldSession, *facts: TurnFact) -> Seq:
    global count
    count += 1
    mine = count
    if mine == n and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    seq = await record(self, *facts)
    if mine == n and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return seq


HeldSession.record = record_or_die  # type: ignore[method-assign]
sys.exit(main(words))
