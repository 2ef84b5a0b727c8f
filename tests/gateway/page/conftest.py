"""One gateway and one browser for all tests of the page that a worker runs one after the other: to
start them takes longer than most of the tests. The driver of the browser has an event loop of its
own in this thread, so it is closed before tests of anything else come."""

from collections.abc import Iterator

import pytest

from tests.gateway.page.browser import Desk, desk_at


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_at(tmp_path_factory.mktemp("page")) as desk:
        yield desk


@pytest.fixture
def desk(shared: Desk) -> Iterator[Desk]:
    yield shared
    shared.clear()
    faults, shared.faults = shared.faults, []
    assert faults == []
