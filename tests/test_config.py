"""Configuration: every key can be set by a variable, the example names every key, and is what the
defaults are."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from steno.compose import Setup
from steno.config import (
    ChannelConfig,
    Config,
    ConfigError,
    Place,
    channel_token,
    example,
    load,
    prepare_home,
    system_prompt,
)
from steno.journal.listing import ListingRow
from steno.model_choice import Terms
from steno.models.specs import VENDORS, Access

FREE: dict[str, dict[str, Any]] = {
    "approvals": {"shell:git status*": "allow"},
    "contexts": {"openai-chat:x": 4096},
    "models": {"openai-chat:x": {"effort": "high"}},
    "providers": {"work": {"address": "https://example.org/v1", "key": "k"}},
    "mcp": {"files": {"command": "serve", "args": ["-v"]}},
    "channels": {"phone": {"url": "https://example.org/hook", "expires_s": 60}},
}
KEYS = [
    (section.name, key.name)
    for section in msgspec.structs.fields(Config)
    if section.name not in FREE and section.name not in ("vendors", "keyed")
    for key in msgspec.structs.fields(section.type)
] + [(vendor.name, key.name) for vendor in VENDORS for key in msgspec.structs.fields(Access)]


def section_of(config: Config, name: str) -> Any:
    vendors = {vendor.name: config.vendors.get(vendor.name, Access()) for vendor in VENDORS}
    return vendors[name] if name in vendors else getattr(config, name)


def another(value: Any) -> tuple[str, Any]:
    """A value that is not the default: as a variable has it, and as the configuration then does."""
    match value:
        case bool():
            return str(not value).lower(), not value
        case int():
            return str(value + 7), value + 7
        case float():
            return str(value + 7.5), value + 7.5
        case tuple():
            return "ONE_KEY, TWO_KEY", ("ONE_KEY", "TWO_KEY")
        case "":
            return "on", "on"
        case "power":
            return "process", "process"
        case "none":
            return "bwrap", "bwrap"
        case "native":
            return "codex", "codex"
        case "workspace-write":
            return "read-only", "read-only"
        case "auto":
            return "off", "off"
        case "ask":
            return "refuse", "refuse"
        case _:
            return "something", "something"


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_can_be_set_by_a_variable_which_wins_over_the_file(
    tmp_path: Path, section: str, key: str
) -> None:
    default = getattr(section_of(Config(), section), key)
    told, meant = another(default)
    if not isinstance(default, tuple):
        (tmp_path / "config.toml").write_text(f"[{section}]\n{key} = {json.dumps(default)}\n")
    found = load(Place(tmp_path, tmp_path), {f"STENO_{section.upper()}_{key.upper()}": told})
    assert getattr(section_of(found, section), key) == meant


@pytest.mark.parametrize("section", FREE)
def test_a_section_with_keys_of_ones_own_can_be_set_by_a_variable_beside_the_file(
    tmp_path: Path, section: str
) -> None:
    in_file = {
        "approvals": '[approvals]\nshell = "deny"\n',
        "contexts": '[contexts]\n"local:smollm2" = 1\n',
        "models": '[models."local:smollm2"]\nmax_tokens = 5\n',
        "providers": '[providers.other]\naddress = "http://127.0.0.1:9"\n',
        "mcp": '[mcp.other]\nurl = "http://127.0.0.1:9"\n',
        "channels": '[channels.desk]\nurl = "http://localhost:8123/hook"\n',
    }
    (tmp_path / "config.toml").write_text(in_file[section])
    found = load(Place(tmp_path, tmp_path), {f"STENO_{section.upper()}": json.dumps(FREE[section])})
    told = getattr(found, section)
    (name,) = FREE[section]
    assert len(told) == 2, "the file's and the variable's"
    assert told[name] == getattr(msgspec.convert({section: FREE[section]}, Config), section)[name]
    for wrong in ("[1]", "nonsense", '{"x": {"y": 1}}'):
        with pytest.raises(ConfigError, match=f"STENO_{section.upper()}"):
            load(Place(tmp_path, tmp_path), {f"STENO_{section.upper()}": wrong})


def test_vendors_is_no_section_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[vendors.openai]\nkey = "sk"\n')
    with pytest.raises(ConfigError, match="unknown field `vendors`"):
        load(Place(tmp_path, tmp_path), {})
    (tmp_path / "config.toml").write_text("[openai]\nkey = [1]\n")
    with pytest.raises(ConfigError, match=r"at \[openai\] key"):
        load(Place(tmp_path, tmp_path), {})


def test_the_example_is_written_on_first_use_and_changes_nothing(tmp_path: Path) -> None:
    where = Place(tmp_path / "home", tmp_path)
    prepare_home(where)
    assert where.config.read_text() == example()
    assert load(where, {}) == Config()


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_the_example_names_every_key_with_its_default(section: str, key: str) -> None:
    (part,) = re.findall(
        rf"^\[{section}\][^\n]*\n(.*?)(?=^\[|^# \[|\Z)", example(), re.DOTALL | re.MULTILINE
    )
    (line,) = re.findall(rf"^# ({key} = .*)$", part, re.MULTILINE)
    default = getattr(section_of(Config(), section), key)
    assert tomllib.loads(line)[key] == (list(default) if isinstance(default, tuple) else default)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://hooks.example.org/T0/secret?x=1", "hooks.example.org"),
        ("https://hooks.example.org:8443/", "hooks.example.org:8443"),
        ("http://127.0.0.1:8123/hook", "127.0.0.1:8123"),
        ("http://[::1]:8123/hook", "[::1]:8123"),
        ("http://localhost", "localhost"),
        ("http://hooks.example.org/", None),
        ("http://127.0.0.1.example.org/", None),
        ("http://127.0.0.1@example.org/", None),
        ("https://me:word@example.org/", None),
        ("https://example.org:port/", None),
        ("https://exa mple.org/", None),
        ("https://example.org/\n", None),
        ("file:///etc/passwd", None),
        ("", None),
    ],
)
def test_a_channel_is_reached_safely_or_on_this_machine_and_its_address_tells_no_secret(
    tmp_path: Path, url: str, address: str | None
) -> None:
    told = {"STENO_CHANNELS": json.dumps({"phone": {"url": url}})}
    if address is not None:
        assert load(Place(tmp_path, tmp_path), told).channels["phone"].address == address
        return
    with pytest.raises(ConfigError, match="a channel needs a url with https") as refused:
        load(Place(tmp_path, tmp_path), told)
    assert not url or url not in str(refused.value)


@pytest.mark.parametrize(
    ("held", "token"), [("abc", "abc"), ("", None), ("a b", None), ("a\nb", None)]
)
def test_a_token_comes_from_the_variable_that_is_named(held: str, token: str | None) -> None:
    named = ChannelConfig("https://example.org", token_env="WORD")
    assert channel_token(named, {"WORD": held}) == token
    assert channel_token(ChannelConfig("https://example.org"), {"WORD": held}) == ""


def test_the_system_prompt_is_the_users_own_and_the_folder_adds_to_it(tmp_path: Path) -> None:
    where = Place(tmp_path / "home", tmp_path / "work")
    (where.home).mkdir()
    (tmp_path / "work" / ".steno").mkdir(parents=True)
    default = system_prompt(where, where.folder)
    assert "careful assistant" in default
    (tmp_path / "work" / ".steno" / "system.md").write_text("In this folder, speak French.\n")
    assert system_prompt(where, where.folder) == f"{default}\n\nIn this folder, speak French."
    (where.home / "system.md").write_text("Be a pirate.\n")
    assert system_prompt(where, where.folder) == "Be a pirate.\n\nIn this folder, speak French."


@pytest.mark.parametrize("model", ["codex:any", "my-own-model"])
def test_sessions_whose_model_cannot_be_asked_are_distilled_only_where_one_is_set_that_can(
    tmp_path: Path, model: str
) -> None:
    place, alone = Place(tmp_path, tmp_path), Config()
    chosen = replace(alone, model=replace(alone.model, default="openai-chat:any"))
    row = ListingRow(model=model, platform="library")
    distils = [Setup(config, place).agents(Terms()).distils(row) for config in (alone, chosen)]
    assert distils == [False, True]


def test_models_that_cannot_distil_do_not_unless_one_was_chosen_for_it(tmp_path: Path) -> None:
    place, alone = Place(tmp_path, tmp_path), Config()
    chosen = replace(alone, memory=replace(alone.memory, model="scripted:known.json"))
    for model in ("local:smollm2", "scripted:known.json"):
        row = ListingRow(model=model, platform="chat")
        distils = [
            Setup(config, place).agents(Terms("anthropic:any")).distils(row)
            for config in (alone, chosen)
        ]
        assert distils == [False, True]


def test_a_file_that_cannot_be_read_says_what_to_do_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for wrong in (b"[model\n", b"\xff\xfe"):
        file.write_bytes(wrong)
        with pytest.raises(
            ConfigError, match=r"config\.toml cannot be read: .*correct it, or put it aside"
        ):
            load(Place(tmp_path, tmp_path), {})
        assert file.read_bytes() == wrong
    file.unlink()
    file.mkdir()
    with pytest.raises(
        ConfigError, match=r"config\.toml cannot be read: Is a directory; nothing was touched"
    ):
        load(Place(tmp_path, tmp_path), {})
