"""Long output: what is stored, what a model is told of it, what can be read back."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from steno.engine.request import Request
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnStarted,
)
from steno.journal.history import Settled
from steno.journal.parts import (
    Failed,
    File,
    Interrupted,
    Outcome,
    Refused,
    Returned,
    Text,
    ToolCall,
)
from steno.store.errors import ShownTextDropped
from steno.store.protocol import Admission, Lease
from steno.store.sqlite.store import SqliteStore
from steno.tools.output import (
    HEAD_CHARS,
    TAIL_CHARS,
    KeepingTool,
    excerpt,
    excerpted,
    kept,
    outputs_of,
    to_bytes,
)
from steno.tools.protocol import BadArguments, Workspace
from steno.tools.read_output import ReadOutput
from steno.tools.shell import Shell
from tests.tools.calls import Pieces, said

T = TypeVar("T")
LONG = "".join(f"line {i}\n" for i in range(20_000))


def with_store(folder: Path, test: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await SqliteStore.open(folder / "store.db")
        try:
            return await test(store)
        finally:
            await store.close()

    return asyncio.run(run())


async def begun(store: SqliteStore) -> tuple[Lease, int]:
    """A session with a tool under way; the seq at which it started."""
    admitted = await store.admit(
        Admission(input=InputAdmitted((Text("go"),), "cli"), create=SessionStarted(platform="cli"))
    )
    lease = await store.acquire(admitted.session)
    facts = (TurnStarted(Takes(admitted.seq)), StepStarted("m"))
    step = (await store.append(lease, facts, admitted.seq)).last
    call = ToolCall("c", "shell", "{}")
    last = (
        await store.append(lease, [StepSealed(step, (call,)), ToolStarted(step, "c")], step)
    ).last
    return lease, last


async def settled(store: SqliteStore, lease: Lease, started: int, outcome: Outcome) -> None:
    await store.append(lease, [ToolSettled(3, "c", outcome, started)], started)


# --- storing --------------------------------------------------------------------------------------


def test_only_texts_that_are_too_long_become_payloads() -> None:
    stored: list[bytes] = []

    async def keep(payload: bytes) -> str:
        stored.append(payload)
        return f"{len(stored):064}"

    async def run(outcome: Outcome) -> Outcome:
        return await kept(outcome, 10, keep)

    for short in (Returned(), Returned((Text("x" * 10),)), Refused("x" * 50)):
        assert asyncio.run(run(short)) == short
    long = "\ud800é" + "x" * 20
    parts = (File(f"{1:064}", "text/plain", len(to_bytes(long))), Text("[exit 1]"))
    assert asyncio.run(run(Failed((Text(long), Text("[exit 1]"))))) == Failed(parts)
    assert asyncio.run(run(Interrupted((Text("y" * 11),)))) == Interrupted(
        (File(f"{2:064}", "text/plain", 11),)
    )
    assert stored == [to_bytes(long), b"y" * 11]


def test_a_command_is_shown_up_to_a_bound_and_stored_whole(workspace: Workspace) -> None:
    stored: list[bytes] = []

    async def keep(payload: bytes) -> str:
        stored.append(payload)
        return "0" * 64

    async def run() -> tuple[Outcome, Pieces]:
        pieces = Pieces()
        shell = KeepingTool(Shell(workspace), workspace.output_chars_max, keep)
        prepared = await shell.prepare(json.dumps({"command": "seq 100000; exit 2"}))
        return await prepared.run(pieces), pieces

    outcome, pieces = asyncio.run(run())
    whole = "".join(f"{i}\n" for i in range(1, 100_001))
    assert stored == [whole.encode()]
    assert "".join(pieces) == whole[: workspace.output_chars_max]
    assert outcome == Failed((File("0" * 64, "text/plain", len(whole)), Text("[exit status 2]")))


@pytest.mark.parametrize(
    ("payload", "fits"), [("shown and more", True), ("shown", True), ("show", False), ("x", False)]
)
def test_the_store_takes_a_payload_that_begins_with_all_that_was_shown(
    tmp_path: Path, payload: str, fits: bool
) -> None:
    async def run(store: SqliteStore) -> None:
        lease, started = await begun(store)
        await store.draft(lease, Stream(started, "output"), "shown")
        hash = await store.put(lease.session, payload.encode())
        outcome = Returned((File(hash, "text/plain", len(payload)),))
        if fits:
            await settled(store, lease, started, outcome)
            assert await store.drafts(lease.session) == []
        else:
            with pytest.raises(ShownTextDropped):
                await settled(store, lease, started, outcome)

    with_store(tmp_path, run)


# --- what a model is told -------------------------------------------------------------------------


def test_head_and_tail_are_whole_lines_and_the_rest_is_named() -> None:
    told = excerpt(LONG, "a1b2c3d4e5f6" + "0" * 52)
    head, _, rest = told.partition("[characters ")
    about, _, tail = rest.partition("]\n")
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert len(head) <= HEAD_CHARS
    assert len(tail) <= TAIL_CHARS
    assert head.endswith("\n")
    assert tail.startswith("line ")
    assert about.startswith(f"{len(head)} to {len(LONG) - len(tail)} of {len(LONG)} are left out")
    assert 'output "a1b2c3d4e5f6"' in about


def test_one_long_line_is_cut_anywhere_and_short_text_nowhere() -> None:
    told = excerpt("x" * 100_000, "0" * 64)
    assert told.startswith("x" * HEAD_CHARS + "\n[")
    assert told.endswith("]\n" + "x" * TAIL_CHARS)
    assert excerpt("short", "0" * 64) == "short"


def test_a_request_has_excerpts_and_the_facts_stay_as_they_are() -> None:
    file = File("a" * 64, "text/plain", 5)
    picture = File("b" * 64, "audio/mpeg", 5)
    entries = (
        Settled(1, "c", Returned((file, picture, Text("after")))),
        Settled(2, "d", Refused("no")),
    )
    request = Request("m", "", (), entries)
    assert outputs_of(entries) == {"a" * 64}
    told = excerpted(request, {"a" * 64: "cut"}).entries[0]
    assert told == Settled(1, "c", Returned((Text("cut"), picture, Text("after"))))
    assert request.entries == entries


# --- reading it back ------------------------------------------------------------------------------


def test_an_output_is_read_by_hash_and_by_the_number_of_its_message(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        lease, started = await begun(store)
        hash = await store.put(lease.session, LONG.encode())
        await settled(store, lease, started, Returned((File(hash, "text/plain", len(LONG)),)))

        async def read(**asked: object) -> Outcome:
            prepared = await ReadOutput(store, lease.session, 100).prepare(json.dumps(asked))
            return await prepared.run(Pieces())

        whole = f"[characters 0 to 100 of {len(LONG)}; go on with offset 100]"
        for output in (hash, hash[:8], hash[:12].upper(), str(started), str(started + 1)):
            assert said(await read(output=output)) == f"{LONG[:100]}\n{whole}"
        last = said(await read(output=hash[:8], offset=len(LONG) - 4, length=50))
        assert last == f"{LONG[-4:]}[characters {len(LONG) - 4} to {len(LONG)} of {len(LONG)}]"
        for wrong in (
            {"output": hash[:8], "offset": len(LONG)},
            {"output": "99"},
            {"output": "f" * 12},
        ):
            assert isinstance(await read(**wrong), Failed)
        assert "must be 8 or more" in said(await read(output="abc"))

    with_store(tmp_path, run)


def test_what_another_session_stored_is_not_found(tmp_path: Path) -> None:
    async def run(store: SqliteStore) -> None:
        lease, started = await begun(store)
        hash = await store.put(lease.session, LONG.encode())
        await settled(store, lease, started, Returned((File(hash, "text/plain", len(LONG)),)))
        other, _ = await begun(store)
        await store.put(other.session, LONG.encode())
        prepared = await ReadOutput(store, other.session, 100).prepare(json.dumps({"output": hash}))
        assert "this session has no output" in said(await prepared.run(Pieces()))

    with_store(tmp_path, run)


@pytest.mark.parametrize(
    "arguments", ["{}", '{"output":1}', '{"output":"a","offset":-1}', '{"output":"a","x":1}']
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, arguments: str) -> None:
    async def run(store: SqliteStore) -> None:
        with pytest.raises(BadArguments):
            await ReadOutput(store, "s", 100).prepare(arguments)

    with_store(tmp_path, run)
