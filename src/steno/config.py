"""The only reader of configuration files and of the environment.

Every key of config.toml can be set by a variable too: `[store] durability` is
STENO_STORE_DURABILITY. Names in a list are separated by commas; a section whose keys are free
(approvals, contexts, models, mcp, providers, channels) is one JSON object in STENO_APPROVALS and
so on, added to that
of the file. The variable wins over the file, the file over the default. A variable of its own
(OPENAI_API_KEY) wins over the general one.
"""

import contextlib
import os
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from steno.models.providers import (
    KNOWN,
    RESERVED,
    ModelTuning,
    ProviderConfig,
    ProviderName,
    Proxies,
)
from steno.models.specs import VENDORS, Access, usable
from steno.providers.keys import Keys, KeysUnusable

_VENDOR_EXAMPLE = """\
[{0.name}]
# key = ""                   # or {0.key_variable}
# base_url = ""              # or {0.url_variable}; any server that speaks this format

"""
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=31_536_000)]
Verdict = Literal["allow", "ask", "deny"]


class ConfigError(Exception):
    """A configuration that cannot be used. The message names the file or variable and the key."""


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    default: str = ""
    fallback: tuple[str, ...] = ()
    favourites: tuple[str, ...] = ()
    max_tokens: Count = 8192
    context_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0


class RuntimeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    default: Literal["native", "codex"] = "native"


class CodexConfig(Struct, frozen=True, forbid_unknown_fields=True):
    path: str = ""
    home: str = ""
    model: str = ""
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = (
        "workspace-write"
    )
    start_s: Seconds = 30.0
    answer_s: Seconds = 30.0
    interrupt_s: Seconds = 5.0


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`address` names a store in PostgreSQL; without one it is a file in the home."""

    address: str = ""
    synchronous_commit: Literal[
        "", "on", "remote_apply", "remote_write", "local", "off"
    ] = ""
    pooled: bool = False
    direct: str = ""
    durability: Literal["power", "process"] = "power"
    lock_wait_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 5_000


class ToolsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True
    time_limit_s: Seconds = 120.0
    output_chars_max: Count = 30_000
    kept_chars_max: Annotated[int, Meta(ge=1, le=8_000_000)] = 5_000_000
    search: bool = True
    delegate: bool = True
    delegate_limit_s: Seconds = 600.0
    delegate_steps_max: Count = 20
    jobs: bool = True
    secret_env: tuple[str, ...] = ()
    kept_env: tuple[str, ...] = ()
    sandbox: Literal["none", "bwrap"] = "none"
    sandbox_network: bool = False
    cpu_s: CountOrNone = 0
    memory_mb: CountOrNone = 0
    open_files: CountOrNone = 0
    file_mb: CountOrNone = 0


class McpConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One MCP server, by its command or by its URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    url: str = ""
    headers: dict[str, str] = {}
    safe: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    start_limit_s: Seconds = 30.0
    time_limit_s: Seconds = 120.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")


ServerName = Annotated[
    str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*$", max_length=31)
]
"""Tools are called SERVER__TOOL, in letters that every provider takes."""


class ChannelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A place outside that can be told something: a webhook, or an account in a chat of this
    `kind`. Its address and its token may be secrets: no message shows them.

    `inside`: the name of a webhook, or of a hook's receiver, may lead to an address that only
    machines of this network reach.

    In a chat, `owners` and `allow` are ids of people, `groups` of chats, `bots` of other programs
    that may talk. `stream`: whether an answer is shown while it is written. `options` are the
    kind's own.
    """

    kind: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*$", max_length=32)] = (
        "webhook"
    )
    url: str = ""
    token_env: str = ""
    token_file: str = ""
    expires_s: Annotated[int, Meta(ge=1, le=31_536_000)] = 86_400
    owners: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    bots: tuple[str, ...] = ()
    pairing: bool = True
    stream: Literal["edit", "final"] = "edit"
    group_stream: Literal["edit", "final"] = "final"
    model: str = ""
    inside: bool = False
    options: dict[str, str | int | float | bool | list[str]] = {}

    def __post_init__(self) -> None:
        if self.kind == "webhook" and _address(self.url) is None:
            raise ValueError(
                "a channel needs a url with https, or with http to this machine (127.0.0.1, [::1] "
                "or localhost), "
                "and without a user or a password"
            )

    @property
    def is_chat(self) -> bool:
        return self.kind != "webhook"

    @property
    def address(self) -> str:
        """Its host, and its port where it names one: that can be shown."""
        return _address(self.url) or ""


