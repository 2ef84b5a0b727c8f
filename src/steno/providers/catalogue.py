"""What providers have: the models that a server lists, with what is known of each.

A server is asked once, for its list. What it does not say (most say neither context nor price) is
looked up in `models.json` of this package, a table kept by hand; `models.json` in the home has the
same form and wins, and `[models.SPEC]` of the configuration wins over both.
"""

import asyncio
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.journal.facts import Usage
from steno.journal.usage import UsageTotal
from steno.models.protocol import Endpoint
from steno.models.providers import KNOWN, LOCAL, ModelTuning, ProviderConfig
from steno.models.specs import (
    KINDS,
    VENDORS,
    ModelSettings,
    Server,
    endpoint_of,
    server_of,
)

ASK_S = 10.0
LOOK_S = 0.5
BODY_BYTES_MAX = 16_000_000
OFFERS_MAX = 5_000
DATE_DIGITS_MIN = 4


class About(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a model: how many tokens it takes, and US dollars for a million tokens; for
    those that were read from a cache, if they cost less."""

    context: int | None = None
    price_in: float | None = None
    price_out: float | None = None
    price_cached: float | None = None

    def cost(self, usage: UsageTotal | Usage) -> float | None:
        """In US dollars, by list prices; None if a price or the count is not known."""
        if self.price_in is None or self.price_out is None or usage.input is None:
            return None
        cached = (
            0 if self.price_cached is None else min(usage.cached or 0, usage.input)
        )
        read = (usage.input - cached) * self.price_in + cached * (
            self.price_cached or 0.0
        )
        return (read + (usage.output or 0) * self.price_out) / 1_000_000


class Offer(Struct, frozen=True):
    spec: str
    about: About = About()
    favourite: bool = False


class NotAnswered(Exception):
    """A server gave no list. `refused`: it does not take the key."""

    def __init__(self, why: str, refused: bool = False) -> None:
        super().__init__(why)
        self.why, self.refused = why, refused


class Table:
    """What is known of models by their names, by any server."""

    def __init__(self, rows: Mapping[str, About]) -> None:
        self._rows = rows

    def about(self, model: str) -> About:
        """By the longest name that the model's begins with: dates and sizes follow it. A small
        number does not: that is another version. A path before the name says who made it."""
        name = model.rpartition("/")[2].replace(".", "-").lower().partition(":")[0]
        fitting = [row for row in self._rows if name == row or _is_of(name, row)]
        return self._rows[max(fitting, key=len)] if fitting else About()


def _is_of(name: str, row: str) -> bool:
    rest = name.removeprefix(f"{row}-")
    version = rest.partition("-")[0]
    return rest != name and not (
        version.isdecimal() and len(version) < DATE_DIGITS_MIN
    )


def table(home: Path | None = None) -> Table:
    """Raises ValueError if the home's own table cannot be used."""
    rows = _rows(files("steno.providers").joinpath("models.json").read_bytes())
    own = None if home is None else home / "models.json"
    if own is not None and own.is_file():
        try:
            rows |= _rows(own.read_bytes())
        except (msgspec.DecodeError, OSError) as error:
            raise ValueError(
                f"{own} cannot be used: {error}; correct it or take it out"
            ) from error
    return Table(rows)


def _rows(text: bytes) -> dict[str, About]:
    rows = msgspec.json.decode(text, type=dict[str, About])
    return {name.replace(".", "-").lower(): about for name, about in rows.items()}


def askable(settings: ModelSettings, keyed: frozenset[str]) -> list[str]:
    """The providers that are worth asking: those that are set up, or have a key."""
    vendors = {
        name
        for name, access in settings.vendors.items()
        if access.key or access.base_url
    }
    names = {*settings.providers, *keyed, *vendors}
    return sorted(
        names,
        key=lambda name: (list(KNOWN).index(name) if name in KNOWN else 99, name),
    )


async def offers(
    name: str, settings: ModelSettings, known: Table, timeout_s: float = ASK_S
) -> list[Offer]:
    """The models of a provider, as its server lists them. Raises `NotAnswered`."""
    server = _server(name, settings)
    listed = await _get(_listing(server, settings), "", timeout_s)
    found = (
        listed.get("data", listed.get("models")) if isinstance(listed, dict) else None
    )
    if not isinstance(found, list):
        raise NotAnswered("what it sent is no list of models")
    said = [_said(one) for one in found[:OFFERS_MAX] if isinstance(one, dict)]
    return [
        Offer(
            f"{name}:{model}", told(f"{name}:{model}", about, known, settings.tuning)
        )
        for model, about in said
        if model
    ]


def told(
    spec: str, about: About, known: Table, tuning: Mapping[str, ModelTuning]
) -> About:
    """What the server says of a model, the table for what it does not, and before both what is
    configured."""
    row = known.about(spec.partition(":")[2])
    own = tuning.get(spec, ModelTuning())
    return About(
        about.context or row.context,
        _first(own.price_in, about.price_in, row.price_in),
        _first(own.price_out, about.price_out, row.price_out),
        None
        if own.price_in is not None or about.price_in is not None
        else row.price_cached,
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


async def check(name: str, settings: ModelSettings) -> None:
    """Ask for something that costs nothing and needs the key. Raises `NotAnswered`."""
    server = _server(name, settings)
    path = "/key" if name == "openrouter" else ""
    await _get(_listing(server, settings), path, ASK_S)


async def found_here(settings: ModelSettings) -> dict[str, list[str]]:
    """The servers of models that run on this machine, on their own ports, with what they have."""

    async def look(name: str) -> list[str]:
        try:
            return [
                one.spec for one in await offers(name, settings, Table({}), LOOK_S)
            ]
        except NotAnswered:
            return []

    found = await asyncio.gather(*map(look, LOCAL))
    return {name: specs for name, specs in zip(LOCAL, found, strict=True) if specs}


def favourites_first(
    found: Iterable[Offer], favourites: tuple[str, ...]
) -> list[Offer]:
    rank = {spec: at for at, spec in enumerate(favourites)}
    marked = [replace(one, favourite=one.spec in rank) for one in found]
    return sorted(marked, key=lambda one: (rank.get(one.spec, len(rank)), one.spec))


def _server(name: str, settings: ModelSettings) -> Server:
    """Of a vendor's name, the server of its own section."""
    kinds = [
        k.name
        for k in KINDS.values()
        if k.vendor is not None and k.vendor.name == name
    ]
    configured = name in settings.providers or name not in {
        one.name for one in VENDORS
    }
    try:
        server = server_of(name if configured else kinds[0], settings)
    except ValueError as error:
        raise NotAnswered(str(error)) from error
    if server is None:
        raise NotAnswered(f"there is no provider {name!r}")
    return server


def _listing(server: Server, settings: ModelSettings) -> Endpoint:
    """Where the server lists its models."""
    asked = endpoint_of(server, settings)
    base, _, query = asked.url.partition("?")
    for path in ("/chat/completions", "/responses", "/messages"):
        base = base.removesuffix(path)
    return replace(asked, url=f"{base}/models" + (f"?{query}" if query else ""))


def with_key(settings: ModelSettings, name: str, key: str) -> ModelSettings:
    """The settings as they are with this key for a provider."""
    own = replace(settings.providers.get(name, ProviderConfig()), key=key)
    return replace(settings, providers={**settings.providers, name: own})


async def _get(at: Endpoint, path: str, timeout_s: float) -> Any:
    import aiohttp

    from steno.web import LOST, trusted

    if not at.key and at.key_needed:
        raise NotAnswered("there is no key for it", refused=True)
    if not (at.key.isascii() and at.key.isprintable() and " " not in at.key):
        raise NotAnswered("the key has characters that no key has", refused=True)
    headers = {
        "accept": "application/json",
        "user-agent": "steno",
        **dict(at.headers),
    }
    if at.key:
        headers[at.key_header] = at.key_prefix + at.key
    url = at.url.removesuffix("/models") + path if path else at.url
    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trusted()),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            ) as client,
            client.get(
                url, headers=headers, allow_redirects=False, proxy=at.proxy or None
            ) as response,
        ):
            if response.status in (401, 403):
                raise NotAnswered(
                    f"it refuses the key ({response.status})", refused=True
                )
            if response.status != 200:
                raise NotAnswered(f"it answers with status {response.status}")
            body = await response.content.read(BODY_BYTES_MAX + 1)
            while len(body) <= BODY_BYTES_MAX and (
                more := await response.content.readany()
            ):
                body += more
    except TimeoutError as error:
        raise NotAnswered(f"nothing came back for {timeout_s:g} s") from error
    except (*LOST, ValueError) as error:
        why = type(error).__name__ if at.proxy else str(error)
        raise NotAnswered(
            f"it cannot be reached: {why}".replace(at.key or "\0", "[key]")
        ) from None
    if len(body) > BODY_BYTES_MAX:
        raise NotAnswered(
            f"what it sent has more than {BODY_BYTES_MAX // 1_000_000} MB"
        )
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise NotAnswered("what it sent is no JSON") from error


CONTEXTS = (
    "context_length",
    "context_window",
    "max_model_len",
    "max_context_length",
    "n_ctx",
)


def _said(one: dict[str, Any]) -> tuple[str, About]:
    """A model's name and what its server says of it, in the words of many servers."""
    name = one.get("id") or one.get("name") or ""
    meta = one.get("meta") if isinstance(one.get("meta"), dict) else {}
    sizes = [one.get(key) for key in CONTEXTS] + [(meta or {}).get("n_ctx_train")]
    context = next(
        (size for size in sizes if isinstance(size, int) and size > 0), None
    )
    prices = one.get("pricing") if isinstance(one.get("pricing"), dict) else {}
    price_in, price_out = (
        _price((prices or {}).get(key)) for key in ("prompt", "completion")
    )
    if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
        return "", About()
    return name.removeprefix("models/"), About(context, price_in, price_out)


def _price(value: object) -> float | None:
    """Dollars for a million tokens, of dollars for one; some say -1 where it varies."""
    try:
        price = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        return None
    return round(price * 1_000_000, 6) if 0 <= price < 1 else None
