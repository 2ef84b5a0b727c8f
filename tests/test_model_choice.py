"""Who answers in a session: by equality."""

import pytest

from steno.config import CodexConfig, Config, ModelConfig, RuntimeConfig
from steno.model_choice import Runner, native_default, spec_of
from steno.models.specs import Access


def configured(default: str = "", runtime: Runner = "native", codex: str = "") -> Config:
    return Config(
        model=ModelConfig(default=default),
        runtime=RuntimeConfig(default=runtime),
        codex=CodexConfig(model=codex),
        vendors={"openai": Access(key="key")},
    )


@pytest.mark.parametrize(
    ("config", "model", "runtime", "own", "answers"),
    [
        (configured(), None, None, "", "openai-chat:gpt-5.6-terra"),
        (configured(), None, "codex", "", "codex:default"),
        (configured(codex="one"), None, "codex", "local:smollm2", "codex:one"),
        (configured(runtime="codex"), None, None, "", "codex:default"),
        (configured(runtime="codex"), None, None, "local:smollm2", "local:smollm2"),
        (configured(runtime="codex"), "local:smollm2", None, "codex:one", "local:smollm2"),
        (configured("anthropic:two", "codex"), None, None, "", "codex:default"),
        (configured("anthropic:two"), None, "native", "codex:one", "anthropic:two"),
        (configured("codex:one"), None, None, "", "codex:one"),
        (configured("codex:one"), None, "codex", "local:smollm2", "codex:one"),
        (configured("codex:one"), None, "native", "", "openai-chat:gpt-5.6-terra"),
        (configured("codex:one"), None, "native", "codex:one", "openai-chat:gpt-5.6-terra"),
    ],
)
def test_the_model_is_of_the_runtime_that_was_asked_for(
    config: Config, model: str | None, runtime: Runner | None, own: str, answers: str
) -> None:
    assert spec_of(config, model, runtime, own) == answers


def test_our_own_loop_passes_over_a_default_that_codex_asks() -> None:
    assert native_default(configured("codex:one")) == "openai-chat:gpt-5.6-terra"
    assert native_default(configured("anthropic:two")) == "anthropic:two"