def _address(url: str) -> str | None:
    """None of a url that a channel cannot have."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if (
        not host
        or "@" in parts.netloc
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        return None
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        return None
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
ChannelName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)
]


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True
    distill: Literal["auto", "chat", "off"] = "auto"
    titles: bool = True
    rest_s: SecondsOrNone = 10.0
    model: str = ""
    items_max: Annotated[int, Meta(ge=0, le=100)] = 12
    chars_max: Annotated[int, Meta(ge=0, le=20_000)] = 2_000


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    attempts_max: Count = 4
    steps_max: Count = 200
    turn_s: SecondsOrNone = 0.0
    turn_tokens_max: CountOrNone = 0
    session_steps_max: CountOrNone = 0
    session_s: SecondsOrNone = 0.0
    session_tokens_max: CountOrNone = 0
    summary_s: Seconds = 60.0
    idle_s: Seconds = 120.0
    chat_idle_s: SecondsOrNone = 21_600.0


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`folder`: where the tools of sessions from outside work; empty: a folder of its own for each.
    `names`: other names of the service. `proxies`: addresses that may forward requests."""

    listen: str = "127.0.0.1:8765"
    approval: Literal["ask", "refuse", "allow"] = "ask"
    folder: str = ""
    names: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    drain_s: SecondsOrNone = 20.0
    sessions_max: Count = 1_000
    sessions_per_tenant: Count = 500


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """`vendors` are the sections that are called like a vendor of models. `keyed` are the providers
    whose key is at hand: in a section, in the environment, or kept by a login."""

    model: ModelConfig = ModelConfig()
    vendors: dict[str, Access] = {}
    runtime: RuntimeConfig = RuntimeConfig()
    codex: CodexConfig = CodexConfig()
    store: StoreConfig = StoreConfig()
    tools: ToolsConfig = ToolsConfig()
    memory: MemoryConfig = MemoryConfig()
    limits: LimitsConfig = LimitsConfig()
    gateway: GatewayConfig = GatewayConfig()
    approvals: dict[str, Verdict] = {}
    contexts: dict[str, Count] = {}
    models: dict[str, ModelTuning] = {}
    providers: dict[ProviderName, ProviderConfig] = {}
    keyed: frozenset[str] = frozenset()
    mcp: dict[ServerName, McpConfig] = {}
    channels: dict[ChannelName, ChannelConfig] = {}

    def context_max(self, spec: str) -> int:
        """The tokens that a model takes; 0 if that is not known."""
        return self.contexts.get(spec, self.model.context_tokens)


class Place(Struct, frozen=True):
    """Where steno keeps things, and where it works: None if that folder was removed."""

    home: Path
    folder: Path | None

    @property
    def store(self) -> Path:
        return self.home / "store.db"

    @property
    def config(self) -> Path:
        return self.home / "config.toml"


_VENDORS = frozenset(vendor.name for vendor in VENDORS)
_KNOWN_VARIABLES = {
    "STENO_MODEL": ("model", "default"),
    "STENO_RUNTIME": ("runtime", "default"),
    "STENO_STORE": ("store", "address"),
    **{vendor.key_variable: (vendor.name, "key") for vendor in VENDORS},
    **{vendor.url_variable: (vendor.name, "base_url") for vendor in VENDORS},
}

SECTIONS = frozenset(Config.__struct_fields__) - {"vendors", "keyed"} | _VENDORS
_FREE = frozenset(("approvals", "contexts", "models", "mcp", "providers", "channels"))
"""Sections whose keys are the user's own."""

_LISTS = frozenset(
    (
        ("model", "fallback"),
        ("model", "favourites"),
        ("tools", "secret_env"),
        ("tools", "kept_env"),
        ("gateway", "names"),
        ("gateway", "proxies"),
    )
)

SYSTEM_PROMPT = """\
You are a careful assistant working in a terminal for the person you talk to. Be brief and concrete.
Use tools when they help, look before you change anything, and say plainly what you did and what you
could not do. If a note says that the effect of a tool call is unknown, check before you repeat it.\
"""


def place(environment: Mapping[str, str] = os.environ) -> Place:
    try:
        folder: Path | None = Path.cwd()
    except FileNotFoundError:
        folder = None
    try:
        home = Path(environment.get("STENO_HOME") or Path.home() / ".steno")
    except RuntimeError as error:
        raise ConfigError(
            "there is no home folder; set STENO_HOME to a folder you can write"
        ) from error
    if folder is None and not home.is_absolute():
        raise ConfigError(
            f"STENO_HOME is {home}, inside a folder that was removed; change to another folder"
        )
    return Place(home.absolute(), folder)


def terminal_colours(environment: Mapping[str, str] = os.environ) -> str:
    """What the environment says of the terminal's colours."""
    return environment.get("COLORFGBG", "")


def log_file(environment: Mapping[str, str] = os.environ) -> str:
    """The file that what is done is logged to; "" if none is asked for."""
    return environment.get("STENO_LOG_FILE", "")


