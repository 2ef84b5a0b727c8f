"""Clients of OpenAI's API, by the official SDK, against the running service: one for all tests
here, since each has sessions of its own."""

import base64
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

ANSWER = "".join(chr(0x3B1 + i % 20) if i % 3 else "🙂é\n"[i % 4 % 3] for i in range(300))
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


class Place:
    """A running gateway, its model server, and a client of it."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.server = server
        self.world = World(folder, server.url)
        self.gateway = Gateway(self.world, folder)
        self._clients: list[OpenAI] = []

    def client(self, **options: Any) -> OpenAI:
        url = f"http://127.0.0.1:{options.pop('port', self.gateway.port)}/v1"
        settings: dict[str, Any] = {"api_key": self.gateway.token, "max_retries": 0, "timeout": 30}
        self._clients.append(OpenAI(base_url=url, **settings | options))
        return self._clients[-1]

    def hang_up(self) -> None:
        """Close what the clients have open."""
        while self._clients:
            self._clients.pop().close()

    def close(self) -> None:
        self.hang_up()
        self.gateway.close()

    def script(self, *replies: Reply) -> None:
        self.server.requests.clear()
        self.server.bodies.clear()
        self.server.replies = list(replies)
        self.server.hold_again()

    def messages(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.gateway.ask("GET", f"/api/sessions/{session}").json()[
            "messages"
        ]
        return found

    def said(self, session: str) -> list[tuple[str, str]]:
        return [(one["role"], one["text"]) for one in self.messages(session)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ModelServer() as server:
        place = Place(tmp_path_factory.mktemp("openai"), server)
        try:
            yield place
        finally:
            place.close()


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    yield shared
    shared.hang_up()
    shared.server.go_on()
    shared.server.on_request = None


def session_of(response: Any) -> str:
    return str(response.conversation.id).removeprefix("conv_")


def deltas(events: Any) -> str:
    return "".join(one.delta for one in events if one.type == "response.output_text.delta")


# --- responses ------------------------------------------------------------------------------------


@pytest.mark.promise(1, 9, 15, 46)
def test_a_response_is_what_is_stored_streamed_or_not_and_retrieved_later(place: Place) -> None:
    place.script(Reply(("Hel", "lo")), Reply(("wor", "ld")))
    stored: list[str] = []

    def looks(request: dict[str, Any]) -> None:
        (session,) = [one["id"] for one in place.world.sessions() if one["running"]]
        stored.append(place.world.messages(session, "user")[-1]["text"])

    place.server.on_request = looks
    client = place.client()
    first = client.responses.create(model="steno", input="hi", metadata={"order": "7"})
    place.server.on_request = None
    assert stored == ["hi"]
    assert (first.status, first.output_text) == ("completed", "Hello")
    assert (first.metadata or {})["order"] == "7"
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.total_tokens) == (10, 15)
    events = list(
        client.responses.create(
            model="steno", input="again", previous_response_id=first.id, stream=True
        )
    )
    assert deltas(events) == "world"
    assert [one.type for one in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert events[-1].type == "response.completed"
    second = events[-1].response
    assert session_of(second) == session_of(first)
    assert second.previous_response_id == first.id
    again = client.responses.retrieve(first.id)
    assert again.model_dump() == first.model_dump()
    assert client.responses.retrieve(second.id).output_text == "world"
    assert place.said(session_of(first)) == [
        ("user", "hi"),
        ("assistant", "Hello"),
        ("user", "again"),
        ("assistant", "world"),
    ]


def test_input_items_instructions_and_images_reach_the_model(place: Place) -> None:
    place.script(Reply(("a dot",)), Reply(("still",)))
    url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    client = place.client()
    answer = client.responses.create(
        model="steno",
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Speak plainly."},
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": "noted"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what is it?"},
                    {"type": "input_image", "image_url": url, "detail": "auto"},
                ],
            },
        ],
    )
    assert answer.output_text == "a dot"
    (request,) = place.server.requests
    system, *told = request["messages"]
    assert system["content"].endswith("Be brief.\n\nSpeak plainly.")
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    assert "image_url" in str(told[-1]["content"])
    shown = place.messages(session_of(answer))
    assert [one["state"] for one in shown] == ["given", "given", "complete", "complete"]
    items = list(client.responses.input_items.list(answer.id, order="asc"))
    assert [one.role for one in items] == ["user", "assistant", "user"]  # type: ignore[union-attr]
    client.responses.create(model="steno", input="and now?", previous_response_id=answer.id)
    assert "Be brief." in place.server.requests[-1]["messages"][0]["content"]


def test_a_response_in_the_middle_is_followed_in_a_fork_and_a_conversation_goes_on(
    place: Place,
) -> None:
    place.script(*(Reply((f"answer {i}",)) for i in range(4)))
    client = place.client()
    one = client.responses.create(model="steno", input="one")
    two = client.responses.create(model="steno", input="two", previous_response_id=one.id)
    other = client.responses.create(model="steno", input="other", previous_response_id=one.id)
    assert session_of(one) == session_of(two) != session_of(other)
    texts = [text for _, text in place.said(session_of(other))]
    assert texts == ["one", "answer 0", "other", "answer 2"]
    last = client.responses.create(model="steno", input="on", conversation=two.conversation.id)  # type: ignore[union-attr]
    assert session_of(last) == session_of(two)
    assert [text for _, text in place.said(session_of(two))][-2:] == ["on", "answer 3"]


@pytest.mark.promise(5, 36)
def test_a_background_response_is_polled_cancelled_and_removed(place: Place) -> None:
    place.script(Reply(("par", "tial", "."), held=True))
    client = place.client()
    made = client.responses.create(model="steno", input="work", background=True)
    assert made.status in ("queued", "in_progress")
    wait_until(lambda: client.responses.retrieve(made.id).output_text == "partial", "the text")
    stopped = client.responses.cancel(made.id)
    assert (stopped.status, stopped.output_text) == ("cancelled", "partial")
    assert client.responses.cancel(made.id).status == "cancelled"
    place.server.go_on()
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_removing_one_of_two_responses_leaves_the_other(place: Place) -> None:
    place.script(Reply(("first secret",)), Reply(("second",)))
    client = place.client()
    one = client.responses.create(model="steno", input="my secret")
    two = client.responses.create(model="steno", input="two", previous_response_id=one.id)
    client.responses.delete(one.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(one.id)
    assert client.responses.retrieve(two.id).output_text == "second"
    assert "secret" not in str(place.messages(session_of(two)))


@pytest.mark.promise(24)
def test_a_failed_turn_is_a_failed_response_with_its_cause(place: Place) -> None:
    place.script(Reply(status=400, complaint="no such thing"))
    client = place.client()
    failed = client.responses.create(model="steno", input="hi")
    assert failed.status == "failed"
    assert failed.error is not None
    assert "no such thing" in failed.error.message
    assert failed.usage is None
    with pytest.raises(openai.APIStatusError) as raised:
        client.with_options(max_retries=2).chat.completions.create(
            model="steno", messages=[{"role": "user", "content": "hi"}]
        )
    assert raised.value.status_code == 502
    assert "kept in session" in raised.value.message
    assert len(place.server.requests) == 2


# --- approvals ------------------------------------------------------------------------------------


@pytest.mark.promise(23)
def test_a_call_that_waits_for_approval_is_in_progress_and_says_so(place: Place) -> None:
    call = ("shell", '{"command": "echo ran"}')
    place.script(Reply(("I look.",), tools=(call,)), Reply(("Done.",)))
    client = place.client()
    stream = client.responses.create(model="steno", input="run it", stream=True)
    waiting: Any = None
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.in_progress":
            waiting = event.response.metadata
            if "steno.waits_for" in waiting:
                break
    assert waiting["steno.waits_for"] == "approval"
    assert waiting["steno.tool"] == "shell"
    id = seen[0].response.id  # type: ignore[union-attr]
    polled = client.responses.retrieve(id)
    assert polled.status == "in_progress"
    assert (polled.metadata or {})["steno.approval"] == waiting["steno.approval"]
    session = session_of(polled)
    path = f"/api/approvals/{session}/{waiting['steno.approval']}"
    assert place.gateway.ask("POST", path, {"decision": "allow"}).status == 200
    rest = list(client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number))
    assert rest[-1].type == "response.completed"
    assert deltas(seen) + deltas(rest) == "I look.Done."
    done = client.responses.retrieve(id)
    assert [one.type for one in done.output] == ["message", "mcp_call", "message"]
    assert "ran" in str(done.output[1].output)  # type: ignore[union-attr]
    numbers = [one.sequence_number for one in [*seen, *rest]]
    assert numbers == sorted(set(numbers))


# --- tries ----------------------------------------------------------------------------------------


class Cutter:
    """Forwards connections to a port; the first one is cut when `cut` is set, before any of the
    answer gets through."""

    def __init__(self, port: int) -> None:
        self.cut = threading.Event()
        self.connections = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(("127.0.0.1", self._to))
            self._open += [near, far]
            self._pump(near, far)
            if self.connections == 1:
                self.cut.wait(20)
                near.shutdown(socket.SHUT_RDWR)
                far.shutdown(socket.SHUT_RDWR)
            else:
                self._pump(far, near)

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        pumping = threading.Thread(target=_pump, args=(one, other), daemon=True)
        pumping.start()
        self._threads.append(pumping)

    def close(self) -> None:
        """Shut everything before it is closed, so that no thread is left in a read."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in (self._listener, *self._open):
            one.close()


