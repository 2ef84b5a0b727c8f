"""The tool `todo`: the steps of the work, which the person sees in the chat. The call itself is
what is kept: the whole list each time."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.protocol import Prepared, Reading, decode_arguments

STEPS_MAX = 50
TEXT_CHARS_MAX = 500
Status = Literal["pending", "doing", "done"]

TODO_SPEC = ToolSpec(
    name="todo",
    description=(
        "Write down the steps of a longer task and how far each is; the user sees the list. Give "
        "the whole list each time. Use it for work of several steps."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"steps":{"type":"array","maxItems":50,"items":{"type":"object","properties":{'
        '"text":{"type":"string","maxLength":500},'
        '"status":{"type":"string","enum":["pending","doing","done"]}'
        '},"required":["text","status"],"additionalProperties":false}}'
        '},"required":["steps"],"additionalProperties":false}'
    ),
    repeat="safe",
)


class TodoStep(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
    status: Status


class TodoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    steps: Annotated[tuple[TodoStep, ...], Meta(max_length=STEPS_MAX)]


class Todo:
    spec: ToolSpec = TODO_SPEC
    approval: Literal["none", "ask"] = "none"

    async def prepare(self, arguments: str) -> Prepared:
        steps = decode_arguments(arguments, TodoArguments).steps

        async def told() -> str:
            done = sum(step.status == "done" for step in steps)
            return f"noted: {done} of {len(steps)} done"

        return Reading(told)
