"""Models by name, KIND:NAME, and what the rest of steno must know of each kind.

    anthropic:NAME          Messages
    openai-chat:NAME        Chat Completions: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter …
    openai-responses:NAME   Responses
    local:NAME              a small model in this process
    scripted:NAME           answers that are known beforehand, for tests

Or by a provider's name, NAME:MODEL, as the configuration or `providers` has it.

A new kind is a row of `KINDS` and a module. What the JSON of its vendor looks like is known there
and nowhere else. The module has

    endpoint(base_url), format(name, provider, tuning)       if models of it are asked over HTTP
    make(spec, name, settings)                               if not
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from steno.models.over_http import OverHttp
from steno.models.protocol import Endpoint, Model
from steno.models.providers import (
    KNOWN,
    RESERVED,
    ModelTuning,
    ProviderConfig,
    Proxies,
    is_address,
    provider,
)

if TYPE_CHECKING:
    from steno.models.http import Format


class Vendor(Struct, frozen=True):
    """Whose models are asked at an address. `name` is the section of the configuration that has the
    address and the key; `base_url` is the vendor's own address."""

    name: str
    base_url: str

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        return f"{self.name.upper()}_BASE_URL"


ANTHROPIC = Vendor("anthropic", "https://api.anthropic.com")
OPENAI = Vendor("openai", "https://api.openai.com/v1")
VENDORS = (OPENAI, ANTHROPIC)


class ModelKind(Struct, frozen=True):
    """`default` is the model that is chosen where none is set and this kind can be used. `able`:
    it can call tools and write a distillate. `unasked`: it is asked for one without having been
    chosen for that. `bounded`: its format demands that a request bounds the answer."""

    name: str
    module: str
    vendor: Vendor | None = None
    default: str = ""
    able: bool = True
    unasked: bool = True
    bounded: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        ModelKind(
            "anthropic", "anthropic", ANTHROPIC, "claude-sonnet-5", bounded=True
        ),
        ModelKind("openai-chat", "openai_chat", OPENAI, "gpt-5.6-terra"),
        ModelKind("openai-responses", "openai_responses", OPENAI),
        ModelKind("local", "local", default="smollm2", able=False),
        ModelKind("scripted", "scripted", unasked=False),
    )
}
"""The first whose default can be used is the default of steno."""


class Access(Struct, frozen=True, forbid_unknown_fields=True):
    """How the models of a vendor are reached. No `base_url`: at the vendor's own."""

    key: str = ""
    base_url: str = ""

    def __repr__(self) -> str:
        return f"Access({self.base_url!r})"


def _no_key(name: str) -> str:
    return ""


class ModelSettings(Struct, frozen=True):
    """`vendors` is by their names. `max_tokens` bounds an answer where the format demands a bound
    or the model is ours; servers of the OpenAI formats have bounds of their own, and some refuse a
    request whose bound does not fit their context. `key_of` finds the key of a provider that has
    none in its section; `tuning` is by specs."""

    vendors: Mapping[str, Access] = {}
    idle_s: float = 120.0
    max_tokens: int = 8192
    providers: Mapping[str, ProviderConfig] = {}
    tuning: Mapping[str, ModelTuning] = {}
    proxies: Proxies = Proxies()
    key_of: Callable[[str], str] = _no_key


class Server(Struct, frozen=True):
    """Where a model is asked, in which format, and how. `own`: it is the vendor's, and wants a
    key."""

    kind: ModelKind
    provider: ProviderConfig
    own: bool


def kind_of(
    spec: str, providers: Mapping[str, ProviderConfig] = {}
) -> ModelKind | None:
    """Raises no error: of a provider that cannot be used, its format is known all the same."""
    head = spec.partition(":")[0]
    if head in providers or (head in KNOWN and head not in KINDS):
        own, known = providers.get(head), KNOWN.get(head)
        format = (own.format if own else "") or (known.format if known else "")
        return KINDS[format or "openai-chat"]
    return KINDS.get(head)


def usable(
    vendors: Mapping[str, Access],
    providers: Mapping[str, ProviderConfig] = {},
    with_key: frozenset[str] = frozenset(),
) -> list[str]:
    """The models that can be used with these keys, the preferred one first: the defaults of the
    kinds, and of providers whose key is at hand."""
    kinds = [
        f"{kind.name}:{kind.default}"
        for kind in KINDS.values()
        if kind.default
        and kind.vendor is not None
        and (
            vendors.get(kind.vendor.name, Access()).key
            or kind.vendor.name in with_key
        )
    ]
    named = [
        f"{name}:{known.model}"
        for name, known in KNOWN.items()
        if known.model and name in with_key and name not in vendors_by_name()
    ]
    ours = [
        f"{kind.name}:{kind.default}"
        for kind in KINDS.values()
        if kind.default and kind.vendor is None
    ]
    return [*kinds, *named, *ours]


