"""Commands that move a session: into a file, and from a file into this store."""

import argparse
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from steno.cli import stdio
from steno.cli.stdio import complain, show
from steno.frontend.process import heeding
from steno.service import Misused, Service
from steno.store.errors import KeyReused
from steno.transfer import FileExists, Permits, TransferError
from steno.transfer.export import written_whole

DONE, FAILED, INTERRUPTED = 0, 1, 130


async def export(options: argparse.Namespace, service: Service, id: str) -> int:
    if service.ephemeral:
        raise Misused("an ephemeral session leaves nothing on disk, so it cannot be exported")
    pieces = service.transfers.markdown(id) if options.markdown else service.transfers.export(id)
    try:
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
        complain(f"{options.file} cannot be written: {error.strerror or error}; it is as it was")
        return FAILED
    return DONE


async def _write(pieces: AsyncIterator[bytes], to: Path, overwrite: bool) -> None:
    with written_whole(to, overwrite) as file:
        async for piece in pieces:
            file.write(piece)


async def bring(options: argparse.Namespace, service: Service) -> int:
    """A Ctrl-C ends it as a kill would: what was staged is swept by the next process."""
    ending = partial(os._exit, INTERRUPTED)
    try:
        with heeding({signal.SIGINT: ending}), stdio.source(options.file) as file:
            came = await service.transfers.bring(file, options.trust)
    except (TransferError, KeyReused) as error:
        advice = f"; import --trust {options.file} takes it as it is, if you trust its source"
        complain(f"{options.file}: {error}{advice if isinstance(error, Permits) else ''}")
        return FAILED
    if came.first:
        show(f"session {came.session} is here; steno show {came.session} shows it")
    else:
        gone_on = f" and has {came.since} facts more than the file" if came.since else ""
        show(f"session {came.session} is here already{gone_on}; nothing was changed")
    return DONE
