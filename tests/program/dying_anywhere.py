"""Runs steno and kills it, with a real SIGKILL, before or after a write of any kind: python …
before|after WHICH …

A write is an input, a record of facts, with a lease or without, or a piece of streamed text. WHICH
is its number, or the name of a fact: then it is the first write with such a fact.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

from steno.cli import main
from steno.store.sqlite.store import SqliteStore

P = ParamSpec("P")
T = TypeVar("T")

when, which, words = sys.argv[1], sys.argv[2], sys.argv[3:]
count = 0


def meant(written: Iterable[object]) -> bool:
    if which.isdigit():
        return count == int(which)
    facts = (fact for value in written if isinstance(value, list | tuple) for fact in value)
    return any(type(fact).__name__ == which for fact in facts)


def or_die(write: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        global count
        count += 1
        last = meant(args)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await write(*args, **kwargs)
        if last and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return counted


for verb in ("admit", "append", "draft", "add"):
    setattr(SqliteStore, verb, or_die(getattr(SqliteStore, verb)))
sys.exit(main(words))
