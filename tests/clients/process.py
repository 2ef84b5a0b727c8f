"""A home of steno for the tests of its clients: real processes, a scripted model."""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.program import forking
from tests.program.world import NOBODY

LIMIT_S = 100.0


class Home:
    def __init__(self, folder: Path, model: str = "scripted:echo") -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STENO_", "OPENAI", "ANTH"))
        }
        self.environment = kept | {
            "STENO_HOME": str(folder / "home"),
            "STENO_MODEL": model,
            "STENO_MEMORY_DISTILL": "off",
            "SSL_CERT_FILE": str(NOBODY),
        }

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "steno", *words]

    def script(self, *replies: dict[str, Any]) -> None:
        """Have the model say these."""
        path = self.folder / "script.json"
        path.write_text(json.dumps(replies))
        self.environment["STENO_MODEL"] = f"scripted:{path}"

    def steno(self, *words: str) -> str:
        status, out, err = forking.run(words, self.environment, self.work, LIMIT_S)
        assert status == 0, err.decode()
        return out.decode()

    def begin(self, text: str) -> str:
        """A session with one turn; its id."""
        self.steno("run", text)
        [id] = self.sessions()
        return id

    def sessions(self) -> list[str]:
        return [one["id"] for one in self.listed()]

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.steno("sessions", "--all", "--json"))
        return found

    def show(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.steno("show", id, "--json"))
        return found

    def wait_for_answer(self, id: str, text: str) -> None:
        def answered() -> bool:
            said = self.show(id)["messages"]
            return any(one["role"] == "assistant" and one["text"] == text for one in said)

        wait_until(answered, f"the answer {text!r}")

    def damage(self, text: bytes) -> None:
        """Change one bit of what is stored, wherever it stands, once all of it is in the file."""
        file = self.folder / "home" / "store.db"
        log = file.with_name("store.db-wal")
        wait_until(lambda: not (log.exists() and log.stat().st_size), "the end of the log")
        data = bytearray(file.read_bytes())
        for found in re.finditer(re.escape(text), bytes(data)):
            data[found.start()] ^= 1
        file.write_bytes(data)

    def store_files(self) -> dict[str, bytes]:
        home = self.folder / "home"
        return {one.name: one.read_bytes() for one in home.glob("store.db")}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        time.sleep(0.05)