def _pump(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass


@pytest.mark.promise(16, 63)
@pytest.mark.parametrize("route", ["responses", "chat"])
def test_a_request_that_the_sdk_repeats_after_a_cut_connection_is_one_turn(
    place: Place, route: str
) -> None:
    place.script(Reply(("on", "ce"), held=True))
    cutter = Cutter(place.gateway.port)
    host = {"Host": f"127.0.0.1:{place.gateway.port}"}
    client = place.client(port=cutter.port, max_retries=2, default_headers=host)
    answers: list[str] = []

    def ask() -> None:
        if route == "responses":
            answers.append(client.responses.create(model="steno", input="cut me").output_text)
            return
        made = client.chat.completions.create(
            model="steno", messages=[{"role": "user", "content": "cut me"}]
        )
        answers.append(str(made.choices[0].message.content))

    try:
        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: len(place.server.requests) == 1, "the first request")
        cutter.cut.set()
        wait_until(lambda: cutter.connections >= 2, "the second try")
        place.server.go_on()
        asking.join(20)
    finally:
        cutter.close()
    assert answers == ["once"]
    assert len(place.server.requests) == 1


@pytest.mark.promise(16)
def test_the_same_words_twice_are_two_turns_and_the_same_key_is_one(place: Place) -> None:
    place.script(*(Reply((f"{i}",)) for i in range(5)))
    client = place.client()
    ids = {client.responses.create(model="steno", input="same words").id for _ in range(3)}
    assert len(ids) == 3
    key = {"Idempotency-Key": "k1"}
    first = client.responses.create(model="steno", input="keyed", extra_headers=key)
    again = client.responses.create(model="steno", input="keyed", extra_headers=key)
    assert (first.id, first.output_text) == (again.id, again.output_text)
    with pytest.raises(openai.ConflictError):
        client.responses.create(model="steno", input="other words", extra_headers=key)
    assert len(place.server.requests) == 4


