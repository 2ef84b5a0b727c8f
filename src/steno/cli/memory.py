"""Distillates and memories on the command line, and the process that makes them in the background.

No command waits for that process: it is started when a front end begins and when it has let go, if
something is due, there is one at a time, and it gives way to any command that wants a session.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import time

from steno.agents import Agents
from steno.cli.output import when
from steno.cli.signals import Leaving
from steno.cli.stdio import note, show
from steno.config import ConfigError
from steno.frontend import worker
from steno.frontend.process import heeding
from steno.runtimes.distil import Distillation
from steno.service import Misused, Service
from steno.service.memory import KeptMemory, item_named, name_of
from steno.service.objects import to_json
from steno.store.errors import SessionBusy, StoreError
from steno.store.protocol import Listed

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
            show(
                f"  {item.kind}: {item.text} ({', '.join(f'#{seq}' for seq in item.seqs)})"
            )
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
        else [
            {"kind": item.kind, "text": item.text, "seqs": item.seqs}
            for item in made.items
        ],
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
        show(
            "nothing is remembered; steno distill ID writes down what is worth keeping of a session"
        )
    _list(found)
    return DONE


async def _of_session(options: argparse.Namespace, service: Service) -> int:
    id = await service.views.resolve(options.session)
    found = await service.memories.of(id)
    context = (await service.views.state(id)).context
    told = (
        ()
        if context is None
        else tuple(zip(context.recalled, context.memories, strict=False))
    )
    if options.json:
        told_json = [
            {"name": name_of(at), "session": at.session, "text": text}
            for at, text in told
        ]
        show(
            to_json(
                {
                    "session": id,
                    "items": [_item(one) for one in found],
                    "told": told_json,
                }
            )
        )
        return DONE
    _list(found)
    for at, text in told:
        show(f"told: {text}  ({name_of(at)})")
    if not found and not told:
        show(
            "nothing is remembered of this session, and it was told nothing of others"
        )
    return DONE


def _list(found: list[KeptMemory]) -> None:
    for one in found:
        kept = one.remembered
        seqs = ", ".join(f"#{seq}" for seq in kept.item.seqs)
        show(
            f"{name_of(kept.at)}  {when(kept.at_ms)}  {kept.item.kind:<8}  {kept.item.text}  "
            f"({seqs})"
        )


def _item(one: KeptMemory) -> dict[str, object]:
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
        show(
            f"{name_of(at)} is forgotten"
            if gone
            else f"{name_of(at)} was forgotten before"
        )
    return DONE


# --- in the background ----------------------------------------------------------------------------


async def remember(
    options: argparse.Namespace, wiring: Agents, service: Service
) -> int:
    """Distil what is due, one session after the other, each once it rests. A process that made
    another session due meanwhile found the lock taken, so look again after the lock is free."""
    leaving = asyncio.Event()
    stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with heeding(dict.fromkeys(stopping, leaving.set)):
        await _distil_all(options.lock, wiring, service, leaving)
    return DONE


async def _distil_all(
    lock: int | None, wiring: Agents, service: Service, leaving: asyncio.Event
) -> None:
    tried: set[tuple[str, int]] = set()

    async def left() -> list[Listed]:
        enough = leaving.is_set() or len(tried) >= AT_ONCE_MAX
        return (
            []
            if enough
            else [
                one
                for one in await service.memories.due(wiring.distils)
                if _place(one) not in tried
            ]
        )

    while lock is not None or (
        await left() and (lock := worker.take_lock(wiring.where)) is not None
    ):
        while due := await left():
            first = min(due, key=lambda one: one.row.updated_ms)
            if (pause_s := _rests_in_s(first, wiring.config.memory.rest_s)) > 0:
                await _pause(leaving, pause_s)
            else:
                tried.add(_place(first))
                await _distil_due(wiring, service, first.id, leaving)
        os.close(lock)
        lock = None


def _place(one: Listed) -> tuple[str, int]:
    """What is tried once by one process: a session, until more was said in it."""
    return one.id, one.row.turns


def _rests_in_s(one: Listed, rest_s: float) -> float:
    """How long until it has rested long enough; 0 if the clock was set back."""
    since_s = time.time() - one.row.updated_ms / 1000
    return rest_s - since_s if since_s >= 0 else 0.0


async def _pause(leaving: asyncio.Event, pause_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(leaving.wait(), pause_s)


async def _distil_due(
    wiring: Agents, service: Service, id: str, leaving: asyncio.Event
) -> None:
    try:
        await service.memories.distil(id, leaving, if_due=True)
    except SessionBusy:
        pass  # it is being used, or distilled by another process
    except (StoreError, ConfigError, Misused) as error:
        worker.log(wiring.where, f"session {id} was not distilled: {error}")
