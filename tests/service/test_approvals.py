"""What waits for a person is found without reading the sessions in which nothing waits."""

import asyncio

import pytest

from steno.journal.facts import ApprovalAsked, Record, StepSealed, StepStarted, Takes, TurnStarted
from steno.journal.parts import Seq, ToolCall
from steno.service.views import Approval
from steno.session.lease import hold
from tests.session.rooms import Room, room


async def asked(here: Room) -> str:
    """A session in which a call waits for a person."""
    admitted = await here.service.admit("do it", None, None, None, "scripted:echo")
    async with hold(here.sessions, admitted.session) as held:
        await held.record(TurnStarted(Takes(admitted.seq)))
        step = await held.record(StepStarted("m"))
        await held.record(StepSealed(step, (ToolCall("c", "shell", "{}"),)))
        await held.record(ApprovalAsked(step, "c"))
        await held.close()
    return admitted.session


def test_sessions_in_which_nothing_waits_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> list[Approval]:
        async with room() as here:
            for text in ("one", "two", "three"):
                await here.say(text)
            waits = await asked(here)
            read: set[str] = set()
            reading = here.store.read

            async def counting(session: str, after: Seq = 0, limit: int = 1_000) -> list[Record]:
                read.add(session)
                return await reading(session, after, limit)

            monkeypatch.setattr(here.store, "read", counting)
            found = await here.service.approvals.pending()
            assert read == {waits}
            return found

    [one] = asyncio.run(whole())
    assert (one.tool, one.decision) == ("shell", None)
