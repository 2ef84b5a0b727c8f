"""The composition root: puts store, models, tools and runtime together from the configuration."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.config import Config, ConfigError, Place, default_model, system_prompt
from steno.engine.action import Limits
from steno.engine.approval import Policy, Rule
from steno.journal.facts import ContextSet
from steno.models.protocol import Model
from steno.models.specs import ModelSettings, make
from steno.runtimes.native import Agent, Native
from steno.runtimes.toolbox import Toolbox, ToolboxSettings
from steno.service import Service
from steno.store.protocol import Settings
from steno.store.sqlite.adopt import adopt_closed
from steno.store.sqlite.restore import restore
from steno.store.sqlite.store import SqliteStore
from steno.tools.builtin import builtin
from steno.tools.environment import Scrub
from steno.tools.mcp import SDK_MISSING, ServerSettings, has_sdk
from steno.tools.protocol import Workspace
from steno.tools.sandbox import Bounds, Sandbox


class Provider(Struct, frozen=True):
    """Where a model is, and how its address and its key are set."""

    url: str
    url_from: str
    key_from: str


class Wiring:
    """Builds the parts once, on first use."""

    def __init__(
        self,
        config: Config,
        where: Place,
        model: str | None,
        approval: Literal["allow", "refuse", "ask"],
        allowed: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.where = where
        self._model = model
        self._approval = approval
        self._policy = Policy(
            tuple(Rule.parse(rule, verdict) for rule, verdict in config.approvals.items()),
            tuple(Rule.parse(rule, "allow") for rule in allowed),
        )
        self._models: dict[str, Model] = {}
        self._toolbox: Toolbox | None = None

    @asynccontextmanager
    async def service(self, platform: str) -> AsyncIterator[Service]:
        settings = self._store_settings()
        store = await SqliteStore.open(self.where.store, settings)
        helpers = Native(store, self._helper, settings.lease_ms)
        toolbox = self._toolbox = Toolbox(store, self._workspace, helpers, self._toolbox_settings())
        service = Service(store, Native(store, self.agent, settings.lease_ms), platform, settings.lease_ms)
        try:
            yield service
        finally:
            await toolbox.close()
            for model in self._models.values():
                await model.close()
            await service.close()

    def has_store(self) -> bool:
        """Whether there is a store, or what is left of one. Opening makes one where there is none."""
        name = self.where.store.name
        return any(self.where.store.with_name(name + ending).exists() for ending in ("", "-locks", ".restoring"))

    def adopt(self) -> bool:
        """Take the store back from another program that wrote to it; whether that was needed."""
        return adopt_closed(self.where.store, self._store_settings())

    def restore(self, backup: Path) -> None:
        restore(backup, self.where.store)

    def asks(self) -> bool:
        """Whether a call that needs approval waits for a decision."""
        return self._approval == "ask"

    def model_spec(self) -> str:
        return self._model or default_model(self.config)

    def agent(self, before: ContextSet | None) -> Agent:
        """Who answers: the model asked for, else the one the session has had, else the default."""
        spec = self._model or (before.model if before is not None else "") or default_model(self.config)
        tools = builtin(self._workspace()) if self.config.tools.enabled and not spec.startswith("local:") else {}
        context = ContextSet(
            model=spec,
            system=system_prompt(self.where),
            tools=tuple(tool.spec for tool in tools.values()),
            memories=() if before is None else before.memories,
        )
        for missing in self.missing_parts():
            raise ConfigError(missing)
        agent = Agent(context, self._made(spec), tools, self._approval, self._limits(spec), policy=self._policy)
        return agent if self._toolbox is None or not tools else replace(agent, session_tools=self._toolbox.of)

    def _helper(self, before: ContextSet | None) -> Agent:
        """Who answers in a session that was delegated to: nobody is there to ask, and its steps are few."""
        agent = self.agent(before)
        limits = replace(agent.limits, steps_max=min(agent.limits.steps_max, self.config.tools.delegate_steps_max))
        return replace(agent, approval="allow" if agent.approval == "allow" else "refuse", limits=limits)

    def missing_parts(self) -> list[str]:
        """What the configuration asks for and is not installed, and what to do about each."""
        missing = []
        if self.config.mcp and not has_sdk():
            missing.append(f"{SDK_MISSING}; or take [mcp] out of {self.where.config}")
        if sandbox := self._sandbox().missing():
            missing.append(f"{sandbox} in {self.where.config}")
        return missing

    def context_max(self, spec: str) -> int:
        """The tokens that a model takes; 0 if nobody said."""
        return self.config.contexts.get(spec, self.config.model.context_tokens)

    def _limits(self, spec: str) -> Limits:
        limits = self.config.limits
        return Limits(
            attempts_max=limits.attempts_max,
            steps_max=limits.steps_max,
            context_max=self.context_max(spec),
            summary_s=limits.summary_s,
            turn_s=limits.turn_s,
            turn_tokens_max=limits.turn_tokens_max,
            session_steps_max=limits.session_steps_max,
            session_s=limits.session_s,
            session_tokens_max=limits.session_tokens_max,
        )

    def _made(self, spec: str) -> Model:
        if spec not in self._models:
            try:
                self._models[spec] = make(spec, self._model_settings())
            except ValueError as error:
                raise ConfigError(f"{error} ({self._origin(spec)})") from error
        return self._models[spec]

    def _origin(self, spec: str) -> str:
        """Where what is wrong with a spec was set: its address, if it names a model at all."""
        provider = self.provider(spec)
        if provider is not None and spec.partition(":")[2]:
            return f"set by {provider.url_from}"
        if spec == self._model:
            return "set by --model"
        return f"set by STENO_MODEL, or default under [model] in {self.where.config}, or the session's own"

    def provider(self, spec: str) -> Provider | None:
        """None for a model that is not behind an address."""
        settings = self._model_settings()
        match spec.partition(":")[0]:
            case "openai-chat" | "openai-responses":
                section, url = "openai", settings.openai_base_url
            case "anthropic":
                section, url = "anthropic", settings.anthropic_base_url
            case _:
                return None
        scheme, _, rest = url.rpartition("://")
        return Provider(
            f"{scheme}://{rest.rpartition('@')[2]}",
            f"{section.upper()}_BASE_URL, or base_url under [{section}] in {self.where.config}",
            f"{section.upper()}_API_KEY, or key under [{section}] in {self.where.config}",
        )

    def _model_settings(self) -> ModelSettings:
        config = self.config
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
        if self.where.folder is None:
            raise ConfigError("the folder you are in was removed; change to another one. Nothing was stored")
        tools = self.config.tools
        return Workspace(
            self.where.folder,
            tools.time_limit_s,
            tools.output_chars_max,
            tools.kept_chars_max,
            Scrub(frozenset(tools.secret_env), frozenset(tools.kept_env)),
            Bounds(tools.cpu_s, tools.memory_mb, tools.open_files, tools.file_mb),
            self._sandbox(),
        )

    def _sandbox(self) -> Sandbox:
        return Sandbox(self.config.tools.sandbox, self.config.tools.sandbox_network, (self.where.home,))

    def _toolbox_settings(self) -> ToolboxSettings:
        tools = self.config.tools
        servers = {
            name: ServerSettings(
                command=mcp.command,
                args=mcp.args,
                env=mcp.env,
                pass_env=mcp.pass_env,
                url=mcp.url,
                headers=mcp.headers,
                safe=frozenset(mcp.safe),
                only=frozenset(mcp.only),
                start_limit_s=mcp.start_limit_s,
                time_limit_s=mcp.time_limit_s,
            )
            for name, mcp in self.config.mcp.items()
        }
        return ToolboxSettings(
            servers=servers, search=tools.search, delegate=tools.delegate, delegate_limit_s=tools.delegate_limit_s
        )

    def _store_settings(self) -> Settings:
        return Settings(durability=self.config.store.durability, lock_wait_ms=self.config.store.lock_wait_ms)
