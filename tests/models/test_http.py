"""Faults of servers and networks, each made on a real socket."""

import asyncio
import gzip
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, cast

import pytest
import trustme

from steno.journal.facts import Usage
from steno.journal.parts import Text, text_of
from steno.models import http
from steno.models.protocol import Finished, ModelError, ModelEvent, TextDelta
from steno.models.specs import make
from tests.models.faults import Caller, events_of, serving
from tests.models.samples import PAYLOADS, SETTINGS, SPECS, last, request, said, settings_at, shown
from tests.models.test_readers import CHAT, MESSAGES, RESPONSES, WHOLE, chunk, end

STREAMS = dict(zip(SPECS, (CHAT, RESPONSES, MESSAGES), strict=True))
WHOLES = dict(zip(SPECS, (WHOLE["chat"], WHOLE["responses"], WHOLE["messages"]), strict=True))
KEY = "sk-openai-test"
CHAT_SPEC = SPECS[0]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def lost(act: Any, spec: str = CHAT_SPEC, **changes: Any) -> ModelError:
    """The error of one attempt; there was exactly one request, and the error does not name the
    key."""
    async with serving(act) as server:
        with pytest.raises(ModelError) as error:
            await events_of(server.model(spec, **changes))
        assert len(server.callers) == 1, "nothing retries"
    for text in (str(error.value), repr(error.value), error.value.detail):
        assert KEY not in text
    assert len(error.value.detail) <= 500
    return error.value


@pytest.mark.promise(9)
@pytest.mark.parametrize("spec", SPECS)
def test_an_answer_comes_in_whole(spec: str) -> None:
    async def act(caller: Caller) -> None:
        await caller.begin()
        await caller.event(*STREAMS[spec])
        await caller.end()

    async def test() -> None:
        async with serving(act) as server:
            model = server.model(spec)
            body = model.to_wire(request(said(1, "Grüße")), PAYLOADS)
            events = await events_of(model, body)
            assert server.callers[0].body == body
            parts = last(events).parts
            assert (last(events).ended, text_of(parts)) == ("complete", text_of(WHOLES[spec]))
            assert shown(events)[0] == text_of(parts)

    run(test())


def test_a_stream_that_comes_byte_by_byte_is_read_as_it_is_meant() -> None:
    async def act(caller: Caller) -> None:
        await caller.begin()
        wire = 'data: {"choices":[{"delta":{"content":"Grüße 世界 🙂"}}]}\r\n\r\n'.encode()
        for byte in wire:
            await caller.chunk(bytes([byte]))
        await caller.event(end())
        await caller.end()

    async def test() -> None:
        async with serving(act) as server:
            assert last(await events_of(server.model(CHAT_SPEC))).parts == (Text("Grüße 世界 🙂"),)

    run(test())


@pytest.mark.promise(9, 10)
@pytest.mark.parametrize("how", ["cut", "end", "hang"])
@pytest.mark.parametrize("spec", SPECS)
def test_a_stream_that_breaks_off_after_some_text_is_incomplete(spec: str, how: str) -> None:
    pieces = {SPECS[0]: CHAT[:4], SPECS[1]: RESPONSES[:8], SPECS[2]: MESSAGES[:12]}[spec]

    async def act(caller: Caller) -> None:
        await caller.begin()
        await caller.event(*pieces)
        if how == "cut":
            caller.cut()
        elif how == "end":
            await caller.end()
        else:
            await caller.gone.wait()

    async def test() -> None:
        async with serving(act) as server:
            events = await events_of(server.model(spec))
            assert last(events).ended == "incomplete"
            assert shown(events)[0] == text_of(last(events).parts) == "Grüße, 世界 🙂"
            assert len(server.callers) == 1

    run(test())


