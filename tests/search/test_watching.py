"""A search that takes long tells what it has so far, can be stopped, and goes on where it was."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from steno.cli import search as command
from steno.gateway.page import routes, shelves
from steno.gateway.page.layout import Frame
from steno.gateway.routes import Call, Stream
from steno.search import searching
from steno.search.feed import told_backwards
from steno.search.keeper import Search
from steno.search.query import literal
from steno.search.searching import Asked, Found, Hit, Watch
from steno.service.searches import Searches, Wanted
from steno.store import memory
from steno.store.facade import BlockingStore
from tests.chance import chance_of
from tests.search.oracle import scan
from tests.search.story import Story
from tests.search.tricky import SAMPLES


@pytest.fixture
def store() -> BlockingStore:
    store = memory.BlockingMemoryStore(memory.Place())
    Story(store, chance_of("watching"), SAMPLES).go_on(150)
    return store


@pytest.fixture(params=["index", "scan"])
def search(
    store: BlockingStore,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Search:
    """What is not in the index is read in small pages."""
    monkeypatch.setattr(searching, "_GAP_KNOWN_MAX", 0)
    monkeypatch.setattr(searching, "told_backwards", partial(told_backwards, page=30))
    found = Search(store, tmp_path / "index" if request.param == "index" else None, part_texts=20)
    if request.param == "index":
        found.build(lambda _: None, lambda: False)
    return found


def test_what_is_found_so_far_is_told_and_is_part_of_the_answer(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "TELL_S", 0.0)
    told: list[Found] = []
    asked = Asked(query=literal("a"), limit=100, all=True, order="newest")
    answer = search.find(asked, Watch(told.append))
    assert answer.done
    assert not any(one.done for one in told)
    counts = [len(one.hits) for one in told]
    assert counts == sorted(set(counts))
    assert counts[0] > 0
    assert set(told[-1].hits) <= set(answer.hits)


def _after_three(checks: "count[int]") -> bool:
    return next(checks) >= 3


@pytest.mark.promise(56)
def test_a_search_that_was_stopped_goes_on_without_a_gap_or_a_double(
    store: BlockingStore, search: Search
) -> None:
    asked = Asked(query=literal("a"), limit=1_000, all=True, order="newest")
    found: list[tuple[str, int]] = []
    stops = 0
    for _ in range(1_000):
        checks = count()
        answer = search.find(asked, Watch(stopped=partial(_after_three, checks)))
        found += [(hit.session, hit.seq) for hit in answer.hits if not hit.streaming]
        stops += answer.left_out.unscanned
        if answer.next is None:
            break
        asked = replace(asked, before=answer.next)
    streaming = {(id, one.stream.started) for id in store.streaming() for one in store.drafts(id)}
    assert stops > 1
    assert len(found) == len(set(found))
    assert set(found) == scan(store, "a") - streaming


def test_leaving_an_answer_ends_the_search() -> None:
    stopped: list[bool] = []

    class Endless:
        def find(self, asked: Asked, watch: Watch) -> Found:
            assert watch.tell is not None
            watch.tell(Found(matches=1, done=False))
            while not watch.stopped():
                pass
            stopped.append(True)
            return Found()

    async def leave() -> Found:
        answers = Searches(Endless(), None).follow(Wanted(text="x"))  # type: ignore[arg-type]
        first = await anext(answers)
        await answers.aclose()
        return first

    assert asyncio.run(leave()).matches == 1
    assert stopped == [True]


# --- the places where people see it ---------------------------------------------------------------


def hit(n: int) -> Hit:
    said = f"text <{n}>"
    return Hit(
        session=f"s{n}",
        seq=n,
        fact=n,
        at_ms=n,
        role="user",
        title=f"title {n}",
        text=said,
        marks=((0, 4),),
        places=((0, 4),),
        score=1.0,
    )


PART = Found(hits=(hit(1),), matches=1, sessions=1, more=True, done=False)
WHOLE = Found(hits=(hit(2), hit(1)), matches=2, sessions=2, next="7.1.0")


def service(*answers: Found) -> Any:
    async def follow(wanted: Wanted) -> AsyncIterator[Found]:
        for answer in answers:
            yield answer

    return SimpleNamespace(searches=SimpleNamespace(follow=follow))


@pytest.mark.parametrize(("terminal", "order"), [(True, [1, 2]), (False, [2, 1])])
def test_a_terminal_shows_hits_as_they_come(
    terminal: bool,
    order: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    shown, found = asyncio.run(
        command._shown(service(PART, WHOLE), Wanted(text="text"), json=False)
    )
    assert found == WHOLE
    assert [one.seq for one in shown] == order
    printed = capsys.readouterr().out
    assert [printed.index(f"title {n}") for n in order] == sorted(
        printed.index(f"title {n}") for n in order
    )
    assert "2 of 2 matches" in printed
    assert ("\x1b[1mtext\x1b[0m <2>" in printed) == terminal
    assert "--before 7.1.0" in printed


def test_the_page_sends_hits_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def frame(*_: object) -> Frame:
        return Frame([], "1", 10, "text", None, 0)

    monkeypatch.setattr(routes, "_frame", frame)
    pages: Any = SimpleNamespace(hub=SimpleNamespace(service=lambda: service(PART, WHOLE)))
    call: Any = SimpleNamespace(query={"q": "text"})

    async def sent(call: Call) -> list[str]:
        answer = await routes.home(pages, call)
        assert isinstance(answer, Stream)
        return [piece.decode() async for piece in answer.pieces]

    first, second, last = asyncio.run(sent(call))
    assert first.startswith("<!doctype html>")
    assert "title 1" in first
    assert "title 2" not in first
    assert "title 2" in second
    assert "title 1" not in second
    assert "&lt;2&gt;" in second
    assert "<2>" not in second
    assert "/?q=text&amp;from=7.1.0" in last
    assert last.rstrip().endswith("</html>")
    assert shelves.FOUND_HERE not in first + second + last


def test_an_index_that_is_not_whole_is_told_of_only_where_that_took_time() -> None:
    found = Found(matches=1, sessions=1, indexed=0.4)
    assert "40%" in command._closing(replace(found, took_ms=2_000.0), 1)
    assert "index" not in command._closing(replace(found, took_ms=5.0), 1)
