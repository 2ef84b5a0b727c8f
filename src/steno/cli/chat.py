"""The plain chat: a line in, an answer out."""

import argparse
import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Iterator
from functools import partial

from steno.agents import Agents
from steno.cli.signals import Asked, Leaving, taking_in
from steno.cli.stdio import (
    Lines,
    complain,
    cut_by_terminal,
    note,
    person_present,
    show,
)
from steno.cli.turns import Front, carry_out, what_stays
from steno.frontend.process import LEFT, REASONS, TWICE_S, heeding, leave_by_deadline
from steno.frontend.wording import EPHEMERAL, IDLE, advice, command
from steno.frontend.worker import start_if_due
from steno.journal.facts import ContextSet, Mode
from steno.service import Loaded, Service, Shown
from steno.store.errors import StoreError, UnknownSession

HELP = "type a message; Ctrl-C stops an answer, Ctrl-D leaves; /help, /show, /quit"
LOCAL = (
    "No key is set, so a tiny demo model (SmolLM2, 135 million parameters) answers on this "
    "machine:\n"
    "quick, private and often wrong. For a real model set ANTHROPIC_API_KEY or OPENAI_API_KEY, or "
    "edit {config}."
)
COMMAND = re.compile(r"/\w*(\s|$)")
"""A first word with one slash before it is meant as a command. A path has a second slash."""


async def chat(options: argparse.Namespace, wiring: Agents, service: Service) -> int:
    wiring.check()  # a model that cannot be used is refused before anything is stored
    session = await session_of(options, service)
    if session is None:
        _greet(wiring, None, None)
    else:
        if not await _in_its_folder(options, service, session):
            return 0
        loaded, shown = await service.views.shown(session)
        _greet(wiring, session, loaded.context)
        _look_back(loaded, shown)
    front = Front(service, wiring, "text", asks=wiring.asks() and person_present())
    if options.prompt:
        session, leave = await _say(front, session, options.prompt, options.mode)
        if leave:
            return 0
    while (line := await _line(front, session)) is not None:
        match line.rstrip():
            case "":
                continue
            case "/quit":
                break
            case "/help":
                show(HELP)
            case "/show":
                if session is not None:
                    _look_back(*await service.views.shown(session), most=10_000)
            case _ if COMMAND.match(line):
                note(
                    f"[there is no command {line.split()[0]}; nothing was said. To say it, begin "
                    f"with a space. {HELP}]"
                )
            case _ if cut_by_terminal(line):
                note(
                    "[the terminal cuts lines after 4,095 bytes; nothing was said. Use steno run "
                    "- < FILE]"
                )
            case _:
                session, leave = await _say(front, session, line, options.mode)
                options.mode = None
                if leave:
                    break
    if session is not None and not service.ephemeral:
        show(f"\nkept: {command()} --resume {session}")
    return 0 if front.left_by in (None, signal.SIGINT) else LEFT


async def _line(front: Front, session: str | None) -> str | None:
    """What is typed; None to leave. Ctrl-C forgets the line; a second one soon after leaves. Where
    no person is any more, the visit ends, so that plugins hear of it; what is said next begins
    another."""
    with _signals() as signals:
        while True:
            try:
                number, line = await _typed(front, signals, _idle_s(front, session))
            except TimeoutError:
                await _end_idle(front, session)
                continue
            if number is None:
                return line
            now_s = time.monotonic()
            if number != signal.SIGINT or now_s - front.interrupted_s < TWICE_S:
                front.service.visits.reason = REASONS[number]
                front.left_by = number
                leave_by_deadline()
                return None
            front.interrupted_s = now_s
            note("\n[Ctrl-C again, or Ctrl-D, leaves]")


def _idle_s(front: Front, session: str | None) -> float | None:
    """How long to wait for a person. A program at the other end of a pipe leaves when it is
    done."""
    visits = session is not None and front.service.visits.attending(session)
    return (
        front.wiring.config.limits.chat_idle_s or None
        if visits and person_present()
        else None
    )


async def _end_idle(front: Front, session: str | None) -> None:
    for problem in await front.service.visits.leave("idle", session):
        complain(problem)
    note(f"\n[{IDLE}]")
    await start_if_due(front.wiring, front.service)


@contextlib.contextmanager
def _signals() -> Iterator["asyncio.Queue[signal.Signals]"]:
    """Those that come at the prompt, also between two lines."""
    came: asyncio.Queue[signal.Signals] = asyncio.Queue()
    with heeding({number: partial(came.put_nowait, number) for number in REASONS}):
        yield came


