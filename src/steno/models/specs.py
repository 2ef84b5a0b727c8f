"""Models by name.

openai-chat:NAME        Chat Completions at `openai_base_url`: OpenAI, Ollama, vLLM, llama.cpp, OpenRouter …
openai-responses:NAME   Responses at `openai_base_url`
anthropic:NAME          Messages at `anthropic_base_url`
local:NAME              a small model in this process
scripted:NAME           answers that are known beforehand, for tests
"""

from urllib.parse import urlsplit

from msgspec import Struct

from steno.models.protocol import Model

KINDS = ("openai-chat", "openai-responses", "anthropic", "local", "scripted")
OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"


class ModelSettings(Struct, frozen=True):
    """`max_tokens` bounds an answer where the format demands a bound or the model is ours; servers
    of the OpenAI formats have bounds of their own, and some refuse a request whose bound does not
    fit their context. `anthropic_thinking` is empty (off), "adaptive", or a number of tokens."""

    openai_base_url: str = OPENAI
    openai_key: str = ""
    anthropic_base_url: str = ANTHROPIC
    anthropic_key: str = ""
    anthropic_thinking: str = ""
    proxy: str = ""
    connect_s: float = 10.0
    idle_s: float = 120.0
    max_tokens: int = 8192

    def __repr__(self) -> str:
        return f"ModelSettings({self.openai_base_url!r}, {self.anthropic_base_url!r})"


def make(spec: str, settings: ModelSettings) -> Model:
    """Raises ValueError for a spec that names no kind of model and for an address that is none.
    Loads only what the model needs."""
    kind, _, name = spec.partition(":")
    if kind not in KINDS or not name:
        raise ValueError(
            f"unknown model {spec!r}: a model is named KIND:NAME, where KIND is one of "
            f"{', '.join(KINDS)}"
        )
    match kind:
        case "openai-chat" | "openai-responses":
            return _openai(spec, kind, name, settings)
        case "anthropic":
            return _anthropic(spec, name, settings)
        case "local":
            from steno.models.local import LocalModel

            return LocalModel(spec, name, settings.max_tokens)
        case _:
            from steno.models.scripted import ScriptedModel

            return ScriptedModel(spec, name)


def _openai(spec: str, kind: str, name: str, settings: ModelSettings) -> Model:
    from steno.models import openai_chat, openai_responses
    from steno.models.http import Endpoint, Format, HttpModel

    base = settings.openai_base_url
    provider = _bound_to(kind, base, OPENAI)
    format: Format
    if kind == "openai-chat":
        format, path = openai_chat.ChatFormat(name, provider), openai_chat.PATH
    else:
        format, path = openai_responses.ResponsesFormat(name, provider), openai_responses.PATH
    endpoint = Endpoint(
        base.rstrip("/") + path,
        settings.openai_key,
        key_needed="@" not in provider,
        proxy=settings.proxy,
        connect_s=settings.connect_s,
        idle_s=settings.idle_s,
    )
    return HttpModel(spec, format, endpoint)


def _anthropic(spec: str, name: str, settings: ModelSettings) -> Model:
    from steno.models import anthropic
    from steno.models.http import Endpoint, HttpModel

    base = settings.anthropic_base_url
    provider = _bound_to("anthropic", base, ANTHROPIC)
    endpoint = Endpoint(
        base.rstrip("/").removesuffix("/v1") + anthropic.PATH,
        settings.anthropic_key,
        key_needed="@" not in provider,
        key_header="x-api-key",
        key_prefix="",
        headers=(("anthropic-version", anthropic.VERSION),),
        proxy=settings.proxy,
        connect_s=settings.connect_s,
        idle_s=settings.idle_s,
    )
    format = anthropic.MessagesFormat(
        name, provider, settings.max_tokens, settings.anthropic_thinking
    )
    return HttpModel(spec, format, endpoint)


def _bound_to(kind: str, base_url: str, own: str) -> str:
    """Whom blobs are bound to: the format they are written in, and the server, which alone can read
    them."""
    host = _host(base_url)
    return kind if host == _host(own) else f"{kind}@{host}"


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
