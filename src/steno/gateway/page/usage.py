"""What models were asked for, by day: a plot made here, and the numbers under it."""

from datetime import date, datetime, timedelta

from msgspec import Struct

from steno.gateway.page.html import NOTHING, Html, html, many, when
from steno.gateway.page.layout import bar
from steno.journal.usage import UsageTotal
from steno.service import Service
from steno.store.protocol import Listed
from steno.tui.wording import count

DAYS = 30
SESSIONS_MAX = 500
DAY_MS = 86_400_000
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 220, 56, 26


class Day(Struct, frozen=True):
    day: date
    usage: UsageTotal


class Ledger:
    """What each session spent by day, read again only if it changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[date, UsageTotal]]] = {}

    async def days(self, service: Service, now_ms: int) -> list[Day]:
        """The last days, the oldest first, each there is or not."""
        today = day_of(now_ms)
        totals = {
            today - timedelta(days=n): UsageTotal() for n in reversed(range(DAYS))
        }
        known: dict[str, tuple[int, dict[date, UsageTotal]]] = {}
        for listed in await service.views.since(now_ms - DAYS * DAY_MS, SESSIONS_MAX):
            known[listed.id] = await self._of(service, listed)
            for day, usage in known[listed.id][1].items():
                if day in totals:
                    _add(totals[day], usage)
        self._known = known
        return [Day(day, usage) for day, usage in totals.items()]

    async def _of(
        self, service: Service, listed: Listed
    ) -> tuple[int, dict[date, UsageTotal]]:
        before = self._known.get(listed.id)
        if before is not None and before[0] == listed.head:
            return before
        days: dict[date, UsageTotal] = {}
        for record in await service.views.spent(listed):
            days.setdefault(day_of(record.at_ms), UsageTotal()).apply(record)
        return listed.head, days


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date()


def _add(total: UsageTotal, more: UsageTotal) -> None:
    total.calls += more.calls
    total.unreported += more.unreported
    for name in ("input", "output", "cached", "reasoning"):
        value = getattr(more, name)
        if value is not None:
            setattr(total, name, (getattr(total, name) or 0) + value)


def page(days: list[Day]) -> Html:
    total = UsageTotal()
    for one in days:
        _add(total, one.usage)
    rows = many(_row(one) for one in reversed(days) if one.usage.calls)
    return html(
        '{head}<div id="scroll"><div class="column">'
        '<p class="soft">The last {n} days, as far as providers said.{gaps}</p>'
        '<dl class="sums"><div><dt>Tokens in</dt><dd>{tokens_in}</dd></div>'
        "<div><dt>Tokens out</dt><dd>{tokens_out}</dd></div>"
        "<div><dt>Calls</dt><dd>{calls}</dd></div></dl>{plot}{table}</div></div>",
        head=bar("Usage"),
        n=DAYS,
        gaps=f" {total.unreported} calls have no count, so sums are lower bounds."
        if total.unreported
        else "",
        tokens_in=_told(total.input),
        tokens_out=_told(total.output),
        calls=total.calls,
        plot=plot(days),
        table=when(
            total.calls,
            html(
                '<div class="wide"><table><thead><tr><th scope="col">Day</th>'
                '<th scope="col">In</th><th scope="col">Out</th><th scope="col">Calls</th></tr>'
                "</thead><tbody>{rows}</tbody></table></div>",
                rows=rows,
            ),
        ),
    )


def _told(number: int | None) -> str:
    return "–" if number is None else count(number)


def _row(one: Day) -> Html:
    usage = one.usage
    return html(
        '<tr><th scope="row">{day}</th><td>{i}</td><td>{o}</td><td>{calls}</td></tr>',
        day=one.day.isoformat(),
        i=_told(usage.input),
        o=_told(usage.output),
        calls=usage.calls,
    )


def plot(days: list[Day]) -> Html:
    """Bars of tokens in and out. Colours come from the style sheet."""
    most = max(
        ((one.usage.input or 0) + (one.usage.output or 0) for one in days), default=0
    )
    if not most:
        return Html('<p class="soft empty">No model was asked in these days.</p>')
    top = _round_up(most)
    step = (_WIDTH - _LEFT) / len(days)
    high = _HEIGHT - _BOTTOM - 10
    bars = many(
        _bar(one, _LEFT + n * step, step, high / top) for n, one in enumerate(days)
    )
    lines = many(_line(top * part // 4, high * part / 4) for part in (0, 1, 2, 3, 4))
    words = many(
        html(
            '<text class="axis" x="{x}" y="{y}" text-anchor="{at}">{day}</text>',
            x=round(_LEFT + (n + 0.5) * step),
            y=_HEIGHT - 6,
            at="end" if n == len(days) - 1 else "middle",
            day=f"{days[n].day:%d %b}",
        )
        for n in range(len(days) - 1, -1, -7)
    )
    return html(
        '<figure class="plot"><svg viewBox="0 0 {w} {h}" role="img" '
        'aria-label="Tokens by day; the table below has the numbers">{lines}{bars}{words}</svg>'
        '<figcaption><span class="key in"></span>in <span class="key out"></span>out</figcaption>'
        "</figure>",
        w=_WIDTH,
        h=_HEIGHT,
        lines=lines,
        bars=bars,
        words=words,
    )


def _round_up(number: int) -> int:
    unit = int(10 ** (len(str(number)) - 1))
    return max(4, next(n * unit for n in (1, 2, 4, 6, 8, 10) if n * unit >= number))


def _line(value: int, above: float) -> Html:
    y = round(_HEIGHT - _BOTTOM - above, 1)
    return html(
        '<line class="grid" x1="{x}" x2="{w}" y1="{y}" y2="{y}"/>'
        '<text class="axis" x="{edge}" y="{text_y}" text-anchor="end">{value}</text>',
        x=_LEFT,
        w=_WIDTH,
        y=y,
        edge=_LEFT - 8,
        text_y=y + 4,
        value=count(value),
    )


def _bar(one: Day, x: float, step: float, scale: float) -> Html:
    went_in, came_out = one.usage.input or 0, one.usage.output or 0
    if not went_in + came_out:
        return NOTHING
    base = float(_HEIGHT - _BOTTOM)
    parts = []
    for value, kind in ((went_in, "in"), (came_out, "out")):
        tall = max(value * scale, 1 if value else 0)
        base -= tall
        parts.append(
            html(
                '<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{tall}" rx="1.5"/>',
                kind=kind,
                x=round(x + step * 0.15, 1),
                y=round(base, 1),
                w=round(step * 0.7, 1),
                tall=round(tall, 1),
            )
        )
    title = f"{one.day.isoformat()}: {count(went_in)} in, {count(came_out)} out"
    return html(
        "<g><title>{title}</title>{parts}</g>", title=title, parts=many(parts)
    )
