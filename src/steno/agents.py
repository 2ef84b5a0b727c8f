"""Who answers in a session, on which terms: its model or runtime, its tools, its folder, its rules.

Terms come with a request, or from what a front end keeps for a session. Nothing of them belongs to
the process, so one process serves sessions on many terms at once.

What most runs have no use for is loaded by the function that needs it: a start is what a person
waits for.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from steno.config import (
    Config,
    ConfigError,
    Place,
    codex_environment,
    folder_rules,
    key_variables,
    known_usable,
    provider_key,
    proxies,
    system_prompt,
)
from steno.engine.action import Limits
from steno.engine.approval import Policy, Rule
from steno.journal.facts import ContextSet
from steno.journal.listing import ListingRow
from steno.model_choice import (
    Beginning,
    Terms,
    Wanted,
    native_default,
    runtime_of,
    spec_of,
)
from steno.models import over_http
from steno.models.protocol import Model
from steno.models.specs import (
    KINDS,
    ModelKind,
    ModelSettings,
    kind_of,
    make,
    server_of,
)
from steno.runtimes.codex import RUNTIME
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.in_folder import InFolder
from steno.runtimes.loop import Agent, Fallback, Native
from steno.runtimes.protocol import Driver, WithMemories
from steno.runtimes.recall import Recall
from steno.runtimes.toolbox import SessionTools, Toolbox
from steno.session.load import Sessions
from steno.store.protocol import Store
from steno.tools.builtin import builtin
from steno.tools.protocol import Workspace
from steno.tools.sandbox import Bounds, Sandbox, Scrub

if TYPE_CHECKING:
    from steno.runtimes.codex.turn import CodexAgent
    from steno.runtimes.distil import Distiller

PROGRAMS = ("cli", "library")


class Provider(Struct, frozen=True):
    """Where a model is, and how its address and its key are set."""

    url: str
    url_from: str
    key_from: str


class Models:
    """The models that a process talks to, each made once."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._made: dict[str, Model] = {}
        self._set_aside: list[Model] = []

    def get(self, spec: str) -> Model:
        """Raises `ValueError` if the spec names none that can be used."""
        if spec not in self._made:
            self._made[spec] = make(spec, self.settings)
        return self._made[spec]

    def look_again(self) -> None:
        """Keys have changed: models are made anew. What runs goes on with those it has."""
        self._set_aside += self._made.values()
        self._made.clear()

    def all(self) -> tuple[Model, ...]:
        return (*self._made.values(), *self._set_aside)


def model_settings(config: Config, where: Place) -> ModelSettings:
    return ModelSettings(
        config.vendors,
        config.limits.idle_s,
        config.model.max_tokens,
        config.providers,
        config.models,
        proxies(),
        partial(provider_key, config, where),
    )


class Parts(Struct, frozen=True):
    """What an open store gives to those who answer: the tools of a session, and its memories."""

    sessions: Sessions
    toolbox: Toolbox
    recall: Recall


