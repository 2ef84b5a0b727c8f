"""The real small model, in the running program: used where no key is set, labelled as what it is,
and what it says is stored like anybody's."""

import signal

import pytest

from tests.program.test_cli_views import complaint
from tests.program.world import World


@pytest.fixture
def keyless(world: World) -> World:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "STENO_MODEL"):
        del world.environment[name]
    world.environment["STENO_MODEL_MAX_TOKENS"] = "24"
    return world


@pytest.mark.promise(9)
def test_without_a_key_the_small_model_answers_and_says_what_it_is(keyless: World) -> None:
    with keyless.start("run", "What is the capital of France?", "--key", "k") as program:
        assert program.end() == 0
        shown = program.shown()
        assert "tiny demo model" in program.errors()
    (answer,) = keyless.messages(keyless.only_session(), "assistant")
    assert answer["text"].strip()
    assert shown.removesuffix("\n") == answer["text"].removesuffix("\n")
    assert keyless.sessions()[0]["model"] == "local:smollm2"
    assert "tiny demo model" not in complaint(
        keyless, "run", "hi", "--model", "scripted:echo", expect=0
    )


@pytest.mark.torture
@pytest.mark.promise(12)
def test_it_is_stopped_in_the_middle_and_goes_on(keyless: World) -> None:
    keyless.environment["STENO_MODEL_MAX_TOKENS"] = "1000"
    with keyless.start("run", "Write a very long story about a dog.", "--key", "k") as program:
        program.wait_shown(" ")
        program.signal(signal.SIGINT)
        assert program.end() == 130
        shown = program.shown()
    (partial,) = keyless.messages(keyless.only_session(), "assistant")
    assert partial["state"] == "interrupted"
    assert partial["text"] == shown.removesuffix("\n")
    keyless.environment["STENO_MODEL_MAX_TOKENS"] = "8"
    assert keyless.steno("run", "And now?", "--key", "k").strip()
