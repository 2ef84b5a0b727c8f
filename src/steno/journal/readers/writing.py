"""What was said in a session in other ways, in formats of other programs, so that they go on with
all of it. Pure: an entry of the history in, items out.

    said "Which day?"                   {"role": "user", "content": "Which day?"}
    answered "Let me see", call c1      {"role": "assistant", ...} {"type": "function_call", ...}
    settled c1 "Monday"                 {"type": "function_call_output", ...}
"""

from collections.abc import Callable, Iterator
from typing import assert_never

from steno.journal.history import (
    Answered,
    Closed,
    Noted,
    Said,
    Settled,
    Standing,
    Summarised,
    Weighed,
)
from steno.journal.parts import ToolCall, outcome_parts, text_of
from steno.journal.readers.reading import Json


def responses_items(entry: Standing) -> Iterator[Json]:
    """What was said in another way, as items."""
    match entry:
        case Said():
            yield {"role": "user", "content": text_of(entry.parts)}
        case Answered():
            if text := text_of(entry.parts):
                yield {"role": "assistant", "content": text}
            for part in entry.parts:
                if isinstance(part, ToolCall):
                    yield {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": part.name,
                        "arguments": part.arguments,
                    }
        case Settled():
            given = (
                text_of(outcome_parts(entry.outcome))
                or type(entry.outcome).__name__.lower()
            )
            yield {
                "type": "function_call_output",
                "call_id": entry.call,
                "output": given,
            }
        case Summarised():
            yield {
                "role": "user",
                "content": f"[Summary of what was said before]\n{entry.summary}",
            }
        case Closed() | Noted() | Weighed():
            pass
        case unreachable:
            assert_never(unreachable)


WRITERS: dict[str, Callable[[Standing], Iterator[Json]]] = {
    "openai.responses": responses_items
}
"""By format."""
