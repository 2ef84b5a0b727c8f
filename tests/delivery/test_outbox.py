"""What to do about a delivery, and what the answer of a place means: two functions of what is
known."""

import asyncio
import socket
from typing import Any

import pytest
from msgspec.structs import replace

from steno.delivery.outbox import (
    Answer,
    DeliveryDebt,
    Expire,
    Leave,
    Replied,
    Send,
    Unanswered,
    Unreached,
    WaitFor,
    decide,
    outcome,
    pause_s,
    told,
)
from steno.delivery.webhook import Webhook, is_outside
from steno.journal.debts import OwedDelivery
from steno.journal.facts import Delivered, DeliveryExpired, DeliveryRefused

DAY_MS = 86_400_000
OWED = OwedDelivery(input=2, expires_s=86_400, since_ms=1_000)
DUE = DeliveryDebt("s", 3, OWED, turn=4, running=False)


def tried(times: int, at_ms: int) -> OwedDelivery:
    return replace(OWED, tries=times, tried_ms=at_ms, taken=4, turn=4)


@pytest.mark.parametrize(
    ("debt", "now_ms", "decision"),
    [
        (DUE, 2_000, Send(1)),
        (replace(DUE, running=True), 2_000, Send(1)),  # the next turn runs; this one has ended
        (replace(DUE, turn=None, running=True), 2_000, Leave()),
        (replace(DUE, turn=None), 2_000, Leave()),  # it waits to be taken, or for a person
        (replace(DUE, sending=True), 2_000, Leave()),
        (replace(DUE, sending=True), 2 * DAY_MS, Leave()),
        (DUE, DAY_MS + 999, Send(1)),
        (DUE, DAY_MS + 1_000, Expire("undelivered")),
        (replace(DUE, turn=None), DAY_MS + 1_000, Expire("unanswered")),
        (replace(DUE, turn=None, running=True), DAY_MS + 1_000, Leave()),  # a turn may take days
        (replace(DUE, one=tried(1, 5_000)), 5_250, WaitFor(0.75)),
        (replace(DUE, one=tried(1, 5_000)), 6_000, Send(2)),
        (replace(DUE, one=tried(3, 5_000)), 6_000, WaitFor(3.0)),
        (replace(DUE, one=tried(3, 5_000)), 9_000, Send(4)),
        (replace(DUE, one=tried(2, 500_000)), 6_000, WaitFor(2.0)),  # the clock was set back
        (replace(DUE, one=tried(2, DAY_MS + 900)), DAY_MS + 1_000, Expire("undelivered")),
        (replace(DUE, elsewhere=True), 2_000, Expire("elsewhere")),
        (replace(DUE, turn=None, elsewhere=True, sending=True), 2_000, Expire("elsewhere")),
    ],
)
def test_what_to_do_about_a_delivery(debt: DeliveryDebt, now_ms: int, decision: object) -> None:
    assert decide(debt, now_ms) == decision


def test_the_waits_between_tries_grow_and_are_bounded() -> None:
    assert [pause_s(tries) for tries in range(6)] == [0, 1, 2, 4, 8, 16]
    assert pause_s(13) == pause_s(10_000) == 3_600


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        *((Replied(status), Delivered(f"status {status}")) for status in (200, 201, 202, 204)),
        *(
            (Replied(status), DeliveryRefused(f"status {status}", final=True))
            for status in (400, 401, 404, 410, 422)
        ),
        *(
            (Replied(status), DeliveryRefused(f"status {status}"))
            for status in (301, 302, 408, 425, 429, 503)
        ),
        *(
            (Replied(status), DeliveryRefused(f"status {status}", unknown=True))
            for status in (500, 502, 504)
        ),
        (Unreached("unreachable"), DeliveryRefused("unreachable")),
        (Unanswered("timeout"), DeliveryRefused("timeout", unknown=True)),
    ],
)
def test_what_an_answer_means(answer: Answer, meaning: Delivered | DeliveryRefused) -> None:
    assert outcome(answer) == meaning


@pytest.mark.parametrize(
    ("came", "word"),
    [
        (Delivered(), "delivered"),
        (DeliveryRefused("status 400", final=True), "refused"),
        (DeliveryRefused("dropped", unknown=True), "unknown"),
        (DeliveryExpired(), "expired"),
        (DeliveryRefused("unreachable"), None),
    ],
)
def test_what_plugins_hear(came: Any, word: str | None) -> None:
    assert told(came) == word


def test_a_webhook_says_what_it_knows_of_a_place_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("steno.delivery.webhook.TOTAL_S", 1.0)
    asyncio.run(silent_and_absent())


async def silent_and_absent() -> None:
    """One that takes everything in and is silent; and one that is not there."""
    arrived = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        arrived.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await Webhook(f"http://127.0.0.1:{port}/").send(b"{}", "k") == Unanswered("timeout")
    assert arrived.is_set()
    server.close()
    await server.wait_closed()
    assert await Webhook(f"http://127.0.0.1:{port}/").send(b"{}", "k") == Unreached("unreachable")


@pytest.mark.parametrize(
    ("address", "outside"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::1", False),
        ("64:ff9b::5db8:d822", True),
        ("no address", False),
    ],
)
def test_an_address_is_outside_if_everybody_could_reach_it(address: str, outside: bool) -> None:
    assert is_outside(address) is outside


def test_a_name_that_leads_inside_is_refused_after_it_was_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attack: whoever answers for a name has it lead to what only this machine reaches."""
    system = socket.getaddrinfo

    def found(host: str, *more: Any, **how: Any) -> Any:
        return system("127.0.0.1" if host == "hook.example" else host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    asyncio.run(led_inside())


async def led_inside() -> None:
    reached = asyncio.Event()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://hook.example:{port}/"
    assert await Webhook(url).send(b"{}", "k") == Unreached("its name leads inside")
    assert not reached.is_set()
    assert await Webhook(url, inside=True).send(b"{}", "k") == Replied(204)
    assert await Webhook(f"http://localhost:{port}/").send(b"{}", "k") == Replied(204)
    server.close()
    await server.wait_closed()
