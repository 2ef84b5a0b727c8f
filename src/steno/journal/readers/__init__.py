"""What items of other programs say: for each known format, JSON in, role and parts out. Pure.

    openai.responses     items of the Responses API, as the OpenAI Agents SDK keeps them
    claude.transcript    lines of a Claude transcript, as the Claude Agent SDK keeps them
    langgraph.message    messages of LangChain, as LangGraph keeps them in a channel
    pydantic-ai.message  requests and responses of pydantic-ai
    adk.event            events of Google's Agent Development Kit

An item may say nothing (state), one thing or several (the results of two calls). Nothing is
guessed: what a reader does not know is an `item`, which no view takes for speech and no model is
told. Reading never raises, whatever is in the JSON.

A reader is loaded with the first item of its format: most sessions have none.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steno.journal.facts import ItemKept

if TYPE_CHECKING:
    from steno.journal.readers.reading import Json, Reading

READERS = {
    "openai.responses": "openai",
    "claude.transcript": "claude",
    "langgraph.message": "langchain",
    "pydantic-ai.message": "pydantic_ai",
    "adk.event": "adk",
}


def read(fact: ItemKept) -> "tuple[Reading, ...]":
    """What an item says, in order. Of a format without a reader, nothing."""
    name = READERS.get(fact.format)
    if name is None:
        return ()
    item = _loaded(fact.json)
    if not isinstance(item, dict):
        from steno.journal.readers.reading import unread

        return (unread(fact.format, "unknown", item),)
    reader: Callable[[Json], Iterator[Reading]] = import_module(
        f"{__name__}.{name}"
    ).read
    return _joined(reader(item))


def _joined(readings: "Iterable[Reading]") -> "tuple[Reading, ...]":
    """A message is known by its seq and its role; only results of calls are told apart by more."""
    joined: list[Reading] = []
    for one in readings:
        at = next(
            (i for i, known in enumerate(joined) if known.role == one.role), None
        )
        if at is None or one.role == "tool":
            joined.append(one)
        else:
            joined[at] = replace(joined[at], parts=(*joined[at].parts, *one.parts))
    return tuple(joined)


def masked(fact: ItemKept) -> str | None:
    """The JSON of an item without its text, of which the same is read but what was said; None for a
    format without a reader."""
    item = _loaded(fact.json) if fact.format in READERS else None
    if not isinstance(item, dict):
        return None
    import json

    from steno.journal.readers.reading import mask

    return json.dumps(mask(item), ensure_ascii=False, separators=(",", ":"))


def _loaded(text: str) -> object:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
