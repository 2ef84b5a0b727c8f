"""Each command, from parsed options to an exit status. Errors are told here, once, in words a person can act on."""

import argparse
import asyncio
import difflib
import sys
from pathlib import Path
from typing import Literal

from steno import config as configuration
from steno.cli import output
from steno.cli.leaving import Leaving
from steno.cli.turns import carry_out
from steno.config import Config, ConfigError, Place
from steno.service import Service
from steno.store.errors import StoreError, UnknownSession
from steno.wiring import Wiring

DONE, FAILED, USAGE = 0, 1, 2


def run(options: argparse.Namespace) -> int:
    where = configuration.place()
    try:
        configuration.prepare_home(where)
        config = configuration.load(where)
        return _dispatch(options, config, where)
    except UnknownSession as error:
        output.complain(_unknown(error, where))
        return USAGE
    except (ConfigError, ValueError) as error:
        output.complain(str(error))
        return USAGE
    except StoreError as error:
        output.complain(str(error))
        return FAILED


def _dispatch(options: argparse.Namespace, config: Config, where: Place) -> int:
    match options.verb:
        case "doctor":
            from steno.cli.doctor import doctor

            return doctor(config, where)
        case "restore":
            from steno.store.sqlite.restore import restore

            restore(Path(options.file), where.store)
            print(f"restored; what was there before is {where.store.name}.replaced")
            return DONE
        case None:
            from steno.cli.chat import chat

            return asyncio.run(chat(options, _wiring(options, config, where)))
        case _:
            return asyncio.run(_with_service(options, _wiring(options, config, where)))


def _wiring(options: argparse.Namespace, config: Config, where: Place) -> Wiring:
    approval: Literal["allow", "refuse", "ask"] = "refuse"
    if getattr(options, "yes", False):
        approval = "allow"
    elif getattr(options, "output", "text") == "text" and sys.stdin.isatty() and sys.stderr.isatty():
        approval = "ask"
    return Wiring(config, where, getattr(options, "model", None), approval)


async def _with_service(options: argparse.Namespace, wiring: Wiring) -> int:
    service = await wiring.service("cli")
    try:
        return await _act(options, wiring, service)
    finally:
        await wiring.close()
        await service.store.close()


async def _act(options: argparse.Namespace, wiring: Wiring, service: Service) -> int:
    match options.verb:
        case "run":
            return await _run(options, wiring, service)
        case "sessions":
            return output.sessions(await service.sessions(options.limit), options.json)
        case "verify":
            return output.report(await service.verify(), options.json)
        case "backup":
            await service.backup(Path(options.file))
            return DONE
    id = await service.resolve(options.id)
    match options.verb:
        case "show":
            return output.show(id, await service.view(id), options.json)
        case "continue" | "retry":
            wiring.agent(None)
            return await _resume(options, service, id)
        case "rename":
            await service.rename(id, options.title)
        case "interrupt":
            return await _interrupt(service, id)
        case "undo":
            await _undo(options, service, id)
        case "delete":
            return await _delete(options, service, id)
    return DONE


async def _run(options: argparse.Namespace, wiring: Wiring, service: Service) -> int:
    wiring.agent(None)  # a model that cannot be used is refused before anything is stored
    session = None if options.session is None else await service.resolve(options.session)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    admitted = await service.admit(prompt, session, options.key, options.input_id, wiring.model_spec())
    with Leaving(service, admitted.session, admitted.seq) as leaving:
        events = service.answer(admitted.session, admitted.seq, leaving.event)
        return await carry_out(admitted.session, events, service, leaving, options.output)


async def _resume(options: argparse.Namespace, service: Service, id: str) -> int:
    opening = await (service.due_continuation(id) if options.verb == "continue" else service.failed_prompt(id))
    with Leaving(service, id) as leaving:
        events = service.resume(id, opening, leaving.event)
        return await carry_out(id, events, service, leaving, options.output)


async def _interrupt(service: Service, id: str) -> int:
    turn = await service.interrupt(id)
    print("no turn is running" if turn is None else f"asked turn {turn} to stop")
    return DONE


async def _undo(options: argparse.Namespace, service: Service, id: str) -> None:
    if options.withdraw is not None:
        await service.redo(id, options.withdraw)
        print("the turn is back in the model's view")
        return
    seq = await service.undo(id)
    print(f"the last turn is out of the model's view; steno undo {id} --withdraw {seq} takes this back")


async def _delete(options: argparse.Namespace, service: Service, id: str) -> int:
    if not options.yes:
        if not sys.stdin.isatty():
            output.complain(f"deleting {id} removes it for good; say --yes")
            return USAGE
        answer = await asyncio.to_thread(input, f"delete session {id} for good? [y/N] ")
        if answer.strip().lower() != "y":
            return FAILED
    count = await service.delete(id, options.with_forks)
    print(f"deleted {count} session{'s' if count > 1 else ''}")
    return DONE


def _unknown(error: UnknownSession, where: Place) -> str:
    """An unknown id, with those that look like it."""
    from steno.store.sqlite.blocking import BlockingStore

    with BlockingStore(where.store) as store:
        ids = [listed.id for listed in store.list(limit=1_000)]
    near = difflib.get_close_matches(error.session, ids, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "steno sessions lists those there are"
    return f"{error}; {hint}"
