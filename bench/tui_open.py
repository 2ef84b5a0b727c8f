"""The full-screen chat opens a session of 10,000 messages: until its last screen is painted, and
scrolling back."""

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.building import MESSAGES_PER_TURN, build
from bench.result import Plan, Result, at_most, noted
from bench.timing import median_ratio, medians, percentile
from bench.tui_terminal import terminal
from steno.compose import Setup
from steno.config import Config, Place
from steno.journal.facts import StepSealed
from steno.journal.parts import text_of
from steno.model_choice import Beginning, Terms
from steno.store.sqlite.store import BlockingStore
from steno.tui.app import Chat
from steno.tui.scroll import Scroll

NAME = "chat: open"
MANY, FEW = 10_000, 100
SIZE = (80, 24)
SCREENS = 60


def run(plan: Plan) -> list[Result]:
    home = Path(plan.folder)
    many, few = (
        build(home / "store.db", 1, count // MESSAGES_PER_TURN)[0] for count in (MANY, FEW)
    )
    words = {session: _last_word(home, session) for session in (few, many)}
    results = asyncio.run(_in_the_chat(plan, home, many, few))
    resumed_ms = _resumed_ms(home, words, plan.pick(15, 5))
    what = f"{MANY:,} messages: from the key to the last screen, p95"
    detail = f"/resume on a terminal of its own; p50 {median(resumed_ms):.0f} ms"
    results.append(at_most(NAME, what, percentile(resumed_ms, 0.95), 300, "ms", detail))
    _begun_ms(home)  # what is compiled once is compiled here
    begun = [_begun_ms(home) for _ in range(plan.pick(9, 3))]
    frames_ms, ready_ms = [frame for frame, _ in begun], [ready for _, ready in begun]
    results += [
        at_most(
            NAME,
            "a new session: from the start of the process to the first frame",
            median(frames_ms),
            400,
            "ms",
            f"max {max(frames_ms):.0f} ms; {len(begun)} rounds",
        ),
        noted(
            NAME,
            "the same, until the chat is there and takes keys",
            median(ready_ms),
            "ms",
            f"max {max(ready_ms):.0f} ms",
        ),
    ]
    took_ms = [_started_ms(home, many, words[many]) for _ in range(plan.pick(5, 2))]
    what = f"{MANY:,} messages: from the start of the process to the last screen"
    return [
        *results,
        noted(
            NAME, what, median(took_ms), "ms", f"on a terminal of its own; {len(took_ms)} rounds"
        ),
    ]


async def _in_the_chat(plan: Plan, home: Path, many: str, few: str) -> list[Result]:
    terms = Terms(approval="ask")
    async with Setup(Config(), Place(home, home)).open() as program:
        chat = Chat(
            program.service("chat", terms),
            program.agents(terms),
            Beginning("scripted:echo"),
            "dark",
        )
        async with chat.run_test(size=SIZE):
            await _opened_ms(chat, few)
            pairs = [
                (await _opened_ms(chat, many), await _opened_ms(chat, few))
                for _ in range(plan.pick(15, 5))
            ]
            ours_ms, base_ms = medians(pairs)
            await _opened_ms(chat, many)
            screens_ms = [await _screen_up_ms(chat) for _ in range(SCREENS)]
            held = chat.query_one(Scroll).laid_out
    worst = percentile([pair[0] for pair in pairs], 0.95)
    return [
        at_most(
            NAME,
            f"{MANY:,} messages: the last screen, p95",
            worst,
            300,
            "ms",
            f"p50 {ours_ms:.0f} ms; painted",
        ),
        at_most(
            NAME,
            f"the same, against {FEW}",
            median_ratio(pairs),
            2,
            detail=f"{ours_ms:.0f} / {base_ms:.0f} ms",
        ),
        noted(
            NAME,
            f"{SCREENS} screens up, p95 of one",
            percentile(screens_ms, 0.95),
            "ms",
            f"{held:,} lines held",
        ),
    ]


async def _opened_ms(chat: Chat, session: str) -> float:
    before_s = time.perf_counter()
    await chat.acts.open(session)
    await _painted(chat)
    return (time.perf_counter() - before_s) * 1000


async def _screen_up_ms(chat: Chat) -> float:
    before_s = time.perf_counter()
    chat.query_one(Scroll).action_screens(-1)
    await _painted(chat)
    return (time.perf_counter() - before_s) * 1000


async def _painted(chat: Chat) -> None:
    """Until what was asked for is on the screen."""
    done = asyncio.Event()
    chat.call_after_refresh(done.set)
    await done.wait()


def _resumed_ms(home: Path, words: dict[str, str], rounds: int) -> list[float]:
    """The long one, by turns with a short one; each is known by a word at its end."""
    took_ms = []
    with terminal(home, "--model", "scripted:echo") as opened:
        opened.wait("ready")
        for _ in range(rounds):
            for session, last in words.items():
                opened.type(f"/resume {session}")
                opened.drain(0.3)
                before_s = time.perf_counter()
                opened.type("\r")
                took_ms.append((opened.wait(last) - before_s) * 1000)
    return took_ms[1::2]


def _last_word(home: Path, session: str) -> str:
    with BlockingStore(home / "store.db") as store:
        records = store.read(session, store.glance(session).head - 2, 2)
    [text] = [
        text_of(record.fact.parts) for record in records if isinstance(record.fact, StepSealed)
    ]
    return max(text[-60:].split(), key=len)


def _begun_ms(home: Path) -> tuple[float, float]:
    """Until the first frame, and until the chat itself is painted over it."""
    with terminal(home, "--model", "scripted:echo") as opened:
        frame_s = opened.wait("starting")
        return (frame_s - opened.started_s) * 1000, (opened.wait("ready") - opened.started_s) * 1000


def _started_ms(home: Path, session: str, last: str) -> float:
    with terminal(home, "--resume", session, "--model", "scripted:echo") as opened:
        return (opened.wait(last) - opened.started_s) * 1000
