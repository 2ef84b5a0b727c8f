"""Text for chats: how long it is in a platform's unit, and where to cut it. Pure.

    split("…" * n)      parts that fit, cut after a paragraph, else a line, a sentence, a word

Parts stand for the text from left to right. A cut depends on what comes before it alone, so while a
text grows its earlier parts stay as they are. No part ends inside a fenced block: where one is
longer than a message, its fence is closed and opened again, and nothing else is added. White space
at a cut is dropped.
"""

import re

from steno.gateway.channels.protocol import Limits, Unit

FENCE_MAX = 7
"""A fence of more marks is text like any other."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_SENTENCE = re.compile(r"[.!?…][\"')\]]*\s")


def length(text: str, unit: Unit) -> int:
    if unit == "chars":
        return len(text)
    if unit == "utf16":
        return len(text) + sum(one > "\uffff" for one in text)
    return len(text.encode("utf-8", "replace"))


def split(text: str, limits: Limits) -> list[str]:
    """The text in parts that fit; one empty part of an empty text."""
    parts: list[str] = []
    rest, opening = text, ""
    while length(opening + rest, limits.unit) > limits.text_max:
        room = _fitting(opening + rest, limits.text_max - FENCE_MAX - 1, limits.unit)
        window = (opening + rest)[:room]
        at = _cut(window, len(opening))
        head, rest = window[:at], (opening + rest)[at:]
        fence = _open_fence(head)
        parts.append(head.rstrip() + (f"\n{_mark(fence)}" if fence else ""))
        opening = f"{fence}\n" if fence else ""
        rest = rest.lstrip("\n") if fence else rest.lstrip()
    last = (opening + rest).rstrip() if parts else opening + rest
    return [*parts, last] if last or not parts else parts


def _fitting(text: str, most: int, unit: Unit) -> int:
    """How many characters of a text fit."""
    low, high = 1, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle], unit) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _cut(window: str, least: int) -> int:
    """Where to cut: at the best place in the second half, outside a fence if there is one."""
    half = max(len(window) // 2, least + 1)
    for mark in ("\n\n", "\n"):
        at = window.rfind(mark, half)
        while at > 0:
            if not _open_fence(window[:at]):
                return at + len(mark)
            at = window.rfind(mark, half, at)
    at = window.rfind("\n", half)
    if at > 0 and _open_fence(window):
        return at + 1
    found = [one.end() for one in _SENTENCE.finditer(window, half)]
    if found:
        return found[-1]
    at = window.rfind(" ", half)
    return at + 1 if at > 0 else len(window)


def _open_fence(text: str) -> str:
    """The line that opened the fence in which a text ends; "" if it ends in none."""
    opened = ""
    for found in _FENCE.finditer(text):
        mark = found[1]
        if len(mark) > FENCE_MAX:
            continue
        if not opened:
            opened = found[0].strip()
        elif (
            found[0].strip() == mark
            and mark[0] == opened[0]
            and len(mark) >= len(_mark(opened))
        ):
            opened = ""
    return opened[:80]


def _mark(fence: str) -> str:
    return re.match(r"`+|~+", fence)[0] if fence else ""  # type: ignore[index]
