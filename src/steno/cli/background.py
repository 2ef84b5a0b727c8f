"""Turns without a terminal: the input is stored, a process of its own carries the turn, and
any process may watch.

That process writes nothing but errors, into a log of its own: what is said belongs into the store
alone, where it can be redacted and deleted.
"""

import argparse
import contextlib
from pathlib import Path

from steno.agents import Agents
from steno.cli.signals import Leaving
from steno.cli.stdio import complain, note, show
from steno.cli.turns import EXIT
from steno.config import Place
from steno.frontend.process import LEFT
from steno.frontend.worker import folder, start_detached
from steno.journal.facts import Record, TurnEnded, TurnStarted
from steno.service import Service
from steno.service.objects import to_json
from steno.store.protocol import Admitted

DONE, FAILED = 0, 1


def detach(options: argparse.Namespace, wiring: Agents, admitted: Admitted) -> int:
    """Start a process that carries the turn of an input, and say where it is."""
    session, input = admitted.session, admitted.seq
    words = ["carry", session, str(input), *_passed_on(options)]
    try:
        process = start_detached(words, _log(wiring.where, session, input))
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
        note(
            f"[accepted; steno follow {session} shows it, steno interrupt {session} stops it]"
        )
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
    return folder(where) / f"{session}-{input}.log"


async def carry(
    options: argparse.Namespace, wiring: Agents, service: Service, id: str
) -> int:
    """Carry the turn of an input to its end, or as far as a signal lets us. Everything that happens
    is in the store."""
    status = LEFT
    await service.visits.attend(id)
    with Leaving(service, id, options.input) as leaving:
        async for event in service.turns.answer(
            Admitted(id, options.input, False), leaving.event
        ):
            if not isinstance(event, Record):
                continue
            if isinstance(event.fact, TurnStarted):
                leaving.turn = event.seq
            elif isinstance(event.fact, TurnEnded):
                status = EXIT[event.fact.outcome]
    log = _log(wiring.where, id, options.input)
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()
    return status
