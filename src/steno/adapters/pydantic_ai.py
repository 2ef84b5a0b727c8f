"""steno under pydantic-ai.

    store = StenoConversationStore("chats.db")
    conversation = await store.load("alice") or Conversation(conversation_id="alice")
    await store.save(await agent.run("Hello", conversation=conversation))

A conversation is a session; its items are the messages, each kept once, and the record of where its
history ends, changed with them in one commit. A fork refers to messages of other conversations. The
messages of a conversation that was forked stay when it is deleted; else they go with it.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from msgspec.structs import replace
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from steno.adapters import in_thread, opened
from steno.items import Items
from steno.library import Library
from steno.store.errors import Stale, warn

PREFIX = "pydantic-ai:"
MESSAGE = "pydantic-ai.message"
RECORD = "pydantic-ai.record"
FORKED = "pydantic-ai.forked"
PLATFORM = "pydantic-ai"
PAGE = 200

_entries: Any = TypeAdapter(ConversationEntry)
_records: Any = TypeAdapter(ConversationRecord)


class StenoConversationStore(ConversationStore):  # type: ignore[misc,unused-ignore]
    """`store` is an open library, or the path of a store."""

    def __init__(self, store: Library | str | PathLike[str] = ":memory:") -> None:
        self.chats = opened(store)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await in_thread(lambda: self._record(conversation_id)[0])

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        def read() -> list[ConversationRecord]:
            listed = sorted(
                self.chats.named(PREFIX), key=lambda one: one.mark, reverse=True
            )
            names = [(one.row.name or "")[len(PREFIX) :] for one in listed]
            records = [
                record
                for name in names
                if (record := self._record(name)[0]) is not None
            ]
            found = [one for one in records if scope is None or one.scope == scope]
            return sorted(found, key=lambda one: one.updated_at, reverse=True)[:limit]

        return await in_thread(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await in_thread(lambda: self._write(record, new_entries, expected_revision))

    async def delete_record(
        self, conversation_id: str, *, expected_revision: str
    ) -> None:
        await in_thread(lambda: self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        return await in_thread(lambda: self._history(head_id, limit))

    def _record(self, id: str) -> tuple[ConversationRecord | None, int, list[int]]:
        """A record, the last fact about the items of its session, and where it is."""
        tail = self._items(id, RECORD).last(1)
        record = _records.validate_python(tail.items[0].value) if tail.items else None
        return record, tail.head, [item.seq for item in tail.items]

    def _write(
        self,
        record: ConversationRecord,
        new: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        id = record.conversation_id
        messages = [_entries.dump_python(entry, mode="json") for entry in new]
        keys = [entry.id for entry in new]
        while True:
            stored, head, at = self._record(id)
            if (None if stored is None else stored.revision) != expected:
                warn("refused a conversation that was saved since it was read")
                raise ConversationConflict(id)
            value = _records.dump_python(record, mode="json")
            own = self._items(id, RECORD).keeping([value], withdraw=at, expect=head)
            if new:
                kept = self._items(id, MESSAGE).keeping(messages, keys=keys)
                own = replace(own, items=(*kept.items, *own.items), anywhere=True)
            changes = [own]
            if record.head_id is not None and record.head_id not in keys:
                place = self.chats.store.kept_anywhere(MESSAGE, record.head_id)
                source = None if place is None else self._name_of(place[0])
                if source is None:
                    raise ConversationConflict(id)
                if (
                    source != id
                ):  # what it refers to must be there when this is stored
                    forked = self._items(source, FORKED)
                    before = forked.last(1)
                    if self._record(source)[0] is None and not before.items:
                        raise ConversationConflict(id)  # it is being deleted
                    changes.append(forked.keeping([id], expect=before.head))
            try:
                self.chats.keep_all(changes)
                return
            except Stale:
                continue

    def _delete(self, id: str, expected: str) -> None:
        while True:
            stored, head, at = self._record(id)
            if stored is None or stored.revision != expected:
                raise ConversationConflict(id)
            items = self._items(id, RECORD)
            try:
                items.change(withdraw=at, expect=head)
            except Stale:
                continue
            if not self._items(id, FORKED).last(1).items:
                items.delete()
            return

    def _history(
        self, head: str | None, limit: int | None
    ) -> list[ConversationEntry]:
        """From the end, a page of a session at once."""
        known: dict[str, Any] = {}
        found: list[ConversationEntry] = []
        while head is not None and (limit is None or len(found) < limit):
            if head not in known:
                place = self.chats.store.kept_anywhere(MESSAGE, head)
                if place is None:
                    raise LookupError(f"the store has no entry {head!r}")
                known = self._page(*place)
            entry = _entries.validate_python(known[head])
            found.append(entry)
            head = entry.parent_id
        return found[::-1]

    def _page(self, session: str, upto: int) -> dict[str, Any]:
        items = self._items(self._name_of(session) or "", MESSAGE)
        return {
            item.value["id"]: item.value
            for item in items.at(range(max(1, upto - PAGE), upto + 1))
        }

    def _name_of(self, session: str) -> str | None:
        name = self.chats.store.glance(session).row.name
        return None if name is None else name[len(PREFIX) :]

    def _items(self, id: str, format: str) -> Items:
        return self.chats.items(PREFIX + id, format, PLATFORM)
