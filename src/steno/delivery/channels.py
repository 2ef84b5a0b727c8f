"""The channels of the configuration: what is owed to one, and how to reach it."""

import os
from collections.abc import Sequence

from steno.config import Config, ConfigError, Place, channel_token
from steno.delivery.outbox import Channel
from steno.journal.facts import DeliveryOwed


def debts(
    config: Config, where: Place, names: Sequence[str]
) -> tuple[DeliveryOwed, ...]:
    """What is owed to channels with an input, each under a key of its own. Raises `ConfigError` if
    one cannot be used."""
    for name in names:
        if name not in config.channels:
            known = (
                f"it has {', '.join(config.channels)}"
                if config.channels
                else "it has none"
            )
            raise ConfigError(
                f"there is no channel {name!r} in {where.config}: {known}; nothing was stored"
            )
        if config.channels[name].is_chat:
            raise ConfigError(
                f"the channel {name!r} is a chat: what is said there is answered there; "
                "nothing was stored"
            )
        if channel_token(config.channels[name]) is None:
            raise ConfigError(
                f"the channel {name!r} wants a token, and {config.channels[name].token_env} holds "
                "none that can be "
                "sent; nothing was stored"
            )
    named = ((name, config.channels[name]) for name in dict.fromkeys(names))
    return tuple(
        DeliveryOwed(0, name, one.address, os.urandom(16).hex(), one.expires_s)
        for name, one in named
    )


def channel(config: Config, name: str) -> Channel | None:
    """None if it is not configured here, or its token is not: then another process may reach it."""
    found = config.channels.get(name)
    token = None if found is None else channel_token(found)
    if found is None or token is None or found.is_chat:
        return None
    from steno.delivery.webhook import Webhook

    return Webhook(found.url, token, found.inside)
