"""Distillates and memories on the command line, and the process that makes them in the background.

Nobody waits for that process: it is started when the chat begins and when it is left, if something is due, and gives
way to whoever wants a session.
"""

import argparse
import asyncio
import contextlib
import signal

from steno.cli import detaching
from steno.cli.leaving import Leaving
from steno.cli.output import when
from steno.cli.printers import to_json
from steno.cli.screen import note, show
from steno.config import ConfigError
from steno.runtimes.distilling import Distillation
from steno.service import Misused, Service
from steno.service.memory import Kept, item_named, name_of
from steno.store.errors import SessionBusy, StoreError
from steno.wiring import Wiring

DONE, FAILED = 0, 1
AT_ONCE_MAX = 10


async def distill(options: argparse.Namespace, service: Service, id: str) -> int:
    with Leaving(service, id, watching=True) as leaving:
        came = await service.memories.distil(id, leaving.event)
    if options.json:
        show(to_json(_distillation(id, came)))
    elif came.made is not None:
        for line in filter(None, (came.made.title, came.made.summary)):
            show(line)
        for item in came.made.items:
            show(f"  {item.kind}: {item.text} ({', '.join(f'#{seq}' for seq in item.seqs)})")
    else:
        note(f"[{came.outcome}: {came.detail}]")
    return FAILED if came.outcome == "failed" else DONE


def _distillation(id: str, came: Distillation) -> dict[str, object]:
    made = came.made
    return {
        "session": id,
        "outcome": came.outcome,
        "detail": came.detail,
        "seq": came.at,
        "after": None if made is None else made.after,
        "upto": None if made is None else made.upto,
        "title": "" if made is None else made.title,
        "summary": "" if made is None else made.summary,
        "items": []
        if made is None
        else [{"kind": item.kind, "text": item.text, "seqs": item.seqs} for item in made.items],
    }


async def memory(options: argparse.Namespace, service: Service) -> int:
    if options.act == "remove":
        return await _remove(options, service)
    if options.session is not None:
        return await _of_session(options, service)
    found = await service.memories.all(options.limit)
    if options.json:
        show(to_json([_item(one) for one in found]))
        return DONE
    if not found:
        show("nothing is remembered; steno distill ID writes down what is worth keeping of a session")
    _list(found)
    return DONE


async def _of_session(options: argparse.Namespace, service: Service) -> int:
    id = await service.views.resolve(options.session)
    found = await service.memories.of(id)
    context = (await service.views.view(id)).state.context
    told = () if context is None else tuple(zip(context.recalled, context.memories, strict=False))
    if options.json:
        told_json = [{"name": name_of(at), "session": at.session, "text": text} for at, text in told]
        show(to_json({"session": id, "items": [_item(one) for one in found], "told": told_json}))
        return DONE
    _list(found)
    for at, text in told:
        show(f"told: {text}  ({name_of(at)})")
    if not found and not told:
        show("nothing is remembered of this session, and it was told nothing of others")
    return DONE


def _list(found: list[Kept]) -> None:
    for one in found:
        kept = one.remembered
        seqs = ", ".join(f"#{seq}" for seq in kept.item.seqs)
        show(f"{name_of(kept.at)}  {when(kept.at_ms)}  {kept.item.kind:<8}  {kept.item.text}  ({seqs})")


def _item(one: Kept) -> dict[str, object]:
    kept = one.remembered
    return {
        "name": name_of(kept.at),
        "session": kept.at.session,
        "title": one.title,
        "seq": kept.at.seq,
        "kind": kept.item.kind,
        "text": kept.item.text,
        "seqs": kept.item.seqs,
        "model": kept.made.model,
        "at_ms": kept.at_ms,
    }


async def _remove(options: argparse.Namespace, service: Service) -> int:
    places = [item_named(name) for name in options.names]
    for at in places:
        gone = await service.memories.remove(at)
        show(f"{name_of(at)} is forgotten" if gone else f"{name_of(at)} was forgotten before")
    return DONE


# --- in the background ----------------------------------------------------------------------------------------------


async def start_what_is_due(wiring: Wiring, service: Service) -> None:
    """Have what is due made by a process of its own. If that cannot be, it stays due: nobody is held up or bothered."""
    with contextlib.suppress(StoreError, OSError):
        found = await service.memories.due(AT_ONCE_MAX) if wiring.distils("") else []
        if any(wiring.distils(listed.row.model) for listed in found):
            detaching.start_remembering()


async def remember(wiring: Wiring, service: Service) -> int:
    """Distil what is due, one session after the other."""
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leaving.set)
    for listed in await service.memories.due(AT_ONCE_MAX):
        if leaving.is_set() or not wiring.distils(listed.row.model):
            continue
        try:
            await service.memories.distil(listed.id, leaving, if_due=True)
        except SessionBusy:
            continue  # it is being used, or distilled by somebody else
        except (StoreError, ConfigError, Misused) as error:
            detaching.write_down(wiring.where, f"session {listed.id} was not distilled: {error}")
    return DONE
