"""The routes of channels: how they are, and where other programs push what they say."""

from typing import Any

import msgspec

from steno.gateway.channels.worker import ChannelHealth
from steno.gateway.routes import Answer, Call, Json, Parameter, Problem, Route
from steno.store.errors import StoreError

KEY_CHARS_MAX = 200


class ChannelList(msgspec.Struct):
    channels: list[ChannelHealth]


class Stored(msgspec.Struct):
    stored: bool = True


async def channels(gateway: Any, call: Call) -> Answer:
    return Json(ChannelList(gateway.channels.health()))


async def push(gateway: Any, call: Call) -> Answer:
    """Who has the secret may say something. Nothing tells others whether there is such a hook."""
    from steno.gateway.platforms.hook import Hook

    hook = gateway.channels.channel(call.parameters["name"])
    key = call.headers.get("idempotency-key", "")
    timestamp = call.headers.get("x-steno-timestamp", "")
    signature = call.headers.get("x-steno-signature", "")
    if not isinstance(hook, Hook) or not hook.signed(
        timestamp, key, call.body, signature
    ):
        raise Problem(401, "signature", "The signature is missing, wrong or too old.")
    if not 0 < len(key) <= KEY_CHARS_MAX:
        raise Problem(
            400, "bad_key", "Say Idempotency-Key: what is said under it is said once."
        )
    if not gateway.channels.receiving(call.parameters["name"]):
        raise Problem(
            503, "not_receiving", "Not now; try again.", {"Retry-After": "1"}
        )
    try:
        await hook.push(key, call.body)
    except msgspec.DecodeError as error:
        raise Problem(400, "bad_body", f"The body cannot be read: {error}") from error
    except StoreError as error:
        raise Problem(503, "store", f"Nothing was stored: {error}") from error
    return Json(Stored(), 202)


ROUTES = (
    Route(
        "GET",
        "/api/channels",
        "read",
        "How channels are",
        channels,
        {200: ChannelList},
    ),
    Route(
        "POST",
        "/hooks/{name}",
        None,
        "Say something as another program",
        push,
        {202: Stored},
        parameters=(
            Parameter(
                "Idempotency-Key", "What is said under it is said once", "header"
            ),
            Parameter("X-Steno-Timestamp", "Seconds since 1970", "header"),
            Parameter(
                "X-Steno-Signature", "sha256=HMAC of timestamp.key.body", "header"
            ),
        ),
    ),
)
