"""What is left on a disk when a program stops between two operations.

A dead process leaves everything that it wrote: the kernel has it. A power cut leaves what was
synced, and of the rest whatever happened to reach the platters, in any order and possibly in part.
After a failed sync the kernel forgets what it could not write: a later sync that succeeds says
nothing about it.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from tests.crash.faulty_vfs import Op

Crash = Literal["die", "torn", "power"]
"""The process ends before an operation, in the middle of a write, or the machine ends."""

SECTOR = 512


class Inode:
    """A file apart from its name: as a program sees it, as it surely is on the platters, and what
    lies between."""

    def __init__(self, content: bytes = b"") -> None:
        self.seen = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Op] = []

    def change(self, op: Op) -> None:
        _change(self.seen, op)
        self.pending.append(op)

    def sync(self) -> None:
        for op in self.pending:
            _change(self.durable, op)
        self.pending.clear()

    def fail_sync(self, chance: Random) -> None:
        self.durable = self.after_power_cut(chance)
        self.pending.clear()

    def after_power_cut(self, chance: Random, last: Op | None = None) -> bytearray:
        left = bytearray(self.durable)
        luck = chance.random()
        for op in self.pending if last is None else [*self.pending, last]:
            if chance.random() < luck:
                _change(left, op if chance.random() < 0.8 else _torn(op, chance))
        return left


class Disk:
    """One folder. Names and contents become durable apart from each other."""

    def __init__(self, files: dict[str, bytes], chance: Random) -> None:
        self._inodes = {name: Inode(content) for name, content in files.items()}
        self._durable = dict(self._inodes)
        self._renamed: list[tuple[str, Inode | None]] = []
        self._chance = chance

    def apply(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self._apply(op)

    def _apply(self, op: Op) -> None:
        match op.kind:
            case "create":
                if not op.failed:
                    self._inodes[op.file] = made = Inode()
                    self._renamed.append((op.file, made))
            case "delete":
                if not op.failed and self._inodes.pop(op.file, None) is not None:
                    self._renamed.append((op.file, None))
                    if op.folder:
                        self._sync_folder()
            case "write":
                self._inodes[op.file].change(op)
            case "truncate":
                if not op.failed:
                    self._inodes[op.file].change(op)
            case "sync":
                self._sync(self._inodes.get(op.file), op)

    def _sync(self, inode: Inode | None, op: Op) -> None:
        if inode is not None:
            inode.fail_sync(self._chance) if op.failed else inode.sync()
        if op.folder and not op.failed:
            self._sync_folder()

    def _sync_folder(self) -> None:
        self._durable = dict(self._inodes)
        self._renamed.clear()

    def after_death(self, *last: Op) -> dict[str, bytes]:
        """The process is gone, the machine is not. `last` is what it was doing, as far as it
        got."""
        left = {name: bytearray(inode.seen) for name, inode in self._inodes.items()}
        for op in last:
            _change(left[op.file], op)
        return {name: bytes(content) for name, content in left.items()}

    def after_power_cut(self, chance: Random, *last: Op) -> dict[str, bytes]:
        """The machine is gone. A folder's changes reach the platters in order, however many of them
        do."""
        names = dict(self._durable)
        for name, inode in self._renamed[: chance.randint(0, len(self._renamed))]:
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        under_way = {id(self._inodes[op.file]): op for op in last}
        return {
            name: bytes(inode.after_power_cut(chance, under_way.get(id(inode))))
            for name, inode in names.items()
        }


def crashes(
    ops: Sequence[Op], before: dict[str, bytes], how: Crash, points: Iterable[int], seed: int
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """What is left by a crash at each of some operations, in rising order, of a program that found
    some files."""
    disk, at = Disk(before, Random(seed)), 0
    for n in points:
        disk.apply(ops[at:n])
        at = n
        yield n, _left(disk, ops[n : n + 1], how, Random(f"{seed}-{n}"))


def _left(disk: Disk, last: Sequence[Op], how: Crash, chance: Random) -> dict[str, bytes]:
    match how:
        case "die":
            return disk.after_death()
        case "torn":
            return disk.after_death(*(_half(op) for op in last if op.kind == "write"))
        case "power":
            return disk.after_power_cut(
                chance, *(op for op in last if op.kind in ("write", "truncate"))
            )


def crash_points(ops: Sequence[Op], how: Crash) -> list[int]:
    """A torn write differs from none only where there is a write; the last point is after
    everything."""
    return [
        n for n in range(len(ops) + 1) if how != "torn" or (n < len(ops) and ops[n].kind == "write")
    ]


def put(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _half(op: Op) -> Op:
    return Op("write", op.file, op.offset, op.data[: len(op.data) // 2])


def _torn(op: Op, chance: Random) -> Op:
    """A write of which only some leading sectors arrived."""
    if op.kind != "write":
        return op
    return Op("write", op.file, op.offset, op.data[: chance.randrange(0, len(op.data) + 1, SECTOR)])


def _change(content: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
        return
    if not op.data:
        return
    content.extend(bytes(max(0, op.offset - len(content))))
    content[op.offset : op.offset + len(op.data)] = op.data