def vendors_by_name() -> dict[str, Vendor]:
    return {vendor.name: vendor for vendor in VENDORS}


def server_of(name: str, settings: ModelSettings) -> Server | None:
    """The server behind the first word of a spec; None of a word that names no server. Raises
    ValueError for an address that is none."""
    given = settings.providers
    if name in given or (name in KNOWN and name not in KINDS):
        if name in RESERVED:
            raise ValueError(
                f"{name!r} is a kind of model: give the provider another name"
            )
        set = provider(name, given)
        assert set is not None  # noqa: S101 - it is in one of both
        access = settings.vendors.get(name, Access())
        kind = KINDS[set.format]
        own_address = bool(given.get(name) and given[name].address)
        address = set.address if own_address else access.base_url or set.address
        set = replace(
            set, address=address, key=set.key or access.key or settings.key_of(name)
        )
        own = name in KNOWN and _host(address) == _host(
            KNOWN[name].address or address
        )
        return Server(kind, set, own and bool(KNOWN[name].key_env))
    named = KINDS.get(name)
    if named is None or named.vendor is None:
        return None
    access = settings.vendors.get(named.vendor.name, Access())
    base_url = access.base_url or named.vendor.base_url
    own = _host(base_url) == _host(named.vendor.base_url)
    key = access.key or settings.key_of(named.vendor.name)
    return Server(named, ProviderConfig(address=base_url, key=key), own)


def endpoint_of(server: Server, settings: ModelSettings) -> Endpoint:
    """Where a server is asked for an answer."""
    set = server.provider
    module = import_module(f"steno.models.{server.kind.module}")
    endpoint: Endpoint = module.endpoint(set.address)
    url = endpoint.url + (f"?{urlencode(set.query)}" if set.query else "")
    if set.key_header:
        endpoint = replace(endpoint, key_header=set.key_header.lower(), key_prefix="")
    return replace(
        endpoint,
        url=url,
        key=set.key,
        key_needed=server.own,
        headers=(
            *endpoint.headers,
            *((key.lower(), value) for key, value in set.headers.items()),
        ),
        idle_s=settings.idle_s,
        proxy={"": settings.proxies.of(url), "none": ""}.get(set.proxy, set.proxy),
    )


def make(spec: str, settings: ModelSettings) -> Model:
    """Raises ValueError for a spec that names no kind of model and for an address that is none.
    Loads only what the model needs."""
    head, _, name = spec.partition(":")
    server = server_of(head, settings) if name else None
    if server is None:
        kind = KINDS.get(head)
        if kind is None or not name:
            raise ValueError(_unknown(spec, settings))
        made: Model = import_module(f"steno.models.{kind.module}").make(
            spec, name, settings
        )
        return made
    host, vendor = _host(server.provider.address), server.kind.vendor
    # Blobs are bound to the format they are written in, and to the server that can read them.
    own = vendor is not None and host == _host(vendor.base_url)
    bound_to = server.kind.name if own else f"{server.kind.name}@{host}"
    tuning = settings.tuning.get(spec, ModelTuning())
    if server.kind.bounded and not tuning.max_tokens:
        tuning = replace(tuning, max_tokens=settings.max_tokens)
    module = import_module(f"steno.models.{server.kind.module}")
    format: Format = module.format(name, bound_to, tuning)
    return OverHttp(spec, format, endpoint_of(server, settings))


def _unknown(spec: str, settings: ModelSettings) -> str:
    from difflib import get_close_matches

    names = sorted({*KINDS, *KNOWN, *settings.providers})
    near = get_close_matches(spec.partition(":")[0], names, 1)
    hint = (
        f"; did you mean {near[0]}?"
        if near and near[0] != spec.partition(":")[0]
        else ""
    )
    return (
        f"unknown model {spec!r}: a model is named KIND:NAME, where KIND is one of "
        f"{', '.join(KINDS)}, or PROVIDER:NAME, where PROVIDER is a section [providers.PROVIDER] "
        f"or one of {', '.join(KNOWN)}{hint}"
    )


def _host(base_url: str) -> str:
    if is_address(base_url):
        return urlsplit(base_url).netloc.rpartition("@")[2]
    raise ValueError(
        f"{base_url.rpartition('@')[2]!r} is no address of a server: it must be "
        "http(s)://HOST[:PORT][/PATH]"
    )
