"""The running program with the real codex behind it, on a model server that none of us wrote."""

import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from steno.runtimes.codex import binary
from tests.models.aimock import Aimock
from tests.program.world import World, wait_until

LONG = " ".join(f"word{n}" for n in range(60))
SLOW_MS = 40


def _calls(*calls: tuple[str, str, str], said: str = "I look.") -> dict[str, Any]:
    return {
        "content": said,
        "toolCalls": [{"name": name, "arguments": text, "id": id} for name, text, id in calls],
    }


def _run(command: str, id: str) -> tuple[str, str, str]:
    return "exec_command", json.dumps({"cmd": command}), id


ECHO = "echo ran >> ran; echo hi"
PATCH = (
    "apply_patch <<'END'\n*** Begin Patch\n*** Add File: new.txt\n+made by a patch\n*** End "
    "Patch\nEND\n"
)

FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "touch made", "hasToolResult": False},
        "response": _calls(_run("touch made", "c14")),
    },
    {
        "match": {"userMessage": "has approved this call", "hasToolResult": False},
        "response": _calls(_run(ECHO, "c9")),
    },
    {"match": {"userMessage": "Note from the runtime"}, "response": {"content": "Taken up."}},
    {
        "match": {"userMessage": "500"},
        "response": {"error": {"message": "Oops", "type": "api_error"}, "status": 500},
    },
    {
        "match": {"userMessage": "429"},
        "response": {"error": {"message": "Slow down", "type": "x"}, "status": 429},
    },
    {
        "match": {"userMessage": "401"},
        "response": {"error": {"message": "Who?", "type": "x"}, "status": 401},
    },
    {
        "match": {"userMessage": "broken stream"},
        "response": {"content": LONG},
        "latency": 10,
        "chunkSize": 6,
        "truncateAfterChunks": 8,
    },
    {
        "match": {"userMessage": "slow"},
        "response": {"content": LONG},
        "latency": SLOW_MS,
        "chunkSize": 6,
    },
    {
        "match": {"userMessage": "think"},
        "response": {"content": "Done.", "reasoning": "Let me think."},
    },
    {
        "match": {"userMessage": "echo", "hasToolResult": False},
        "response": _calls(_run(ECHO, "c1")),
    },
    # Codex tells of output from when it listens: a command that waits first has all of its output
    # told.
    {
        "match": {"userMessage": "say", "hasToolResult": False},
        "response": _calls(_run("sleep 0.5; echo hi", "c16")),
    },
    {
        "match": {"userMessage": "moan", "hasToolResult": False},
        "response": _calls(_run("sleep 0.5; cat none", "c17")),
    },
    {
        "match": {"userMessage": "tally", "hasToolResult": False},
        "response": _calls(("odd__count", "{}", "c12")),
    },
    {
        "match": {"userMessage": "touch", "hasToolResult": False},
        "response": _calls(_run("touch made", "c13")),
    },
    {
        "match": {"userMessage": "look", "hasToolResult": False},
        "response": _calls(_run("ls", "c11")),
    },
    {
        "match": {"userMessage": "patch", "hasToolResult": False},
        "response": _calls(_run(PATCH, "c2")),
    },
    {
        "match": {"userMessage": "both", "hasToolResult": False},
        "response": _calls(_run("sleep 0.3; echo one", "c3"), _run("sleep 0.3; echo two", "c4")),
    },
    {
        "match": {"userMessage": "count", "hasToolResult": False},
        "response": _calls(_run("for i in $(seq 100); do echo line$i; sleep 0.1; done", "c5")),
    },
    {
        "match": {"userMessage": "hold", "hasToolResult": False},
        "response": _calls(_run("echo held; while [ ! -e go ]; do sleep 0.05; done", "c15")),
    },
    {
        "match": {"userMessage": "flood", "hasToolResult": False},
        "response": _calls(_run("head -c 10000000 /dev/zero | tr '\\0' x | fold -w 99", "c6")),
    },
    {
        "match": {"userMessage": "find", "hasToolResult": False},
        "response": _calls(("search_sessions", '{"query":"hello"}', "c7")),
    },
    {
        "match": {"userMessage": "seek", "hasToolResult": False},
        "response": _calls(("search_sessions", '{"query":"echo"}', "c10")),
    },
    {
        "match": {"userMessage": "fail", "hasToolResult": False},
        "response": _calls(_run("echo no; exit 3", "c8")),
    },
    {"match": {"hasToolResult": True}, "response": {"content": "It ran."}},
    {
        "match": {"userMessage": "hello"},
        "response": {"content": "Hello there.", "usage": {"input_tokens": 7, "output_tokens": 3}},
    },
    {"match": {"userMessage": "and"}, "response": {"content": "And so on."}},
]

