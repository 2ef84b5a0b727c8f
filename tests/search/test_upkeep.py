"""Filling the index beside those who append: in their pauses, and without a wait for the disk."""

from pathlib import Path

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.search.index_file import IndexFile
from steno.search.indexer import IDLE, LIVE, Indexer
from steno.search.keeper import Pauses
from steno.store import memory
from steno.store.protocol import Admission
from tests.chance import chance_of

LOOKS_A_SECOND = 50


def test_while_others_append_the_index_is_filled_rarely() -> None:
    pauses = Pauses()
    said = [pauses.look(mark) for mark in range(10 * LOOKS_A_SECOND)]
    assert True not in said
    assert 5 <= said.count(False) <= 12, "a little each second, also if there is no pause"


def test_short_pauses_are_left_to_those_who_append() -> None:
    """Who appends about every 20 ms comes back before a step is over."""
    pauses = Pauses()
    said = [pauses.look(look // 2) for look in range(10 * LOOKS_A_SECOND)]
    assert True not in said
    assert 5 <= said.count(False) <= 12


def test_a_pause_is_used_soon_and_a_long_one_fully() -> None:
    pauses = Pauses()
    for mark in range(7):
        pauses.look(mark)
    said = [pauses.look(6) for _ in range(7)]
    assert said == [None, False, False, False, True, True, True]
    assert pauses.look(7) is None, "the first append after it ends it"


def test_while_others_append_the_disk_is_left_to_them(tmp_path: Path) -> None:
    """The log of the index is moved into its file, and that synced, when there is time for it."""
    store = memory.BlockingMemoryStore(memory.Place())
    session = store.create(SessionStarted("cli"))
    chance = chance_of("upkeep")
    for _ in range(150):
        said = Text("".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(1_000)))
        store.admit(Admission(input=InputAdmitted((said,), "t"), session=session))
    file = IndexFile(tmp_path / "index")
    indexer = Indexer(store, file)
    empty = file.path.stat().st_size
    while indexer.step(LIVE):
        pass
    assert file.log_pages > IDLE.log_pages
    assert file.path.stat().st_size == empty
    indexer.step(IDLE)
    assert file.path.stat().st_size > empty
    file.close()
