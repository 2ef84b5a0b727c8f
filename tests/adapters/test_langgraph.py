"""steno under LangGraph: its own conformance suite, and what that does not ask. `make adapters`
runs LangGraph's engine tests."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate

import steno
from steno.adapters.langgraph import StenoSaver
from steno.store.errors import Stale

ALICE: Any = {"configurable": {"thread_id": "alice", "checkpoint_ns": ""}}


def put(saver: StenoSaver, after: Any, source: str = "loop", **values: object) -> Any:
    checkpoint: Any = empty_checkpoint()
    versions = {channel: saver.get_next_version(None) for channel in values}
    checkpoint.update(channel_values=values, channel_versions=versions)
    return saver.put(after, checkpoint, {"source": source, "step": 1}, versions)


def values(saver: StenoSaver, config: Any = ALICE) -> Any:
    found = saver.get_tuple(config)
    return None if found is None else found.checkpoint["channel_values"]


@pytest.mark.promise(76)
def test_langgraphs_own_conformance_suite_passes_whole(tmp_path: Path) -> None:
    @checkpointer_test(name="steno")
    async def saver() -> AsyncIterator[StenoSaver]:
        with steno.open(tmp_path / "chats.db") as chats:
            yield StenoSaver(chats)

    async def run() -> dict[str, Any]:
        return dict((await validate(saver)).results)

    results = asyncio.run(run())
    assert {name: one.failures for name, one in results.items() if one.failures} == {}
    assert len(results) == 8
    assert sum(one.tests_passed for one in results.values()) == 81


@pytest.mark.promise(76)
@pytest.mark.promise(17)
@pytest.mark.promise(18)
def test_a_checkpoint_after_one_that_is_not_the_newest_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (StenoSaver(tmp_path / "chats.db") for _ in range(2))
    assert values(one) is None
    assert values(two) is None
    first = put(one, ALICE, n=1)
    with pytest.raises(Stale):
        put(two, ALICE, n=2)  # it was told that there is nothing
    assert values(two) == {"n": 1}
    second = put(two, first, n=2)
    with pytest.raises(Stale):
        put(one, first, n=3)
    assert "is newer" in caplog.text
    assert values(one) == {"n": 2}
    put(one, first, source="fork", n=4)
    put(one, second, source="update", n=5)
    assert values(one, second) == {"n": 2}  # asked for by its id: a branch is meant
    put(one, second, n=6)
    assert values(two) == {"n": 6}


def test_a_value_that_grows_shares_its_chunks(tmp_path: Path) -> None:
    saver = StenoSaver(steno.open(tmp_path / "chats.db", steno.Settings(durability="process")))
    after, said = ALICE, [f"{number:04}" + "y" * 496 for number in range(200)]
    for number in range(100):
        said.append(f"{number:04}" + "x" * 496)
        after = put(saver, after, messages=list(said), fixed="y" * 50_000)
    assert values(saver) == {"messages": said, "fixed": "y" * 50_000}
    saver.chats.close()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 150_000 + 100 * 10_000, "a checkpoint of 200 kB costs a few"
    assert values(StenoSaver(tmp_path / "chats.db"))["messages"] == said


WRITES = """
import sys
from langgraph.checkpoint.base import empty_checkpoint
from steno.adapters.langgraph import StenoSaver
from steno.store.errors import Stale

saver = StenoSaver(sys.argv[1])
thread = {"configurable": {"thread_id": "alice", "checkpoint_ns": ""}}
print("ready", flush=True)
sys.stdin.readline()
acknowledged = 0
for turn in range(int(sys.argv[3])):
    found = saver.get_tuple(thread)
    said = [] if found is None else found.checkpoint["channel_values"]["said"]
    checkpoint = empty_checkpoint()
    version = saver.get_next_version(None)
    said = [*said, f"{sys.argv[2]}.{turn}"]
    checkpoint.update(channel_values={"said": said}, channel_versions={"said": version})
    try:
        saver.put(thread if found is None else found.config, checkpoint, {}, {"said": version})
    except Stale:
        print("refused", flush=True)
    else:
        print("kept", said[-1], flush=True)
"""


@pytest.mark.promise(76)
@pytest.mark.promise(48)
@pytest.mark.parametrize("turns", [15, pytest.param(400, marks=pytest.mark.torture)])
def test_of_two_processes_none_loses_a_turn_that_was_acknowledged(
    tmp_path: Path, turns: int
) -> None:
    path = tmp_path / "chats.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, str(path), name, str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    lines = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    kept = [line.split()[1] for line in lines if line.startswith("kept")]
    assert len(lines) == 2 * turns
    assert kept
    assert sorted(values(StenoSaver(path))["said"]) == sorted(kept)
