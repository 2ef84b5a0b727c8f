"""The tool `read_skill`: what a skill says, by its name. A model is told the names and what each is
for; it reads one when it needs it."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.protocol import Prepared, Reading, Unusable, decode_arguments
from steno.workspace.commands import Command

DESCRIBED_CHARS_MAX = 300
SKILLS_MAX = 50


class SkillArguments(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]


class ReadSkill:
    approval: Literal["none", "ask"] = "none"

    def __init__(self, skills: Sequence[Command]) -> None:
        told = "; ".join(
            f"{one.name}: {one.does[:DESCRIBED_CHARS_MAX]}" for one in skills
        )
        self._skills = {one.name: one for one in skills}
        self.spec = ToolSpec(
            name="read_skill",
            description=f"Read how to do something, before you do it. There are: {told}",
            schema=(
                '{"type":"object","properties":{"name":{"type":"string"}},'
                '"required":["name"],"additionalProperties":false}'
            ),
            repeat="safe",
        )

    async def prepare(self, arguments: str) -> Prepared:
        name = decode_arguments(arguments, SkillArguments).name

        async def text() -> str:
            await asyncio.sleep(0)
            if name not in self._skills:
                raise Unusable(
                    f"there is no skill {name!r}; there are: {', '.join(self._skills)}"
                )
            return self._skills[name].text

        return Reading(text)
