"""Child processes of the crash tests: started, listened to for a while, and killed."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A Python module of this folder in a process of its own. What it says is collected."""

    def __init__(self, module: str, *args: str, under: tuple[str, ...] = ()) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by finish
        self._process = subprocess.Popen(
            [*under, sys.executable, "-m", f"tests.crash.{module}", *args],
            cwd=ROOT,
            stdin=subprocess.DEVNULL if under else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        self._said = b""

    def hear(self, lines: int) -> None:
        """Wait until it has said so many more lines, or has ended."""
        assert self._process.stdout is not None
        for _ in range(lines):
            line = self._process.stdout.readline()
            self._said += line
            if not line:
                break

    def assert_runs(self) -> None:
        """Else killing it shows nothing."""
        if self._process.poll() is not None:
            raise AssertionError(self.finish()[1])

    def was_killed(self) -> bool:
        """Wait for its end, and say of what kind it was."""
        return self._process.wait() == -signal.SIGKILL

    def kill(self) -> bytes:
        """End it at once; everything that it said."""
        self._process.kill()
        return self.finish()[0]

    def finish(self) -> tuple[bytes, str]:
        """Let it run to its end; everything that it said, and its complaints."""
        process = self._process
        assert process.stdout is not None
        self._said += process.stdout.read()
        process.stdout.close()
        if process.stdin is not None:
            process.stdin.close()
        process.wait()
        with self._complaints as file:
            file.seek(0)
            return self._said, file.read().decode(errors="replace")
