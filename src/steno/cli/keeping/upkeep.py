"""The upkeep of a store: backups that are rotated, pruning, vacuuming."""

import argparse
import asyncio
import time
from datetime import datetime
from pathlib import Path

from steno.cli.keeping.tables import Progress, table, waiting
from steno.cli.stdio import Lines, note, person_present, show, tell
from steno.compose import Program, Setup
from steno.service import Misused, Service
from steno.service.objects import to_json
from steno.store.errors import SessionBusy, StoreError, UnknownSession
from steno.store.protocol import Listed

DONE, FAILED = 0, 1
LOOK_S = 0.1
SHOWN_MAX = 20
PREFIX, ENDING = "steno-", ".db"


async def backup(options: argparse.Namespace, setup: Setup, program: Program) -> int:
    if (options.file is None) == (options.into is None):
        raise Misused(
            "where to? steno backup FILE, or steno backup --into FOLDER --keep N"
        )
    if options.keep is not None and options.into is None:
        raise Misused(
            "--keep goes with --into: only backups that were rotated in are removed"
        )
    if options.into is None:
        await _copied(setup, program, Path(options.file))
        if options.json:
            tell(options, "", file=options.file, removed=[])
        return DONE
    folder = _folder(options.into)
    made = folder / f"{PREFIX}{datetime.now().astimezone():%Y%m%d-%H%M%S-%f}{ENDING}"
    await _copied(setup, program, made)
    removed = superseded([one.name for one in folder.iterdir()], options.keep)
    tell(
        options,
        str(made),
        file=str(made),
        removed=[str(folder / old) for old in removed],
    )
    for old in removed:
        (folder / old).unlink()
        note(f"[removed the older backup {folder / old}]")
    return DONE


def _folder(name: str) -> Path:
    folder = Path(name).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def superseded(names: list[str], keep: int | None) -> list[str]:
    """The backups of ours that are older than the newest `keep`. Pure: names tell the time."""
    ours = sorted(
        name
        for name in names
        if name.startswith(PREFIX)
        and name.endswith(ENDING)
        and name[len(PREFIX) : -len(ENDING)].replace("-", "").isdecimal()
    )
    return [] if keep is None else ours[:-keep]


async def _copied(setup: Setup, program: Program, to: Path) -> None:
    """A backup, with how far it is: the copy grows to about the size of the store."""
    store, partial = setup.where.store, to.with_name(to.name + ".partial")
    size = store.stat().st_size if store.exists() else 0
    progress, copying = Progress("backup"), asyncio.ensure_future(program.backup(to))
    try:
        while not copying.done():
            await asyncio.wait([copying], timeout=LOOK_S)
            if partial.exists():
                progress.at(min(partial.stat().st_size, size), size)
        await copying
    except FileNotFoundError:
        await copying
    finally:
        progress.end()


async def prune(options: argparse.Namespace, service: Service) -> int:
    """Delete sessions in which nothing happened for long. One that runs, waits or has a fork that
    stays is left."""
    before_ms = int((time.time() - options.older_than) * 1000)
    old = await service.views.older(before_ms)
    if options.json and options.dry_run:
        for one in old:
            show(to_json(_object(one)))
        return DONE
    if not old:
        note("[no session is that old; nothing was deleted]")
        return DONE
    if options.dry_run or not options.yes:
        table(["SESSION", "LAST", "TITLE"], [_row(one) for one in old[:SHOWN_MAX]])
        if len(old) > SHOWN_MAX:
            note(f"[and {len(old) - SHOWN_MAX} more]")
    if options.dry_run:
        note(f"[{len(old)} would be deleted; nothing was]")
        return DONE
    if not options.yes and not await _agreed(len(old)):
        return FAILED
    return await _delete(options, service, old)


async def _delete(
    options: argparse.Namespace, service: Service, old: list[Listed]
) -> int:
    """The newest first: a fork goes before what it was forked from."""
    progress, gone, left = Progress("prune"), 0, 0
    for at, one in enumerate(sorted(old, key=lambda one: -one.row.created_ms)):
        progress.at(at, len(old))
        try:
            gone += await service.delete(one.id, False)
            if options.json:
                show(to_json(_object(one)))
        except (SessionBusy, UnknownSession):
            left += 1
        except StoreError as error:
            left += 1
            note(f"[{one.id} stays: {error}]")
    progress.end()
    if not options.json:
        show(f"deleted {gone} session{'' if gone == 1 else 's'}")
    if left:
        note(f"[{left} stay, because they run or have forks that stay]")
    return DONE


async def _agreed(count: int) -> bool:
    if not person_present():
        raise Misused(
            f"deleting {count} sessions cannot be taken back, so it needs --yes; nothing was "
            "deleted"
        )
    note(f"delete {count} sessions for good? [y/N] ", end="")
    if (await Lines().next() or "").strip().lower() == "y":
        return True
    note("nothing was deleted")
    return False


def _object(one: Listed) -> dict[str, object]:
    return {"id": one.id, "title": one.row.title, "updated_ms": one.row.updated_ms}


def _row(one: Listed) -> list[str]:
    when = datetime.fromtimestamp(one.row.updated_ms / 1000).astimezone()
    return [one.id, f"{when:%Y-%m-%d}", one.row.title[:60].replace("\n", " ")]


async def vacuum(options: argparse.Namespace, setup: Setup, program: Program) -> int:
    store = setup.where.store
    before = store.stat().st_size if store.exists() else 0
    with waiting("writing the store anew"):
        await program.vacuum()
    after = store.stat().st_size
    said = f"the store was written anew: {before:,} bytes before, {after:,} now"
    tell(options, said, bytes_before=before, bytes_after=after)
    return DONE
