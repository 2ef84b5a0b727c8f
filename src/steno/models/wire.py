"""JSON as servers take it: bytes out, events in. What a provider's JSON looks like is `Any` here
and in its own file.

Text may hold half of a surrogate pair. JSON sent out never does; JSON that comes in may, and is
read all the same.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from steno.journal.facts import ToolSpec

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_SURROGATE = "[\ud800-\udfff]"
_NO_PARAMETERS = msgspec.Raw(b'{"type":"object","properties":{}}')


def encode(body: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError:
        return _encoder.encode(each_text(body, cleaned))


def decode(decoder: msgspec.json.Decoder[T], data: str) -> T:
    """Raises `msgspec.DecodeError` for what is not JSON or not of that shape."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError) as strict:
        try:
            import json  # only for what the strict decoder refuses

            loose = json.loads(data)
        except ValueError:
            raise msgspec.DecodeError(str(strict)) from strict
        return msgspec.convert(loose, decoder.type)


def cleaned(text: str) -> str:
    """Text that UTF-8 can hold. Half of a surrogate pair says nothing that a model could use."""
    return text if text.isascii() else re.sub(_SURROGATE, "\ufffd", text)


def json_object(text: str) -> str:
    """The text itself if it is a JSON object; else an object that holds it, so that a server can
    parse it."""
    text = cleaned(text)
    if text == "{}" or not text.strip():
        return "{}"
    return text if is_object(text) else _encoder.encode({"unparsed": text}).decode()


def is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def schema(spec: ToolSpec) -> msgspec.Raw:
    """The schema as it was recorded, byte for byte."""
    return (
        msgspec.Raw(spec.schema.encode())
        if is_object(spec.schema)
        else _NO_PARAMETERS
    )


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: each_text(item, change) for key, item in value.items()}
        case list() | tuple():
            return [each_text(item, change) for item in value]
        case msgspec.Struct():
            return each_text(_fields(value), change)
        case _:
            return value


def _fields(value: msgspec.Struct) -> Any:
    """A struct as the dict that it is written as. One level of it where that will do: `Raw` has no
    other form."""
    config = value.__struct_config__
    if config.omit_defaults:
        return msgspec.to_builtins(value)
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    return {**tag, **msgspec.structs.asdict(value)}
