"""The plain chat: a line in, an answer out."""

import argparse
import asyncio
import os
import stat
import sys

from steno.cli.leaving import Leaving
from steno.cli.turns import carry_out, writable
from steno.service import Service
from steno.wiring import Wiring

HELP = "type a message; Ctrl-C stops an answer, Ctrl-D leaves; /help, /show, /quit"
LOCAL = (
    "No key is set, so a tiny demo model (SmolLM2, 135 million parameters) answers on this machine:\n"
    "quick, private and often wrong. For a real model set ANTHROPIC_API_KEY or OPENAI_API_KEY, or edit {config}."
)


async def chat(options: argparse.Namespace, wiring: Wiring) -> int:
    service = await wiring.service("chat")
    try:
        return await _chat(options, wiring, service)
    finally:
        await wiring.close()
        await service.store.close()


async def _chat(options: argparse.Namespace, wiring: Wiring, service: Service) -> int:
    session = await _session(options, service)
    _greet(wiring, session)
    if session is not None:
        await _look_back(service, session)
    while (line := await read_line("you> ")) is not None:
        text = line.rstrip("\n")
        match text.strip():
            case "":
                continue
            case "/quit":
                break
            case "/help":
                print(HELP)
            case "/show":
                await _look_back(service, session, most=10_000)
            case _:
                session, status = await _turn(wiring, service, session, text)
                if status is None:
                    break
    if session is not None:
        print(f"\nkept: steno --resume {session}")
    return 0


async def _session(options: argparse.Namespace, service: Service) -> str | None:
    if options.resume is not None:
        return await service.resolve(options.resume)
    if options.latest:
        found = await service.sessions(1)
        return found[0].id if found else None
    return None


async def _turn(wiring: Wiring, service: Service, session: str | None, text: str) -> tuple[str, int | None]:
    """Say a line and show the answer. The status is None if a signal asks us to leave."""
    admitted = await service.admit(text, session, None, None, wiring.model_spec())
    with Leaving(service, admitted.session, admitted.seq) as leaving:
        events = service.answer(admitted.session, admitted.seq, leaving.event)
        status = await carry_out(admitted.session, events, service, leaving, "text")
        return admitted.session, None if leaving.event.is_set() else status


def _greet(wiring: Wiring, session: str | None) -> None:
    spec = wiring.model_spec()
    print(f"steno · {spec}" + (f" · session {session}" if session else ""))
    if spec.startswith("local:"):
        print(LOCAL.format(config=wiring.config_file()))
    print(HELP)


async def _look_back(service: Service, session: str | None, most: int = 6) -> None:
    if session is None:
        return
    view = await service.view(session)
    for message in view.transcript.messages[-most:]:
        mark = "" if message.state == "complete" else f" ({message.state})"
        print(f"{message.role}{mark}> {writable(message.text)}")
    if view.state.pending:
        print(f"[{len(view.state.pending)} input(s) not answered yet; they go first]")
    if view.state.cut_off is not None and view.state.cut_off.acknowledged_by is None:
        print(f"[the last turn was cut off; steno continue {session} takes it up, or just go on]")


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def read_line(prompt: str) -> str | None:
    """A line of standard input, without keeping the loop from its work; None at its end."""
    print(prompt, end="", flush=True)
    handle = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return sys.stdin.readline() or None
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(handle)
    return sys.stdin.readline() or None
