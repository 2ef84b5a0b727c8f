"""Facts to bytes and back.

    DecodeError      these bytes are not a fact; the journal is damaged or not ours
      UnknownFact    a tag this version does not know; written by a newer one

A body is one JSON object whose `type` is the fact's tag. JSON cannot hold a lone surrogate, so such
text has one escape: U+FDD0 (a code point that Unicode reserves for internal use) followed by four
hex digits of the code point it stands for. U+FDD0 itself is escaped in the same way. Nothing else
is touched: text comes back exactly as it went in.
"""

import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from steno.journal.facts import AnyFact
from steno.journal.listing import ListingRow

JOURNAL_VERSION = 1
"""The version of the facts and of their bytes, apart from the layout of a store's tables. It grows
with a tag or a field that an earlier steno cannot read."""

MARK = "\ufdd0"
_MARK_BYTES = MARK.encode()
_UNSAFE = f"[\ud800-\udfff\0{MARK}]"
_ESCAPED = f"{MARK}([0-9a-f]{{4}})"
"""Patterns as text: `re` compiles them with their first use, and most starts need neither. So wide
a set takes as long as two modules take to load."""


class DecodeError(ValueError):
    """These bytes are not a fact."""


class UnknownFact(DecodeError):
    """A tag this version does not know."""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)
_listing_decoder: msgspec.json.Decoder[ListingRow] = msgspec.json.Decoder(ListingRow)
"""Made here, and not where they are first used: msgspec crashes when two threads first meet a type
at once."""

TAGS: frozenset[str] = frozenset(
    kind.__struct_config__.tag for kind in get_args(AnyFact)
)


def escape(text: str) -> str:
    """Text that any UTF-8 column can hold: lone surrogates, NUL and the mark itself are spelled
    out."""
    if text.isascii() and "\0" not in text:
        return text
    return re.sub(_UNSAFE, lambda found: f"{MARK}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    if MARK not in text:
        return text
    return re.sub(_ESCAPED, lambda found: chr(int(found[1], 16)), text)


def encode(value: msgspec.Struct) -> bytes:
    try:
        body = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_each_text(msgspec.to_builtins(value), escape))
    if not body.isascii() and _MARK_BYTES in body:
        return _encoder.encode(_each_text(msgspec.to_builtins(value), escape))
    return body


def decode(body: bytes) -> AnyFact:
    """Strict: an unknown tag, an unknown field or a wrong type is an error that names it."""
    try:
        if body.isascii() or _MARK_BYTES not in body:
            return _decoder.decode(body)
        fact: AnyFact = msgspec.convert(
            _each_text(msgspec.json.decode(body), unescape), AnyFact
        )
        return fact
    except (ValueError, RecursionError) as error:
        raise _explain(body, error) from error


def decode_listing(body: bytes) -> ListingRow:
    try:
        if body.isascii() or _MARK_BYTES not in body:
            return _listing_decoder.decode(body)
        return msgspec.convert(
            _each_text(msgspec.json.decode(body), unescape), ListingRow, str_keys=True
        )
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not a listing row: {error}") from error


def _explain(body: bytes, error: Exception) -> DecodeError:
    try:
        tag = msgspec.json.decode(body)["type"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return DecodeError(f"not a fact: {error}")
    if not isinstance(tag, str):
        return DecodeError(f"not a fact: {error}")
    if tag not in TAGS:
        return UnknownFact(
            f"unknown fact {tag!r}: written by a newer steno, or damaged"
        )
    return DecodeError(f"fact {tag!r} does not decode: {error}")


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _each_text(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_each_text(item, change) for item in value]
        case _:
            return value