async def _typed(
    front: Front, signals: "asyncio.Queue[signal.Signals]", idle_s: float | None
) -> tuple[signal.Signals | None, str | None]:
    """What is typed at the prompt, or the signal that came first. `TimeoutError` if nothing comes
    for so long."""
    typing = asyncio.ensure_future(front.lines.next())
    signalled = asyncio.ensure_future(signals.get())
    try:
        show("you> ", end="")
        came, _ = await asyncio.wait(
            [typing, signalled], timeout=idle_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not came:
            raise TimeoutError
        if signalled.done() or not signals.empty():
            front.lines.drop()
            return await signalled, None
    finally:
        typing.cancel()
        signalled.cancel()
    if front.lines.gone:
        front.service.visits.reason = REASONS[signal.SIGHUP]
        front.left_by = signal.SIGHUP
    return None, typing.result()


async def session_of(options: argparse.Namespace, service: Service) -> str | None:
    if options.resume is not None:
        return await service.views.resolve(options.resume)
    if not options.latest:
        return None
    found = await service.views.latest("" if options.all else service.folder)
    if found is None and not options.all and await service.views.latest() is not None:
        note(
            f"[no session belongs to {service.folder}; --continue --all looks in every folder]"
        )
    return found


async def _in_its_folder(
    options: argparse.Namespace, service: Service, session: str
) -> bool:
    """Say that a session belongs to another folder, and ask where to go on; False to leave."""
    folder = await service.views.folder(session)
    if not folder or folder == service.folder:
        return True
    here = options.here
    if not here and person_present():
        note(
            f"the session belongs to {folder}. Work [t]here, move it [h]ere, or [l]eave? ",
            end="",
        )
        answer = (await Lines().next() or "l").strip().lower()[:1]
        if answer not in ("t", "h"):
            return False
        here = answer == "h"
    if here:
        await service.edits.move(session, service.folder)
    note(f"[its tools work in {service.folder if here else folder}]")
    return True


async def _say(
    front: Front, session: str | None, text: str, mode: Mode | None = None
) -> tuple[str | None, bool]:
    """Say a line and show the answer; the session, and whether a signal asks us to leave."""
    asked = Asked()
    try:
        with taking_in(front.service) as asked:
            admitted = await front.service.admit(
                text, session, None, None, front.wiring.model_spec()
            )
    except StoreError as error:
        gone = isinstance(error, UnknownSession)
        complain(
            f"{error}; nothing was said; "
            f"{'the next line begins a new session' if gone else advice(error)}"
        )
        front.left_by = asked.signal
        return None if gone else session, asked.signal is not None
    if mode is not None:
        await front.service.edits.set_mode(admitted.session, mode)
    if asked.signal is not None:
        front.left_by = asked.signal
        note(f"[left; {await what_stays(front.service, admitted.session)}]")
        return admitted.session, True
    with Leaving(front.service, admitted.session, admitted.seq) as leaving:
        leaving.stopping = "left"
        events = front.service.turns.answer(admitted, leaving.event)
        await carry_out(front, admitted.session, events, leaving)
        front.interrupted_s, front.left_by = leaving.interrupted_s, leaving.signal
        return admitted.session, leaving.event.is_set()


def _greet(wiring: Agents, session: str | None, before: ContextSet | None) -> None:
    """`before` is what the session had so far: a session keeps its model."""
    spec = wiring.model_spec(before)
    show(f"steno · {spec}" + (f" · session {session}" if session else ""))
    if spec.startswith("local:"):
        show(LOCAL.format(config=wiring.where.config))
    if wiring.ephemeral:
        show(EPHEMERAL)
    show(HELP)


def _look_back(loaded: Loaded, shown: Shown, most: int = 6) -> None:
    undone, state = shown.turns.undone(), loaded.state
    for message in shown.transcript.messages[-most:]:
        mark = "" if message.state == "complete" else f" ({message.state})"
        mark += " (undone)" if message.turn in undone else ""
        show(f"{message.role}{mark}> {message.text}")
    if state.pending:
        show(f"[{len(state.pending)} input(s) not answered yet; they go first]")
    if state.cut_off is not None and state.cut_off.waits():
        show(
            f"[the last turn was cut off; steno continue {loaded.id} takes it up, or just go on]"
        )