def editor(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The words that start a person's editor."""
    import shlex

    return shlex.split(
        environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    ) or ["vi"]


def prepare_home(where: Place) -> None:
    """Make the home folder and a commented example, readable by their owner alone, on first use."""
    try:
        where.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not where.config.exists():
            _write_example(where.config)
    except OSError as error:
        raise ConfigError(
            f"cannot use {where.home}: {error.strerror}; set STENO_HOME to a folder you can write"
        ) from error


@cache
def example() -> str:
    """The configuration that a home begins with: every setting, in comments."""
    text = Path(__file__).with_name("example.toml").read_text(encoding="utf-8")
    return text.replace("VENDORS\n", "".join(map(_VENDOR_EXAMPLE.format, VENDORS)))


def _write_example(file: Path) -> None:
    """Two first uses at once write it once. A disk without room for it does not matter: it is only
    an example."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            contextlib.suppress(OSError),
            os.fdopen(handle, "w", encoding="utf-8") as opened,
        ):
            opened.write(example())


def load(where: Place, environment: Mapping[str, str] = os.environ) -> Config:
    tables = _tables(where.config)
    for variable, value in sorted(
        environment.items(), key=lambda item: item[0] in _KNOWN_VARIABLES
    ):
        section, key = _target(variable)
        if section and value:
            told = _told(section, key, value, f"the variable {variable}")
            _checked({section: told}, f"the variable {variable}")
            tables.setdefault(section, {}).update(told)
    config = _checked(tables, str(where.config))
    return replace(config, keyed=_keyed(config, where, environment))


def _keyed(
    config: Config, where: Place, environment: Mapping[str, str]
) -> frozenset[str]:
    try:
        kept = Keys(where.home).names()
    except KeysUnusable as error:
        raise ConfigError(str(error)) from error
    known = {
        name for name, one in KNOWN.items() if environment.get(one.key_env or "-")
    }
    own = {
        name
        for name, one in config.providers.items()
        if one.key or one.key_file or environment.get(one.key_env or "-")
    }
    return kept | known | own


def provider_key(
    config: Config,
    where: Place,
    name: str,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The key of a provider; "" if none is at hand."""
    own = config.providers.get(name, ProviderConfig())
    known = KNOWN.get(name)
    if own.key:
        return own.key
    variable = own.key_env or ("" if own.key_file or known is None else known.key_env)
    if variable and environment.get(variable):
        return environment[variable].strip()
    if own.key_file:
        return secret_in(Path(own.key_file).expanduser())
    try:
        return Keys(where.home).get(name)
    except KeysUnusable as error:
        raise ConfigError(str(error)) from error


def key_variables(config: Config) -> frozenset[str]:
    """The variables that hold keys: no command gets them."""
    own = {one.key_env for one in config.providers.values()}
    return frozenset({*own, *(one.key_env for one in KNOWN.values())} - {""})


def proxies(environment: Mapping[str, str] = os.environ) -> Proxies:
    """As most programs read them: the small letters win, because a server may be made to set the
    large ones."""

    def told(name: str) -> str:
        return environment.get(name.lower()) or environment.get(name) or ""

    everything = told("ALL_PROXY")
    hosts = (one.strip() for one in told("NO_PROXY").split(","))
    return Proxies(
        told("HTTPS_PROXY") or everything,
        environment.get("http_proxy") or everything,
        tuple(filter(None, hosts)),
    )


def _tables(file: Path) -> dict[str, dict[str, object]]:
    """The file's sections. They are checked by themselves, so that an error names the file and not
    a variable."""
    if not file.exists():
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror or error}; nothing was touched"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{file} cannot be read: {error}; {_MEND}; nothing was touched"
        ) from error
    return parsed(text, str(file))


_MEND = (
    "it must be TOML in UTF-8: correct it, or put it aside to begin with an empty one"
)


def parsed(text: str, origin: str) -> dict[str, dict[str, object]]:
    """The sections of a file's text, checked. Raises `ConfigError`."""
    if text == example():
        return {}  # as it was made: it sets nothing, and needs no parser
    import tomllib

    try:
        tables = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{origin} cannot be read: {error}; {_MEND}; nothing was touched"
        ) from error
    if isinstance(tables.get("store"), str):
        tables["store"] = {"address": tables["store"]}
    _checked(tables, origin)
    return tables


