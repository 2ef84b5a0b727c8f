"""steno under the step persistence of pydantic-ai's harness.

    persistence = StepPersistence(store=StenoStepStore("chats.db"))

A run is a session, and its items are its record, its events, its snapshots and what became of its
calls. An event or a snapshot that is stored again under its key is kept once. The history of a
snapshot lies in chunks that neighbouring snapshots share.

    run r1 · event (run_started) · snapshot 0 · effect (call c, started) · killed
    list_unresolved_tool_effects -> c: nobody knows what became of it
"""

from base64 import b64decode, b64encode
from dataclasses import replace
from os import PathLike
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)

from steno.adapters import in_thread, opened
from steno.items import Item, Items, cut
from steno.library import Library
from steno.store.errors import Stale

PREFIX = "pydantic-ai-run:"
RUN = "pydantic-ai.run"
EVENT = "pydantic-ai.event"
SNAPSHOT = "pydantic-ai.snapshot"
EFFECT = "pydantic-ai.effect"
PLATFORM = "pydantic-ai"

_runs: Any = TypeAdapter(RunRecord)
_events: Any = TypeAdapter(StepEvent)
_snapshots: Any = TypeAdapter(ContinuableSnapshot)
_effects: Any = TypeAdapter(ToolEffectRecord)


class StenoStepStore:
    """`store` is an open library, or the path of a store."""

    def __init__(self, store: Library | str | PathLike[str] = ":memory:") -> None:
        self.chats = opened(store)

    def close(self) -> None:
        self.chats.close()

    # --- runs

    async def register_run(self, record: RunRecord) -> None:
        """Raises `ValueError` if another run has this id."""
        await in_thread(lambda: self._register(record))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        return await in_thread(lambda: self._run(PREFIX + run_id))

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """The one that started first comes first."""

        def read() -> list[RunRecord]:
            names = [listed.row.name or "" for listed in self.chats.named(PREFIX)]
            runs = [run for name in names if (run := self._run(name)) is not None]
            found = [
                run
                for run in runs
                if parent_run_id in (None, run.parent_run_id)
                and conversation_id in (None, run.conversation_id)
            ]
            return sorted(found, key=lambda run: run.started_at)

        return await in_thread(read)

    # --- events

    async def append_event(self, event: StepEvent) -> None:
        items, value = (
            self._items(event.run_id, EVENT),
            _events.dump_python(event, mode="json"),
        )
        key = event.idempotency_key
        await in_thread(lambda: items.change([value], keys=[key], same="first"))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        tail = await in_thread(self._items(run_id, EVENT).last)
        return [_events.validate_python(item.value) for item in tail.items]

    # --- snapshots

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        await in_thread(lambda: self._save(snapshot))

    async def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        return await in_thread(lambda: self._latest(run_id, include_interrupted))

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        def read() -> list[ContinuableSnapshot]:
            tail = self._items(run_id, SNAPSHOT).last()
            return [
                self._whole(one)
                for one in tail.items
                if include_interrupted or _settled(one)
            ]

        return await in_thread(read)

    # --- what calls do in the world

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        items, value = (
            self._items(record.run_id, EFFECT),
            _effects.dump_python(record, mode="json"),
        )
        await in_thread(lambda: items.add([value]))

    async def get_tool_effect(
        self, *, run_id: str, tool_call_id: str
    ) -> ToolEffectRecord | None:
        return (await in_thread(lambda: self._ledger(run_id))).get(tool_call_id)

    async def list_unresolved_tool_effects(
        self, *, run_id: str
    ) -> list[ToolEffectRecord]:
        ledger = await in_thread(lambda: self._ledger(run_id))
        return [effect for effect in ledger.values() if effect.status == "started"]

    def _register(self, record: RunRecord) -> None:
        items = self._items(record.run_id, RUN)
        value = _runs.dump_python(record, mode="json")
        while True:
            tail = items.last(1)
            if tail.items:
                before = _runs.validate_python(tail.items[0].value)
                registered = before.registration_id
                if registered is None or registered != record.registration_id:
                    raise ValueError(
                        f"run_id: there is a run {record.run_id!r} already"
                    )
                return
            try:
                items.add([value], expect=tail.head)
            except Stale:
                continue
            return

    def _run(self, name: str) -> RunRecord | None:
        found = self.chats.items(name, RUN, PLATFORM).last(1).items
        return _runs.validate_python(found[0].value) if found else None

    def _save(self, snapshot: ContinuableSnapshot) -> None:
        """One that comes late, after a later one of the same run, is left out."""
        items, key = self._items(snapshot.run_id, SNAPSHOT), snapshot.idempotency_key
        head, chunks, tail = cut(
            ModelMessagesTypeAdapter.dump_json(snapshot.messages)
        )
        fields = _snapshots.dump_python(replace(snapshot, messages=[]), mode="json")
        value = {
            **fields,
            "messages": [b64encode(head).decode(), b64encode(tail).decode()],
        }
        while True:
            last = items.last(1)
            if last.items and _is_late(key, last.items[0].key):
                return
            try:
                items.change(
                    [value],
                    keys=[key],
                    payloads=chunks,
                    expect=last.head,
                    same="first",
                )
            except Stale:
                continue
            return

    def _latest(self, run_id: str, interrupted: bool) -> ContinuableSnapshot | None:
        items, many = self._items(run_id, SNAPSHOT), 1
        while True:
            tail = items.last(many)
            for item in reversed(tail.items):
                if interrupted or _settled(item):
                    return self._whole(item)
            if tail.whole:
                return None
            many *= 8

    def _whole(self, item: Item) -> ContinuableSnapshot:
        head, tail = map(b64decode, item.value["messages"])
        body = b"".join((head, *map(self.chats.store.get, item.payloads), tail))
        snapshot = _snapshots.validate_python({**item.value, "messages": []})
        return replace(
            snapshot, messages=ModelMessagesTypeAdapter.validate_json(body)
        )

    def _ledger(self, run_id: str) -> dict[str, ToolEffectRecord]:
        """Of each call the last that was recorded."""
        effects = [
            _effects.validate_python(item.value)
            for item in self._items(run_id, EFFECT).last().items
        ]
        return {effect.tool_call_id: effect for effect in effects}

    def _items(self, run_id: str, format: str) -> Items:
        return self.chats.items(PREFIX + run_id, format, PLATFORM)


def _settled(item: Item) -> bool:
    return bool(item.value["state"] == "complete")


def _is_late(key: str | None, last: str | None) -> bool:
    """The keys of a run's snapshots begin with a number that grows. One without is never late."""
    numbers = [(one or "").partition(":")[0] for one in (key, last)]
    return all(one.isdecimal() for one in numbers) and int(numbers[0]) < int(
        numbers[1]
    )
