"""A place for each kind of store; a test that is a coroutine runs in an event loop of its own."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.contract import ON_THE_OLDEST, PLACES, Place


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        oldest = params.get("place") == "postgres-15"
        if oldest and item.name.partition("[")[0] not in ON_THE_OLDEST:
            item.add_marker(pytest.mark.torture)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Whatever a test did in its store, the store verifies afterwards."""
    found = PLACES[request.param](tmp_path)
    yield found
    asyncio.run(_verify(found))
    found.leave()


async def _verify(place: Place) -> None:
    async with place.open() as store:
        assert (await store.verify()).damage == ()
