"""Each command, from parsed options to an exit status. Errors are told here, once, in words a person can act on."""

import argparse
import asyncio
from pathlib import Path
from typing import Literal

from steno import config as configuration
from steno.cli import output, screen
from steno.cli.leaving import Leaving
from steno.cli.screen import complain, show
from steno.cli.turns import Front, carry_out
from steno.cli.wording import advice
from steno.config import ConfigError
from steno.service import Misused, Service
from steno.store.errors import StoreError, UnknownSession
from steno.wiring import Wiring

DONE, FAILED, USAGE = 0, 1, 2


def run(options: argparse.Namespace) -> int:
    try:
        where = configuration.place()
        if options.verb != "doctor":
            configuration.prepare_home(where)
        config = configuration.load(where)
        if getattr(options, "prompt", None) == "-":
            options.prompt = screen.read_all()  # before there is a loop, so that Ctrl-C ends the reading
        return _dispatch(options, Wiring(config, where, getattr(options, "model", None), _approval(options)))
    except (ConfigError, Misused) as error:
        complain(str(error))
        return USAGE
    except StoreError as error:
        complain("; ".join(filter(None, (str(error), advice(error)))))
        return FAILED
    except OSError as error:
        complain(f"{error.filename or 'steno'}: {error.strerror or error}")
        return FAILED


def _approval(options: argparse.Namespace) -> Literal["allow", "refuse", "ask"]:
    if getattr(options, "yes", False):
        return "allow"
    return "ask" if getattr(options, "output", "text") == "text" and screen.person_present() else "refuse"


def _dispatch(options: argparse.Namespace, wiring: Wiring) -> int:
    match options.verb:
        case "doctor":
            from steno.cli.doctor import doctor

            return asyncio.run(doctor(wiring))
        case "restore":
            wiring.restore(Path(options.file))
            store = wiring.where.store.name
            show(f"restored; the store that was there before, if any, is kept as {store}.replaced")
            return DONE
        case _:
            return asyncio.run(_with_service(options, wiring))


async def _with_service(options: argparse.Namespace, wiring: Wiring) -> int:
    async with wiring.service("chat" if options.verb is None else "cli") as service:
        try:
            return await _act(options, wiring, service)
        except UnknownSession as error:
            near = await service.like(error.session)
            hint = f"did you mean {', '.join(near)}?" if near else "steno sessions lists those there are"
            complain(f"{error}; {hint}")
            return USAGE


async def _act(options: argparse.Namespace, wiring: Wiring, service: Service) -> int:
    match options.verb:
        case None:
            from steno.cli.chat import chat

            return await chat(options, wiring, service)
        case "run":
            return await _run(options, wiring, service)
        case "sessions":
            return output.sessions(await service.sessions(options.limit), options.json)
        case "delete":
            return await _delete(options, service)
        case "verify":
            return output.report(await service.verify(), options.json)
        case "backup":
            await service.backup(Path(options.file))
            return DONE
    id = await service.resolve(options.id)
    match options.verb:
        case "show":
            return output.transcript(id, await service.view(id), options.json)
        case "continue" | "retry":
            return await _resume(options, wiring, service, id)
        case "rename":
            await service.rename(id, options.title)
        case "interrupt":
            turn = await service.interrupt(id)
            show("no turn is running" if turn is None else f"asked turn {turn} to stop")
        case "undo":
            await _undo(options, service, id)
    return DONE


async def _run(options: argparse.Namespace, wiring: Wiring, service: Service) -> int:
    wiring.agent(None)  # a model that cannot be used is refused before anything is stored
    session = None if options.session is None else await service.resolve(options.session)
    if options.steer and session is None and options.key is None:
        raise Misused("--steer needs --session or --key, to say which turn; nothing was stored")
    mode: Literal["queue", "steer"] = "steer" if options.steer else "queue"
    admitted = await service.admit(options.prompt, session, options.key, options.input_id, wiring.model_spec(), mode)
    with Leaving(service, admitted.session, admitted.seq) as leaving:
        events = service.answer(admitted, leaving.event)
        return await carry_out(Front(service, wiring, options.output), admitted.session, events, leaving)


async def _resume(options: argparse.Namespace, wiring: Wiring, service: Service, id: str) -> int:
    wiring.agent(None)
    opening = await (service.due_continuation(id) if options.verb == "continue" else service.failed_prompt(id))
    with Leaving(service, id) as leaving:
        events = service.resume(id, opening, leaving.event)
        return await carry_out(Front(service, wiring, options.output), id, events, leaving)


async def _undo(options: argparse.Namespace, service: Service, id: str) -> None:
    if options.withdraw is not None:
        await service.redo(id, options.withdraw)
        show(f"undo {options.withdraw} is taken back")
        return
    turn, seq = await service.undo(id)
    show(f"turn {turn} is out of the model's view; steno undo {id} --withdraw {seq} takes this back")


async def _delete(options: argparse.Namespace, service: Service) -> int:
    if not options.yes:
        id = await service.resolve(options.id)
        if not screen.person_present():
            raise Misused(f"deleting session {id} removes it for good, so it needs --yes; nothing was deleted")
        screen.note(f"delete session {id} for good? [y/N] ", end="")
        if (await screen.Lines().next() or "").strip().lower() != "y":
            screen.note("nothing was deleted")
            return FAILED
    count = await service.delete(options.id, options.with_forks)
    show(f"deleted {count} session{'s' if count > 1 else ''}")
    return DONE
