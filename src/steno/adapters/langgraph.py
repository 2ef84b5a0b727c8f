"""steno under LangGraph.

    graph = builder.compile(checkpointer=StenoSaver("chats.db"))

A thread is a session; its items are checkpoints and the writes of tasks.

A saver is fenced: a checkpoint whose parent is not the newest of its thread and namespace is
refused with `Stale`, unless that parent was asked for by its id or out of a list, or the checkpoint
is a fork or an update. So of two processes that run one thread, neither loses a turn that the other
acknowledged.
"""

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from os import PathLike
from random import SystemRandom
from typing import Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)

from steno.adapters import in_thread, opened
from steno.adapters.langgraph_thread import PREFIX, Blobs, Fence, Thread, config_of
from steno.library import Library
from steno.store.errors import Stale

THREADS_MAX = 200

Config = Any


def _awaited(verb: Any) -> Any:
    async def run(self: Any, *given: Any, **named: Any) -> Any:
        return await in_thread(lambda: verb(self, *given, **named))

    return run


class StenoSaver(BaseCheckpointSaver):  # type: ignore[misc,type-arg,unused-ignore]
    """`store` is an open library, or the path of a store."""

    def __init__(
        self, store: Library | str | PathLike[str] = ":memory:", *, serde: Any = None
    ) -> None:
        super().__init__(serde=serde)
        self.chats = opened(store)
        self._lock = threading.Lock()
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._fence = Fence()
        self._chance = SystemRandom()

    def get_next_version(self, current: Any, channel: None = None) -> str:
        """Branches that come from one checkpoint must not have the same versions."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:010}.{self._chance.getrandbits(32):08x}"

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        name, ns, id = _place(config)
        thread = self._thread(name)
        with thread.lock:
            thread.look()
            found = id or thread.newest.get(ns, "")
            if id is not None or not found:
                self._fence.tell(name, ns, found)
            return thread.read(ns, found, self.serde)

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        wanted = {} if config is None else config["configurable"]
        upto = None if before is None else _place(before)[2]
        places: list[tuple[str, str, str]] = []
        for name in (
            [str(wanted["thread_id"])] if "thread_id" in wanted else self._names()
        ):
            thread = self._thread(name)
            with thread.lock:
                thread.look()
                places += [(id, ns, name) for ns, id in thread.checkpoints]
        left = len(places) if limit is None else limit
        for id, ns, name in sorted(places, reverse=True):
            if left <= 0:
                return
            if (
                ns == wanted.get("checkpoint_ns", ns)
                and id == (wanted.get("checkpoint_id") or id)
                and (upto is None or id < upto)
                and (found := self._thread(name).read(ns, id, self.serde)) is not None
                and all(
                    found.metadata.get(at) == value
                    for at, value in (filter or {}).items()
                )
            ):
                left -= 1
                self._fence.tell(name, ns, id)
                yield found

    def put(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Config:
        name, ns, parent = _place(config)
        thread, id = self._thread(name), checkpoint["id"]
        versions = checkpoint["channel_versions"]
        said = get_serializable_checkpoint_metadata(config, metadata)
        item = {"ns": ns, "id": id, "parent": parent, "metadata": said}
        with thread.lock:
            while True:
                head = thread.look()
                before = thread.checkpoints.get((ns, id))
                if before is None:
                    self._fence.check(thread, ns, parent, metadata.get("source"))
                known, blobs = thread.checkpoint(ns, parent), Blobs(self.serde)
                for channel, value in checkpoint["channel_values"].items():
                    at, version = f":{channel}", versions.get(channel)
                    if channel in new_versions or not blobs.share(at, version, known):
                        blobs.add(at, value, version)
                blobs.add("state", {**checkpoint, "channel_values": {}})
                doomed = [] if before is None else [before.seq]
                value = {**item, "blobs": blobs.named}
                try:
                    thread.items.change(
                        [value], doomed, head, payloads=blobs.payloads
                    )
                except Stale:
                    continue
                return config_of(name, ns, id)

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        name, ns, id = _place(config)
        blobs = Blobs(self.serde)
        for index, (channel, value) in enumerate(writes):
            blobs.add(f"{WRITES_IDX_MAP.get(channel, index)}:{channel}", value)
        item = {
            "ns": ns,
            "id": id,
            "task": task_id,
            "path": task_path,
            "blobs": blobs.named,
        }
        self._thread(name).items.change([item], payloads=blobs.payloads)

    def delete_thread(self, thread_id: str) -> None:
        self._thread(thread_id).items.delete()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread in map(self._thread, self._names()):
            with thread.lock:
                thread.look()
                lines = thread.checkpoints.items()
                thread.withdraw([key for key, line in lines if line.run in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """In one commit. Payloads are named again, not copied."""
        if items := self._thread(source_thread_id).items.last().items:
            self._thread(target_thread_id).items.change(items)

    def prune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        for thread in map(self._thread, thread_ids):
            if strategy == "delete":
                thread.items.delete()
                continue
            with thread.lock:
                thread.look()
                kept = {key for ns in thread.newest for key in thread.needed(ns)}
                thread.withdraw(
                    [key for key in thread.checkpoints if key not in kept]
                )

    def _names(self) -> Sequence[str]:
        return [
            (found.row.name or "")[len(PREFIX) :]
            for found in self.chats.named(PREFIX)
        ]

    def _thread(self, name: str) -> Thread:
        with self._lock:
            found = self._threads.pop(str(name), None) or Thread(
                str(name), self.chats
            )
            self._threads[str(name)] = found
            if len(self._threads) > THREADS_MAX:
                self._threads.popitem(last=False)
            return found

    async def alist(
        self, config: Config | None, **how: Any
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, **how)
        while (one := await in_thread(lambda: next(found, None))) is not None:
            yield one

    aget_tuple = _awaited(get_tuple)
    aput = _awaited(put)
    aput_writes = _awaited(put_writes)
    adelete_thread = _awaited(delete_thread)
    adelete_for_runs = _awaited(delete_for_runs)
    acopy_thread = _awaited(copy_thread)
    aprune = _awaited(prune)


def _place(config: Config) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint."""
    said = config["configurable"]
    return (
        str(said.get("thread_id", "")),
        said.get("checkpoint_ns", ""),
        said.get("checkpoint_id"),
    )
