"""An event loop whose time is not the machine's: it stands still while anything can be done, and
jumps to the next timer when nothing can. A pause of an hour takes no time, and takes an hour.

What would run in a thread runs at once, so that the order of things is the same each time.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

BEGAN_S = 1_000.0
LASTS_S_MAX = 7 * 24 * 3600.0
"""Longer than any test means to take: something looks again and again for what does not come."""


class Stuck(Exception):
    """Every task waits for something that cannot happen any more."""


class _Selector(selectors.BaseSelector):
    def __init__(self, loop: "SkippingLoop") -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if not found and timeout != 0:
            self._loop.skip(timeout)
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now_s = BEGAN_S
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now_s

    def skip(self, wait_s: float | None) -> None:
        if wait_s is None or self._now_s - BEGAN_S > LASTS_S_MAX:
            waiting = "\n".join(map(repr, asyncio.all_tasks(self)))
            raise Stuck(f"nothing will ever happen again:\n{waiting}")
        self._now_s += wait_s + 1e-6

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, work: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        done = self.create_future()
        try:
            done.set_result(work(*args))
        except BaseException as error:  # noqa: BLE001 - the caller gets it, as from a thread
            done.set_exception(error)
        return done
