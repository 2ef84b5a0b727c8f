"""Long lists of cases: the long run takes all of them, the suite a part, and another one each
day."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.crash.points import SEED


def rotating(cases: Sequence[Any], share: int) -> list[Any]:
    """One case in so many stays in the suite; the others are marked as torture."""
    return [
        case if i % share == SEED % share else _long(case, pytest.mark.torture)
        for i, case in enumerate(cases)
    ]


def _long(case: Any, mark: pytest.MarkDecorator) -> Any:
    return (
        pytest.param(*case, marks=mark)
        if isinstance(case, tuple)
        else pytest.param(case, marks=mark)
    )
