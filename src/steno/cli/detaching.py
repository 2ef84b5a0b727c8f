"""Turns without a terminal: the input is stored, a process of its own carries the turn, and
everybody may watch.

That process writes nothing but errors, into a log of its own: what is said belongs into the store
alone, where it can be redacted and deleted.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from steno.cli.leaving import Leaving
from steno.cli.printers import to_json
from steno.cli.screen import complain, note, show
from steno.cli.turns import EXIT, LEFT
from steno.config import Place
from steno.journal.facts import Record, TurnEnded, TurnStarted
from steno.service import Service
from steno.store.protocol import Admitted
from steno.wiring import Wiring

if sys.platform == "win32":

    def _locked(handle: int) -> bool:
        return True  # several may be at work: the session's lease keeps them apart

else:
    import fcntl

    def _locked(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


DONE, FAILED = 0, 1


def detach(options: argparse.Namespace, wiring: Wiring, admitted: Admitted) -> int:
    """Start a process that carries the turn of an input, and say where it is."""
    session, input = admitted.session, admitted.seq
    words = [sys.executable, "-m", "steno", "carry", session, str(input), *_passed_on(options)]
    try:
        process = _start(words, _log(wiring.where, session, input))
    except OSError as error:
        complain(
            f"the input is stored as {input} in session {session}, but no process could be "
            "started for it "
            f"({error.strerror or error}); steno continue {session} runs it"
        )
        return FAILED
    if options.output == "ndjson":
        show(to_json({"type": "session", "id": session}))
        show(to_json({"type": "accepted", "seq": input, "process": process}))
    else:
        show(f"{session} {input}")
        note(f"[accepted; steno follow {session} shows it, steno interrupt {session} stops it]")
    return DONE


def _passed_on(options: argparse.Namespace) -> list[str]:
    words = [] if options.model is None else ["--model", options.model]
    words += [] if options.runtime is None else ["--runtime", options.runtime]
    words += ["--new-thread"] if options.new_thread else []
    words += ["--yes"] if options.yes else []
    for rule in options.allow:
        words += ["--allow", rule]
    return [*words, "--ask", options.ask or "wait"]


def _log(where: Place, session: str, input: int) -> Path:
    return _folder(where) / f"{session}-{input}.log"


def _folder(where: Place) -> Path:
    folder = where.home / "detached"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def start_remembering(where: Place) -> None:
    """Start a process that distils what is due, unless one is at work. It has the lock from its
    birth on. It writes down what goes wrong, and says nothing."""
    lock = take_lock(where)
    if lock is not None:
        try:
            _start(
                [sys.executable, "-m", "steno", "remember", str(lock)], Path(os.devnull), (lock,)
            )
        finally:
            os.close(lock)


def take_lock(where: Place) -> int | None:
    """The handle that holds the lock of who distils what is due in this home; None if another
    process has it."""
    handle = os.open(_folder(where) / "memory.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if _locked(handle):
        return handle
    os.close(handle)
    return None


def write_down(where: Place, trouble: str) -> None:
    """Add a line to the log of the background."""
    with contextlib.suppress(OSError):
        handle = os.open(
            _folder(where) / "memory.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        with os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{trouble}\n")


def _start(words: list[str], log: Path, handles: tuple[int, ...] = ()) -> int:
    """In a session of its own, so that no terminal takes it along; the number of the process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own program
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=handle,
            start_new_session=True,
            pass_fds=handles,
        )
    finally:
        os.close(handle)
    process.returncode = DONE  # it is nobody's child from here on: do not wait for it
    return process.pid


async def carry(options: argparse.Namespace, wiring: Wiring, service: Service, id: str) -> int:
    """Carry the turn of an input to its end, or as far as a signal lets us. Everything that happens
    is in the store."""
    status = LEFT
    await service.visits.attend(id)
    with Leaving(service, id, options.input) as leaving:
        async for event in service.turns.answer(Admitted(id, options.input, False), leaving.event):
            match event:
                case Record(fact=TurnStarted()):
                    leaving.turn = event.seq
                case Record(fact=TurnEnded() as ending):
                    status = EXIT[ending.outcome]
                case _:
                    pass
    log = _log(wiring.where, id, options.input)
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()
    return status
