"""The page about the kit says what the kit has."""

import re
from pathlib import Path

from crashkit.checks import CHECKS

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "crashkit.md"


def test_the_page_has_every_check_with_its_sentence() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(one.name, one.level, one.sentence) for one in CHECKS.values()]
