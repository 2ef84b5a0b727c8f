"""Text of models, tools and people made safe for a terminal: nothing in it moves the cursor, sets
the clipboard or the title, or turns the direction of the text."""

import re

_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
_ESCAPES = r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])"


def sanitize(text: str) -> str:
    """Characters that control a terminal, or that it cannot be sent, as pictures of themselves."""
    if text.replace("\n", "").isprintable():  # the most common case, and quick
        return text
    return re.sub(_CONTROL, _picture, text.replace("\r\n", "\n"))


def without_escapes(text: str) -> str:
    """The output of a command without what colours and moves in it."""
    return re.sub(_ESCAPES, "", text) if "\x1b" in text else text


def output(text: str) -> str:
    """The output of a command without its colours; of a line that is written over, what it says
    last."""
    text = without_escapes(text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(
            line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")
        )
    return sanitize(text)


def _picture(found: re.Match[str]) -> str:
    """`␛` for an escape; `\\x9b` and `\\u202e` for characters that have no picture."""
    code = ord(found[0])
    return _PICTURES.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
