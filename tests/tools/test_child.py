"""A program as a child: what it is told has a bound, whether it reads or not."""

import asyncio
import os
from pathlib import Path

import pytest

from steno.tools.child import UNREAD_BYTES_MAX, Child, Command, Unread


def test_what_a_child_does_not_read_has_a_bound(tmp_path: Path) -> None:
    line = b"x" * 1024 * 1024 + b"\n"

    async def tell() -> int:
        child = await Child.spawn(Command(("sleep", "60"), dict(os.environ), tmp_path))
        told = 0
        try:
            while True:
                child.put(line)
                told += len(line)
        except Unread:
            assert child.complaint() == "it does not read what it is told"
            return told
        finally:
            await child.end()

    assert (
        UNREAD_BYTES_MAX
        < asyncio.run(asyncio.wait_for(tell(), 30))
        < UNREAD_BYTES_MAX + 3 * len(line)
    )


def test_a_child_that_ended_takes_nothing_in(tmp_path: Path) -> None:
    async def tell() -> None:
        child = await Child.spawn(Command(("true",), dict(os.environ), tmp_path))
        await child.end()
        with pytest.raises(ConnectionError):
            child.put(b"x\n")

    asyncio.run(tell())