@pytest.mark.promise(8, 10)
@pytest.mark.parametrize(
    ("how", "cause", "sent"),
    [
        ("no headers, cut", "dropped", "unknown"),
        ("no headers, hang", "timeout", "unknown"),
        ("half the headers, cut", "dropped", "unknown"),
        ("headers, cut", "dropped", "yes"),
        ("headers, hang", "timeout", "yes"),
        ("headers, end", "dropped", "yes"),
        ("role only, cut", "dropped", "yes"),
        ("call only, cut", "dropped", "yes"),
        ("garbage", "dropped", "yes"),
        ("no chunk", "dropped", "yes"),
        ("no gzip", "dropped", "yes"),
        ("not http, cut", "dropped", "unknown"),
    ],
)
def test_a_request_of_which_nothing_came_back(how: str, cause: str, sent: str) -> None:
    async def act(caller: Caller) -> None:
        if how.startswith("half"):
            await caller.send(b"HTTP/1.1 200 OK\r\ncontent-ty")
        elif how.startswith("not http"):
            await caller.send(b"220 smtp.example.org ESMTP\r\n")
        elif how == "no gzip":
            await caller.send(
                b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\ndata: {}\n"
            )
        elif not how.startswith("no headers"):
            await caller.begin()
        if how.startswith("role"):
            await caller.event(CHAT[0])
        elif how.startswith("call"):
            await caller.event(CHAT[0], *CHAT[4:7])
        elif how == "garbage":
            await caller.event("<<<>>>")
        elif how == "no chunk":
            await asyncio.sleep(0.1)  # what comes with the headers is judged with them
            await caller.send(b"data: {}\n\n")
        if how.endswith("hang"):
            await caller.gone.wait()
        elif how.endswith("end"):
            await caller.end()
        else:
            caller.cut() if how.endswith("cut") else await caller.gone.wait()

    async def test() -> None:
        error = await lost(act)
        assert (error.cause, error.sent) == (cause, sent)

    run(test())


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("status", "body", "cause", "detail"),
    [
        (
            429,
            b'{"error":{"message":"Slow down","type":"requests"}}',
            "rate_limited",
            "HTTP 429: Slow down",
        ),
        (
            429,
            b'{"error":{"message":"Pay","code":"insufficient_quota"}}',
            "refused",
            "HTTP 429: Pay",
        ),
        (500, b"", "server_error", "HTTP 500"),
        (502, b"<html>Bad gateway</html>", "server_error", "HTTP 502: <html>Bad gateway</html>"),
        (503, b'{"error":"loading"}', "overloaded", "HTTP 503: loading"),
        (
            529,
            b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}',
            "overloaded",
            "HTTP 529: Busy",
        ),
        (
            400,
            b'{"error":{"message":"no","code":"context_length_exceeded"}}',
            "too_long",
            "HTTP 400: no",
        ),
        (
            400,
            b'{"type":"error","error":{"message":"prompt is too long: 3"}}',
            "too_long",
            "HTTP 400: prompt is too long: 3",
        ),
        (413, b"", "too_long", "HTTP 413"),
        (400, b'{"detail":"bad field"}', "refused", "HTTP 400: bad field"),
        (
            401,
            b'{"error":{"message":"Bad key sk-openai-test!"}}',
            "no_key",
            "HTTP 401: Bad key [key]!",
        ),
        (404, b'{"error":{"message":"no such model"}}', "unknown_model", "HTTP 404: no such model"),
        (307, b"", "refused", "HTTP 307"),
        (418, b"x" * 100_000, "refused", "HTTP 418: " + "x" * 489 + "…"),
    ],
)
def test_a_status_says_what_to_do(status: int, body: bytes, cause: str, detail: str) -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(status, body, "content-type: application/json")

    async def test() -> None:
        error = await lost(act)
        assert (error.cause, error.sent, error.detail) == (cause, "yes", detail)

    run(test())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("retry-after: 7", 7.0),
        ("retry-after-ms: 1500", 1.5),
        ("retry-after: soon", None),
        ("x: y", None),
    ],
)
def test_how_long_to_wait_is_passed_on(header: str, seconds: float | None) -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(429, b"", header)

    async def test() -> None:
        assert (await lost(act)).retry_after_s == seconds

    run(test())