# --- leaving --------------------------------------------------------------------------------------


def wait_for(client: OpenAI, id: str, status: str) -> Any:
    wait_until(lambda: client.responses.retrieve(id).status == status, status)
    return client.responses.retrieve(id)


@pytest.mark.promise(36)
def test_leaving_stops_a_turn_only_if_the_client_asked_for_that(place: Place) -> None:
    client = place.client()
    for header, status in (({}, "completed"), ({"X-Steno-On-Disconnect": "stop"}, "cancelled")):
        place.script(Reply(("Hel", "lo", "!"), held=True))
        stream = client.responses.create(
            model="steno", input="hi", stream=True, extra_headers=header
        )
        id = ""
        for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta" and event.delta.endswith("lo"):
                break
        stream.close()
        if status == "cancelled":
            wait_for(client, id, status)
        place.server.go_on()
        whole = "Hello!" if status == "completed" else "Hello"
        assert wait_for(client, id, status).output_text == whole


def test_the_helper_that_filters_by_number_resumes_at_the_exact_code_point(place: Place) -> None:
    place.script(Reply(tuple(ANSWER[i : i + 7] for i in range(0, 90, 7))))
    client = place.client()
    made = client.responses.create(model="steno", input="tell")
    whole = made.output_text
    for start in (2, 5, 9, 31, 60):
        with client.responses.stream(response_id=made.id, starting_after=start) as stream:
            rest = deltas(stream)
        assert whole[: max(start - 4, 0)] + rest == whole


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.promise(2, 5, 34, 62, 63)
@pytest.mark.suite("23")
@pytest.mark.parametrize("every", [23, 1], ids=str)
def test_after_a_kill_a_stream_is_read_on_at_every_place(
    tmp_path: Path, server: ModelServer, every: int
) -> None:
    pieces = tuple(ANSWER[i : i + 7] for i in range(0, len(ANSWER), 7))
    server.replies = [Reply(pieces, then="hang"), Reply(("next",))]
    place = Place(tmp_path, server)
    try:
        client = place.client()
        seen: list[Any] = []
        with pytest.raises(openai.APIConnectionError):
            for event in client.responses.create(model="steno", input="tell", stream=True):
                seen.append(event)
                if deltas(seen) == ANSWER:
                    place.gateway.kill()
        place.gateway.start()
        id = seen[0].response.id
        last = list(client.responses.retrieve(id, stream=True))
        assert last[-1].type == "response.incomplete"
        assert (last[-1].response.metadata or {})["steno.cause"] == "killed"
        assert deltas(last) == ANSWER
        before = 5
        numbers = [one.sequence_number for one in last]
        assert numbers == list(range(before + len(ANSWER) + 4))
        for start in [*range(0, numbers[-1], every), *range(numbers[-1] - 4, numbers[-1])]:
            rest = list(client.responses.retrieve(id, stream=True, starting_after=start))
            assert ANSWER[: max(start + 1 - before, 0)] + deltas(rest) == ANSWER, start
            assert rest[0].sequence_number > start
        retried = place.gateway.ask(
            "POST",
            "/v1/responses",
            b'{"input":"once more"}',
            {"Content-Type": "application/json", "x-stainless-retry-count": "0"},
        ).json()
        place.gateway.kill()
        place.gateway.start()
        again = place.gateway.ask(
            "POST",
            "/v1/responses",
            b'{"input":"once more"}',
            {"Content-Type": "application/json", "x-stainless-retry-count": "1"},
        ).json()
        assert (again["id"], again["status"]) == (retried["id"], "completed")
        assert len(server.requests) == 2
    finally:
        place.close()