def _checked(tables: Mapping[str, object], origin: str) -> Config:
    vendors: dict[str, Access] = {}
    vendor = ""
    try:
        for vendor in _VENDORS.intersection(tables):
            vendors[vendor] = msgspec.convert(tables[vendor], Access, strict=False)
        vendor = ""
        others = {
            name: table for name, table in tables.items() if name not in _VENDORS
        }
        for ours in {"vendors", "keyed"}.intersection(others):
            raise msgspec.ValidationError(f"Object contains unknown field `{ours}`")
        config = replace(
            msgspec.convert(others, Config, strict=False), vendors=vendors
        )
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$.")
        at = f"{vendor}.{at}" if vendor else at
        place = f", at {_place_of(at.rstrip('`'))}" if at else ""
        raise ConfigError(
            f"{origin} cannot be used: {what}{place}; correct it or take it out"
        ) from error
    for name in config.providers:
        if name in RESERVED:
            raise ConfigError(
                f"{origin} cannot be used: {name!r} is a kind of model, at [providers.{name}]; "
                "give the provider another name"
            )
    for rule in config.approvals:
        if not rule.partition(":")[0].strip():
            raise ConfigError(
                f"{origin} cannot be used: {rule!r} names no tool, at [approvals]; correct it"
            )
    return config


def _place_of(path: str) -> str:
    """Where in the file a value is, by msgspec's path: it tells no keys of free sections."""
    free = "[...]"
    section, _, key = (
        path.removeprefix("key in ").strip("`").replace(free, "*").partition(".")
    )
    name = ".NAME" if section.endswith("*") and key else ""
    return f"[{section.rstrip('*')}{name}] {key.replace('*', '')}".rstrip()


def _told(section: str, key: str, value: str, origin: str) -> dict[str, object]:
    """What a variable says of a section."""
    if key:
        return {
            key: [name.strip() for name in value.split(",")]
            if (section, key) in _LISTS
            else value
        }
    try:
        return msgspec.json.decode(value, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{origin} cannot be used: it is no JSON object ({error}), at [{section}]"
        ) from error


def _target(variable: str) -> tuple[str, str]:
    """The section and key that a variable sets: no key for a whole section, and nothing of both if
    it sets none."""
    if variable in _KNOWN_VARIABLES:
        return _KNOWN_VARIABLES[variable]
    if variable.startswith("STENO_"):
        section, _, key = variable.removeprefix("STENO_").lower().partition("_")
        if section in SECTIONS and (key or section in _FREE):
            return section, key
    return "", ""


class FolderRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that ends on a day."""

    verdict: Verdict
    until: date


FolderRules = dict[str, dict[str, Verdict | FolderRule]]


def folder_rules(home: Path, today: date) -> dict[str, dict[str, Verdict]]:
    """The rules that hold today for all sessions of a folder, by folder."""
    found: dict[str, dict[str, Verdict]] = {}
    for folder, rules in _folder_rules(home).items():
        found[folder] = here = {}
        for rule, one in rules.items():
            if not isinstance(one, FolderRule):
                here[rule] = one
            elif today < one.until:
                here[rule] = one.verdict
    return found


def _folder_rules(home: Path) -> FolderRules:
    text = _text(home / "folders.json")
    try:
        return {} if not text else msgspec.json.decode(text, type=FolderRules)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{home / 'folders.json'} cannot be used: {error}; correct it or take it out"
        ) from error


def keep_folder_rules(
    home: Path, folder: Path, rules: Mapping[str, Verdict | FolderRule]
) -> None:
    """Have rules hold for all sessions of a folder. The file is replaced whole."""
    kept = _folder_rules(home)
    kept[str(folder)] = {**kept.get(str(folder), {}), **rules}
    beside = home / f".folders-{os.getpid()}.tmp"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    beside.replace(home / "folders.json")


def system_prompt(where: Place, folder: Path | None) -> str:
    """The user's own file or the default, and what the folder adds."""
    own = _text(where.home / "system.md")
    added = None if folder is None else _text(folder / ".steno" / "system.md")
    text = SYSTEM_PROMPT if own is None else own
    return text if added is None else f"{text}\n\n{added}"


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}; it must be text in UTF-8"
        ) from error


def codex_environment(
    config: Config, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What codex gets: everything, because its providers name the variables that hold their
    keys."""
    return dict(environment) | (
        {"CODEX_HOME": config.codex.home} if config.codex.home else {}
    )


def channel_token(
    channel: ChannelConfig, environment: Mapping[str, str] = os.environ
) -> str | None:
    """What to send along; "" if the channel wants none, None if its variable or file holds nothing
    that can be sent, or others may read the file."""
    if channel.token_file:
        token = secret_in(Path(channel.token_file).expanduser())
    elif channel.token_env:
        token = environment.get(channel.token_env, "")
    else:
        return ""
    return (
        token
        if token and token.isascii() and token.isprintable() and " " not in token
        else None
    )


def secret_in(file: Path) -> str:
    """What a file holds that its owner alone may read; "" of any other."""
    try:
        if file.stat().st_mode & 0o077 or file.stat().st_size > 10_000:
            return ""
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def default_model(config: Config) -> str:
    return config.model.default or known_usable(config)[0]


def known_usable(config: Config) -> list[str]:
    """Models that can be used at once, the preferred one first."""
    return usable(config.vendors, config.providers, config.keyed)
