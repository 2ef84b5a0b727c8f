"""Who answers in a session, by what a run was told, what the session has had and what is
configured. Pure.

A model is named KIND:NAME, and `codex:NAME` is one that codex asks: so the model also says which
runtime it is.
"""

from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.config import Config, default_model
from steno.journal.facts import Mode
from steno.runtimes.codex import RUNTIME

Runner = Literal["native", "codex"]


class Terms(Struct, frozen=True):
    """How a session is run this time. None and "" leave it to the session, then to the
    configuration.

    `approval`: what becomes of a call that needs a person's word. `allowed`: rules for calls that
    run without asking. `folder`: where tools work. `memories`: whether a new session is told what
    earlier ones have to remember. `new_thread`: a codex thread that is lost may be begun anew.
    """

    model: str | None = None
    runtime: Runner | None = None
    new_thread: bool = False
    approval: Literal["allow", "refuse", "ask"] = "refuse"
    allowed: tuple[str, ...] = ()
    folder: Path | None = None
    memories: bool = True


class Wanted(Struct, frozen=True):
    """The model that a run was told to have answer. If it was told a `runtime` alone, each model of
    it will do."""

    model: str
    runtime: Runner | None = None

    def instead_of(self, own: str) -> str | None:
        """What a session with this model of its own is to have; None if it may keep it."""
        if own and self.runtime is not None:
            return None if runtime_of(own) == self.runtime else self.model
        return None if own == self.model else self.model


class Beginning(Struct, frozen=True):
    """What a chat begins with: a session, or a new one with this model; the model that was asked
    for, until a session has it; a prompt; what runs without asking; and which message is shown."""

    model: str
    session: str | None = None
    wanted: Wanted | None = None
    prompt: str = ""
    mode: Mode | None = None
    at: int | None = None


def runtime_of(spec: str) -> Runner:
    return "codex" if spec.partition(":")[0] == RUNTIME else "native"


def contradiction(model: str | None, runtime: Runner | None) -> str:
    """What is wrong with a model and a runtime that were asked for together; "" if nothing is."""
    if model is None or runtime in (None, runtime_of(model)):
        return ""
    if runtime == RUNTIME:
        named = f"--model {RUNTIME}:{model.partition(':')[2] or model} names one that codex asks"
        return f"--runtime {RUNTIME} cannot go with --model {model}: {named}; nothing was stored"
    return (
        f"--runtime {runtime} cannot go with --model {model}, which codex asks: leave one out; "
        "nothing was stored"
    )


def spec_of(
    config: Config, model: str | None, runtime: Runner | None, own: str
) -> str:
    """The model asked for, else the one the session has had, else the default; of the runtime asked
    for."""
    for spec in (model or "", own):
        if spec and runtime in (None, runtime_of(spec)):
            return spec
    default = config.model.default
    if runtime_of(default) == RUNTIME and runtime != "native":
        return default
    if (runtime or config.runtime.default) == RUNTIME:
        return f"{RUNTIME}:{config.codex.model or 'default'}"
    return native_default(config)


def native_default(config: Config) -> str:
    """The default of our own loop: what is set may be codex's, and then it is as if nothing
    were."""
    if runtime_of(config.model.default) == RUNTIME:
        config = replace(config, model=replace(config.model, default=""))
    return default_model(config)