def test_a_date_to_wait_for_is_passed_on_in_seconds() -> None:
    async def act(caller: Caller) -> None:
        later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
        await caller.answer(429, b"", f"retry-after: {later}")

    async def test() -> None:
        assert 50 < ((await lost(act)).retry_after_s or 0) <= 60

    run(test())


def test_an_answer_that_is_no_stream_is_an_error_with_its_words() -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(
            200, b'{"error":{"message":"no streaming here"}}', "content-type: application/json"
        )

    async def test() -> None:
        error = await lost(act)
        assert (error.cause, error.sent) == ("server_error", "yes")
        assert "no streaming here" in error.detail

    run(test())


@pytest.mark.promise(8)
def test_a_refused_connection_was_not_sent() -> None:
    async def test() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        model = make(CHAT_SPEC, settings_at(f"http://127.0.0.1:{port}"))
        with pytest.raises(ModelError) as error:
            await events_of(model)
        assert (error.value.cause, error.value.sent) == ("unreachable", "no")

    run(test())


@pytest.mark.promise(8)
def test_a_connection_that_never_comes_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
            base = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            monkeypatch.setattr(http, "CONNECT_S", 0.3)
            model = make(CHAT_SPEC, settings_at(base))
            with pytest.raises(ModelError) as error:
                await events_of(model)
            for one in waiting:
                one.close()
        assert (error.value.cause, error.value.sent) == ("unreachable", "no")

    run(test())


@pytest.mark.promise(8)
def test_a_server_that_nobody_vouches_for_gets_nothing() -> None:
    async def test() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        came: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            base = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(ModelError) as error:
                await events_of(make(CHAT_SPEC, settings_at(base)))
        assert (error.value.cause, error.value.sent) == ("not_trusted", "no")
        assert "certificate" in error.value.detail.lower()
        assert came in ([], [b""])

    run(test())


@pytest.mark.promise(8)
def test_a_server_that_does_not_take_the_request_in_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(1)
            base = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            monkeypatch.setattr(http, "UPLOAD_BYTES_PER_S_MIN", 1_000_000_000)
            monkeypatch.setattr(http, "CONNECT_S", 0.2)
            model = make(CHAT_SPEC, settings_at(base, idle_s=0.2))
            with pytest.raises(ModelError) as error:
                await events_of(model, b"x" * 50_000_000)
        assert (error.value.cause, error.value.sent) == ("timeout", "unknown")

    run(test())


def test_a_long_request_goes_out_whole() -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(500, b"")

    async def test() -> None:
        async with serving(act) as server:
            body = bytes(range(256)) * 20_000
            with pytest.raises(ModelError):
                await events_of(server.model(CHAT_SPEC), body)
            assert server.callers[0].body == body

    run(test())


def test_a_stream_that_comes_compressed_although_nobody_asked_is_read() -> None:
    async def act(caller: Caller) -> None:
        events = "".join(f"data: {json.dumps(event)}\n\n" for event in CHAT)
        await caller.answer(200, gzip.compress(events.encode()), "content-encoding: gzip")

    async def test() -> None:
        async with serving(act) as server:
            answer = last(await events_of(server.model(CHAT_SPEC)))
            assert (answer.ended, text_of(answer.parts)) == ("complete", text_of(WHOLES[CHAT_SPEC]))

    run(test())


def test_a_proxy_that_the_environment_names_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(500, b"")

    async def test() -> None:
        async with serving(act) as server, serving(act) as proxy:
            through = f"http://127.0.0.1:{proxy.port}"
            monkeypatch.setenv("HTTP_PROXY", through)
            monkeypatch.setenv("ALL_PROXY", through)
            with pytest.raises(ModelError):
                await events_of(server.model(CHAT_SPEC))
            assert [caller.head.split()[1] for caller in server.callers] == ["/v1/chat/completions"]
            assert proxy.callers == []

    run(test())


