"""A store as a killed service leaves it: many sessions, some with a turn under way."""

import os
import sys
from pathlib import Path

from bench import child
from bench.words import TEXTS
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionAttended,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore

LIMIT_S = 600


def fill(path: Path, sessions: int, unfinished: int) -> None:
    """By another process, which is killed in the middle of its turns."""
    child.start("bench.gateway_home", path, sessions, unfinished).wait(LIMIT_S)


def main(path: Path, sessions: int, unfinished: int) -> None:
    store = BlockingStore(path)
    child.ready()
    for i in range(sessions):
        said = InputAdmitted((Text(TEXTS[i % len(TEXTS)]),), "http", None)
        came = SessionAttended(store.owner, "http") if i < unfinished else None
        created = SessionStarted("http", "openai-chat:bench")
        admitted = store.admit(Admission(input=said, create=created, visit=came))
        lease = store.acquire(admitted.session)
        begun = TurnStarted(Takes(admitted.seq)), StepStarted("openai-chat:bench")
        last = store.append(lease, begun, admitted.seq).last
        store.draft(lease, Stream(last, "text"), "half of an ans")
        if i >= unfinished:
            sealed = StepSealed(last, (Text("half of an answer"),))
            done = store.append(lease, [sealed, TurnEnded(last - 1, "done")], last).last
            store.release(lease, done)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
