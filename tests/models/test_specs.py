"""Models by name."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

from steno.models.specs import KINDS, ModelSettings, make
from tests.models.samples import SETTINGS


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


@pytest.mark.parametrize("spec", ["", "gpt-test", "openai:gpt-test", "openai-chat:", ":x"])
def test_a_name_that_is_none_is_refused_with_the_kinds(spec: str) -> None:
    with pytest.raises(ValueError, match="openai-chat") as error:
        make(spec, SETTINGS)
    assert all(kind in str(error.value) for kind in KINDS)


@pytest.mark.parametrize(
    "base", ["ftp://127.0.0.1", "http://[", "nonsense", "http://127.0.0.1:99999", "http://"]
)
def test_an_address_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(ValueError, match="no address of a server"):
        make("openai-chat:gpt-test", replace(SETTINGS, openai_base_url=base))


@pytest.mark.promise(44)
def test_two_servers_of_one_format_are_two_providers() -> None:
    here = replace(
        SETTINGS,
        openai_base_url="http://127.0.0.1:8080/v1",
        anthropic_base_url="http://user:pw@127.0.0.1:1/",
    )
    assert make("openai-chat:x", here).provider == "openai-chat@127.0.0.1:8080"
    assert make("anthropic:x", here).provider == "anthropic@127.0.0.1:1"
    assert (
        make(
            "anthropic:x", replace(SETTINGS, anthropic_base_url="https://api.anthropic.com/v1/")
        ).provider
        == "anthropic"
    )


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


def test_the_defaults_are_the_companies_own() -> None:
    assert ModelSettings().openai_base_url == "https://api.openai.com/v1"
    assert ModelSettings().anthropic_base_url == "https://api.anthropic.com"
