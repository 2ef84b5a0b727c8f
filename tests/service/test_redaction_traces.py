"""A person who redacts a message is told which helpers were given it, by what those sessions say of
their origin."""

import asyncio
import json

from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.listing import DELEGATED, author
from steno.journal.parts import Returned, Seq, Text, ToolCall
from steno.session.lease import hold
from steno.store.protocol import Admission
from tests.session.rooms import Room, room


async def delegates(here: Room, *prompts: str) -> tuple[str, Seq, Seq]:
    """A session that delegates each prompt; the answer that does so, and the last outcome."""
    admitted = await here.service.admit("do it", None, None, None, "scripted:echo")
    calls = [
        ToolCall(f"c{n}", "delegate", json.dumps({"prompt": prompt}))
        for n, prompt in enumerate(prompts)
    ]
    started = 0
    async with hold(here.sessions, admitted.session) as held:
        turn = await held.record(TurnStarted(Takes(admitted.seq)))
        step = await held.record(StepStarted("m"))
        await held.record(StepSealed(step, tuple(calls)))
        for call in calls:
            started = await held.record(ToolStarted(step, call.id))
            outcome = Returned((Text("whatever the tool says"),))
            await held.record(ToolSettled(step, call.id, outcome, started))
        await held.record(TurnEnded(turn, "done"))
        await held.close()
    return admitted.session, step, started


async def child(here: Room, parent: str, prompt: str) -> str:
    session = await here.store.create(SessionStarted(DELEGATED))
    said = InputAdmitted((Text(prompt),), DELEGATED, author=author(parent))
    await here.store.admit(Admission(input=said, session=session))
    return session


def test_the_helpers_of_a_redacted_message_are_named() -> None:
    async def whole() -> None:
        async with room() as here:
            parent, step, outcome = await delegates(here, "one", "two")
            one, two = await child(here, parent, "one"), await child(here, parent, "two")
            await child(here, "another", "two")
            await child(here, parent, "three")
            assert (await here.service.edits.redact(parent, outcome)).helpers == (two,)
            redaction = await here.service.edits.redact(parent, step)
            assert set(redaction.helpers) == {one, two}

    asyncio.run(whole())


def test_a_message_that_delegates_nothing_names_no_helpers() -> None:
    async def whole() -> None:
        async with room() as here:
            parent, _, _ = await delegates(here, "one")
            await child(here, parent, "one")
            assert (await here.service.edits.redact(parent, 3)).helpers == ()

    asyncio.run(whole())
