"""From a model's stream to the journal: every stream comes to an end."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from steno.models.protocol import ModelEvent, TextDelta
from steno.models.wire import decode
from steno.runtimes.stream import Kind, Streamed, stream_to

NESTED = '{"new":' + "[" * 5_000 + "]" * 5_000 + "}"


class Event(msgspec.Struct):
    text: str = ""


def test_an_event_that_no_reader_can_take_in_breaks_the_answer_off_and_nobody_waits() -> None:
    committed: list[str] = []

    async def events() -> AsyncGenerator[ModelEvent, None]:
        yield TextDelta("shown")
        yield TextDelta(decode(msgspec.json.Decoder(Event), NESTED).text)

    async def commit(_: Kind, text: str) -> None:
        committed.append(text)

    async def run() -> Streamed:
        return await asyncio.wait_for(stream_to(commit, events(), asyncio.Event()), 10)

    streamed = asyncio.run(run())
    assert (streamed.text, committed, streamed.finished) == ("shown", ["shown"], None)
    assert streamed.error is not None
    assert (streamed.error.cause, streamed.error.sent) == ("server_error", "yes")
    assert "RecursionError" in streamed.error.detail
