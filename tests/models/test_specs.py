"""Models by name."""

import subprocess
import sys
from importlib import import_module

import pytest

from steno.models.specs import KINDS, VENDORS, Access, make, usable
from tests.models.samples import SETTINGS, settings_at


@pytest.mark.parametrize(
    ("spec", "provider"),
    [
        ("openai-chat:gpt-test", "openai-chat"),
        ("openai-responses:gpt-test", "openai-responses"),
        ("anthropic:claude-test", "anthropic"),
        ("local:smollm2", "local"),
        ("scripted:echo", "scripted"),
    ],
)
def test_each_kind_has_its_model(spec: str, provider: str) -> None:
    model = make(spec, SETTINGS)
    assert (model.spec, model.provider) == (spec, provider)


@pytest.mark.parametrize("spec", ["", "gpt-test", "opnai:gpt-test", "openai-chat:", ":x"])
def test_a_name_that_is_none_is_refused_with_the_kinds(spec: str) -> None:
    with pytest.raises(ValueError, match="openai-chat") as error:
        make(spec, SETTINGS)
    assert all(kind in str(error.value) for kind in KINDS)


@pytest.mark.parametrize(
    "base", ["ftp://127.0.0.1", "http://[", "nonsense", "http://127.0.0.1:99999", "http://"]
)
def test_an_address_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(ValueError, match="no address of a server"):
        make("openai-chat:gpt-test", settings_at(base))


@pytest.mark.promise(44)
def test_two_servers_of_one_format_are_two_providers() -> None:
    here = settings_at("http://user:pw@127.0.0.1:8080/v1")
    assert make("openai-chat:x", here).provider == "openai-chat@127.0.0.1:8080"
    assert make("anthropic:x", here).provider == "anthropic@127.0.0.1:8080"
    own = settings_at("https://api.anthropic.com/v1/")
    assert make("anthropic:x", own).provider == "anthropic"
    assert make("openai-chat:x", own).provider == "openai-chat@api.anthropic.com"


def test_heavy_libraries_are_loaded_by_the_models_that_need_them_only() -> None:
    program = (
        "import sys; from steno.models.specs import make, ModelSettings\n"
        "make('scripted:echo', ModelSettings()); make('local:smollm2', ModelSettings())\n"
        "print([name for name in ('aiohttp', 'xllamacpp') if name in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


def test_the_defaults_are_the_vendors_own() -> None:
    assert {vendor.name: vendor.base_url for vendor in VENDORS} == {
        "openai": "https://api.openai.com/v1",
        "anthropic": "https://api.anthropic.com",
    }


def test_the_default_model_is_the_first_whose_key_is_set() -> None:
    keys = {"openai": Access("sk"), "anthropic": Access("sk")}
    assert usable({}) == ["local:smollm2"]
    assert usable({"openai": Access("sk")}) == ["openai-chat:gpt-5.6-terra", "local:smollm2"]
    assert usable(keys)[0] == "anthropic:claude-sonnet-5"


def test_every_kind_has_what_its_module_must_have() -> None:
    for kind in KINDS.values():
        module = import_module(f"steno.models.{kind.module}")
        needed = ("make",) if kind.vendor is None else ("endpoint", "format")
        assert all(callable(getattr(module, name)) for name in needed), kind
