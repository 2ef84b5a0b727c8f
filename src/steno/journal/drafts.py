"""Text being streamed: already durable, not yet a fact.

A stream is addressed by the seq of the fact that started it and a kind; a place in it by an offset
in code points. A sealing fact takes the place of its streams and must hold everything that they
held.
"""

from hashlib import sha256
from typing import Literal

from msgspec import Struct

from steno.journal.facts import AnyFact, StepLost, StepSealed, ToolSettled
from steno.journal.parts import File, Seq, outcome_parts, reasoning_of, text_of

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
    match fact:
        case StepSealed() | StepLost():
            return fact.step
        case ToolSettled():
            return fact.started
        case _:
            return None


def streams_of(fact: AnyFact) -> tuple[Draft, ...]:
    """The streams that a sealing fact stands for, in full, as a follower would have seen them."""
    match fact:
        case StepSealed():
            parts = fact.parts if fact.shown is None else fact.shown
            whole = [Draft(Stream(fact.step, "reasoning"), reasoning_of(parts))]
            whole.append(Draft(Stream(fact.step, "text"), text_of(parts)))
        case ToolSettled(started=int() as started) if fact.shown is not None or not _by_payload(
            fact
        ):
            parts = outcome_parts(fact.outcome) if fact.shown is None else fact.shown
            whole = [Draft(Stream(started, "output"), text_of(parts))]
        case _:
            return ()
    return tuple(draft for draft in whole if draft.text)


def _by_payload(fact: ToolSettled) -> bool:
    """Whether the whole output lies in a payload. Then the text in the fact is only about it, not a
    part of it."""
    return any(isinstance(part, File) for part in outcome_parts(fact.outcome))


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
        digest = sha256(draft.text.encode("utf-8", "surrogatepass")).hexdigest()
        return any(
            isinstance(part, File) and part.hash == digest for part in outcome_parts(fact.outcome)
        )
    return False
