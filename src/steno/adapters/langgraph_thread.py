"""A thread of LangGraph as the items of a session: where each checkpoint is, what is in it, and the
values of channels as payloads that neighbouring checkpoints share."""

import threading
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key

from steno.items import Item, Items, cut
from steno.library import Library
from steno.store.errors import Stale, warn

PREFIX = "langgraph:"
FORMAT = "langgraph.checkpoint"
TOLD_MAX = 10_000

Json = Any
Key = tuple[str, str]
"""A checkpoint in a thread: its namespace and its id."""
Write = tuple[str, str, Any]


class _Line(NamedTuple):
    seq: int
    parent: str | None
    run: object


class Thread:
    """Read once, then followed. Hold `lock` while you use it."""

    def __init__(self, name: str, chats: Library) -> None:
        self.name = name
        self.items: Items = chats.items(PREFIX + name, FORMAT, "langgraph")
        self.lock = threading.RLock()
        self._get = chats.store.get
        self._forget(None)

    def _forget(self, session: str | None) -> None:
        self.session, self.head = session, 0
        self.checkpoints: dict[Key, _Line] = {}
        self.writes: dict[Key, list[int]] = {}
        self.newest: dict[str, str] = {}

    def look(self) -> int:
        """Take in what is new; the last fact about items."""
        tail = self.items.since(self.head)
        if tail.session != self.session or not tail.whole:
            self._forget(tail.session)
            tail = self.items.since(0)
        for item in tail.items:
            self._add(item.seq, item.value)
        self.head = tail.head
        return self.head

    def _add(self, seq: int, value: Json) -> None:
        ns, id = key = (value["ns"], value["id"])
        if "task" in value:
            self.writes.setdefault(key, []).append(seq)
            return
        self.checkpoints[key] = _Line(
            seq, value["parent"], value["metadata"].get("run_id")
        )
        self.newest[ns] = max(id, self.newest.get(ns, ""))

    def checkpoint(self, ns: str, id: str | None) -> Item | None:
        line = self.checkpoints.get((ns, id or ""))
        return None if line is None else self.items.at([line.seq])[0]

    def read(self, ns: str, id: str, serde: Any) -> CheckpointTuple | None:
        with self.lock:
            item = self.checkpoint(ns, id)
            if item is None:
                return None
            values = self.values(item, serde)
            writes = self.writes_of((ns, id), serde)
        state: Any = values.pop("state")
        state["channel_values"] = {at[1:]: value for at, value in values.items()}
        parent = item.value["parent"]
        return CheckpointTuple(
            config_of(self.name, ns, id),
            state,
            item.value["metadata"],
            None if parent is None else config_of(self.name, ns, parent),
            writes,
        )

    def values(self, item: Item, serde: Any) -> dict[str, Any]:
        chunks = chunks_of(item)
        return {
            at: serde.loads_typed(
                (
                    kind,
                    b"".join(
                        (
                            b64decode(head),
                            *map(self._get, chunks[at]),
                            b64decode(tail),
                        )
                    ),
                )
            )
            for at, (_, kind, _, head, tail) in item.value["blobs"].items()
        }

    def writes_of(self, key: Key, serde: Any) -> list[Write]:
        """The first write of a task at an index counts; below 0, the last."""
        found: dict[tuple[str, int], tuple[tuple[str, str, int], Write]] = {}
        for item in self.items.at(self.writes.get(key, [])):
            task, path = item.value["task"], item.value["path"]
            for at, value in self.values(item, serde).items():
                index, _, channel = at.partition(":")
                if int(index) < 0 or (task, int(index)) not in found:
                    order = writes_sort_key(path, task, int(index))
                    found[task, int(index)] = order, (task, channel, value)
        return [write for _, write in sorted(found.values(), key=lambda one: one[0])]

    def withdraw(self, keys: Sequence[Key]) -> None:
        seqs = [self.checkpoints[key].seq for key in keys]
        seqs += [seq for key in keys for seq in self.writes.get(key, ())]
        if seqs:
            self.items.change(withdraw=seqs)

    def needed(self, ns: str) -> Iterator[Key]:
        """The newest checkpoint, and those before it that have the beginning of a channel of which
        it has only what was added since."""
        id: str | None = self.newest[ns]
        missing: set[str] | None = None
        while (item := self.checkpoint(ns, id)) is not None:
            yield ns, item.value["id"]
            if missing is None:
                missing = set(
                    item.value["metadata"].get("counters_since_delta_snapshot") or ()
                )
            missing -= {at[1:] for at in item.value["blobs"]}
            id = item.value["parent"] if missing else None


class Fence:
    """Which checkpoints were asked for, by their id or out of a list: those may be gone on from,
    though they are not the newest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def tell(self, name: str, ns: str, id: str) -> None:
        """Remember that a checkpoint was asked for; without an id, that there was none."""
        with self._lock:
            self._told[name, ns, id] = None
            if len(self._told) > TOLD_MAX:
                self._told.popitem(last=False)

    def check(self, thread: Thread, ns: str, parent: str | None, source: str) -> None:
        newest = thread.newest.get(ns)
        told = (thread.name, ns, parent or "") in self._told
        if (
            newest != parent
            and source not in ("fork", "update")
            and told == (parent is None)
        ):
            warn("refused a checkpoint after %s, for %s is newer", parent, newest)
            raise Stale(
                thread.session, 0 if parent is None else thread.head - 1, thread.head
            )


class Blobs:
    """Values of an item, by name: short ones in its JSON, long ones in chunks beside it."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde
        self.named: dict[str, list[Json]] = {}
        self.payloads: list[bytes | str] = []

    def add(self, at: str, value: object, version: Json = None) -> None:
        kind, body = self._serde.dumps_typed(value)
        head, chunks, tail = cut(body)
        texts = [b64encode(head).decode(), b64encode(tail).decode()]
        self.named[at] = [version, kind, len(chunks), *texts]
        self.payloads += chunks

    def share(self, at: str, version: Json, item: Item | None) -> bool:
        """Take a value of another item, if it has that version."""
        blob = None if item is None else item.value["blobs"].get(at)
        if item is None or blob is None or blob[0] != version:
            return False
        self.named[at] = blob
        self.payloads += chunks_of(item)[at]
        return True


def chunks_of(item: Item) -> dict[str, tuple[str, ...]]:
    found, at = {}, 0
    for name, (_, _, count, _, _) in item.value["blobs"].items():
        found[name] = item.payloads[at : at + count]
        at += count
    return found


def config_of(name: str, ns: str, id: str) -> Json:
    return {
        "configurable": {"thread_id": name, "checkpoint_ns": ns, "checkpoint_id": id}
    }
