"""A transcript as Markdown, for people: the messages that `show` has, in the same order. It cannot
be imported."""

import re
from collections.abc import Container, Iterator

from steno.journal.parts import Seq
from steno.journal.transcript import Message, Transcript

_TICKS = re.compile("`+")


def to_markdown(
    id: str, transcript: Transcript, undone: Container[Seq]
) -> Iterator[str]:
    """Piece by piece. What a person and a model said stands as it is; what came from tools stands
    in a fence."""
    yield f"# {' '.join(transcript.title.split()) or id}\n\nsteno session {id}\n"
    for message in transcript.messages:
        yield _message(message, message.turn in undone)
    for turn in transcript.turns[-1:]:
        if turn.outcome not in (None, "done"):
            why = f"{turn.cause}: {turn.detail}" if turn.detail else turn.cause
            yield (
                "\n---\n\nThe last turn "
                f"{'failed' if turn.outcome == 'failed' else 'was interrupted'} ({why}).\n"
            )


def _message(message: Message, undone: bool) -> str:
    marks = [str(message.state)] if message.state != "complete" else []
    marks += ["hidden"] * message.hidden + ["undone"] * undone
    heading = f"\n## #{message.seq} {message.role}{''.join(f' ({mark})' for mark in marks)}\n"
    said = message.text if message.role != "tool" else _fenced(message.text)
    pieces = [
        f"- {one.name or one.media_type} ({one.media_type}, {one.size} bytes)"
        for one in message.attachments
    ]
    pieces += [said] if message.text else []
    pieces += [
        f"calls {call.name}\n\n{_fenced(call.arguments, 'json')}"
        for call in message.tool_calls
    ]
    return heading + "".join(f"\n{piece}\n" for piece in pieces)


def _fenced(text: str, kind: str = "") -> str:
    """In a fence that the text cannot close."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"
