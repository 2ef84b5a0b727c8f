"""A process that carries out the script on a real store, to be killed: python -m
tests.crash.run_script PATH PAGES

Prints how many verbs were acknowledged, a line for each, and at the end, in one line, how often an
outcome was unknown and how often a verb was refused. Then it waits, unless its input has ended.
PAGES is how long the log gets before the store's own thread makes a checkpoint.
"""

import os
import sys
from pathlib import Path

from steno.store.sqlite.database import SqliteSettings
from tests.crash.caller import Caller
from tests.crash.script import script
from tests.crash.world import Hands


def main(path: Path, checkpoint_pages: int) -> None:
    hands = Hands(path, SqliteSettings(checkpoint_pages=checkpoint_pages))
    caller = Caller(script(), hands, lambda done: tell(str(done)))
    tell("ready")
    caller.run()
    tell(f"unknown {caller.unknown} refused {caller.refused}")
    sys.stdin.read()


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
