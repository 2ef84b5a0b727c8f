"""A person's answer to the question whether a tool call may run.

    y, yes        run it
    a, always     run it, and calls like it in this session for 30 days
    n, no         do not run it
    other text    do not run it; the text is the reason, and the model is told
    nothing       no answer: the question stays open

Only a whole line counts, so that the first letter of a sentence never runs anything.
"""

from typing import Literal

from msgspec import Struct


class Answer(Struct, frozen=True):
    decision: Literal["allow", "deny"]
    always: bool = False
    reason: str = ""


ALLOW = Answer("allow")
ALWAYS = Answer("allow", always=True)
DENY = Answer("deny")

_WORDS = {
    "y": ALLOW,
    "yes": ALLOW,
    "a": ALWAYS,
    "always": ALWAYS,
    "n": DENY,
    "no": DENY,
}


def read(line: str) -> Answer | None:
    """The answer that a typed line is; None if nothing was typed."""
    said = line.strip()
    return _WORDS.get(said.lower(), Answer("deny", reason=said)) if said else None
