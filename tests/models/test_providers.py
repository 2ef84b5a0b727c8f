"""Providers by name: what is known of them, the proxy that leads there, how models are tuned."""

import json
from pathlib import Path

import pytest

from steno import config as configuration
from steno.config import ConfigError, Place
from steno.models.providers import ModelTuning, ProviderConfig, Proxies, provider
from steno.models.specs import Access, ModelSettings, endpoint_of, kind_of, make, server_of
from steno.providers import catalogue
from steno.providers.catalogue import About, Table
from steno.providers.keys import Keys, KeysUnusable
from tests.models.samples import request

PROXIES = Proxies("http://proxy:3128", "http://plain:80", ("inside.example", "10.0.0.0/8", "x:81"))


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://api.openai.com/v1", "http://proxy:3128"),
        ("http://other.example/v1", "http://plain:80"),
        ("https://inside.example", ""),
        ("https://a.inside.example", ""),
        ("https://notinside.example", "http://proxy:3128"),
        ("https://10.1.2.3", ""),
        ("http://x:81", ""),
        ("http://x:82", "http://plain:80"),
        ("http://127.0.0.1:11434", ""),
        ("http://localhost:1234", ""),
    ],
)
def test_the_environment_names_the_proxy_and_who_is_reached_without(url: str, proxy: str) -> None:
    assert PROXIES.of(url) == proxy


def test_small_letters_win_and_a_server_cannot_set_the_proxy() -> None:
    told = {"HTTPS_PROXY": "http://a", "https_proxy": "http://b", "HTTP_PROXY": "http://evil"}
    found = configuration.proxies(told | {"NO_PROXY": "x, y"})
    assert (found.https, found.http, found.without) == ("http://b", "", ("x", "y"))


def test_a_known_provider_needs_a_key_alone() -> None:
    settings = ModelSettings(key_of={"openrouter": "or-key"}.get)  # type: ignore[arg-type]
    server = server_of("openrouter", settings)
    assert server is not None
    endpoint = endpoint_of(server, settings)
    assert endpoint.url == "https://openrouter.ai/api/v1/chat/completions"
    assert (endpoint.key, endpoint.key_needed) == ("or-key", True)


def test_azure_has_its_header_and_its_version() -> None:
    azure = ProviderConfig(
        "https://r.openai.azure.com/openai", key="k", query={"api-version": "2024-10-21"}
    )
    settings = ModelSettings(providers={"azure": azure})
    server = server_of("azure", settings)
    assert server is not None
    endpoint = endpoint_of(server, settings)
    assert endpoint.url.endswith("/openai/chat/completions?api-version=2024-10-21")
    assert (endpoint.key_header, endpoint.key_prefix) == ("api-key", "")
    with pytest.raises(ValueError, match=r"no address"):
        provider("azure", {})


def test_one_server_under_two_names_reads_its_own_blobs() -> None:
    """Blobs are bound to format and server, not to the name that a person gave it."""
    own = ProviderConfig("https://api.anthropic.com", "anthropic")
    settings = ModelSettings({"anthropic": Access("k")}, providers={"work": own})
    assert make("work:m", settings).provider == make("anthropic:m", settings).provider
    kind = kind_of("work:m", settings.providers)
    assert kind is not None
    assert kind.name == "anthropic"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("openai-chat:m", {"reasoning_effort": "low", "max_completion_tokens": 9}),
        ("ollama:m", {"reasoning_effort": "low", "max_tokens": 9}),
        ("openai-responses:m", {"reasoning": {"effort": "low"}, "max_output_tokens": 9}),
        (
            "anthropic:m",
            {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 2057},
        ),
    ],
)
def test_a_model_is_asked_as_it_is_tuned(spec: str, expected: dict[str, object]) -> None:
    tuning = {spec: ModelTuning(effort="low", max_tokens=9)}
    body = json.loads(make(spec, ModelSettings(tuning=tuning)).to_wire(request(), {}))
    assert body.items() >= expected.items()
    plain = json.loads(make(spec, ModelSettings()).to_wire(request(), {}))
    assert not {"reasoning_effort", "reasoning", "thinking"} & plain.keys()


def test_a_temperature_goes_along() -> None:
    for spec in ("openai-chat:m", "openai-responses:m", "anthropic:m"):
        settings = ModelSettings(tuning={spec: ModelTuning(temperature=0.0)})
        assert json.loads(make(spec, settings).to_wire(request(), {}))["temperature"] == 0


def test_the_table_knows_a_model_by_the_longest_beginning() -> None:
    table = Table({"gpt-5": About(1), "gpt-5-mini": About(2), "claude-sonnet-4-5": About(3)})
    assert table.about("gpt-5-mini-2025-08-07").context == 2
    assert table.about("gpt-5-2025").context == 1
    assert table.about("anthropic/claude-sonnet-4.5:beta").context == 3
    assert table.about("gpt-55") == About()
    assert catalogue.table().about("claude-sonnet-4-5-20250929").price_out == 15


def test_keys_are_in_a_file_of_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno.providers.keys._to_keyring", lambda *_: False)
    keys = Keys(tmp_path)
    assert keys.keep("openai", "sk-1") == "file"
    assert keys.file.stat().st_mode & 0o777 == 0o600
    assert (keys.get("openai"), keys.names()) == ("sk-1", frozenset({"openai"}))
    assert keys.forget("openai")
    assert not keys.forget("openai")
    keys.keep("openai", "sk-1")
    keys.file.chmod(0o644)
    with pytest.raises(KeysUnusable, match="chmod 600"):
        keys.get("openai")


def test_a_keyring_that_keeps_nothing_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, str] = {}
    monkeypatch.setattr("steno.providers.keys._to_keyring", _into(kept))
    monkeypatch.setattr("steno.providers.keys._from_keyring", lambda name: kept.get(name, ""))
    keys = Keys(tmp_path)
    assert keys.keep("openai", "sk-1") == "keyring"
    assert b"sk-1" not in keys.file.read_bytes()
    assert keys.get("openai") == "sk-1"


def _into(kept: dict[str, str]):  # type: ignore[no-untyped-def]
    def keep(account: str, key: str | None) -> bool:
        kept.update({account: key} if key else {})
        return True

    return keep


def test_a_place_in_a_free_section_is_named(tmp_path: Path) -> None:
    for text, place in (
        ('[approvals]\nshell = "maybe"', r"at \[approvals\];"),
        ("[mcp.x]\ncommand = 1", r"at \[mcp.NAME\] command"),
        ('[providers.local]\naddress = "http://x"', r"at \[providers.local\]"),
    ):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError, match=place):
            configuration.load(Place(tmp_path, tmp_path), {})
