"""An answer in the words of OpenAI's Chat Completions: one object, or chunks. Pure.

And what a client that keeps the conversation itself knows of a session: whether what it sends
before its new message is what was said there.
"""

from collections.abc import Sequence
from typing import Any

from steno.gateway.openai.reply import Object, Reply, Told, usage_object
from steno.journal.facts import MessageGiven
from steno.journal.parts import text_of
from steno.journal.transcript import Message, Transcript

DONE = b"data: [DONE]\n\n"


def id_of(reply: Reply) -> str:
    return f"chatcmpl-{reply.session}-{reply.input}"


def completion(reply: Reply) -> Object:
    message = {"role": "assistant", "content": reply.text(), "refusal": None}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish(reply),
        "logprobs": None,
    }
    return _frame(reply, "chat.completion", [choice]) | {"usage": _usage(reply)}


def finish(reply: Reply) -> str:
    return "length" if reply.status() == "incomplete" else "stop"


def opening(reply: Reply) -> Object:
    return _chunk(reply, {"role": "assistant", "content": ""}, None)


def chunks(reply: Reply, told: list[Told]) -> list[Object]:
    return [_chunk(reply, {"content": one.text}, None) for one in told if one.text]


def closing(reply: Reply, with_usage: bool) -> list[Object]:
    last = [_chunk(reply, {}, finish(reply))]
    if with_usage:
        last.append(
            _frame(reply, "chat.completion.chunk", []) | {"usage": _usage(reply)}
        )
    return last


def _chunk(reply: Reply, delta: Object, reason: str | None) -> Object:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return _frame(reply, "chat.completion.chunk", [choice])


def _frame(reply: Reply, kind: str, choices: list[Any]) -> Object:
    return {
        "id": id_of(reply),
        "object": kind,
        "created": reply.created_ms // 1000,
        "model": reply.model,
        "choices": choices,
        "system_fingerprint": None,
    }


def _usage(reply: Reply) -> Object | None:
    used = usage_object(reply.usage)
    if used is None:
        return None
    return {
        "prompt_tokens": used["input_tokens"],
        "completion_tokens": used["output_tokens"],
        "total_tokens": used["total_tokens"],
        "prompt_tokens_details": {
            "cached_tokens": used["input_tokens_details"]["cached_tokens"]
        },
        "completion_tokens_details": {
            "reasoning_tokens": used["output_tokens_details"]["reasoning_tokens"]
        },
    }


# --- what a client knows --------------------------------------------------------------------------


def agrees(given: Sequence[MessageGiven], transcript: Transcript) -> bool:
    """Whether what a client says was said is the end of what was said, or nothing. It may leave out
    prompts that were not answered."""
    claimed = _joined([(one.role, text_of(one.parts)) for one in given])
    if not claimed:
        return True
    shown = [one for one in transcript.messages if _was_said(one)]
    failed = {
        turn.seq for turn in transcript.turns if turn.outcome not in ("done", None)
    }
    whole = _joined([(one.role, one.text) for one in shown])
    answered = _joined(
        [(one.role, one.text) for one in shown if one.turn not in failed]
    )
    return claimed in (whole[-len(claimed) :], answered[-len(claimed) :])


def _was_said(message: Message) -> bool:
    return message.role in ("user", "assistant") and message.state not in (
        "pending",
        "withdrawn",
        "lost",
    )


def _joined(said: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What one side said in a row is one text: a client is told the answers of a turn as one."""
    joined: list[tuple[str, str]] = []
    for role, text in said:
        if role == "tool":
            continue
        if joined and joined[-1][0] == role == "assistant":
            joined[-1] = (role, joined[-1][1] + text)
        else:
            joined.append((role, text))
    return [(role, text.strip()) for role, text in joined if text.strip()]
