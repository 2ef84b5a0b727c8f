"""Commands that move sessions: into a file, and from files, of steno or of other agents, into this
store."""

import argparse
import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from steno.cli import stdio
from steno.cli.keeping.tables import Progress, waiting
from steno.cli.stdio import complain, show
from steno.compose import Setup
from steno.frontend.process import heeding
from steno.gateway.page import saved
from steno.service import Misused, Service
from steno.service.moving_in import Moved
from steno.store.errors import KeyReused
from steno.store.protocol import Listed
from steno.transfer import FileExists, Permits, TransferError
from steno.transfer.agents.sources import files_at, paths_of
from steno.transfer.export import written_whole
from steno.transfer.secrets import without_secrets

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
WATCH_S = 5
EXPORT_PAGE = 100
_SAY_EVERY = 100
EXPORT_BEGINS = b'{"type":"steno.export"'


async def export(options: argparse.Namespace, service: Service, id: str) -> int:
    if service.ephemeral:
        raise Misused(
            "an ephemeral session leaves nothing on disk, so it cannot be exported"
        )
    try:
        pieces = _pieces(options, service, id)
        if options.file == "-":
            async for piece in pieces:
                stdio.pour(piece)
        else:
            await _write(pieces, Path(options.file), options.force)
            show(f"session {id} is in {options.file}")
    except TransferError as error:
        writable = isinstance(error, FileExists) and error.is_file
        complain(f"{error}; --force writes over it" if writable else str(error))
        return FAILED
    except OSError as error:
        complain(
            f"{options.file} cannot be written: {error.strerror or error}; it is as it was"
        )
        return FAILED
    return DONE


async def export_all(options: argparse.Namespace, service: Service) -> int:
    """Every session, a file each; HTML with a list of them."""
    named = options.id if options.file == "-" else options.file
    if named is None:
        raise Misused("name a folder: steno export --all FOLDER")
    folder, suffix = Path(named), _suffix(options)
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        rows: list[tuple[str, str, int, int]] = []
        async for one in _every(service):
            name = f"{one.id}{suffix}"
            await _write(_pieces(options, service, one.id), folder / name, True)
            rows.append(
                (name, one.row.title or one.id, one.row.messages, one.row.updated_ms)
            )
        if options.html:
            await _write(_encoded(saved.listing(rows)), folder / "index.html", True)
    except TransferError as error:
        complain(str(error))
        return FAILED
    except OSError as error:
        complain(f"{folder} cannot be written: {error.strerror or error}")
        return FAILED
    show(f"{len(rows)} sessions are in {folder}")
    return DONE


async def _every(service: Service) -> AsyncIterator[Listed]:
    before = None
    while page := await service.views.sessions(EXPORT_PAGE, before):
        for summary in page:
            yield summary.listed
        before = page[-1].listed.mark


def _suffix(options: argparse.Namespace) -> str:
    return ".html" if options.html else ".md" if options.markdown else ".steno"


def _pieces(
    options: argparse.Namespace, service: Service, id: str
) -> AsyncIterator[bytes]:
    clean = without_secrets if options.without_secrets else str
    if options.html:
        return _html(service, id, clean)
    if options.markdown:
        return service.transfers.markdown(id, clean)
    if options.without_secrets:
        raise Misused("a file to be imported has everything; --without-secrets needs --html or "
                      "--markdown, and steno redact removes a text for good")  # fmt: skip
    return service.transfers.export(id)


async def _html(
    service: Service, id: str, clean: Callable[[str], str]
) -> AsyncIterator[bytes]:
    _, shown = await service.views.shown(id)
    pictures: dict[str, bytes] = {}
    for message in shown.transcript.messages:
        for n, part in enumerate(message.attachments):
            if (
                part.media_type in saved.PICTURES
                and part.size <= saved.PICTURE_BYTES_MAX
            ):
                _, pictures[part.hash] = await service.views.attachment(
                    id, message.end, n
                )
    undone = shown.turns.undone()
    for piece in saved.document(id, shown.transcript, undone, pictures, clean):
        yield piece.encode("utf-8", "backslashreplace")