@pytest.mark.promise(62, 63)
def test_a_stop_in_order_says_that_the_service_restarts_and_the_response_is_read_on(
    tmp_path: Path, server: ModelServer
) -> None:
    server.replies = [Reply(("part", "ly"), then="hang")]
    place = Place(tmp_path, server)
    try:
        place.world.environment["STENO_GATEWAY_DRAIN_S"] = "0.2"
        place.gateway.stop()
        place.gateway.start()
        client = place.client()
        seen: list[Any] = []
        for event in client.responses.create(model="steno", input="tell", stream=True):
            seen.append(event)
            if deltas(seen) == "partly" and event.type == "response.output_text.delta":
                place.gateway.program.signal(signal.SIGTERM)
        assert (seen[-1].type, seen[-1].code) == ("error", "restarting")
        assert place.gateway.program.process.wait(20) == 0
        place.gateway.start()
        id, last = seen[0].response.id, seen[-2].sequence_number
        rest = list(client.responses.retrieve(id, stream=True, starting_after=last))
        assert deltas(rest) == ""
        assert rest[-1].response.status == "incomplete"  # type: ignore[union-attr]
        assert client.responses.retrieve(id).output_text == "partly"
    finally:
        place.close()


# --- chat -----------------------------------------------------------------------------------------


