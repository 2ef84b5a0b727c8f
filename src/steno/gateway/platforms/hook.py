"""Other programs as people in chats: they POST what they say to /hooks/NAME, signed.

    POST /hooks/NAME
    Idempotency-Key: 4711                     what is said under a key is said once, for ever
    X-Steno-Timestamp: 1763460000             seconds; five minutes off is refused
    X-Steno-Signature: sha256=HEX             HMAC of TIMESTAMP "." KEY "." BODY with the secret
    {"chat": "builds", "person": "ci", "text": "…"}

The answer is 202 when it is stored. What is answered goes to the channel's `url` by POST, under a
key of its own, which a receiver knows it by; without a url it is kept in the session alone.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator
from hashlib import sha256

import msgspec
from msgspec import Struct

from steno.delivery.outbox import Replied, Unanswered, Unreached
from steno.delivery.webhook import Webhook
from steno.gateway.channels.protocol import (
    Batch,
    Channel,
    ChannelRefused,
    ChannelSetup,
    Limits,
    Message,
    No,
    NotNow,
    Outgoing,
    Quiet,
    Result,
    Sent,
    Unsure,
)

SKEW_S = 300
SECRET_LEN_MIN = 16
WAITING_MAX = 1_000
LIMITS = Limits(
    text_max=1_000_000,
    client_id_s=30 * 86_400.0,
    chat_per_s=50.0,
    all_per_s=100.0,
    burst=50,
)


class Pushed(Struct, forbid_unknown_fields=True):
    """What a program says."""

    text: str
    chat: str = "main"
    person: str = "program"
    name: str = ""


class Hook(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        if len(setup.secret.strip()) < SECRET_LEN_MIN:
            raise ChannelRefused(
                f"its secret must have {SECRET_LEN_MIN} characters or more"
            )
        self._secret = setup.secret.encode()
        self._name = setup.name
        config = setup.config
        if config.url and not config.address:
            raise ChannelRefused(
                "its url must be one with https, or with http to this machine"
            )
        self._out = Webhook(config.url, inside=config.inside) if config.url else None
        self._waiting: asyncio.Queue[tuple[Message, asyncio.Future[None]]] = (
            asyncio.Queue(WAITING_MAX)
        )
        self.limits = LIMITS

    @property
    def account(self) -> str:
        return f"hook:{self._name}"

    def signed(self, timestamp: str, key: str, body: bytes, signature: str) -> bool:
        """Whether a request is from somebody who has the secret, and of now."""
        if not timestamp.isdecimal() or len(timestamp) > 12:
            return False
        if abs(time.time() - int(timestamp)) > SKEW_S:
            return False
        made = sign(self._secret, timestamp, key, body)
        return hmac.compare_digest(
            made.encode(), signature.encode("utf-8", "replace")
        )

    async def push(self, key: str, body: bytes) -> None:
        """Hand over what was said; returns when it is stored."""
        said = msgspec.json.decode(body, type=Pushed)
        arrived = Message(
            key, said.chat, said.person, said.text, key, said.name or said.person
        )
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((arrived, stored))
        await stored

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        while True:
            message, stored = await self._waiting.get()
            try:
                yield Batch((message,))
            except BaseException:
                stored.cancel()
                raise
            if not stored.done():
                stored.set_result(None)

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        if self._out is None:
            return Sent("")
        body = msgspec.json.encode({"chat": chat, "text": what.text, "key": key})
        answer = await self._out.send(body, key)
        match answer:
            case Replied(status=status) if 200 <= status < 300:
                return Sent(key)
            case Replied(status=status) if 400 <= status < 500 and status not in (
                408,
                425,
                429,
            ):
                return No(f"status {status}")
            case Replied(status=status):
                return NotNow(f"status {status}")
            case Unreached(cause=cause):
                return NotNow(cause)
            case Unanswered(cause=cause):
                return Unsure(cause)

    def check_id(self, id: str) -> str:
        return ""


def sign(secret: bytes, timestamp: str, key: str, body: bytes) -> str:
    made = hmac.new(secret, f"{timestamp}.{key}.".encode() + body, sha256)
    return f"sha256={made.hexdigest()}"


def channel(setup: ChannelSetup) -> Channel:
    return Hook(setup)
