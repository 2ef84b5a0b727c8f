"""The tools with which a model looks at jobs and asks to change them. A person is asked about each
change, whatever was allowed before: a job goes on acting when no one watches."""

from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.protocol import (
    BadArguments,
    Prepared,
    Reading,
    Unusable,
    decode_arguments,
)

LIST_SPEC = ToolSpec(
    name="list_jobs",
    description="List the jobs that run at their times by themselves, and what came of them.",
    schema='{"type":"object","properties":{},"additionalProperties":false}',
    repeat="safe",
)
CHANGE_SPEC = ToolSpec(
    name="change_job",
    description=(
        "Make, run, pause, resume or remove a job: a prompt that runs at its times by itself. The "
        "user is asked first. To add one, give the prompt and one of cron (five fields, with a "
        "zone such as Europe/Berlin), at (2026-11-19T09:00) and every (30m, 12h, 1d). `to` is "
        "CHANNEL:CHAT, where what it says is posted. For the others give the id."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"act":{"type":"string","enum":["add","run","pause","resume","remove"]},'
        '"id":{"type":"string"},"prompt":{"type":"string"},"name":{"type":"string"},'
        '"cron":{"type":"string"},"at":{"type":"string"},"every":{"type":"string"},'
        '"zone":{"type":"string"},"to":{"type":"string"},'
        '"missed":{"type":"string","enum":["skip","once","all"]},'
        '"overlap":{"type":"string","enum":["queue","skip"]}'
        '},"required":["act"],"additionalProperties":false}'
    ),
)

Text = Annotated[str, Meta(max_length=50_000)]


class ListJobsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ChangeJobArguments(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    act: Literal["add", "run", "pause", "resume", "remove"]
    id: Text = ""
    prompt: Text = ""
    name: Text = ""
    cron: Text = ""
    at: Text = ""
    every: Text = ""
    zone: Text = ""
    to: Text = ""
    missed: Literal["skip", "once", "all"] = "once"
    overlap: Literal["queue", "skip"] = "queue"


class KnowsJobs(Protocol):
    """What changes and lists jobs. Raises `Unusable` with what to tell the model."""

    async def listed(self) -> list[Any]: ...

    async def change(self, act: str, given: dict[str, Any]) -> Any: ...


class ListJobs:
    spec: ToolSpec = LIST_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(self, jobs: KnowsJobs) -> None:
        self._jobs = jobs

    async def prepare(self, arguments: str) -> Prepared:
        decode_arguments(arguments or "{}", ListJobsArguments)
        return Reading(self._list)

    async def _list(self) -> str:
        found = await self._jobs.listed()
        return (
            "\n".join(msgspec.json.encode(one).decode() for one in found)
            or "[no jobs]"
        )


class ChangeJob:
    spec: ToolSpec = CHANGE_SPEC
    approval: Literal["none", "ask"] = "ask"

    def __init__(self, jobs: KnowsJobs) -> None:
        self._jobs = jobs

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, ChangeJobArguments)
        if asked.act == "add" and not asked.prompt:
            raise BadArguments("a job needs a `prompt`")
        if asked.act != "add" and not asked.id:
            raise BadArguments(
                f"to {asked.act} a job give its `id`; list_jobs has them"
            )
        return Reading(lambda: self._change(asked))

    async def _change(self, asked: ChangeJobArguments) -> str:
        given = msgspec.to_builtins(asked)
        changed = await self._jobs.change(given.pop("act"), given)
        return msgspec.json.encode(changed).decode()


__all__ = ["ChangeJob", "KnowsJobs", "ListJobs", "Unusable"]
