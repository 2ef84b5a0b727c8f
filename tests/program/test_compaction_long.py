"""Sessions too long to be held in memory: as an import leaves them, and never summarised."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from steno.journal.facts import (
    Compacted,
    HelperEnded,
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
)
from steno.journal.facts import TurnEnded as Ended
from steno.journal.facts import TurnStarted as Started
from steno.journal.parts import Text
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.store import BlockingStore
from tests.program.model_server import ModelServer, Reply
from tests.program.test_compaction import is_summary
from tests.program.test_compaction_turns import SUMMARY, facts
from tests.program.world import World
from tests.tools.calls import needs_proc

LONG = (4_600, 1_000)
"""Messages, and characters of each: more than memory keeps, so that the older half is let go."""


def imported(world: World, messages: int, chars: int) -> str:
    world.home.mkdir(mode=0o700, exist_ok=True)
    text = "lorem ipsum dolor " * (chars // 18)
    with BlockingStore(world.home / "store.db", Settings(durability="process")) as store:
        id = store.create(SessionStarted("import", "openai-chat:m"))
        lease = store.acquire(id)
        for i in range(0, messages, 2):
            said = InputAdmitted((Text(f"question {i} {text}"),), "import")
            at = store.admit(Admission(input=said, session=id)).seq
            answer = StepSealed(at + 2, (Text(f"answer {i + 1} {text}"),))
            store.append(lease, (Started(Takes(at)), StepStarted("openai-chat:m")), at)
            store.append(lease, (answer, Ended(at + 1, "done")), at + 2)
        store.release(lease, store.glance(id).head)
    return id


def answering(request: dict[str, Any]) -> Reply:
    return Reply((SUMMARY if is_summary(request) else "noted",), usage=False)


def peak_mb(world: World, *words: str) -> float:
    """How much memory a command took at most."""
    peak = 0
    with world.start_anew(*words) as program:
        status = Path(f"/proc/{program.process.pid}/status")
        while program.process.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                peak = max(peak, int(status.read_text().split("VmHWM:")[1].split()[0]))
            time.sleep(0.005)
        assert program.end() == 0, program.errors()
    return peak / 1024


@needs_proc
@pytest.mark.promise(26)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("counts", "chars"),
    [((2_000, 10_000), 3_000), pytest.param((10_000, 40_000), 2_000, marks=pytest.mark.torture)],
)
def test_a_long_import_is_summarised_in_a_few_calls_and_bounded_memory(
    tmp_path: Path, server: ModelServer, counts: tuple[int, int], chars: int
) -> None:
    """Of two sessions that are both too long for it, the one with several times as much text takes
    hardly more: a few hundred bytes a message. 10,000 messages of 2,000 characters took 53 MB,
    40,000 of them 65, a hundred 37."""
    server.choose = answering
    peaks = []
    for count in counts:
        world = World(tmp_path / str(count), server.url)
        world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": "8000", "STENO_TOOLS_ENABLED": "false"}
        id = imported(world, count, chars)
        server.requests.clear()
        peaks.append(peak_mb(world, "compact", id))
        assert 1 <= len(server.requests) <= 8
        assert all(len(json.dumps(request)) < 8_000 * 4 for request in server.requests)
        assert len(world.messages(id)) == count
        assert len(facts(world, id, Compacted)) == 1
    grown_mb = (counts[1] - counts[0]) * chars / 1e6
    assert peaks[1] - peaks[0] < grown_mb / 2, peaks


@pytest.mark.promise(29)
@pytest.mark.parametrize("context", ["8000", "0"])
def test_the_first_prompt_to_a_long_import_is_preceded_by_a_summary(
    world: World, server: ModelServer, context: str
) -> None:
    """Also where nobody said what the model takes: nothing takes a request of that length."""
    server.choose = answering
    world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": context, "STENO_TOOLS_ENABLED": "false"}
    id = imported(world, *LONG)
    assert world.steno("run", "and now?", "--session", id) == "noted\n"
    *before, last = server.requests
    assert 1 <= len(before) <= 8
    assert all(is_summary(request) for request in before)
    assert "question 0 " in json.dumps(before[0])
    assert SUMMARY in json.dumps(last)
    assert f"answer {LONG[0] - 1} " in json.dumps(last)
    assert "question 0 " not in json.dumps(last)


def test_a_summary_that_is_too_long_is_cut_and_the_record_says_so(
    world: World, server: ModelServer
) -> None:
    server.choose = lambda _: Reply((("They spoke. " * 2_000).strip(),), usage=False)
    world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": "100000", "STENO_TOOLS_ENABLED": "false"}
    id = imported(world, *LONG)
    world.steno("compact", id)
    [made] = facts(world, id, Compacted)
    assert len(made.summary) == 16_000
    assert {ended.detail for ended in facts(world, id, HelperEnded)} == {
        "cut to 16000 of 23999 characters"
    }


@pytest.mark.promise(40)
def test_text_that_memory_let_go_is_in_a_request_that_needs_it(
    world: World, server: ModelServer
) -> None:
    """A rewind to the beginning of a long session leaves what had been let go, and nothing else."""
    server.choose = answering
    world.environment |= {"STENO_TOOLS_ENABLED": "false"}
    id = imported(world, *LONG)
    world.steno("hide", id, "--seq", str(world.messages(id)[2]["seq"]))
    world.steno("rewind", id, "--to", str(world.messages(id)[5]["seq"]))
    world.steno("run", "and now?", "--session", id)
    [request] = server.requests
    told = [
        message["content"].split(" lorem")[0]
        for message in request["messages"]
        if message["role"] != "system"
    ]
    assert told == ["question 0", "answer 1", "question 4", "answer 5", "and now?"]
    assert "answer 3 lorem" in json.dumps(request)
    assert "question 2 " not in json.dumps(request)