@pytest.mark.promise(9, 15)
def test_a_chat_without_a_session_is_kept_as_given_and_left_out_of_lists(place: Place) -> None:
    place.script(Reply(("Pa", "ris")))
    client = place.client()
    raw = client.chat.completions.with_raw_response.create(
        model="steno",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi there"},
            {"role": "user", "content": "Capital of France?"},
        ],
    )
    made = raw.parse()
    session = raw.headers["X-Steno-Session"]
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("Paris", "stop")
    assert made.usage is not None
    assert made.usage.total_tokens == 15
    told = [(one["role"], one["content"]) for one in place.server.requests[0]["messages"]]
    assert told[0][1].endswith("Be brief.")
    assert told[1:] == [
        ("user", "hello"),
        ("assistant", "hi there"),
        ("user", "Capital of France?"),
    ]
    assert [one["state"] for one in place.messages(session)] == ["given"] * 2 + ["complete"] * 2
    listed = place.gateway.ask("GET", "/api/sessions?limit=200").json()["sessions"]
    assert session not in [one["id"] for one in listed]
    assert session not in [one["id"] for one in place.world.sessions()]
    (one,) = [
        one
        for one in place.gateway.ask("GET", "/api/sessions?limit=200&platform=http-once").json()[
            "sessions"
        ]
        if one["id"] == session
    ]
    assert one["messages"] == 4


