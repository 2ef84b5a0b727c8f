"""Models by name, KIND:NAME, and what the rest of steno must know of each kind.

    anthropic:NAME          Messages
    openai-chat:NAME        Chat Completions: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter …
    openai-responses:NAME   Responses
    local:NAME              a small model in this process
    scripted:NAME           answers that are known beforehand, for tests

A new kind is a row of `KINDS` and a module. What the JSON of its vendor looks like is known there
and nowhere else. The module has

    endpoint(base_url), format(name, provider, settings)     if models of it are asked over HTTP
    make(spec, name, settings)                               if not
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from steno.models.protocol import Endpoint, Model

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
    chosen for that."""

    name: str
    module: str
    vendor: Vendor | None = None
    default: str = ""
    able: bool = True
    unasked: bool = True


KINDS = {
    kind.name: kind
    for kind in (
        ModelKind("anthropic", "anthropic", ANTHROPIC, "claude-sonnet-4-5"),
        ModelKind("openai-chat", "openai_chat", OPENAI, "gpt-5"),
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


class ModelSettings(Struct, frozen=True):
    """`vendors` is by their names. `max_tokens` bounds an answer where the format demands a bound
    or the model is ours; servers of the OpenAI formats have bounds of their own, and some refuse a
    request whose bound does not fit their context."""

    vendors: Mapping[str, Access] = {}
    idle_s: float = 120.0
    max_tokens: int = 8192


def kind_of(spec: str) -> ModelKind | None:
    return KINDS.get(spec.partition(":")[0])


def usable(vendors: Mapping[str, Access]) -> list[str]:
    """The defaults of the kinds that can be used with these keys, the preferred one first."""
    return [
        f"{kind.name}:{kind.default}"
        for kind in KINDS.values()
        if kind.default and (kind.vendor is None or vendors.get(kind.vendor.name, Access()).key)
    ]


def make(spec: str, settings: ModelSettings) -> Model:
    """Raises ValueError for a spec that names no kind of model and for an address that is none.
    Loads only what the model needs."""
    kind, name = kind_of(spec), spec.partition(":")[2]
    if kind is None or not name:
        raise ValueError(
            f"unknown model {spec!r}: a model is named KIND:NAME, where KIND is one of "
            f"{', '.join(KINDS)}"
        )
    module = import_module(f"steno.models.{kind.module}")
    if kind.vendor is None:
        made: Model = module.make(spec, name, settings)
        return made
    from steno.models.http import HttpModel

    access = settings.vendors.get(kind.vendor.name, Access())
    base_url = access.base_url or kind.vendor.base_url
    own, host = _host(kind.vendor.base_url), _host(base_url)
    # Blobs are bound to the format they are written in, and to the server that can read them.
    provider = kind.name if host == own else f"{kind.name}@{host}"
    format: Format = module.format(name, provider, settings)
    endpoint: Endpoint = module.endpoint(base_url)
    key_needed = host == own
    endpoint = replace(endpoint, key=access.key, key_needed=key_needed, idle_s=settings.idle_s)
    return HttpModel(spec, format, endpoint)


def _host(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme in ("http", "https") and parts.hostname and (parts.port or 443) > 0:
            return host
    except ValueError:
        pass
    raise ValueError(
        f"{base_url.rpartition('@')[2]!r} is no address of a server: it must be "
        "http(s)://HOST[:PORT][/PATH]"
    )
