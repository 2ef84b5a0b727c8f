"""What may repeat a text that is taken out of the store: whoever has it removed is told where else
to look. Pure."""

import re
from collections.abc import Iterator

from msgspec import Struct

from steno.engine.approval import rule_for
from steno.journal.parts import Seq
from steno.service.views import View

_WORD = re.compile(r"[\w.+/@:=-]{6,}")
"""What is shorter is in half of all texts."""
_HELPER = re.compile(r"^\[delegated to session (\w+)\]")


class Copy(Struct, frozen=True):
    session: str
    seq: Seq


class Redaction(Struct, frozen=True):
    """`at` is the fact that says so; `copies` were made of the text, or repeat a word of it;
    `helpers` are sessions that were given it or gave it; `threads` are those of external runtimes,
    with the runtime, that may have it."""

    at: Seq
    copies: tuple[Copy, ...]
    helpers: tuple[str, ...] = ()
    threads: tuple[tuple[str, str], ...] = ()


def copies_of(view: View, seq: Seq, other: View) -> Iterator[Seq]:
    """Where a session that has the fact at `seq` may repeat its text, given a view of the session
    it was found in."""
    text, rules = _removed(view, seq)
    words = set(_WORD.findall(text))
    yield from (at for at, upto in other.summaries.items() if upto >= seq and at != seq)
    yield from (at for at, said in other.said_of.items() if said in rules and at != seq)
    yield from (
        at
        for at, said in other.beside.items()
        if at != seq and not words.isdisjoint(_WORD.findall(said))
    )


def helpers_of(view: View, seq: Seq) -> tuple[str, ...]:
    """The sessions that a message was delegated to, or is the outcome of."""
    message = view.message(seq)
    if message is None:
        return ()
    calls = {call.id for call in message.tool_calls} | {message.tool_call_id}
    of_turn = (
        one
        for one in view.transcript.messages
        if one.turn == message.turn and one.tool_call_id in calls
    )
    found = (_HELPER.match(one.text) for one in of_turn if one.role == "tool")
    return tuple(match[1] for match in found if match)


def threads_with(seq: Seq, view: View) -> Iterator[tuple[str, str]]:
    """The threads, each with its runtime, that may have been told what stands at `seq`. A fork has
    its parent's."""
    yield from (
        (one.runtime, one.id) for one in view.threads if one.until is None or one.until > seq
    )


def _removed(view: View, seq: Seq) -> tuple[str, set[str]]:
    """The text that goes, and the rules that were made of it."""
    message = view.message(seq)
    calls = () if message is None else message.tool_calls
    said = view.said_of.get(seq, "")
    texts = [
        "" if message is None else message.text,
        said,
        view.beside.get(seq, ""),
        *(call.arguments for call in calls),
    ]
    return "\n".join(texts), {rule_for(call.name, call.arguments) for call in calls} | (
        {said} if said else set()
    )