def test_a_streamed_chat_ends_with_its_reason_its_usage_and_done(place: Place) -> None:
    place.script(Reply(("a", "b", "c")))
    client = place.client()
    chunks = list(
        client.chat.completions.create(
            model="steno",
            messages=[{"role": "user", "content": "abc"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == "abc"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    body = {"model": "steno", "messages": [{"role": "user", "content": "abc"}], "stream": True}
    raw = place.gateway.ask("POST", "/v1/chat/completions", body)
    assert raw.body.endswith(b"data: [DONE]\n\n")
    assert b'"usage"' not in raw.body


@pytest.mark.promise(16, 17)
def test_a_chat_bound_to_a_session_adds_its_last_message_alone(place: Place) -> None:
    place.script(*(Reply((f"answer {i}",)) for i in range(3)))
    client = place.client()
    headers = {"X-Steno-Key": "desk"}

    def ask(*messages: tuple[str, str]) -> Any:
        said: Any = [{"role": role, "content": text} for role, text in messages]
        return client.chat.completions.with_raw_response.create(
            model="steno", messages=said, extra_headers=headers
        )

    session = ask(("user", "one")).headers["X-Steno-Session"]
    ask(("user", "one"), ("assistant", "answer 0"), ("user", "two"))
    assert len(place.server.requests[-1]["messages"]) == 4
    with pytest.raises(openai.ConflictError) as raised:
        ask(("user", "one"), ("assistant", "something else"), ("user", "three"))
    assert "not what was said" in raised.value.message
    assert len(place.server.requests) == 2
    ask(("user", "three"))
    texts = [text for _, text in place.said(session)]
    assert texts == ["one", "answer 0", "two", "answer 1", "three", "answer 2"]


@pytest.mark.promise(17)
def test_two_front_ends_in_one_session_take_turns(place: Place) -> None:
    place.script(Reply(("fir", "st"), held=True), Reply(("second",)))
    session = place.gateway.make()
    place.gateway.say(session, "by the other route")
    wait_until(lambda: len(place.server.requests) == 1, "the first request")
    client = place.client()
    made = client.responses.create(
        model="steno", input="by this one", conversation=session, background=True
    )
    assert made.status == "queued"
    place.server.go_on()
    wait_until(lambda: client.responses.retrieve(made.id).status == "completed", "the answer")
    told = [one["content"] for one in place.server.requests[-1]["messages"][1:]]
    assert told == ["by the other route", "first", "by this one"]
    assert place.server.most_in_flight == 1 or len(place.server.requests) == 2


# --- refusals -------------------------------------------------------------------------------------

USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        ("responses", {"input": "x", "tools": [{"type": "web_search"}]}, 400, "tools", "Tools of"),
        ("responses", {"input": ""}, 400, "input", "empty"),
        ("responses", {"input": "x", "model": "nobody:x"}, 404, "model", "no model 'nobody:x'"),
        ("responses", {"input": "x", "previous_response_id": "resp_no_3"}, 404, None, "resp_no_3"),
        ("responses", {"input": "x", "conversation": "conv_none"}, 404, None, "none"),
        ("responses", {"input": [{"role": "assistant", "content": "x"}]}, 400, "input", "last"),
        (
            "responses",
            {"input": [{"type": "item_reference", "id": "x"}, USER]},
            400,
            "input[0]",
            "",
        ),
        ("responses", {"input": 5}, 400, None, "$.input"),
        ("responses", {"input": "x", "metadata": {"steno.a": "b"}}, 400, "metadata", "taken"),
        ("chat/completions", {"messages": []}, 400, "messages", "no message"),
        ("chat/completions", {"messages": [USER], "n": 2}, 400, "n", "one answer"),
        (
            "chat/completions",
            {"messages": [USER], "response_format": {"type": "json_object"}},
            400,
            "response_format",
            "plain text",
        ),
        (
            "chat/completions",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
                    }
                ]
            },
            400,
            "messages[0].content[0]",
            "opens no address",
        ),
        ("chat/completions", {"messages": [{"role": "king", "content": "x"}, USER]}, 400, None, ""),
    ],
)
def test_what_cannot_be_done_is_refused_in_openai_s_shape(
    place: Place, path: str, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    place.script(Reply(("never",)))
    answer = place.gateway.ask("POST", f"/v1/{path}", body)
    error = answer.json()["error"]
    assert (answer.status, set(error)) == (status, {"message", "type", "param", "code"})
    assert words in error["message"]
    assert param is None or error["param"] == param
    assert place.server.requests == []


def test_errors_of_the_gate_have_the_shape_too(place: Place) -> None:
    with pytest.raises(openai.AuthenticationError) as raised:
        place.client(api_key="st_wrong").models.list()
    assert raised.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        place.client().models.retrieve("nobody:x")
    assert place.client().models.retrieve("steno").id == "steno"
    assert "openai-chat:test" in [one.id for one in place.client().models.list()]


def test_a_token_for_one_session_uses_that_session_alone(place: Place) -> None:
    place.script(Reply(("mine",)))
    session = place.gateway.make()
    words = ("gateway", "token", "add", "narrow", "--scope", "write", "--session", session)
    token = place.world.steno(*words).strip()
    client = place.client(api_key=token)
    made = client.responses.create(model="steno", input="hi")
    assert session_of(made) == session
    with pytest.raises(openai.PermissionDeniedError):
        client.responses.create(model="steno", input="hi", conversation=place.gateway.make())
