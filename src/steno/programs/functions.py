"""Python functions as tools: types and docstring become the schema, the call runs where the program
runs.

    @steno.tool(repeat="safe", approval="ask")
    def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather of a city.

        city: its name, with the country if that is not clear
        \"\"\"

The first paragraph of the docstring tells a model what the tool does. A line `name: text` in the
rest tells it of a parameter.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, cast, get_type_hints

import msgspec
from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Failed, Interrupted, Outcome, Returned, Text
from steno.race import first_of
from steno.tools.protocol import BadArguments, Output

Repeat = Literal["never", "safe"]
Approval = Literal["none", "ask"]
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ABOUT = re.compile(r"\s*:?(?:param\s+)?(\w+)(?:\s*\([^)]*\))?\s*:\s*(.+)")


class FunctionTool:
    """A function that a model may call. It can still be called by you."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str = "",
        repeat: Repeat = "never",
        approval: Approval = "none",
        time_limit_s: float = 0.0,
    ) -> None:
        if not callable(function):
            raise TypeError(
                f"a tool must be a function, not {type(function).__name__}"
            )
        if repeat not in ("never", "safe") or approval not in ("none", "ask"):
            raise ValueError(
                'repeat must be "never" or "safe", approval "none" or "ask"'
            )
        said = inspect.cleandoc(function.__doc__ or "")
        name = name or getattr(function, "__name__", "")
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a tool: {NAME.pattern}")
        self.function = function
        self.approval: Approval = approval
        self._time_limit_s = time_limit_s
        self._arguments = _arguments_of(function, name, said)
        self.spec = ToolSpec(
            name,
            said.partition("\n\n")[0].replace("\n", " "),
            schema_of(self._arguments),
            repeat,
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    async def check(self, arguments: str) -> None:
        self._decoded(arguments)

    async def prepare(self, arguments: str) -> "_Call":
        return _Call(self.function, self._decoded(arguments), self._time_limit_s)

    def _decoded(self, arguments: str) -> dict[str, Any]:
        try:
            given = msgspec.json.decode(
                arguments or "{}", type=self._arguments, dec_hook=_dec_hook
            )
        except (msgspec.DecodeError, ValueError) as error:
            raise BadArguments(f"the arguments cannot be used: {error}") from error
        return {
            name: getattr(given, name) for name in self._arguments.__struct_fields__
        }


class _Call:
    """A function that runs in a thread cannot be ended: after a stop it runs on by itself, and its
    call is settled as interrupted."""

    group: int | None = None

    def __init__(
        self, function: Callable[..., Any], given: dict[str, Any], time_limit_s: float
    ) -> None:
        self._function = function
        self._given = given
        self._limit_s = time_limit_s or None
        self._stopped = asyncio.Event()

    async def run(self, output: Output) -> Outcome:
        try:
            gave = await first_of(
                self._gave(output), self._stopped, limit_s=self._limit_s
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is told
            return Failed((Text(f"{type(error).__name__}: {error}"),))
        if gave is not None:
            return Returned((Text(gave[0]),) if gave[0] else ())
        if self._stopped.is_set():
            return Interrupted()
        return Failed(
            (Text(f"it did not end within {self._limit_s:g} s; it may have effects"),)
        )

    async def _gave(self, output: Output) -> tuple[str]:
        """What it returned, as text. What a generator yields is output, stored as it comes."""
        if inspect.isasyncgenfunction(self._function):
            said = []
            async for piece in self._function(**self._given):
                said.append(_text(piece))
                await output(said[-1])
            return ("".join(said),)
        if inspect.iscoroutinefunction(self._function):
            return (_text(await self._function(**self._given)),)
        gave = await asyncio.to_thread(self._function, **self._given)
        if inspect.isawaitable(gave):
            gave = await gave
        return (_text(gave),)

    async def stop(self) -> None:
        self._stopped.set()


def as_tool(function: Callable[..., Any] | FunctionTool) -> FunctionTool:
    return function if isinstance(function, FunctionTool) else FunctionTool(function)


def of_plugins(names: Sequence[str]) -> list[FunctionTool]:
    """The tools that plugins bring: what is in `tools` of each. They run in this process."""
    if not names:
        return []
    from steno.config import place
    from steno.plugins.discovery import find, module_of

    there = {found.name: found for found in find(place().home)}
    tools: list[FunctionTool] = []
    for name in names:
        if name not in there:
            known = ", ".join(there) or "none"
            raise ValueError(
                f"plugins: there is no plugin {name!r}; there are: {known}"
            )
        brought = getattr(module_of(there[name]), "tools", None)
        if not isinstance(brought, list | tuple):
            raise ValueError(f"plugins: the plugin {name!r} has no list `tools`")
        tools += map(as_tool, brought)
    return tools


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    repeat: Repeat = "never",
    approval: Approval = "none",
    time_limit_s: float = 0.0,
) -> Any:
    """Make a tool of a function. `repeat`: whether a call whose outcome is unknown after a kill may
    be made again unasked. `approval`: whether each call needs a yes."""
    if function is not None:
        return FunctionTool(function)
    return lambda meant: FunctionTool(meant, name, repeat, approval, time_limit_s)


# --- types as schemas, msgspec's and pydantic's ---------------------------------------------------


def _arguments_of(function: Callable[..., Any], name: str, said: str) -> type[Struct]:
    hints = get_type_hints(function, include_extras=True)
    lines = (_ABOUT.fullmatch(line) for line in said.splitlines()[1:])
    about = {str(one[1]): str(one[2]) for one in lines if one is not None}
    fields: list[Any] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise TypeError(
                f"tool {name!r}: the parameter {one.name!r} must have a plain name"
            )
        if one.name not in hints:
            raise TypeError(f"tool {name!r}: the parameter {one.name!r} needs a type")
        hint = hints[one.name]
        if one.name in about:
            hint = Annotated[hint, Meta(description=about[one.name])]
        fields.append(
            (one.name, hint) if one.default is one.empty else _field(one, hint)
        )
    return msgspec.defstruct(
        "Arguments", fields, kw_only=True, forbid_unknown_fields=True
    )


def _field(one: inspect.Parameter, hint: Any) -> tuple[str, Any, Any]:
    default = one.default
    if isinstance(
        default, list | dict | set
    ):  # shared by all calls, as in the function itself
        return one.name, hint, msgspec.field(default_factory=lambda: default)
    return one.name, hint, default


def schema_of(meant: Any) -> str:
    """The JSON schema of a type, as text."""
    if hasattr(meant, "model_json_schema"):
        return _to_json(meant.model_json_schema())
    schema = msgspec.json.schema(meant, schema_hook=_schema_hook)
    named = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if named in (defs := dict(schema.get("$defs", {}))):
        own = defs[named]
        if f'"#/$defs/{named}"' not in json.dumps(defs):  # unless it refers to itself
            del defs[named]
            own.pop("title", None)
            schema = own | ({"$defs": defs} if defs else {})
    return _to_json(schema)


def decoded(text: str, meant: Any) -> Any:
    """The value of a type that some JSON text is. Raises `ValueError` that says why it is none."""
    if hasattr(meant, "model_validate_json"):
        return meant.model_validate_json(text)
    return msgspec.json.decode(text, type=meant, dec_hook=_dec_hook)


def _schema_hook(meant: Any) -> dict[str, Any]:
    if hasattr(meant, "model_json_schema"):
        return cast(dict[str, Any], meant.model_json_schema())
    raise NotImplementedError(f"{meant!r} has no JSON schema")


def _dec_hook(meant: Any, value: Any) -> Any:
    if hasattr(meant, "model_validate"):
        return meant.model_validate(value)
    raise NotImplementedError(f"{meant!r} cannot be read from JSON")


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(gave: object) -> str:
    """What a tool gave, as a model is told it: text as it is, all else as JSON."""
    if isinstance(gave, str):
        return str.__str__(gave)
    if gave is None:
        return ""
    if hasattr(gave, "model_dump_json"):
        return str(gave.model_dump_json())
    return msgspec.json.encode(gave).decode()
