"""Markdown as lines: whole, and while it grows."""

from hypothesis import example, given
from hypothesis import strategies as st

from steno.frontend.sanitize import output, sanitize
from steno.tui.painting.markdown import Growing, Line, Painter
from steno.tui.painting.palette import DARK

BLOCKS = [
    "A paragraph with *words*, `code` and a [link](http://example.org).\n\n",
    "Two\nlines.\n\n",
    "# A heading\n\n",
    "- one\n- two\n  - nested\n\n",
    "1. first\n2. second\n\n",
    "```python\ndef f():\n    return 1\n```\n\n",
    "> said by\n> others\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
    "---\n\n",
    "漢字かな and שלום\n\n",
]


def plain(lines: list[Line]) -> list[str]:
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@example([BLOCKS[4], BLOCKS[4]], [1])
@given(
    st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=8),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_what_grows_ends_as_what_came_at_once(blocks: list[str], sizes: list[int]) -> None:
    text = "".join(blocks)
    growing, at, i = Growing(DARK, 60, 0), 0, 0
    grown: list[Line] = []
    while at < len(text):
        at = min(at + sizes[i % len(sizes)], len(text))
        i += 1
        grown = growing.lines(text[:at])
    assert _without_joins(plain(grown)) == _without_joins(plain(Painter(DARK, 60).lines(text)))


def _without_joins(lines: list[str]) -> list[str]:
    """Two lists in a row are one list where they come at once; the blank line between them says
    nothing."""
    return [line for line in lines if line]


@given(st.text(max_size=300), st.integers(8, 80))
def test_any_text_can_be_laid_out_and_no_line_is_too_long(text: str, width: int) -> None:
    for line in Painter(DARK, width).lines(text):
        assert sum(segment.cell_length for segment in line) <= width + 8


@given(st.text(max_size=200))
def test_nothing_that_acts_on_a_terminal_gets_through(text: str) -> None:
    for shown in (sanitize(text), output(text)):
        assert not any(ord(char) < 32 and char not in "\t\n" for char in shown)
        assert not any(0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in shown)


def test_long_code_goes_on_in_the_next_line() -> None:
    found = plain(Painter(DARK, 20).lines("```\n" + "x" * 50 + "\n```"))
    assert "".join(line.strip() for line in found) == "x" * 50


def test_the_output_of_a_command_is_shown_without_its_colours_and_as_it_was_overwritten() -> None:
    assert output("\x1b[31mred\x1b[0m\r\n10%\r50%\r100%\n") == "red\n100%\n"


def test_a_table_keeps_its_columns_to_their_side_and_shows_every_cell_however_many_there_are() -> (
    None
):
    found = plain(
        Painter(DARK, 40).lines(
            "| of | sum | mid |\n|---|---:|:---:|\n| a | 7 | x |\n| b | 22,000 | words |\n"
        )
    )
    assert found == [
        "of │    sum │  mid",
        "─" * 19,
        "a  │      7 │   x",
        "b  │ 22,000 │ words",
    ]
    cells = [f"cell{i}" for i in range(15)]
    wide = Painter(DARK, 40).lines(f"|{'|'.join(cells)}|\n|{'---|' * 15}\n|{'|'.join(cells)}|\n")
    assert all(sum(segment.cell_length for segment in line) <= 40 for line in wide)
    assert " ".join(plain(wide)).count("cell14") == 2
