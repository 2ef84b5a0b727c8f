"""What a benchmark says: one figure, the target it is held against, and how it was got."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace


class Plan(Struct, frozen=True):
    """Where stores are made, and whether to be quick about it."""

    folder: str
    quick: bool

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


class Result(Struct, frozen=True):
    """`ok` is None where there is no target, or where the machine was too busy to tell."""

    name: str
    what: str
    value: float
    unit: str
    target: str
    ok: bool | None
    detail: str = ""


def at_most(
    name: str, what: str, value: float, limit: float, unit: str = "×", detail: str = ""
) -> Result:
    return Result(name, what, value, unit, f"≤ {limit:.4g}", value <= limit, detail)


def at_least(
    name: str, what: str, value: float, limit: float, unit: str = "×", detail: str = ""
) -> Result:
    return Result(name, what, value, unit, f"≥ {limit:g}", value >= limit, detail)


def noted(name: str, what: str, value: float, unit: str = "×", detail: str = "") -> Result:
    return Result(name, what, value, unit, "", None, detail)


def unless_busy(result: Result, steady: bool) -> Result:
    """A figure whose baseline was not measured in peace is shown, but neither met nor missed."""
    return (
        result
        if steady
        else replace(result, ok=None, detail=f"{result.detail}; the machine was busy")
    )


def failed(name: str, why: str) -> Result:
    return Result(name, "did not finish", 0.0, "", "", False, why)


_HEADINGS = ("benchmark", "what", "value", "target", "", "how")
_MARKS = {True: "ok", False: "MISSED", None: ""}


def table(results: Sequence[Result]) -> str:
    """The results for people: columns as wide as they need to be, the last one as long as it is."""
    rows = [_HEADINGS, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    return "\n".join(_line(row, widths) for row in rows)


def _row(result: Result) -> tuple[str, ...]:
    value = f"{figure(result.value)} {result.unit}".strip()
    mark = "busy" if result.ok is None and result.target else _MARKS[result.ok]
    return result.name, result.what, value, result.target, mark, result.detail


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column == 2 else cell.ljust(width)
        for column, (cell, width) in enumerate(_paired(row, widths))
    ]
    return "  ".join([*cells, row[-1]]).rstrip()


def _paired(row: tuple[str, ...], widths: list[int]) -> list[tuple[str, int]]:
    return list(zip(row[:-1], widths, strict=True))


def figure(value: float) -> str:
    """Three digits that matter, and thousands set apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
