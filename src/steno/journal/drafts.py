"""Text being streamed: already durable, not yet a fact.

A stream is addressed by the seq of the fact that started it and a kind; a place in it by an offset
in code points. A sealing fact takes the place of its streams and must hold everything that they
held.
"""

from typing import Literal

from msgspec import Struct

from steno.journal.facts import AnyFact, StepLost, StepSealed, ToolSettled
from steno.journal.parts import (
    File,
    Seq,
    hash_of,
    outcome_parts,
    reasoning_of,
    text_of,
)

Kind = Literal["text", "reasoning", "output"]


class Stream(Struct, frozen=True, order=True, gc=False):
    started: Seq
    kind: Kind


class Draft(Struct, frozen=True, gc=False):
    """All of a stream that is durable so far."""

    stream: Stream
    text: str


def sealed_by(fact: AnyFact) -> Seq | None:
    """The seq whose streams this fact seals."""
    if isinstance(fact, (StepSealed, StepLost)):
        return fact.step
    return fact.started if isinstance(fact, ToolSettled) else None


def streams_of(fact: AnyFact) -> tuple[Draft, ...]:
    """The streams that a sealing fact stands for, in full, as a follower would have seen them."""
    if isinstance(fact, StepSealed):
        parts = fact.parts if fact.shown is None else fact.shown
        thought = Draft(Stream(fact.step, "reasoning"), reasoning_of(parts))
        whole = [thought, Draft(Stream(fact.step, "text"), text_of(parts))]
        return tuple(draft for draft in whole if draft.text)
    if not isinstance(fact, ToolSettled) or fact.started is None:
        return ()
    parts = outcome_parts(fact.outcome) if fact.shown is None else fact.shown
    if fact.shown is None and any(isinstance(part, File) for part in parts):
        return ()  # the whole output lies in a payload, and the text is only about it
    output = Draft(Stream(fact.started, "output"), text_of(parts))
    return (output,) if output.text else ()


def keeps(fact: AnyFact, draft: Draft) -> bool:
    """Whether a sealing fact keeps all that a draft held: as its text, or as a payload of exactly
    that text. Whether a payload begins with it, only the store can see."""
    if any(
        whole.stream == draft.stream and whole.text.startswith(draft.text)
        for whole in streams_of(fact)
    ):
        return True
    if not draft.text:
        return True
    if isinstance(fact, ToolSettled) and fact.started == draft.stream.started:
        if (
            text_of(outcome_parts(fact.outcome)).startswith(draft.text)
            and draft.stream.kind == "output"
        ):
            return True
        digest = hash_of(draft.text.encode("utf-8", "surrogatepass"))
        return any(
            isinstance(part, File) and part.hash == digest
            for part in outcome_parts(fact.outcome)
        )
    return False
