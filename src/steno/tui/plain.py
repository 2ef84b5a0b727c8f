"""Text of models, tools and people as a terminal may be given it: nothing in it acts on the
terminal."""

import re

from rich.cells import cell_len, set_cell_size

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
"""What colours and moves in the output of commands."""


def visible(text: str) -> str:
    """Characters that control a terminal, or that it cannot be sent, as pictures of themselves."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n")) if _CONTROL.search(text) else text


def output(text: str) -> str:
    """The output of a command without its colours; of a line that is written over, what it says
    last."""
    text = ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return visible(text)


def one_line(text: str, cells_max: int) -> str:
    """A text in one line of a terminal, on which some characters take two cells."""
    line = " ".join(visible(text[: cells_max * 8]).split())
    if cell_len(line) <= cells_max:
        return line
    return set_cell_size(line, cells_max - 1).rstrip() + "…" if cells_max > 0 else ""


def _picture(found: re.Match[str]) -> str:
    return _PICTURES.get(ord(found[0]), "\ufffd")
