"""steno usage: what models were asked for, by day, model and session, with a plot on a terminal."""

import argparse
import time
from datetime import datetime, timedelta

from msgspec import Struct, field

from steno.agents import Agents
from steno.cli.keeping.tables import bar, table
from steno.cli.stdio import note, show
from steno.frontend.costs import ESTIMATE, Prices, calls, dollars
from steno.journal.usage import UsageTotal
from steno.service import Misused, Service
from steno.service.objects import to_json, usage_object

BY = ("day", "model", "session")
DAY_MS = 86_400_000
SESSIONS_MAX = 100_000
BAR_COLUMNS = 30


class Row(Struct):
    """What was spent under one heading. `cost` is of the calls whose price is known."""

    key: tuple[str, ...]
    usage: UsageTotal = field(default_factory=UsageTotal)
    cost: float | None = None


async def usage(options: argparse.Namespace, wiring: Agents, service: Service) -> int:
    by = tuple(word.strip() for word in options.by.split(","))
    if not by or any(word not in BY for word in by) or len(set(by)) < len(by):
        raise Misused(
            f"--by {options.by}: it is day, model or session, or several by commas"
        )
    now_ms = int(time.time() * 1000)
    rows = await _rows(service, by, now_ms - options.days * DAY_MS, Prices(wiring))
    if options.json:
        for row in rows:
            cost = {"cost_usd": None if row.cost is None else round(row.cost, 6)}
            show(
                to_json(
                    dict(zip(by, row.key, strict=True))
                    | usage_object(row.usage)
                    | cost
                )
            )
        return 0
    if not rows:
        show(f"no model was asked in the last {options.days} days")
        return 0
    _plotted(by, _with_gaps(rows, options.days, now_ms) if by == ("day",) else rows)
    unreported = sum(row.usage.unreported for row in rows)
    if unreported:
        calls = "1 call has" if unreported == 1 else f"{unreported} calls have"
        note(f"[{calls} no count, so sums are lower bounds]")
    if any(row.cost is not None for row in rows):
        note(f"[{ESTIMATE}]")
    return 0


async def _rows(
    service: Service, by: tuple[str, ...], since_ms: int, prices: Prices
) -> list[Row]:
    rows: dict[tuple[str, ...], Row] = {}
    for listed in await service.views.since(since_ms, SESSIONS_MAX):
        records = await service.views.spent(listed, with_starts=True)
        for call in calls(records, listed.row.model, prices):
            if call.at_ms < since_ms:
                continue
            headings = {
                "day": _day(call.at_ms),
                "model": call.model,
                "session": listed.id,
            }
            key = tuple(headings[word] for word in by)
            row = rows.setdefault(key, Row(key))
            row.usage.add(call.usage)
            row.cost = (
                row.cost if call.cost is None else (row.cost or 0.0) + call.cost
            )
    found = list(rows.values())
    if by[0] == "day":
        return sorted(found, key=lambda row: row.key)
    return sorted(
        found, key=lambda row: -((row.usage.input or 0) + (row.usage.output or 0))
    )


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date().isoformat()


def _with_gaps(rows: list[Row], days: int, now_ms: int) -> list[Row]:
    """Every day from the first with usage on, so that the plot's time goes evenly."""
    known = {row.key: row for row in rows}
    first = datetime.fromisoformat(rows[0].key[0]).date()
    last = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    span = [
        (first + timedelta(days=n)).isoformat()
        for n in range((last - first).days + 1)
    ]
    return [known.get((day,), Row((day,))) for day in span[-days - 1 :]] or rows


def _plotted(by: tuple[str, ...], rows: list[Row]) -> None:
    sums = [(row.usage.input or 0) + (row.usage.output or 0) for row in rows]
    most = max([*sums, 1])
    heads = [*(word.upper() for word in by), "CALLS", "IN", "OUT", "COST", ""]
    cells = [
        [
            *row.key,
            str(row.usage.calls or ""),
            _count(row.usage.input),
            _count(row.usage.output),
            "" if row.cost is None else dollars(row.cost),
            bar(total / most, BAR_COLUMNS),
        ]
        for row, total in zip(rows, sums, strict=True)
    ]
    table(heads, cells, right=range(len(by), len(by) + 4))


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"