def test_a_password_in_an_address_is_not_shown() -> None:
    async def test() -> None:
        for base in (
            "http://user:secret@127.0.0.1:1",
            "http://user:secret@[::1:1",
            "http://user:secret@127.0.0.1:1 /",
        ):
            try:
                await events_of(make(SPECS[2], settings_at(base)))
            except (ModelError, ValueError) as error:
                assert "secret" not in str(error)

    run(test())


@pytest.mark.promise(10)
def test_a_server_that_does_not_close_after_the_end_keeps_nobody_waiting() -> None:
    async def act(caller: Caller) -> None:
        await caller.begin()
        await caller.event(
            chunk(content="a"), end(), {"choices": [], "usage": {"prompt_tokens": 1}}
        )
        await caller.gone.wait()

    async def test() -> None:
        async with serving(act) as server:
            began = time.monotonic()
            events = await events_of(server.model(CHAT_SPEC, idle_s=30.0))
            assert last(events) == Finished((Text("a"),), "complete", Usage(1))
            assert time.monotonic() - began < 5

    run(test())


def test_connections_are_used_again() -> None:
    async def act(caller: Caller) -> None:
        await caller.begin()
        await caller.event(chunk(content="a"), end(), "[DONE]")
        await caller.end()

    async def test() -> None:
        async with serving(act) as server:
            model = server.model(CHAT_SPEC)
            for _ in range(3):
                assert last([event async for event in model.stream(b"{}")]).ended == "complete"
            await model.close()
            assert (len(server.callers), server.connections) == (3, 1)

    run(test())


@pytest.mark.promise(12, 36)
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_stop_ends_the_request_at_once(how: str) -> None:
    async def act(caller: Caller) -> None:
        await caller.begin()
        await caller.event(chunk(content="a"))
        await caller.gone.wait()

    async def first(stream: AsyncIterator[ModelEvent]) -> None:
        async with aclosing(cast(Any, stream)):
            async for event in stream:
                assert event == TextDelta("a")
                if how == "close":
                    return

    async def test() -> None:
        async with serving(act) as server:
            model = server.model(CHAT_SPEC, idle_s=30.0)
            reading = asyncio.create_task(first(model.stream(b"{}")))
            if how == "cancel":
                await asyncio.sleep(0.2)
                reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await asyncio.wait_for(server.callers[0].gone.wait(), 5)
            await model.close()

    run(test())


def test_keys_go_into_the_header_that_the_format_wants() -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(500, b"")

    async def test() -> None:
        async with serving(act) as server:
            for spec in SPECS:
                with pytest.raises(ModelError):
                    await events_of(server.model(spec))
            heads = [caller.head.lower() for caller in server.callers]
        assert [head.split()[1] for head in heads] == [
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/messages",
        ]
        assert "authorization: bearer sk-openai-test\r\n" in heads[0]
        assert "authorization: bearer sk-openai-test\r\n" in heads[1]
        assert "x-api-key: sk-anthropic-test\r\n" in heads[2]
        assert "anthropic-version: 2023-06-01\r\n" in heads[2]

    run(test())


def test_a_server_of_ones_own_needs_no_key() -> None:
    async def act(caller: Caller) -> None:
        await caller.answer(500, b"")

    async def test() -> None:
        async with serving(act) as server:
            with pytest.raises(ModelError):
                await events_of(server.model(CHAT_SPEC, key=""))
            assert "authorization" not in server.callers[0].head.lower()

    run(test())


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("key", ["", "sk-\n", "sk-é", "sk ey"])
def test_without_a_usable_key_nothing_is_sent_and_the_key_is_not_shown(spec: str, key: str) -> None:
    async def test() -> None:
        model = make(spec, settings_at(key=key))
        with pytest.raises(ModelError) as error:
            await events_of(model)
        assert (error.value.cause, error.value.sent) == ("no_key", "no")
        assert not key or key not in error.value.detail

    run(test())


def test_settings_do_not_show_their_keys() -> None:
    assert KEY not in repr(SETTINGS)
    assert KEY not in repr(vars(make(CHAT_SPEC, SETTINGS)))
