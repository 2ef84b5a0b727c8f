"""Reading a session from its end gives what reading all of it gives."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.journal.facts import (
    FreeFact,
    InputAdmitted,
    InputWithdrawn,
    MessageHidden,
    Record,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.session.page import Page, page
from tests.journal.author import journals
from tests.journal.folding import in_place, said
from tests.service.test_beginning import serving

Facts = TurnFact | FreeFact | InputAdmitted


class Reads:
    """A store that has one journal and counts what is read of it."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.count = 0

    async def read(self, session: str, after: int = 0, limit: int = 1_000) -> list[Record]:
        found = self.records[after : after + limit]
        self.count += len(found)
        return found


async def paged(records: list[Record], facts_min: int) -> list[Page]:
    """All pages, the last one first."""
    store = Reads(records)
    pages = [await page(store, "s", len(records), facts_min)]
    while pages[-1].first > 1:
        pages.append(await page(store, "s", pages[-1].first - 1, facts_min))
    return pages


def folded(records: tuple[Record, ...] | list[Record]) -> Transcript:
    view = Transcript()
    for record in records:
        view.apply(record)
    return view


def shown(pages: list[Page]) -> list[Message]:
    """What the pages show, each folded by itself, as a person scrolls back through them."""
    found: list[Message] = []
    reaching: tuple[Record, ...] = ()
    later: frozenset[int] = frozenset()
    for one in pages:
        view = folded((*one.waited, *one.records))
        view.messages = [message for message in view.messages if message.seq not in later]
        for record in reaching:
            view.apply(record)
        found = view.messages + found
        reaching = one.reaching() + reaching
        later = frozenset(record.seq for record in one.waited)
    return found


@given(journals(), st.integers(1, 40))
def test_pages_together_show_what_the_whole_session_shows(journal: object, facts_min: int) -> None:
    records: list[Record] = journal.records  # type: ignore[attr-defined]
    pages = asyncio.run(paged(records, facts_min))
    whole, found = folded(records).messages, shown(pages)
    assert [(m.seq, m.role, m.text, m.state, m.hidden) for m in found] == [
        (m.seq, m.role, m.text, m.state, m.hidden) for m in whole
    ]


@given(journals(), st.integers(1, 40))
def test_the_last_page_knows_what_is_open_and_what_waits(journal: object, facts_min: int) -> None:
    records: list[Record] = journal.records  # type: ignore[attr-defined]
    last = asyncio.run(paged(records, facts_min))[0]
    whole, tail = State(), State()
    for record in records:
        whole.apply(record)
    for record in (*last.waited, *last.records):
        tail.apply(record)
    assert tail.turn == whole.turn
    assert list(tail.pending) == list(whole.pending)


def turns(count: int) -> list[Record]:
    facts: list[Facts] = []
    for _ in range(count):
        at = len(facts) + 1
        facts += [
            said("q"),
            TurnStarted(Takes(at)),
            StepStarted("m"),
            StepSealed(at + 2, (Text("a"),)),
        ]
        facts.append(TurnEnded(at + 1, "done"))
    return in_place(facts)


def test_a_page_of_a_long_session_reads_a_few_of_its_facts() -> None:
    store = Reads(turns(5_000))
    last = asyncio.run(page(store, "s", 25_000, 200))
    assert 200 <= len(last.records) < 210
    assert store.count < 2_000


def test_an_input_that_was_hidden_while_it_waited_is_hidden_on_a_later_page() -> None:
    early = [
        said("a"),
        TurnStarted(Takes(1)),
        said("b"),
        said("c"),
        MessageHidden(4),
        TurnEnded(2, "done"),
    ]
    records = in_place([*early, TurnStarted(Takes(3)), TurnEnded(7, "done")])
    pages = asyncio.run(paged(records, 1))
    assert len(pages) == 2
    assert [(message.text, message.hidden) for message in shown(pages)][-1] == ("c", True)


def test_a_prompt_that_is_run_again_stands_in_one_page_with_its_first_turn() -> None:
    first = [said("q"), TurnStarted(Takes(1)), TurnEnded(2, "failed")]
    again = [
        TurnStarted(Takes(1)),
        StepStarted("m"),
        StepSealed(5, (Text("a"),)),
        TurnEnded(4, "done"),
    ]
    pages = asyncio.run(paged(in_place([*first, *again]), 2))
    assert [one.first for one in pages] == [1]


@pytest.mark.promise(46)
def test_the_end_of_a_session_is_the_end_of_what_show_gives(tmp_path: Path) -> None:
    async def whole() -> None:
        async with serving(tmp_path) as (service, _):
            session = None
            for text in ("one", "two", "three", "four", "five"):
                admitted = await service.admit(text, session, None, None, "scripted:echo")
                session = admitted.session
                async for _ in service.turns.answer(admitted, asyncio.Event()):
                    pass
            waits = await service.admit("six", session, None, None, "scripted:echo")
            await service.withdraw(waits.session, waits.seq)
            end = await service.views.end(waits.session, 6)
            assert end.page.first > 1
            _, shown = await service.views.shown(waits.session)
            tail = folded([*end.page.waited, *end.page.records]).messages
            assert tail == shown.transcript.messages[-len(tail) :]
            assert tail[-1].state == "withdrawn"
            assert any(isinstance(record.fact, InputWithdrawn) for record in end.page.records)
            assert end.row.pending == []

    asyncio.run(whole())
