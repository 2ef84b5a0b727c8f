"""The composition root: puts store, models, tools and runtime together from the configuration."""

from pathlib import Path
from typing import Literal

from steno.config import Config, Place, default_model, system_prompt
from steno.engine.action import Limits
from steno.journal.facts import ContextSet
from steno.models.protocol import Model
from steno.models.specs import ModelSettings, make
from steno.runtimes.native import Agent, Native
from steno.service import Service
from steno.store.protocol import Settings
from steno.store.sqlite.store import SqliteStore
from steno.tools.builtin import builtin
from steno.tools.protocol import Workspace


class Wiring:
    """Builds the parts once, on first use."""

    def __init__(
        self, config: Config, where: Place, model: str | None, approval: Literal["allow", "refuse", "ask"]
    ) -> None:
        self._config = config
        self._where = where
        self._model = model
        self._approval = approval
        self._models: dict[str, Model] = {}

    async def service(self, platform: str) -> Service:
        settings = store_settings(self._config)
        store = await SqliteStore.open(self._where.store, settings)
        return Service(store, Native(store, self.agent, settings.lease_ms), platform, settings.lease_ms)

    def config_file(self) -> Path:
        return self._where.config

    def model_spec(self) -> str:
        return self._model or default_model(self._config)

    def agent(self, before: ContextSet | None) -> Agent:
        """Who answers: the model asked for, else the one the session has had, else the default."""
        spec = self._model or (before.model if before is not None else "") or default_model(self._config)
        tools = builtin(self._workspace()) if self._config.tools.enabled and not spec.startswith("local:") else {}
        context = ContextSet(
            model=spec,
            system=system_prompt(self._where),
            tools=tuple(tool.spec for tool in tools.values()),
            memories=() if before is None else before.memories,
        )
        limits = Limits(attempts_max=self._config.limits.attempts_max, steps_max=self._config.limits.steps_max)
        return Agent(context, self._made(spec), tools, self._approval, limits)

    def _made(self, spec: str) -> Model:
        if spec not in self._models:
            self._models[spec] = make(spec, self._model_settings())
        return self._models[spec]

    def _model_settings(self) -> ModelSettings:
        config = self._config
        default = ModelSettings()
        return ModelSettings(
            openai_key=config.openai.key,
            openai_base_url=config.openai.base_url or default.openai_base_url,
            anthropic_key=config.anthropic.key,
            anthropic_base_url=config.anthropic.base_url or default.anthropic_base_url,
            idle_s=config.limits.idle_s,
            max_tokens=config.model.max_tokens,
        )

    def _workspace(self) -> Workspace:
        tools = self._config.tools
        return Workspace(Path(self._where.folder), tools.time_limit_s, tools.output_chars_max)

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()


def store_settings(config: Config) -> Settings:
    return Settings(durability=config.store.durability, lock_wait_ms=config.store.lock_wait_ms)
