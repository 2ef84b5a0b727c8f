"""Taking a key in and letting it go: what the command line and the chat do alike.

A key is tried before it is kept: the provider is asked for something that costs nothing. One that
it refuses is not kept.
"""

from typing import Literal

from msgspec import Struct

from steno.agents import model_settings
from steno.config import Config, ConfigError, Place, known_usable
from steno.frontend.settings import keep_value
from steno.models.providers import KNOWN
from steno.providers import catalogue
from steno.providers.catalogue import NotAnswered
from steno.providers.keys import Keys, KeysUnusable, Where

KEY_CHARS_MAX = 10_000


class Login(Struct, frozen=True):
    """What became of a key. `model`: one that can be used with it now."""

    outcome: Literal["kept", "refused", "untested"]
    where: Where | None = None
    why: str = ""
    model: str = ""


def names(config: Config) -> list[str]:
    """The providers that take a key."""
    known = [name for name, one in KNOWN.items() if one.key_env]
    return list(dict.fromkeys([*known, *config.providers]))


async def log_in(
    config: Config, where: Place, name: str, key: str, untested: bool = False
) -> Login:
    """Try a key and keep it. One that could not be tried is kept only if that is asked for."""
    if name not in names(config):
        raise ConfigError(
            f"there is no provider {name!r}: it is one of {', '.join(names(config))}, or a section "
            f"[providers.{name}] with its address in {where.config}; nothing was kept"
        )
    key = key.strip()
    if (
        not key
        or len(key) > KEY_CHARS_MAX
        or not key.isascii()
        or not key.isprintable()
    ):
        raise ConfigError("that is no key; nothing was kept")
    why = ""
    try:
        settings = catalogue.with_key(model_settings(config, where), name, key)
        await catalogue.check(name, settings)
    except NotAnswered as error:
        why = error.why
        if error.refused or not untested:
            return Login("refused" if error.refused else "untested", why=why)
    try:
        kept = Keys(where.home).keep(name, key)
    except (KeysUnusable, OSError) as error:
        raise ConfigError(f"the key was not kept: {error}") from error
    model = KNOWN[name].model if name in KNOWN else ""
    return Login("kept", kept, why, f"{name}:{model}" if model else "")


def log_out(where: Place, name: str) -> bool:
    """Whether a key was kept."""
    try:
        return Keys(where.home).forget(name)
    except (KeysUnusable, OSError) as error:
        raise ConfigError(str(error)) from error


def outcome(config: Config, name: str, login: Login) -> str:
    """What to tell a person."""
    if login.outcome == "refused":
        return f"{name}: {login.why}; the key was not kept"
    if login.outcome == "untested":
        return (
            f"{name}: the key could not be tried ({login.why}) and was not kept; "
            f"steno login {name} --untested keeps it all the same"
        )
    place = (
        "the system's keyring"
        if login.where == "keyring"
        else "a file that only you can read"
    )
    tried = "" if login.why else "; the provider takes it"
    use = "" if not login.model else f". Try steno --model {login.model}"
    if (
        login.model
        and not config.model.default
        and known_usable(config)[0].startswith("local:")
    ):
        use = f". New sessions are answered by {login.model}"
    return f"{name}: the key is kept in {place}{tried}{use}"


async def servers_here(config: Config, where: Place) -> dict[str, list[str]]:
    """The servers of models on this machine, with their models."""
    return await catalogue.found_here(model_settings(config, where))


def choose(where: Place, spec: str) -> None:
    """Have new sessions answered by a model."""
    keep_value(where, "model.default", spec)
