"""Makes a summary and records it. The summariser is asked outside any lock; until the one fact at
the end is stored, the old context stands, whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct

from steno.engine import compaction, tokens
from steno.engine.action import Limits, Room
from steno.engine.compaction import LeftOut, Plan, Portion
from steno.engine.request import Request
from steno.journal.facts import Compacted, HelperEnded
from steno.journal.history import Entry
from steno.journal.parts import text_of
from steno.models.protocol import Finished, Model
from steno.runtimes.helper import HelperFailed, HelperStopped, ask_helper
from steno.session.lease import HeldSession

KEPT = 4
"""One part in so many of the context stays as it is."""
CONTEXT_UNSAID = 32_000
"""What a model is taken to take where that is not set."""
PORTION_CHARS_MAX = 200_000


class Compaction(Struct, frozen=True):
    """What came of it; `tokens` are before and after, about; None where only who makes it knows."""

    outcome: Literal["done", "failed", "stopped", "nothing"]
    detail: str = ""
    tokens: tuple[int, int] | None = None


def room(held: HeldSession, limits: Limits) -> Room:
    return Room(tokens.of_request(held.history), _plan(held, limits) is not None)


def _plan(held: HeldSession, limits: Limits) -> Plan | None:
    return compaction.plan(held.history.placed(), _takes(held, limits) // KEPT)


def _takes(held: HeldSession, limits: Limits) -> int:
    """What the model takes, in tokens as we estimate them. A request that the provider refused as
    too long is more than that, whatever is set; and where the provider counts more tokens
    than we do, fewer of ours fit."""
    takes = limits.context_max or CONTEXT_UNSAID
    lost = None if held.state.turn is None else held.state.turn.last_lost
    if lost is not None and lost.cause == "too_long":
        takes = min(takes, tokens.of_request(held.history))
    return int(takes / tokens.per_estimated(held.history))


async def compact(held: HeldSession, model: Model, limits: Limits) -> Compaction:
    """Have the older part of a session summarised. An interrupt that was asked for before or comes
    meanwhile leaves everything as it was."""
    before = tokens.of_request(held.history)
    made = _plan(held, limits)
    if made is None:
        return Compaction(
            "nothing", "there is nothing to summarise", (before, before)
        )
    chars = min(_takes(held, limits) * tokens.CHARS_PER_TOKEN // 2, PORTION_CHARS_MAX)
    deadline_s = asyncio.get_running_loop().time() + limits.summary_s
    summary, without = made.before, held.history.left_out(made.upto)
    stands_for = tokens.of_entries(made.entries) + tokens.estimate(made.before)
    try:
        portions = await asyncio.to_thread(compaction.portions, made, chars)
        for i, portion in enumerate(portions, start=1):
            await held.catch_up()
            if held.asked_to_stop():
                return Compaction("stopped", "asked to stop", (before, before))
            request = compaction.ask(model.spec, await _told(held, portion), summary)
            summary = await _summarise(
                held,
                model,
                request,
                deadline_s,
                stands_for if i == len(portions) else None,
            )
    except HelperStopped:
        return Compaction("stopped", "asked to stop", (before, before))
    except HelperFailed as error:
        return Compaction("failed", str(error), (before, before))
    if held.asked_to_stop():
        return Compaction("stopped", "asked to stop", (before, before))
    carries, spent = await held.to_carry(made.upto)
    await held.catch_up()
    if held.history.left_out(made.upto) != without:
        return Compaction(
            "failed", "what it stands for was edited meanwhile", (before, before)
        )
    await held.record(
        Compacted(made.upto, summary, model.spec, carries=carries, spent=spent)
    )
    return Compaction("done", "", (before, tokens.of_request(held.history)))


async def _told(held: HeldSession, portion: Portion) -> str:
    """Each entry is made short as soon as it is read: however long they are, few are in memory."""
    entries: AsyncIterator[Entry | LeftOut] = held.with_text(portion.entries)
    return "\n".join(
        [compaction.tell(entry, portion.entry_chars) async for entry in entries]
    )


async def _summarise(
    held: HeldSession,
    model: Model,
    request: Request,
    deadline_s: float,
    stands_for: int | None,
) -> str:
    started, finished = await ask_helper(
        held, model, "summary", request, deadline_s, held.stopped
    )
    said = text_of(finished.parts).strip()
    summary = said[: compaction.SUMMARY_CHARS_MAX]
    problem = _problem(summary, finished, stands_for)
    cut = (
        f"cut to {len(summary)} of {len(said)} characters"
        if len(summary) < len(said)
        else ""
    )
    await held.record(
        HelperEnded(
            started, "failed" if problem else "done", problem or cut, finished.usage
        )
    )
    if problem:
        raise HelperFailed(problem)
    return summary


def _problem(summary: str, finished: Finished, stands_for: int | None) -> str:
    if not summary:
        return "the summariser said nothing"
    if finished.ended != "complete":
        return "the summary broke off"
    if stands_for is not None and tokens.estimate(summary) >= stands_for:
        return "the summary is not shorter than what it stands for"
    return ""
