"""steno usage: what models were asked for, by day, model and session, with a plot on a terminal."""

import argparse
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct, field

from steno.agents import Agents
from steno.cli.keeping.tables import bar, table
from steno.cli.stdio import note, show
from steno.config import ConfigError
from steno.journal.facts import HelperStarted, Record, StepStarted
from steno.journal.usage import UsageTotal
from steno.providers import catalogue
from steno.providers.catalogue import About
from steno.service import Misused, Service
from steno.service.objects import to_json, usage_object
from steno.store.protocol import Listed

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
        raise Misused(f"--by {options.by}: it is day, model or session, or several by commas")
    now_ms = int(time.time() * 1000)
    rows = await _rows(service, by, now_ms - options.days * DAY_MS, _prices(wiring))
    if options.json:
        for row in rows:
            cost = {"cost_usd": None if row.cost is None else round(row.cost, 6)}
            show(to_json(dict(zip(by, row.key, strict=True)) | usage_object(row.usage) | cost))
        return 0
    if not rows:
        show(f"no model was asked in the last {options.days} days")
        return 0
    _plotted(by, _with_gaps(rows, options.days, now_ms) if by == ("day",) else rows)
    unreported = sum(row.usage.unreported for row in rows)
    if unreported:
        note(f"[{unreported} calls have no count, so sums are lower bounds]")
    if any(row.cost is not None for row in rows):
        note("[costs are estimates, by list prices, without discounts for what was cached]")
    return 0


def _prices(wiring: Agents) -> Callable[[str], About]:
    try:
        known = catalogue.table(Path(wiring.where.home))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return lambda spec: catalogue.told(spec, About(), known, wiring.config.models)


async def _rows(
    service: Service, by: tuple[str, ...], since_ms: int, prices: Callable[[str], About]
) -> list[Row]:
    rows: dict[tuple[str, ...], Row] = {}
    for listed in await service.views.since(since_ms, SESSIONS_MAX):
        models: dict[int, str] = {}
        for record in await service.views.spent(listed, with_starts=True):
            if isinstance(record.fact, StepStarted | HelperStarted):
                models[record.seq] = record.fact.model
                continue
            if record.at_ms < since_ms:
                continue
            model = _model_of(record, models, listed)
            headings = {"day": _day(record.at_ms), "model": model, "session": listed.id}
            key = tuple(headings[word] for word in by)
            row = rows.setdefault(key, Row(key))
            spent = UsageTotal()
            spent.apply(record)
            row.usage.add(spent)
            cost = _cost(spent, prices(model))
            row.cost = row.cost if cost is None else (row.cost or 0.0) + cost
    found = list(rows.values())
    if by[0] == "day":
        return sorted(found, key=lambda row: row.key)
    return sorted(found, key=lambda row: -((row.usage.input or 0) + (row.usage.output or 0)))


def _model_of(record: Record, models: dict[int, str], listed: Listed) -> str:
    for name in ("step", "started"):
        if (seq := getattr(record.fact, name, None)) in models:
            return models[seq]
    return listed.row.model or "unknown"


def _cost(spent: UsageTotal, about: About) -> float | None:
    if about.price_in is None or about.price_out is None or spent.input is None:
        return None
    return (spent.input * about.price_in + (spent.output or 0) * about.price_out) / 1_000_000


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date().isoformat()


def _with_gaps(rows: list[Row], days: int, now_ms: int) -> list[Row]:
    """Every day from the first with usage on, so that the plot's time goes evenly."""
    known = {row.key: row for row in rows}
    first = datetime.fromisoformat(rows[0].key[0]).date()
    last = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    span = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
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
            "" if row.cost is None else f"${row.cost:.2f}",
            bar(total / most, BAR_COLUMNS),
        ]
        for row, total in zip(rows, sums, strict=True)
    ]
    table(heads, cells, right=range(len(by), len(by) + 4))


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}"
