"""What a client of OpenAI's API asks for: bodies, and the messages in them as parts of ours. Pure.

The last message is the person's and is what is said now. What stands before it was said elsewhere
and is kept as that. Messages of the system are instructions. What this service cannot do for a
client is refused with a sentence, not left out in silence; settings of the sampler alone are not
looked at.
"""

import base64
import binascii
import json
import re
from typing import Any

from msgspec import Struct, field

from steno.gateway.openai.reply import OWN
from steno.gateway.routes import Problem
from steno.journal.facts import Label, MessageGiven
from steno.journal.parts import Content, Text, ToolCall
from steno.service import Misused
from steno.service.attachments import Attachment, attachment, check_together

Object = dict[str, Any]

MESSAGES_MAX = 10_000
LABELS_MAX = 16
LABEL_NAME_MAX = 64
LABEL_VALUE_MAX = 512
TEXT_CHARS_MAX = 1_000_000

_DATA = re.compile(r"data:[\w.+/-]*(?:;[\w=.+-]+)*;base64,")


class ResponsesBody(Struct):
    """The body of POST /v1/responses. Other fields are not looked at."""

    input: str | list[Object] = ""
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Object | None = None
    stream: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None
    text: Object | None = None


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatBody(Struct):
    """The body of POST /v1/chat/completions. Other fields are not looked at."""

    messages: list[Object]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    n: int | None = None
    response_format: Object | None = None


class Asked(Struct):
    """`text` and `attachments` are what is said now; `given` what was said before it, with the
    bytes that it names; `instructions` None if there are none."""

    text: str = ""
    attachments: list[Attachment] = field(default_factory=list)
    given: list[MessageGiven] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    instructions: str | None = None


def refuse(param: str, message: str, kind: str = "invalid_value") -> Problem:
    return Problem(400, kind, message, param=param)


def check_responses(body: ResponsesBody) -> None:
    _check_tools(body.tools)
    _check_format((body.text or {}).get("format"), "text.format")
    if not body.input:
        raise refuse(
            "input", "The input is empty. Nothing was stored.", "missing_input"
        )


def check_chat(body: ChatBody) -> None:
    _check_tools(body.tools)
    if body.functions:
        raise _no_tools("functions")
    if body.n not in (None, 1):
        raise refuse(
            "n", "This service gives one answer: n must be 1. Nothing was stored."
        )
    _check_format(body.response_format, "response_format")
    if not body.messages:
        raise refuse(
            "messages", "There is no message. Nothing was stored.", "missing_input"
        )


def _check_tools(tools: list[Any] | None) -> None:
    if tools:
        raise _no_tools("tools")


def _no_tools(param: str) -> Problem:
    return refuse(
        param,
        f"Tools of the client are not supported: leave {param!r} out. The session uses the tools "
        "that this service has. Nothing was stored.",
        "unsupported_parameter",
    )


def _check_format(wanted: Any, param: str) -> None:
    if isinstance(wanted, dict) and wanted.get("type", "text") != "text":
        raise refuse(
            param,
            "Answers are plain text: leave the format out, or say it in the message. Nothing was "
            "stored.",
            "unsupported_parameter",
        )


def labels_of(metadata: dict[str, str] | None) -> tuple[Label, ...]:
    if metadata is None:
        return ()
    if len(metadata) > LABELS_MAX:
        raise refuse(
            "metadata", f"metadata may have {LABELS_MAX} entries. Nothing was stored."
        )
    for name, value in metadata.items():
        if len(name) > LABEL_NAME_MAX or len(value) > LABEL_VALUE_MAX:
            raise refuse(
                "metadata",
                f"A name in metadata may have {LABEL_NAME_MAX} characters and a value "
                f"{LABEL_VALUE_MAX}. Nothing was stored.",
            )
        if name.startswith(OWN):
            raise refuse(
                "metadata",
                f"Names that begin with {OWN!r} are taken. Nothing was stored.",
            )
    return tuple(Label(name, value) for name, value in metadata.items())


# --- messages -------------------------------------------------------------------------------------


def asked_by_responses(body: ResponsesBody) -> Asked:
    items = (
        [{"role": "user", "content": body.input}]
        if isinstance(body.input, str)
        else body.input
    )
    asked = _asked(items, "input")
    if body.instructions is not None:
        both = [
            body.instructions,
            *([asked.instructions] if asked.instructions else []),
        ]
        asked.instructions = (
            "\n\n".join(both) if body.instructions else asked.instructions or ""
        )
    return asked


def asked_by_chat(body: ChatBody) -> Asked:
    return _asked(body.messages, "messages")


def _asked(items: list[Object], param: str) -> Asked:
    if len(items) > MESSAGES_MAX:
        raise refuse(
            param, f"{MESSAGES_MAX} messages are the most. Nothing was stored."
        )
    asked, told = Asked(), []
    for at, item in enumerate(items):
        where = f"{param}[{at}]"
        role = item.get("role") if item.get("type", "message") == "message" else None
        if role in ("system", "developer"):
            told.append(_text_of(item.get("content"), f"{where}.content"))
        elif role == "user" and at == len(items) - 1:
            asked.text, asked.attachments = _content(
                item.get("content"), f"{where}.content"
            )
        else:
            _give(asked, item, role, where)
    if not asked.text.strip() and not asked.attachments:
        raise refuse(
            param,
            "The last message must be from the user, and not empty. Nothing was stored.",
        )
    if len(asked.text) > TEXT_CHARS_MAX:
        raise refuse(
            param,
            f"A message may have {TEXT_CHARS_MAX} characters. Nothing was stored.",
        )
    asked.instructions = "\n\n".join(told) if told else None
    return asked