async def _encoded(pieces: Iterator[str]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece.encode("utf-8", "backslashreplace")


async def _write(pieces: AsyncIterator[bytes], to: Path, overwrite: bool) -> None:
    with written_whole(to, overwrite) as file:
        async for piece in pieces:
            file.write(piece)


async def bring(options: argparse.Namespace, service: Service) -> int:
    """Each path in turn. A Ctrl-C ends it as a kill would: what was staged is swept by the next
    process, and what was brought is here."""
    ending = partial(os._exit, INTERRUPTED)
    if options.watch and any(_is_export(path) for path in options.file):
        raise Misused(
            "a file of steno export does not grow; watch what another agent keeps"
        )
    with heeding({signal.SIGINT: ending}):
        status = DONE
        mover = Mover(service, options.dry_run, options.json)
        for path in options.file:
            came = _bring_export if _is_export(path) else mover.bring
            status = max(status, await came(path, options, service))
        mover.sum_up()
        while options.watch:
            await asyncio.sleep(WATCH_S)
            for path in options.file:
                await mover.bring(path, options, service)
    return status


def _is_export(path: str) -> bool:
    if path == "-":
        return True
    try:
        with Path(path).open("rb") as file:
            return file.read(len(EXPORT_BEGINS)) == EXPORT_BEGINS
    except OSError:
        return False


async def _bring_export(
    path: str, options: argparse.Namespace, service: Service
) -> int:
    if options.dry_run:
        raise Misused(
            "a file of steno export is brought whole or not at all: import it"
        )
    try:
        with stdio.source(path) as file, waiting("import"):
            came = await service.transfers.bring(file, options.trust)
    except (TransferError, KeyReused) as error:
        advice = f"; import --trust {path} takes it as it is, if you trust its source"
        complain(f"{path}: {error}{advice if isinstance(error, Permits) else ''}")
        return FAILED
    if came.first:
        show(f"session {came.session} is here; steno show {came.session} shows it")
    else:
        gone_on = (
            f" and has {came.since} facts more than the file" if came.since else ""
        )
        show(f"session {came.session} is here already{gone_on}; nothing was changed")
    return DONE


class Mover:
    """Brings what other agents keep, and tells of it: a line a session, then a sum."""

    def __init__(self, service: Service, dry: bool, as_json: bool) -> None:
        self._moving_in = service.moving_in(dry)
        self._dry, self._json = dry, as_json
        self._counts: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._seen: dict[Path, tuple[int, int]] = {}

    async def bring(
        self, name: str, options: argparse.Namespace, service: Service
    ) -> int:
        paths = _paths(name)
        if not paths:
            complain(f"{name}: there is no such file or folder, and no agent of that name keeps "
                     "anything in your home folder; nothing was stored")  # fmt: skip
            return MISUSED
        status = DONE
        files = [file for path in paths for file in self._changed(path)]
        with Progress("import") as progress:
            for at, file in enumerate(files):
                async for moved in self._moving_in.bring(file):
                    progress.end()
                    self._tell(moved)
                    progress.at(at, len(files))
                    status = max(
                        status, FAILED if moved.outcome == "refused" else DONE
                    )
                progress.at(at + 1, len(files))
        return status

    def _changed(self, path: Path) -> Iterator[Path]:
        """What was not looked at, or has changed since."""
        for file in files_at(path):
            try:
                found = file.stat()
            except OSError:
                continue
            now = (found.st_size, found.st_mtime_ns)
            if self._seen.get(file) != now:
                self._seen[file] = now
                yield file

    def _tell(self, moved: Moved) -> None:
        first = self._counts[moved.outcome] == 0 or moved.outcome not in (
            "same",
            "empty",
        )
        self._counts[moved.outcome] += 1
        self._kept.update(moved.kept)
        if self._json:
            show(msgspec.json.encode(moved).decode())
            return
        if first and moved.outcome not in ("same", "empty"):
            what = moved.title or moved.where
            branch = ", a branch" if moved.branch else ""
            show(f"{_SAYS[moved.outcome]}  {moved.session or '-':13}  {moved.program}  "
                 f"{moved.messages} messages{branch}  {what}")  # fmt: skip
        for where, why in moved.notes:
            complain(f"{where}: {why}")

    def sum_up(self) -> None:
        if self._json or not self._counts:
            return
        told = [
            f"{count} {_SAYS[outcome].strip()}"
            for outcome, count in self._counts.items()
        ]
        done = "would be" if self._dry else "done"
        show(f"{done}: {', '.join(told)}")
        if self._kept:
            kinds = ", ".join(
                f"{kind} ({count})" for kind, count in self._kept.most_common(8)
            )
            show(f"kept as it came, not shown as speech: {kinds}")


_SAYS = {
    "new": "new    ",
    "grown": "grown  ",
    "same": "unchanged",
    "diverged": "went on here and there; left as it is here",
    "refused": "refused",
    "empty": "empty  ",
}


def _paths(name: str) -> list[Path]:
    path = Path(name).expanduser()
    return [path] if path.exists() else paths_of(name, Path.home())


async def copy_store(setup: Setup, source: str, target: str) -> int:
    """All sessions of a store into another one, in either direction between a file and
    PostgreSQL."""
    from steno.transfer.copy import Copied, copy

    def told(done: Copied) -> None:
        if done.seen % _SAY_EVERY == 0:
            complain(f"{done.seen} sessions so far")

    async with (
        setup.store_at(source, make=False) as old,
        setup.store_at(target) as new,
    ):
        done = await copy(old, new, told)
    show(
        f"{done.copied} sessions copied, {done.extended} brought up to date, {done.equal} were "
        "there; all were compared with the original"
    )
    for session in done.different:
        complain(
            f"session {session} differs in the two stores; it was left as it is there"
        )
    return FAILED if done.different else DONE
