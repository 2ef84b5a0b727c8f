"""Who serves models, by name: `[providers.NAME]` of the configuration, and those that steno knows.

A model of one is named NAME:MODEL. What the configuration leaves out of a known provider is taken
from here, so a key is all that most need. Pure: keys come from elsewhere.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

Wire = Literal["openai-chat", "openai-responses", "anthropic"]
Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]
ProviderName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*$", max_length=32)]
RESERVED = ("local", "scripted", "codex", "openai-chat", "openai-responses")


class ProviderConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a provider is and how to ask it. Its key is `key`, else what the variable `key_env`
    holds, else the file `key_file`, else what `steno login NAME` kept. `proxy`: an address, or
    "none" to use no proxy whatever the environment says."""

    address: str = ""
    format: Wire | Literal[""] = ""
    key: str = ""
    key_env: str = ""
    key_file: str = ""
    key_header: str = ""
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    proxy: str = ""

    def __post_init__(self) -> None:
        for name, value in (*self.headers.items(), (self.key_header, "")):
            if not (name + value).isascii() or not (name + value).isprintable():
                raise ValueError("a header has characters that no header has")
        if self.proxy not in ("", "none") and not is_address(self.proxy):
            raise ValueError("proxy must be http(s)://HOST[:PORT], or none")

    def __repr__(self) -> str:
        return f"ProviderConfig({self.address!r})"


class ModelTuning(Struct, frozen=True, forbid_unknown_fields=True):
    """How one model is asked, and what is known of it. 0, "" and None leave it to the provider.
    Prices are in US dollars for a million tokens."""

    effort: Effort = ""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    price_in: Annotated[float, Meta(ge=0)] | None = None
    price_out: Annotated[float, Meta(ge=0)] | None = None


class Known(Struct, frozen=True):
    """A provider that is known by its name. `key_env` is the variable in which people have its key;
    "" if it needs none. `model` is one of its models that can be used at once."""

    title: str
    address: str
    format: Wire = "openai-chat"
    key_env: str = ""
    key_header: str = ""
    model: str = ""


KNOWN = {
    "openai": Known(
        "OpenAI",
        "https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        model="gpt-5.6-terra",
    ),
    "anthropic": Known(
        "Anthropic",
        "https://api.anthropic.com",
        "anthropic",
        "ANTHROPIC_API_KEY",
        model="claude-sonnet-5",
    ),
    "openrouter": Known(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        model="anthropic/claude-sonnet-5",
    ),
    "gemini": Known(
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
        model="gemini-2.5-pro",
    ),
    "azure": Known(
        "Azure OpenAI", "", key_env="AZURE_OPENAI_API_KEY", key_header="api-key"
    ),
    "mistral": Known(
        "Mistral",
        "https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        model="mistral-large-latest",
    ),
    "groq": Known("Groq", "https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "deepseek": Known(
        "DeepSeek",
        "https://api.deepseek.com/v1",
        key_env="DEEPSEEK_API_KEY",
        model="deepseek-chat",
    ),
    "xai": Known("xAI", "https://api.x.ai/v1", key_env="XAI_API_KEY"),
    "ollama": Known("Ollama", "http://127.0.0.1:11434/v1"),
    "llamacpp": Known("llama.cpp", "http://127.0.0.1:8080/v1"),
    "lmstudio": Known("LM Studio", "http://127.0.0.1:1234/v1"),
}
LOCAL = tuple(
    name for name, known in KNOWN.items() if known.address.startswith("http://127.")
)
"""Servers on this machine that can be looked for on their ports."""


def provider(
    name: str, configured: Mapping[str, ProviderConfig]
) -> ProviderConfig | None:
    """What is set for a provider, completed with what is known of it; None of a name that says
    nothing. Raises ValueError if it has no address."""
    own, known = configured.get(name), KNOWN.get(name)
    if own is None and known is None:
        return None
    own = own or ProviderConfig()
    if known is not None:
        own = replace(
            own,
            address=own.address or known.address,
            format=own.format or known.format,
            key_env=own.key_env or ("" if own.key or own.key_file else known.key_env),
            key_header=own.key_header or known.key_header,
        )
    if not own.address:
        raise ValueError(
            f"the provider {name!r} has no address: set it under [providers.{name}]"
        )
    return own if own.format else replace(own, format="openai-chat")


class Proxies(Struct, frozen=True):
    """The proxies that the environment names, and the hosts that are reached without one."""

    https: str = ""
    http: str = ""
    without: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Proxies()"

    def of(self, url: str) -> str:
        """The proxy to reach an address by; "" for none. This machine is reached without one."""
        parts = urlsplit(url)
        host, port = (
            parts.hostname or "",
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        if _is_here(host) or any(_covers(rule, host, port) for rule in self.without):
            return ""
        return self.https if parts.scheme == "https" else self.http


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(rule: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY is about a host: `*`, a name and all below it, an address, a
    network, each with a port or without."""
    rule = rule.strip().lower()
    if rule == "*":
        return True
    if "/" in rule:
        try:
            return ip_address(host) in ip_network(rule, strict=False)
        except ValueError:
            return False
    name, colon, number = rule.rpartition(":")
    if colon and number.isdecimal() and ":" not in name:
        if int(number) != port:
            return False
        rule = name
    rule = rule.strip("[]").removeprefix("*").removeprefix(".")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def is_address(url: str) -> bool:
    """Whether something can be asked there."""
    try:
        parts = urlsplit(url)
        return bool(
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port or 443) > 0
        )
    except ValueError:
        return False
