"""Draws docs/images/kill.svg: a real run that is killed with SIGKILL in mid-answer, and taken up.

    .venv/bin/python examples/kill_picture.py docs/images/kill.svg

Everything in the picture was printed by the program, at the pace at which it was printed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

ANSWER = (
    "A journal keeps what happened, in order. Each piece of it is stored before anyone sees it."
)
REST = "stored before anyone sees it. So a kill takes nothing back."
KILL_AFTER_CHARS = 60
COLUMNS, LINE_PX, CHAR_PX = 92, 21, 8.7
PAUSE_S, HOLD_S = 0.9, 5.0

Shown = list[tuple[float, str]]
"""Text with the second at which it came."""


class Recording:
    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.shown: Shown = []
        self._environment, self._folder = environment, folder
        self._now = 0.3

    def run(self, said: str, words: list[str], kill_after: int | None = None) -> str:
        """A command and what it prints; killed when it has printed enough."""
        self._add(f"$ {said}\n", PAUSE_S)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "steno", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd=self._folder,
        )
        printed, last = "", None
        while process.stdout is not None and (piece := os.read(process.stdout.fileno(), 4096)):
            now = time.monotonic()
            self._add(piece.decode(), 0.0 if last is None else min(now - last, 1.0))
            last, printed = now, printed + piece.decode()
            if kill_after is not None and len(printed) >= kill_after:
                process.kill()
        process.wait()
        if kill_after is not None:
            self._add(f"\n[kill -9: it was killed by signal {-process.returncode}]\n", 0.2)
        return printed

    def _add(self, text: str, after_s: float) -> None:
        self._now += after_s
        self.shown.append((self._now, text))


def recorded() -> Shown:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = [{"text": ANSWER, "pieces": 4, "delay_s": 0.1}, {"text": REST}]
        (folder / "demo.json").write_text(json.dumps(script))
        environment = os.environ | {"STENO_HOME": str(folder / "home"), "STENO_MODEL": ""}
        recording = Recording(environment, folder)
        model = ["--model", "scripted:demo.json"]
        recording.run(
            'steno run "What is a journal?"',
            ["run", "What is a journal?", *model],
            KILL_AFTER_CHARS,
        )
        listed = subprocess.run(
            [sys.executable, "-m", "steno", "sessions", "--json"],
            capture_output=True,
            check=True,
            env=environment,
            cwd=folder,
        )
        id = json.loads(listed.stdout)[0]["id"]
        recording.run(f"steno show {id}", ["show", id])
        recording.run(f"steno continue {id}", ["continue", id, *model])
        return recording.shown


def drawn(shown: Shown) -> str:
    """Each piece becomes visible at its second; after a while all begins anew."""
    whole_s = shown[-1][0] + HOLD_S
    texts, row, column = list[str](), 0, 0
    for at_s, text in shown:
        for number, line in enumerate(text.split("\n")):
            if number:
                row, column = row + 1, 0
            while line:
                piece, line = line[: COLUMNS - column], line[COLUMNS - column :]
                texts.append(_text(piece, row, column, at_s / whole_s, whole_s))
                column += len(piece)
                if line:
                    row, column = row + 1, 0
    width, height = COLUMNS * CHAR_PX + 32, (row + 1) * LINE_PX + 32
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14.5">\n'
        "<title>steno is killed in mid-answer; everything shown is kept, and it goes on</title>\n"
        '<rect width="100%" height="100%" rx="8" fill="#16181d"/>\n'
        + "\n".join(texts)
        + "\n</svg>\n"
    )


def _text(text: str, row: int, column: int, part: float, whole_s: float) -> str:
    colour = "#7fd1b9" if text.startswith("$ ") else "#e5786d" if "killed" in text else "#d8dade"
    x, y = 16 + column * CHAR_PX, 28 + row * LINE_PX
    shows = (
        f'<animate attributeName="opacity" values="0;1;1" keyTimes="0;{part:.4f};1" '
        f'calcMode="discrete" dur="{whole_s:.1f}s" repeatCount="indefinite"/>'
    )
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{colour}" xml:space="preserve" '
        f'textLength="{len(text) * CHAR_PX:.1f}">{escape(text)}{shows}</text>'
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(recorded()), encoding="utf-8")