class Agents:
    """Builds what answers, on these terms. Without `parts` nothing can be run, only looked up."""

    def __init__(
        self,
        config: Config,
        where: Place,
        models: Models,
        terms: Terms = Terms(),  # noqa: B008 - it is frozen
        parts: Callable[[], Parts] | None = None,
        ephemeral: bool = False,
    ) -> None:
        self.config = config
        self.where = where
        self.terms = terms
        self.ephemeral = ephemeral
        self._models = models
        self._parts = parts
        self._policy = Policy(
            tuple(
                Rule.parse(rule, verdict)
                for rule, verdict in config.approvals.items()
            ),
            tuple(Rule.parse(rule, "allow") for rule in terms.allowed),
        )

    def _policy_in(self, folder: Path) -> Policy:
        kept = folder_rules(self.where.home, datetime.now().astimezone().date()).get(
            str(folder), {}
        )
        return replace(
            self._policy,
            folder=tuple(Rule.parse(rule, verdict) for rule, verdict in kept.items()),
        )

    def drivers(self, store: Store) -> Callable[[ContextSet | None], Driver]:
        """What drives a session, given its context so far."""
        native = Native(store, self.agent)

        @cache
        def codex() -> Driver:
            from steno.runtimes.codex.driver import Codex

            return Codex(store, self.codex_agent)

        return lambda before: codex() if self._by_codex(before) else native

    def asks(self) -> bool:
        """Whether a call that needs approval waits for a decision."""
        return self.terms.approval == "ask"

    def model_spec(self, before: ContextSet | None = None) -> str:
        """The model of a session that begins now, or with this context goes on. `codex:NAME` is one
        that codex asks."""
        return self._spec(before)

    def answering(self) -> tuple[str, ...]:
        """The model of a session that begins now, and those that take over from it; codex has
        none."""
        return (
            self.model_spec(),
            *(() if self._by_codex(None) else self.config.model.fallback),
        )

    def check(self, before: ContextSet | None = None) -> None:
        """Raises `ConfigError` if the model or runtime of a session, or of a new one, cannot be
        used."""
        if self._by_codex(before):
            self.codex_agent(before)
        else:
            self.agent(before)

    def _spec(self, before: ContextSet | None) -> str:
        return spec_of(
            self.config,
            self.terms.model,
            self.terms.runtime,
            "" if before is None else before.own_model,
        )

    def _by_codex(self, before: ContextSet | None) -> bool:
        return runtime_of(self._spec(before)) == RUNTIME

    def codex_program(self) -> str:
        """The codex that is used; "" if there is none."""
        from steno.runtimes.codex.binary import find as find_codex

        return str(find_codex(self.config.codex.path) or "")

    def codex_agent(self, before: ContextSet | None) -> "CodexAgent":
        from importlib.metadata import version

        from steno.runtimes.codex.calls import OutputBounds
        from steno.runtimes.codex.process import Patience
        from steno.runtimes.codex.turn import CodexAgent
        from steno.tools.child import Command

        if self.ephemeral:
            raise ConfigError(
                "codex keeps threads in files of its own, so a session that leaves none needs "
                "--runtime native"
            )
        config = self.config.codex
        binary = self.codex_program()
        if not binary:
            raise ConfigError(_no_codex(config.path, self.where.config))
        name = self._spec(before).partition(":")[2]
        workspace = self._workspace(before)
        command = Command(
            (binary, "app-server"), codex_environment(self.config), workspace.folder
        )
        return CodexAgent(
            command=command,
            version=version("steno-agent"),
            context=ContextSet(
                f"{RUNTIME}:{'' if name == 'default' else name}",
                system_prompt(self.where, workspace.folder),
                memories=() if before is None else before.memories,
                recalled=() if before is None else before.recalled,
                folder="" if before is None else before.folder,
            ),
            approval=self.terms.approval,
            policy=self._policy_in(workspace.folder),
            limits=self._limits(""),
            patience=Patience(config.start_s, config.answer_s, config.interrupt_s),
            bounds=OutputBounds(workspace.output_chars_max, workspace.kept_chars_max),
            sandbox=config.sandbox,
            begin_anew=self.terms.new_thread,
            session_tools=self._session_tools(workspace),
            with_memories=self._tells_memories(),
            own_tools=frozenset((*builtin(workspace), "delegate")),
        )

    def is_demo(self, before: ContextSet | None = None) -> bool:
        """Whether the small local model answers in a session, because no other was chosen."""
        spec = self.model_spec(before)
        return not self._is_able(spec) and spec not in (
            self.terms.model,
            self.config.model.default,
        )

    def beginning(self, session: str | None) -> Beginning:
        """What a chat on these terms begins with."""
        return Beginning(self.model_spec(), session, self._wanted())

    def _wanted(self) -> Wanted | None:
        if self.terms.model is not None:
            return Wanted(self.terms.model)
        return (
            None
            if self.terms.runtime is None
            else Wanted(self.model_spec(), self.terms.runtime)
        )

    def look_again(self) -> None:
        """Keys have changed."""
        self._models.look_again()

    def load_ahead(self) -> None:
        """What the first request needs, while there is time. Nothing is asked."""
        if (
            server_of(self.model_spec().partition(":")[0], self._models.settings)
            is not None
        ):
            over_http.load()

    def known_models(self) -> list[str]:
        """Models that can be used with what is configured, as far as we know any by name."""
        config = self.config
        known = [
            self.model_spec(),
            *config.model.favourites,
            native_default(config),
            *config.model.fallback,
            *config.contexts,
            *config.models,
        ]
        return list(dict.fromkeys([*known, *known_usable(config)]))

    def agent(self, before: ContextSet | None) -> Agent:
        """Who answers by our own loop."""
        spec = self._spec(before)
        spec = native_default(self.config) if runtime_of(spec) == RUNTIME else spec
        able = self.config.tools.enabled and self._is_able(spec)
        workspace = self._workspace(before)
        tools = builtin(workspace) if able else {}
        context = ContextSet(
            model=spec,
            system=system_prompt(self.where, workspace.folder),
            tools=tuple(tool.spec for tool in tools.values()),
            memories=() if before is None else before.memories,
            recalled=() if before is None else before.recalled,
            folder="" if before is None else before.folder,
        )
        for missing in self.missing_parts():
            raise ConfigError(missing)
        agent = Agent(
            context,
            self._model(spec),
            tools,
            self.terms.approval,
            self._limits(spec),
            policy=self._policy_in(workspace.folder),
            with_memories=self._tells_memories(),
            fallback=self._fallback(spec),
        )
        if not tools:
            return agent
        return replace(
            agent,
            session_tools=self._session_tools(workspace),
            with_folder=InFolder(workspace.folder, self.where.home).tell,
        )

    def _session_tools(self, workspace: Workspace) -> SessionTools | None:
        if self._parts is None:
            return None
        parts = self._parts()
        native = Native(parts.sessions.store, self._helper)
        helpers = Dispatch(parts.sessions, lambda _: native)
        return partial(parts.toolbox.of, workspace, helpers)

    def _tells_memories(self) -> WithMemories | None:
        if (
            self._parts is None
            or not self.terms.memories
            or not self.config.memory.enabled
        ):
            return None
        return self._parts().recall.tell

    def distils_unasked(self) -> bool:
        memory = self.config.memory
        return memory.enabled and memory.distill != "off" and not self.ephemeral

    def distils(self, row: ListingRow) -> bool:
        """Whether a session is distilled unasked. The small local model is not up to it, and a
        script answers nothing that is not in it, unless it was chosen for that."""
        if not self.distils_unasked() or (
            self.config.memory.distill == "chat" and row.platform in PROGRAMS
        ):
            return False
        return self._asked_unasked(row.model)

    def _asked_unasked(self, own: str) -> bool:
        """Whether a model may be asked about a session without being told to."""
        by = self._distiller_spec(own)
        kind = self._kind(by)
        return kind is None or (
            kind.able and (kind.unasked or by == self.config.memory.model)
        )

    def entitles(self, row: ListingRow) -> bool:
        """Whether a model is asked for a title of a session, unasked. Else its first line is its
        title."""
        wanted = (
            self.config.memory.titles and not self.ephemeral and row.wants_title()
        )
        return wanted and self._asked_unasked(row.model)

    def distiller(self, before: ContextSet | None) -> "Distiller":
        from steno.runtimes.distil import Distiller

        spec = self.terms.model or self._distiller_spec(
            "" if before is None else before.own_model
        )
        return Distiller(
            self._model(spec),
            self.config.context_max(spec),
            self.config.limits.summary_s,
        )

    def _distiller_spec(self, own: str) -> str:
        """Who distils a session unless told: the model that is set, else the session's own, if that
        can be asked from here. Codex cannot, nor can the model of a program that has one of its
        own."""
        own = native_default(self.config) if self._kind(own) is None else own
        return self.config.memory.model or own

    def _helper(self, before: ContextSet | None) -> Agent:
        """Who answers in a session that was delegated to: no person is there to ask, and its
        steps are few."""
        agent = self.agent(before)
        limits = replace(
            agent.limits,
            steps_max=min(
                agent.limits.steps_max, self.config.tools.delegate_steps_max
            ),
        )
        return replace(
            agent,
            approval="allow" if agent.approval == "allow" else "refuse",
            limits=limits,
            with_memories=None,
        )

    def missing_parts(self) -> list[str]:
        """What the configuration asks for and is not installed, and what to do about each."""
        missing = []
        if self.config.mcp:
            from steno.tools.mcp import SDK_MISSING, has_sdk

            if not has_sdk():
                missing.append(
                    f"{SDK_MISSING}; or take [mcp] out of {self.where.config}"
                )
        if sandbox := self._sandbox().missing():
            missing.append(f"{sandbox} in {self.where.config}")
        return missing

    def idle_rules(self, rules: Iterable[str]) -> list[str]:
        """Those about tools that there are not: nothing would follow from them."""
        tools = {
            *builtin(self._workspace(None)),
            "delegate",
            "search_sessions",
            "read_output",
        }
        return [
            rule
            for rule in rules
            if (name := rule.partition(":")[0].strip()) not in tools
            and name.partition("__")[0] not in self.config.mcp
            and "*" not in name
        ]

    def _fallback(self, own: str) -> tuple[Fallback, ...]:
        """Models that may take over from this one."""
        specs = (
            spec for spec in dict.fromkeys(self.config.model.fallback) if spec != own
        )
        return tuple(
            Fallback(self._model(spec), self._limits(spec), self._is_able(spec))
            for spec in specs
        )

    def _limits(self, spec: str) -> Limits:
        limits = self.config.limits
        return Limits(
            attempts_max=limits.attempts_max,
            steps_max=limits.steps_max,
            context_max=self.config.context_max(spec),
            summary_s=limits.summary_s,
            turn_s=limits.turn_s,
            turn_tokens_max=limits.turn_tokens_max,
            session_steps_max=limits.session_steps_max,
            session_s=limits.session_s,
            session_tokens_max=limits.session_tokens_max,
        )

    def _model(self, spec: str) -> Model:
        try:
            return self._models.get(spec)
        except ValueError as error:
            raise ConfigError(f"{error} ({self._origin(spec)})") from error

    def _origin(self, spec: str) -> str:
        """Where what is wrong with a spec was set: its address, if it names a model at all."""
        provider = self.provider(spec)
        if provider is not None and spec.partition(":")[2]:
            return f"set by {provider.url_from}"
        if spec == self.terms.model:
            return "set by --model"
        if spec in self.config.model.fallback:
            return f"set by STENO_MODEL_FALLBACK, or fallback under [model] in {self.where.config}"
        if spec == self.config.model.default:
            return (
                f"set by STENO_MODEL, or default under [model] in {self.where.config}"
            )
        return "chosen for this session"

    def provider(self, spec: str) -> Provider | None:
        """None for a model that is not behind an address."""
        name = spec.partition(":")[0]
        try:
            server = server_of(
                name, replace(self._models.settings, key_of=lambda _: "")
            )
        except ValueError:
            server = None
        kind = self._kind(spec)
        if kind is None or kind.vendor is None:
            return None
        where = f"[providers.{name}] in {self.where.config}"
        if name in KINDS and name not in self.config.providers:
            vendor = kind.vendor
            where = f"under [{vendor.name}] in {self.where.config}"
            url_from = f"{vendor.url_variable}, or base_url {where}"
            key_from = (
                f"{vendor.key_variable}, steno login {vendor.name}, or key {where}"
            )
        else:
            variable = "" if server is None else server.provider.key_env
            url_from = f"address under {where}"
            key_from = " or ".join(filter(None, (variable, f"steno login {name}")))
        scheme, _, rest = (
            "" if server is None else server.provider.address
        ).rpartition("://")
        return Provider(f"{scheme}://{rest.rpartition('@')[2]}", url_from, key_from)

    def _kind(self, spec: str) -> ModelKind | None:
        return kind_of(spec, self.config.providers)

    def _is_able(self, spec: str) -> bool:
        """Whether a model can call tools."""
        kind = self._kind(spec)
        return kind is None or kind.able

    def workspace(self, folder: str) -> Workspace:
        """Where the tools of a session work that belongs to a folder; "" if it belongs to none."""
        return self._workspace(ContextSet("", folder=folder))

    def _workspace(self, before: ContextSet | None) -> Workspace:
        own = None if before is None or not before.folder else Path(before.folder)
        folder = self.terms.folder or own or self.where.folder
        if folder is None:
            raise ConfigError(
                "the folder you are in was removed; change to another one. Nothing was stored"
            )
        if own is not None and folder == own and not own.is_dir():
            raise ConfigError(
                f"the session belongs to {own}, which is not there; --here moves it to the folder "
                "you are in. Nothing was stored"
            )
        tools = self.config.tools
        tokens = [channel.token_env for channel in self.config.channels.values()]
        return Workspace(
            folder,
            tools.time_limit_s,
            tools.output_chars_max,
            tools.kept_chars_max,
            Scrub(
                frozenset((*tools.secret_env, *tokens, *key_variables(self.config))),
                frozenset(tools.kept_env),
            ),
            Bounds(tools.cpu_s, tools.memory_mb, tools.open_files, tools.file_mb),
            self._sandbox(),
        )

    def _sandbox(self) -> Sandbox:
        return Sandbox(
            self.config.tools.sandbox,
            self.config.tools.sandbox_network,
            (self.where.home,),
        )


def _no_codex(path: str, config: Path) -> str:
    """What to do where the codex program is missing; `path` is the one that was configured."""
    native = "--runtime native answers without codex. Nothing was stored"
    install = "pip install 'steno-agent[codex]' brings"
    if not path:
        named = f"or path under [codex] in {config} names one that is there"
        return f"codex is not installed: {install} it, {named}; {native}"
    where = f"which STENO_CODEX_PATH or path under [codex] in {config} names"
    mend = f"correct it, or take it out and {install} one"
    return f"there is no codex at {path}, {where}: {mend}; {native}"
