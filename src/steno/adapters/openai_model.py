"""A model of the OpenAI Agents SDK that stores what it shows. The SDK gives a session only what is
complete; so each piece of an answer is stored before the SDK sees it, in the session with the name
of that one and "#shown"."""

import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

from steno.adapters import in_thread
from steno.library import Library, Reply, Session

PREFIX = "openai:"
SHOWN = "#shown"
"""Ends the name of the session that has what was streamed."""
WAIT_S = 30.0
_TEXT = ("response.output_text.delta", "response.refusal.delta")


class Beside(Protocol):
    """The session that an answer is for."""

    session_id: str

    @property
    def chats(self) -> Library: ...


def keeping(model: Any, session: Beside) -> Any:
    """A model of the SDK whose answers are stored as they come, before the SDK sees them: in the
    session with the name of this one and "#shown"."""
    from agents.models.interface import Model

    class KeepingModel(Model):  # type: ignore[misc,unused-ignore]
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        async def close(self) -> None:
            await model.close()

        def get_retry_advice(self, request: Any) -> Any:
            return model.get_retry_advice(request)

        async def get_response(
            self, system_instructions: Any, input: Any, *given: Any, **named: Any
        ) -> Any:
            async with _Shown(session, model, input) as shown:
                answer = await model.get_response(
                    system_instructions, input, *given, **named
                )
                await shown.write(_text_of(answer.output))
            return answer

        async def stream_response(
            self, system_instructions: Any, input: Any, *given: Any, **named: Any
        ) -> AsyncIterator[Any]:
            async with _Shown(session, model, input) as shown:
                events = model.stream_response(
                    system_instructions, input, *given, **named
                )
                async for event in events:
                    if event.type in _TEXT:
                        await shown.write(event.delta)
                    yield event

    return KeepingModel()


class _Shown:
    """One answer in the session of what was shown."""

    def __init__(self, session: Beside, model: Any, input: Any) -> None:
        self._name = PREFIX + session.session_id + SHOWN
        self._chats = session.chats
        self._model = str(getattr(model, "model", "") or type(model).__name__)
        self._said = _last_said(input)
        self._reply: Reply | None = None

    async def __aenter__(self) -> "_Shown":
        def begin() -> Reply:
            chat: Session = self._chats.session(self._name)
            said = chat.say(self._said)
            return chat.reply(self._model, to=said, wait=WAIT_S).__enter__()

        self._reply = await in_thread(begin)
        return self

    async def write(self, piece: str) -> None:
        reply = self._reply
        if piece and reply is not None:
            await in_thread(lambda: reply.write(piece))

    async def __aexit__(self, kind: Any, error: Any, at: Any) -> None:
        reply = self._reply
        if reply is not None:
            await in_thread(lambda: reply.__exit__(kind, error, at))


def _last_said(input: Any) -> str:
    """What an answer is to: the text that came, or the last item."""
    if isinstance(input, str):
        return input
    last = input[-1] if input else ""
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else json.dumps(last, default=str)


def _text_of(output: Any) -> str:
    parts = (part for item in output for part in getattr(item, "content", None) or ())
    return "".join(getattr(part, "text", "") or "" for part in parts)
