"""Typing while an answer is streamed at 200 pieces a second: from a key on the terminal to its
letter on the screen."""

import json
import time
from pathlib import Path

from bench.result import Plan, Result, at_most
from bench.timing import percentile
from bench.tui_terminal import Terminal, terminal

NAME = "chat: type"
PER_SECOND = 200
LETTERS = "äöüßéèêñçøåæœŷŵĉĝĥĵŝŭğışžčřďťňľ"
"""Letters that the answer does not have."""
PARAGRAPH = (
    "A journal keeps *what happened*, in order, and `seq` is its place. Each piece is **stored** "
    "before anyone sees "
    "it, so a kill takes nothing back and nobody waits.\n\n- one\n- two\n\n```python\nx = "
    "store.add(fact)\n```\n\n"
)


def run(plan: Plan) -> list[Result]:
    home = Path(plan.folder)
    seconds = plan.pick(20, 8)
    text = PARAGRAPH * (PER_SECOND * 4 * (seconds + 10) // len(PARAGRAPH) + 1)
    script = home / "long.json"
    script.write_text(json.dumps([{"text": text, "pieces": 4, "delay_s": 1 / PER_SECOND}]))
    with terminal(home, "--model", f"scripted:{script}") as opened:
        opened.wait("ready")
        opened.drain(0.5)
        resting_ms = _echoed_ms(opened, plan.pick(60, 20))
        opened.type("\r")
        opened.wait("answering")
        opened.drain(2.0)
        busy_ms = _echoed_ms(opened, int(seconds / 0.1))
    detail = (
        f"at rest p50 {percentile(resting_ms, 0.5):.0f}, p95 {percentile(resting_ms, 0.95):.0f} "
        "ms; 80x24"
    )
    return [
        at_most(
            NAME,
            f"a key, while {PER_SECOND} pieces/s come, p50",
            percentile(busy_ms, 0.5),
            50,
            "ms",
            detail,
        ),
        at_most(
            NAME,
            "the same, p95",
            percentile(busy_ms, 0.95),
            100,
            "ms",
            f"max {max(busy_ms):.0f} ms",
        ),
    ]


def _echoed_ms(opened: Terminal, count: int) -> list[float]:
    took_ms = []
    for i in range(count):
        letter = LETTERS[i % len(LETTERS)]
        before_s = time.perf_counter()
        opened.type(letter)
        took_ms.append((opened.wait(letter) - before_s) * 1000)
        opened.drain(0.08)
    return took_ms
