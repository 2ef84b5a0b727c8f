"""A conversation that goes from the OpenAI Agents SDK to steno and back, with the SDK itself."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import agents
import pytest
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import steno
from steno.adapters.openai_agents import StenoSession, keeping


class Saying(Model):  # type: ignore[misc,unused-ignore]
    """A model of the SDK that says one thing, and remembers what it was asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def get_response(
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> ModelResponse:
        self.asked = list(input)
        text = ResponseOutputText(text=self.answer, type="output_text", annotations=[])
        said = ResponseOutputMessage(
            id="1", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def texts(items: list[Any]) -> list[str]:
    """What is said in items of the SDK."""
    contents = [item["content"] for item in items]
    return [
        one if isinstance(one, str) else "".join(part["text"] for part in one) for one in contents
    ]


@pytest.mark.promise(75)
def test_a_conversation_goes_to_steno_and_back(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"

    async def by_the_sdk(question: str, answer: str) -> Saying:
        session, model = StenoSession("alice", path), Saying(answer)
        asked = agents.Agent("Assistant", model=keeping(model, session))
        config = agents.RunConfig(tracing_disabled=True)
        run = await agents.Runner.run(asked, question, session=session, run_config=config)
        assert run.final_output == answer
        session.close()
        return model

    asyncio.run(by_the_sdk("What is a journal?", "A book."))
    with steno.Agent(path, model="scripted:echo") as agent:
        assert agent.run("openai:alice", "And a ledger?").text == "And a ledger?"
        said = [message.text for message in agent.messages("openai:alice")]
    before = ["What is a journal?", "A book.", "And a ledger?", "And a ledger?"]
    assert said == before
    model = asyncio.run(by_the_sdk("Thanks.", "You are welcome."))
    assert texts(model.asked) == [*before, "Thanks."]
    with steno.open(path) as chats:
        whole = [message.text for message in chats.session("openai:alice").messages()]
        shown = [message.text for message in chats.session("openai:alice#shown").messages()]
    assert whole == [*before, "Thanks.", "You are welcome."]
    assert [text for text in shown if text in ("A book.", "You are welcome.")] == [
        "A book.",
        "You are welcome.",
    ]
