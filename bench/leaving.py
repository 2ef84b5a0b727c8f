"""How long it takes to leave the chat, whatever hangs: from the signal or the key until nothing of
it runs any more.

The real program on a terminal of its own. What counts is the end of the last process that belongs
to it: the program, a tool with its children, a plugin. A bare Python that is ended by SIGTERM, in
the same rounds, says how busy the machine is.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.result import Plan, Result, at_most, noted, unless_busy
from bench.timing import bounded, is_steady
from bench.tui_terminal import LIMIT_S, Terminal, terminal

NAME = "chat: leave"
TARGET_MS = 1_000
CTRL_C, CTRL_D = "\x03", "\x04"
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
WAYS = (*SIGNALS, "Ctrl-C twice", "closed terminal")
RESTING = (*WAYS, "Ctrl-D")
FRONTS = {"full screen": (), "plain": ("--plain",)}
DEAF = "trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep 3600) & touch under-way; sleep 3600"
HANGING_PLUGIN = """
import time
from steno.plugins import hookimpl

@hookimpl
def on_session_end():
    time.sleep(3600)
"""
BARE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print("up", flush=True)
time.sleep(3600)
"""


class Case(Struct, frozen=True):
    front: str
    what: str
    way: str


SITUATIONS = {
    "at rest": RESTING,
    "a model that is silent": WAYS,
    "a deaf tool with children": WAYS,
    "a plugin that hangs": RESTING,
}


def run(plan: Plan) -> list[Result]:
    fronts = list(FRONTS)[: plan.pick(2, 1)]
    cases = [
        Case(front, what, way)
        for front in fronts
        for what, ways in SITUATIONS.items()
        for way in ways
    ]
    took_ms: dict[Case, list[float]] = {case: [] for case in cases}
    bare_ms: list[float] = []
    for number in bounded(plan.pick(3, 1), 1_800.0):
        for case in cases:
            home = Path(plan.folder) / f"{cases.index(case)}-{number}"
            took_ms[case].append(_left_ms(home, case))
            bare_ms.append(_bare_ms())
    steady = is_steady(bare_ms)
    results = [_result(front, what, took_ms, steady) for front in fronts for what in SITUATIONS]
    rest_ms = median(took_ms[Case(fronts[0], "at rest", "SIGTERM")])
    detail = f"{rest_ms:.0f} / {median(bare_ms):.1f} ms"
    return [
        *results,
        noted(
            NAME, "SIGTERM at rest, against a bare Python", rest_ms / median(bare_ms), detail=detail
        ),
    ]


def _result(front: str, what: str, took_ms: dict[Case, list[float]], steady: bool) -> Result:
    """The longest of all ways; the middle of each is in the detail."""
    ours = {
        case.way: took for case, took in took_ms.items() if (case.front, case.what) == (front, what)
    }
    every = [one_ms for took in ours.values() for one_ms in took]
    ways = ", ".join(f"{way} {median(took):.0f}" for way, took in ours.items())
    detail = f"p50 {median(every):.0f} ms of {len(every)}: {ways}"
    return unless_busy(
        at_most(NAME, f"{front}, {what}, longest", max(every), TARGET_MS, "ms", detail), steady
    )


def _left_ms(home: Path, case: Case) -> float:
    home.mkdir()
    if case.what == "a plugin that hangs":
        (home / "plugins").mkdir()
        (home / "plugins" / "slow.py").write_text(HANGING_PLUGIN)
    call = {"name": "shell", "arguments": {"command": DEAF}}
    first = (
        {"tool_calls": [call]}
        if case.what == "a deaf tool with children"
        else {"text": "fine, thanks"}
    )
    (home / "script.json").write_text(json.dumps([first]))
    with _silent_server() as (address, server), ExitStack() as meanwhile:
        silent = case.what == "a model that is silent"
        model = "openai-chat:silent" if silent else f"scripted:{home / 'script.json'}"
        env = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
        with terminal(home, *FRONTS[case.front], "--yes", "--model", model, env=env) as chat:
            _bring_to(chat, case, home, server, meanwhile)
            began_s = _leave(chat, case.way)
            try:
                return (_all_gone_s(home, chat.ended_s()) - began_s) * 1000
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {case.front}, {case.what}, {case.way}") from error


@contextmanager
def _silent_server() -> Iterator[tuple[str, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", server


def _bring_to(
    chat: Terminal, case: Case, home: Path, server: socket.socket, meanwhile: ExitStack
) -> None:
    rest = "ready" if case.front == "full screen" else "you> "
    chat.wait(rest)
    chat.type("go\r")
    match case.what:
        case "a model that is silent":
            asked, _ = server.accept()
            meanwhile.enter_context(asked).settimeout(LIMIT_S)
            asked.recv(1)
            chat.drain(0.2)
        case "a deaf tool with children":
            for _ in bounded(3_000, LIMIT_S):
                if (home / "under-way").exists():
                    break
                chat.drain(0.01)
        case _:
            chat.wait("fine, thanks")
            chat.wait(rest)


def _leave(chat: Terminal, way: str) -> float:
    began_s = time.perf_counter()
    match way:
        case "Ctrl-C twice":
            chat.type(CTRL_C)
            chat.drain(0.1)
            began_s = time.perf_counter()
            chat.type(CTRL_C)
        case "Ctrl-D":
            chat.type(CTRL_D)
        case "closed terminal":
            chat.hang_up()
        case _:
            chat.process.send_signal(SIGNALS[way])
    return began_s


def _all_gone_s(home: Path, ended_s: float) -> float:
    """When the last process has ended that was started from this home; where that cannot be seen,
    the program."""
    end_s = time.perf_counter() + LIMIT_S
    while _left_behind(home):
        if time.perf_counter() > end_s:
            raise TimeoutError("a process was left behind")
        time.sleep(0.001)
        ended_s = time.perf_counter()
    return ended_s


def _left_behind(home: Path) -> bool:
    """A process that has ended, and that nobody has waited for yet, has no environment any more."""
    mark = f"STENO_HOME={home}\0".encode()
    return any(mark in _environment(entry) for entry in Path("/proc").glob("[0-9]*"))


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _bare_ms() -> float:
    with subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        began_s = time.perf_counter()
        os.kill(bare.pid, signal.SIGTERM)
        bare.wait()
        return (time.perf_counter() - began_s) * 1000
