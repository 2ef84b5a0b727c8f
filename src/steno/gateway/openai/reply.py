"""The answer to one input, in the words of OpenAI's Responses API: an object, and the events that
lead to it. Pure: facts and pieces of text in, events out.

The number of an event is a place, not a count of events: one for each event that is not text, and
one for each code point of text. So it is the same whoever cuts the text, live or read back, and
`starting_after` means the same place for ever:

    0 created · 1 queued · 2 in_progress · 3 output_item.added · 4 content_part.added
    text of 5 code points: 5 to 9. A reader that has seen 7 goes on with the 4th of them
    10 output_text.done · 11 content_part.done · 12 output_item.done · 13 completed

That needs one order of events for the same facts. While an answer is being streamed, its text may
come before or after other facts, but it is sealed after them. So what those facts tell waits until
the answer is sealed, live too. The end of a turn takes a place even where a later turn took up what
was cut off, and the reader is not told of that end.
"""

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from steno.gateway.streams import sealed_streams
from steno.journal.drafts import Stream
from steno.journal.facts import (
    STOPS,
    ApprovalAsked,
    ApprovalDecided,
    Continues,
    InputAdmitted,
    InputWithdrawn,
    Record,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Refused, Returned, Seq, ToolCall, text_of
from steno.journal.transcript import outcome_text
from steno.journal.usage import UsageTotal
from steno.store.protocol import Event, Piece

OWN = "steno."
"""Labels that begin so are ours."""
PREVIOUS = f"{OWN}previous_response_id"
WITHDRAWN = "withdrawn"
STEERED: Seq = 0
"""Stands for the turn of an input that steered: it began before the input."""

Object = dict[str, Any]

_ID = re.compile(r"resp_([0-9a-z]{1,64})_(\d{1,10})")


def id_of(session: str, input: Seq) -> str:
    """The id of a response: it says where it is, so it is found without a table."""
    return f"resp_{session}_{input}"


def place_of(id: str) -> tuple[str, Seq] | None:
    found = _ID.fullmatch(id)
    return None if found is None else (found[1], int(found[2]))


class Told(Struct, frozen=True):
    """An event. `at` is its number; of a text, that of its last code point."""

    type: str
    at: int
    data: Object
    text: str = ""

    def object(self) -> Object:
        delta = {"delta": self.text} if self.text else {}
        return {"type": self.type} | self.data | delta | {"sequence_number": self.at}


def after(told: list[Told], place: int, fine: bool = False) -> list[Told]:
    """What comes after a place. `fine`: text one code point at a time, for a reader that leaves
    whole events out by their number."""
    rest: list[Told] = []
    for one in told:
        if one.at <= place:
            continue
        if not one.text:
            rest.append(one)
            continue
        begin = one.at - len(one.text)
        new = one.text[max(place - begin, 0) :]
        if fine:
            first = one.at - len(new) + 1
            rest += [
                replace(one, at=first + i, text=point) for i, point in enumerate(new)
            ]
        else:
            rest.append(replace(one, text=new))
    return rest


class Reply:
    """Takes everything that is stored in a session from an input on, and tells what of it belongs
    to the answer. `ending` is how its last turn ended, until another one takes it up."""

    def __init__(self, session: str, input: Seq) -> None:
        self.session, self.input = session, input
        self.said: InputAdmitted | None = None
        self.created_ms = 0
        self.model = ""
        self.ending: TurnEnded | None = None
        self.turn: Seq | None = None
        """The last turn of it."""
        self.seen: Seq = input - 1
        self.at = -1
        self.usage = UsageTotal()
        self.output: list[Object] = []
        self._turns: set[Seq] = set()
        self._open = False
        self._left = False
        self._step: Seq | None = None
        self._length = 0
        self._ended = "complete"
        self._calls: dict[str, ToolCall] = {}
        self._running: dict[str, Object] = {}
        self._waits: dict[str, Seq] = {}
        self._deferred: list[Record] = []

    @property
    def id(self) -> str:
        return id_of(self.session, self.input)

    def is_over(self) -> bool:
        """Whether no later turn takes it up by itself."""
        end = self.ending
        if end is None:
            return False
        return (
            end.outcome != "interrupted"
            or end.cause in STOPS | {WITHDRAWN}
            or self._left
        )

    def is_running(self) -> bool:
        return self._open

    def waits(self) -> bool:
        """Whether a person must decide about a call."""
        return bool(self._waits)

    def take(self, event: Event) -> list[Told]:
        if isinstance(event, Piece):
            ours = event.stream == Stream(self._step or -1, "text")
            return self._text(event.offset, event.text) if ours else []
        self.seen = event.seq
        fact = event.fact
        if isinstance(fact, InputAdmitted):
            return self._begin(event, fact) if event.seq == self.input else []
        if isinstance(fact, InputWithdrawn) and fact.input == self.input:
            self.ending = TurnEnded(0, "interrupted", WITHDRAWN)
        elif isinstance(fact, TurnStarted):
            return self._start(event.seq, fact)
        elif isinstance(fact, StepStarted) and self.input in fact.takes:
            self.turn = STEERED if self.turn is None else self.turn
            self._turns.add(self.turn)
            self._open = True
            return [*self._in_progress(), *self._during(event)]
        if not self._open:
            return []
        return self._during(event)

    def finish(self) -> list[Told]:
        """The last event."""
        kind = {"completed": "completed", "failed": "failed"}.get(
            self.status(), "incomplete"
        )
        return [self._tell(f"response.{kind}", response=self.object())]

    # --- facts

    def _begin(self, record: Record, said: InputAdmitted) -> list[Told]:
        self.said, self.created_ms = said, record.at_ms
        return [
            self._tell("response.created", response=self.object()),
            self._tell("response.queued", response=self.object()),
        ]

    def _start(self, seq: Seq, fact: TurnStarted) -> list[Told]:
        origin = fact.origin
        ours = origin == Takes(self.input) or (
            isinstance(origin, Continues) and origin.turn in self._turns
        )
        if not ours:
            self._open, self._left = False, self.ending is not None
            return []
        if self.ending is not None:
            self.at += 1
        self._turns.add(seq)
        self.turn, self.ending, self._open, self._left = seq, None, True, False
        return self._in_progress()

    def _in_progress(self) -> list[Told]:
        return [self._tell("response.in_progress", response=self.object())]

    def _during(self, record: Record) -> list[Told]:
        fact = record.fact
        self.usage.apply(record)
        if isinstance(fact, StepStarted):
            self._step, self._length, self.model = record.seq, 0, fact.model
            return []
        if isinstance(fact, StepSealed | StepLost) and fact.step == self._step:
            return self._seal(record)
        if isinstance(fact, TurnEnded):
            if fact.turn == self.turn or self.turn == STEERED:
                self.ending, self._open, self._waits = fact, False, {}
            return []
        if self._step is not None:
            self._deferred.append(record)
            return []
        return self._tool(record)

    def _seal(self, record: Record) -> list[Told]:
        told: list[Told] = []
        fact = record.fact
        if isinstance(fact, StepSealed):
            self._ended = fact.ended
            for stream, text in sealed_streams(record):
                if stream.kind == "text":
                    told += self._text(0, text)
            self._calls.update(
                {one.id: one for one in fact.parts if isinstance(one, ToolCall)}
            )
            if self._length:
                told += self._close(
                    "completed" if fact.ended == "complete" else "incomplete"
                )
        self._step, deferred, self._deferred = None, self._deferred, []
        for one in deferred:
            told += self._tool(one)
        return told

    def _tool(self, record: Record) -> list[Told]:
        fact = record.fact
        if isinstance(fact, ApprovalAsked):
            self._waits[fact.call] = record.seq
            return self._in_progress()
        if isinstance(fact, ApprovalDecided):
            self._waits = {
                call: at for call, at in self._waits.items() if at != fact.asked
            }
        if isinstance(fact, ToolStarted):
            self._waits.pop(fact.call, None)
            return self._call(fact.call)
        if isinstance(fact, ToolSettled):
            self._waits.pop(fact.call, None)
            begun = [] if fact.call in self._running else self._call(fact.call)
            item = self._running.pop(fact.call)
            text = text_of(outcome_text(fact.outcome))
            if isinstance(fact.outcome, Returned):
                item |= {"status": "completed", "output": text}
            else:
                kind = "denied" if isinstance(fact.outcome, Refused) else "failed"
                item |= {"status": "failed", "error": f"{kind}: {text}"}
            done = self._tell(
                "response.output_item.done",
                output_index=self.output.index(item),
                item=dict(item),
            )
            return [*begun, done]
        return []

    # --- items

    def _call(self, call: str) -> list[Told]:
        """A tool that the service runs: shown like a tool of a server, so that no client runs it
        again."""
        known = self._calls.get(call)
        item: Object = {
            "id": f"mcp_{self.seen}_{len(self.output)}",
            "type": "mcp_call",
            "server_label": "steno",
            "name": "" if known is None else known.name,
            "arguments": "" if known is None else known.arguments,
            "status": "in_progress",
            "output": None,
            "error": None,
        }
        self._running[call] = item
        return [self._added(item)]

    def _added(self, item: Object) -> Told:
        self.output.append(item)
        index = len(self.output) - 1
        return self._tell(
            "response.output_item.added", output_index=index, item=dict(item)
        )

    def _text(self, offset: int, text: str) -> list[Told]:
        new = text[max(self._length - offset, 0) :]
        if not new:
            return []
        told: list[Told] = []
        if not self._length:
            item: Object = {
                "id": f"msg_{self._step}",
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
            told.append(self._added(item))
            self.output[-1]["content"] = [_content("")]
            told.append(
                self._tell(
                    "response.content_part.added", **self._place(), part=_content("")
                )
            )
        self._length += len(new)
        self.output[-1]["content"] = [_content(self._shown() + new)]
        self.at += len(new)
        where = self._place() | {"logprobs": []}
        told.append(Told("response.output_text.delta", self.at, where, new))
        return told

    def _close(self, status: str) -> list[Told]:
        item, text = self.output[-1], self._shown()
        item["status"] = status
        where = self._place()
        return [
            self._tell("response.output_text.done", **where, text=text, logprobs=[]),
            self._tell("response.content_part.done", **where, part=_content(text)),
            self._tell(
                "response.output_item.done",
                output_index=where["output_index"],
                item=dict(item),
            ),
        ]

    def _shown(self) -> str:
        return str(self.output[-1]["content"][0]["text"])

    def _place(self) -> Object:
        last = len(self.output) - 1
        return {
            "item_id": self.output[last]["id"],
            "output_index": last,
            "content_index": 0,
        }

    def _tell(self, type: str, **data: Any) -> Told:
        self.at += 1
        return Told(type, self.at, data)

    # --- the object

    def text(self) -> str:
        return "".join(
            part["text"]
            for item in self.output
            if item["type"] == "message"
            for part in item["content"]
        )

    def status(self) -> str:
        end = self.ending
        if end is None:
            return "queued" if self.turn is None else "in_progress"
        if end.outcome == "done":
            return "incomplete" if self._ended == "length" else "completed"
        if end.outcome == "failed":
            return "failed"
        return "cancelled" if end.cause in STOPS | {WITHDRAWN} else "incomplete"

    def why(self) -> str:
        """How it ended, in words, where it did not end well."""
        end = self.ending
        if end is None or end.outcome == "done":
            return ""
        detail = f": {end.detail}" if end.detail else ""
        became = "failed" if end.outcome == "failed" else "was stopped"
        return f"The turn {became} ({end.cause}){detail}"

    def object(self) -> Object:
        said = self.said
        labels = {} if said is None else {one.name: one.value for one in said.labels}
        status = self.status()
        reason = "max_output_tokens" if self._ended == "length" else "interrupted"
        error = (
            {"code": "server_error", "message": self.why()}
            if status == "failed"
            else None
        )
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_ms // 1000,
            "status": status,
            "background": False,
            "completed_at": None,
            "conversation": {"id": f"conv_{self.session}"},
            "error": error,
            "incomplete_details": {"reason": reason}
            if status == "incomplete"
            else None,
            "instructions": None if said is None else said.instructions,
            "max_output_tokens": None,
            "metadata": self._metadata(labels),
            "model": self.model,
            "output": [dict(item) for item in self.output],
            "parallel_tool_calls": True,
            "previous_response_id": labels.get(PREVIOUS),
            "reasoning": {"effort": None, "summary": None},
            "store": True,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": usage_object(self.usage),
            "user": None,
        }

    def _metadata(self, labels: dict[str, str]) -> dict[str, str]:
        """What the client said, and what it may want to know of ours."""
        own = {f"{OWN}session": self.session}
        if self.turn:
            own[f"{OWN}turn"] = str(self.turn)
        if self._waits:
            call, asked = next(iter(self._waits.items()))
            own |= {f"{OWN}waits_for": "approval", f"{OWN}approval": str(asked)}
            if call in self._calls:
                own[f"{OWN}tool"] = self._calls[call].name
        if self.ending is not None and self.ending.outcome != "done":
            own[f"{OWN}cause"] = self.ending.cause
        return {
            name: value for name, value in labels.items() if not name.startswith(OWN)
        } | own


def _content(text: str) -> Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def usage_object(usage: UsageTotal) -> Object | None:
    """None while anything of it is unknown: that is not 0."""
    if usage.input is None or usage.output is None or usage.unreported:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached or 0,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output,
    }