def _give(asked: Asked, item: Object, role: Any, where: str) -> None:
    """A message that was said before."""
    kind = item.get("type", "message")
    if role in ("user", "assistant"):
        text, files = _content(item.get("content") or "", f"{where}.content")
        asked.payloads += [one.data for one in files]
        calls = _calls(item, where) if role == "assistant" else ()
        said = (Text(text),) if text else ()
        parts: tuple[Content, ...] = (*(one.part for one in files), *said, *calls)
        if parts:
            asked.given.append(MessageGiven(role, parts))
    elif role == "tool":
        text = _text_of(item.get("content"), f"{where}.content")
        asked.given.append(
            MessageGiven("tool", (Text(text),), _word(item, "tool_call_id", where))
        )
    elif kind == "function_call":
        asked.given.append(
            MessageGiven("assistant", (_call_in(item, "call_id", where),))
        )
    elif kind == "mcp_call":
        called = _call_in(item, "id", where)
        asked.given.append(MessageGiven("assistant", (called,)))
        output = item.get("output") or item.get("error") or ""
        asked.given.append(
            MessageGiven("tool", (Text(_text_of(output, where)),), called.id)
        )
    elif kind == "function_call_output":
        text = _text_of(item.get("output"), f"{where}.output")
        asked.given.append(
            MessageGiven("tool", (Text(text),), _word(item, "call_id", where))
        )
    elif kind != "reasoning":
        wrong = (
            f"the role {role!r}" if kind == "message" else f"an item of type {kind!r}"
        )
        raise refuse(
            where, f"This service does not take {wrong}. Nothing was stored."
        )


def _calls(item: Object, where: str) -> tuple[ToolCall, ...]:
    """The calls in a message of Chat Completions."""
    found = []
    for one in item.get("tool_calls") or ():
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            raise refuse(
                f"{where}.tool_calls", "A call needs a function. Nothing was stored."
            )
        found.append(_call_in(function | {"id": one.get("id")}, "id", where))
    return tuple(found)


def _call_in(item: Object, id: str, where: str) -> ToolCall:
    name, arguments = _word(item, "name", where), item.get("arguments")
    said = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(_word(item, id, where), name, said)


def _word(item: Object, name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise refuse(
            f"{where}.{name}",
            f"{where} needs {name!r}, a string. Nothing was stored.",
        )
    return value


# --- content --------------------------------------------------------------------------------------


def _text_of(content: Any, where: str) -> str:
    text, files = _content(content, where)
    if files:
        raise refuse(where, "Only text can stand here. Nothing was stored.")
    return text


def _content(content: Any, where: str) -> tuple[str, list[Attachment]]:
    """The text of a message, and what is attached to it. Parts of text are joined by an empty
    line."""
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise refuse(
            where, "Content must be a string or a list of parts. Nothing was stored."
        )
    texts: list[str] = []
    files: list[Attachment] = []
    for at, part in enumerate(content):
        place = f"{where}[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text", "output_text", "refusal"):
            texts.append(
                _string(part.get("refusal" if kind == "refusal" else "text"), place)
            )
        elif kind in ("input_image", "image_url"):
            files.append(_file(f"image-{at + 1}", _image_url(part, place), place))
        elif kind in ("input_file", "file"):
            inner = part.get("file") if isinstance(part.get("file"), dict) else part
            name = inner.get("filename") or f"file-{at + 1}"
            files.append(_file(str(name), inner.get("file_data"), place))
        else:
            raise refuse(
                place,
                f"This service does not take a part {kind!r}. Nothing was stored.",
            )
    try:
        check_together(files)
    except Misused as error:
        raise refuse(where, f"{error}") from error
    return "\n\n".join(texts), files


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise refuse(where, "A part of text needs a string. Nothing was stored.")
    return value


def _image_url(part: Object, where: str) -> Any:
    url = part.get("image_url")
    return url.get("url") if isinstance(url, dict) else url


def _file(name: str, said: Any, where: str) -> Attachment:
    """What was sent in a data URL. No address is opened, and no file of OpenAI's is fetched."""
    found = _DATA.match(said) if isinstance(said, str) else None
    if found is None or not isinstance(said, str):
        raise refuse(
            where,
            "Send the file itself, as a data URL with base64: this service opens no address and "
            "has no file ids. Nothing was stored.",
        )
    try:
        return attachment(name, base64.b64decode(said[found.end() :], validate=True))
    except binascii.Error as error:
        raise refuse(
            where, "The data URL is not valid base64. Nothing was stored."
        ) from error
    except Misused as error:
        raise refuse(where, f"{error}") from error
