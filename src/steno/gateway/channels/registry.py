"""Which kinds of channels there are, and channels made from the configuration.

A kind is a function from a `ChannelSetup` to a `Channel`. Those that come with steno are imported
when one is configured and not before; others come as entry points of the group `steno.channels`.

Nothing starts half: a secret that is missing, a kind that is not there or a name where an id must
stand is a `ConfigError`, before anything is received.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from steno.config import ChannelConfig, Config, ConfigError, Place, channel_token
from steno.gateway.channels.protocol import Channel, ChannelError, ChannelSetup

GROUP = "steno.channels"
KINDS = {
    "telegram": "steno.gateway.platforms.telegram",
    "hook": "steno.gateway.platforms.hook",
    "email": "steno.gateway.platforms.mail",
    "matrix": "steno.gateway.platforms.matrix",
    "discord": "steno.gateway.platforms.discord",
    "slack": "steno.gateway.platforms.slack",
    "xmpp": "steno.gateway.platforms.xmpp",
}
"""The kinds that come with steno, each with its module."""


def chats_in(config: Config) -> dict[str, ChannelConfig]:
    return {name: one for name, one in config.channels.items() if one.is_chat}


def make(
    name: str, config: ChannelConfig, where: Place
) -> tuple[ChannelSetup, Channel]:
    secret = channel_token(config)
    if not secret:
        raise ConfigError(
            f"the channel {name!r} has no secret: set token_env to a variable that holds it, or "
            "token_file to a file that you alone can read; it was not started"
        )
    setup = ChannelSetup(name, config, secret, where.home / "channels" / name)
    try:
        channel = factory(name, config.kind)(setup)
    except ChannelError as error:
        raise ConfigError(f"the channel {name!r} cannot be used: {error}") from error
    _check_ids(name, config, channel)
    return setup, channel


def factory(name: str, kind: str) -> Callable[[ChannelSetup], Channel]:
    if kind in KINDS:
        try:
            module = import_module(KINDS[kind])
        except ImportError as error:
            raise ConfigError(
                f"the channel {name!r} needs a package that is not installed ({error.name}): "
                f"pip install 'steno-agent[{kind}]'"
            ) from error
        made: Callable[[ChannelSetup], Channel] = module.channel
        return made
    for point in entry_points(group=GROUP):
        if point.name == kind:
            loaded: Callable[[ChannelSetup], Channel] = point.load()
            return loaded
    known = sorted({*KINDS, *(point.name for point in entry_points(group=GROUP))})
    raise ConfigError(
        f"the channel {name!r} has the kind {kind!r}, which there is not: there are "
        f"{', '.join(known)} and webhook"
    )


def _check_ids(name: str, config: ChannelConfig, channel: Channel) -> None:
    """A name that its owner can change would let anybody in who takes it."""
    for listed in ("owners", "allow", "groups", "bots"):
        for id in getattr(config, listed):
            wrong = "it is empty" if not id.strip() else channel.check_id(id)
            if wrong:
                raise ConfigError(
                    f"the channel {name!r} has {id[:80]!r} in {listed}: {wrong}; it was not started"
                )
