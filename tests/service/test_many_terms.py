"""One process serves many sessions at once, each on its own terms: model, policy, folder, platform
and memory belong to a session or a request, never to the process."""

import asyncio
import json
from pathlib import Path

import pytest

from steno.compose import Program, Setup
from steno.config import Config, Place
from steno.journal.facts import ApprovalAsked, Record
from steno.journal.transcript import Transcript
from steno.model_choice import Terms
from steno.service import Service
from tests.service.test_visits import case

SESSIONS = 50


def script(folder: Path, number: int) -> str:
    """A model of its own: it writes a file, then says its number."""
    path = folder / f"script-{number}.json"
    call = {"id": f"call-{number}", "name": "write_file"}
    arguments = {"path": "mine.txt", "content": f"session {number}"}
    path.write_text(
        json.dumps(
            [
                {"tool_calls": [call | {"arguments": arguments}]},
                {"text": f"answer {number}", "pieces": 3, "delay_s": 0.01},
            ]
        )
    )
    return f"scripted:{path}"


def terms_of(home: Path, number: int) -> Terms:
    """Every third one may write, every third one may not, every third one asks."""
    folder = home / f"folder-{number}"
    folder.mkdir()
    approval = ("allow", "refuse", "ask")[number % 3]
    return Terms(script(home, number), approval=approval, folder=folder)  # type: ignore[arg-type]


class Guest:
    """A session from its own platform, on its own terms."""

    def __init__(self, program: Program, home: Path, number: int) -> None:
        self.number = number
        self.terms = terms_of(home, number)
        self.service: Service = program.service(f"platform-{number}", self.terms)
        self.session = ""

    async def talk(self) -> None:
        admitted = await self.service.admit("go", None, None, None, self.terms.model or "")
        self.session = admitted.session
        async for event in self.service.turns.answer(admitted, asyncio.Event()):
            if isinstance(event, Record) and isinstance(event.fact, ApprovalAsked):
                await self.service.approvals.decide(self.session, event.seq, "allow")

    async def check(self) -> None:
        transcript = Transcript()
        loaded = await self.service.views.whole(self.session, transcript)
        assert loaded.row.platform == f"platform-{self.number}"
        assert loaded.row.model == self.terms.model
        said = [one.text for one in transcript.messages if one.role == "assistant"]
        assert said[-1] == f"answer {self.number}"
        assert self.terms.folder is not None
        written = self.terms.folder / "mine.txt"
        if self.number % 3 == 1:
            assert not written.exists()
        else:
            assert written.read_text() == f"session {self.number}"


@pytest.mark.promise(15)
@case
async def test_one_process_runs_fifty_sessions_on_fifty_terms_at_once(tmp_path: Path) -> None:
    async with Setup(Config(), Place(tmp_path, tmp_path)).open() as program:
        guests = [Guest(program, tmp_path, number) for number in range(SESSIONS)]
        await asyncio.gather(*(guest.talk() for guest in guests))
        for guest in guests:
            await guest.check()