CONFIG = """\
model = "fake-model"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 0
[features]
plugins = false
remote_plugin = false
apps = false
[analytics]
enabled = false
"""


def real_codex() -> str:
    """Where the real program is. Without it these tests fail: whoever runs them must know that it
    is missing."""
    found = binary.find("")
    if found is None:
        raise RuntimeError(
            "codex is not installed: make test sets it up, or pip install 'openai-codex==0.163.0'"
        )
    return str(found)


def begin(home: Path) -> None:
    """Have codex start once in a home of its own, and end when its input does."""
    hello = {"clientInfo": {"name": "test", "title": "test", "version": "1"}}
    lines = [{"id": 1, "method": "initialize", "params": hello}, {"method": "initialized"}]
    subprocess.run(
        [real_codex(), "app-server"],
        env={"CODEX_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"]},
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        check=True,
        capture_output=True,
        timeout=60,
    )


class CodexWorld(World):
    """A home of steno and one of codex. Commands need no sandbox here: they write to a folder of
    the test."""

    def __init__(self, folder: Path, server: Aimock) -> None:
        super().__init__(folder, f"{server.url}/v1")
        self.server = server
        self.codex_home = folder / "codex"
        self.codex_home.mkdir(parents=True, exist_ok=True)
        (self.codex_home / "config.toml").write_text(CONFIG.format(url=server.url))
        del self.environment["STENO_MODEL"]
        self.environment |= {
            "STENO_RUNTIME": "codex",
            "STENO_CODEX_HOME": str(self.codex_home),
            "STENO_CODEX_SANDBOX": "danger-full-access",
            "FAKE_KEY": "key",
            "HOME": str(folder),  # codex's shells read the profile of whoever runs the tests
        }

    def run(self, prompt: str, *words: str, expect: int | None = 0) -> str:
        """One turn in the session k; what was shown of it."""
        return self.steno("run", prompt, "--key", "k", *words, expect=expect)

    def said(self) -> list[tuple[str, str, str]]:
        """Role, text and state of every message of the only session."""
        return [
            (one["role"], one["text"], one["state"]) for one in self.messages(self.only_session())
        ]

    def threads(self) -> list[str]:
        """Every thread that the only session was bound to, in order."""
        return [str(fact["thread"]) for fact in self.facts() if fact["type"] == "thread.bound"]

    def facts(self) -> list[dict[str, Any]]:
        """What is stored, as a reader in another language would see it."""
        with sqlite3.connect(f"file:{self.home / 'store.db'}?mode=ro", uri=True) as store:
            return [
                json.loads(body) for (body,) in store.execute("select body from facts order by id")
            ]

    def codex_processes(self) -> list[int]:
        """App-servers and whatever they started that work for this home."""
        wanted = f"CODEX_HOME={self.codex_home}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environ = (process / "environ").read_bytes()
                program = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if wanted in environ.split(b"\0") and b"steno" not in program.split(b"\0"):
                found.append(int(process.name))
        return found

    def app_server(self) -> int | None:
        for pid in self.codex_processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"app-server" in words and words[0].endswith(b"codex"):
                return pid
        return None

    def kill_codex(self) -> None:
        pid = self.app_server()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def wait_codex_gone(self) -> None:
        wait_until(
            lambda: self.codex_processes() == [],
            f"no process of codex; there are {self.codex_processes()}",
        )

    def requests(self, containing: str) -> list[list[dict[str, Any]]]:
        """The messages of each request whose last user message has this text. Aimock keeps none
        that is very long."""
        bodies = [entry["body"] for entry in self.server.requests()]
        asked = [body["messages"] for body in bodies if "messages" in body]
        return [messages for messages in asked if containing in last_user(messages)]


def last_user(messages: list[dict[str, Any]]) -> str:
    users = [str(message["content"]) for message in messages if message["role"] == "user"]
    return users[-1] if users else ""
