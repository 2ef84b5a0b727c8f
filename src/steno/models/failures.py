"""What a provider says when it does not answer, as a cause that the engine can act on.

The words are those of `ModelError`. The message of the provider goes into the detail, bounded,
without the key.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

import msgspec

from steno.models.protocol import ModelError

DETAIL_CHARS_MAX = 500
RETRY_AFTER_S_MAX = 86_400.0
_TOO_LONG = re.compile(
    r"context.{0,10}(length|window|size)|prompt is too long|too many "
    r"tokens|maximum.{0,20}tokens|request_too_large"
    r"|exceed_context",
    re.IGNORECASE,
)
_KINDS = {
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "overloaded_error": "overloaded",
    "slow_down": "overloaded",
    "server_is_overloaded": "overloaded",
    "api_error": "server_error",
    "server_error": "server_error",
    "timeout_error": "timeout",
    "authentication_error": "no_key",
    "invalid_api_key": "no_key",
    "not_found_error": "unknown_model",
    "model_not_found": "unknown_model",
    "context_length_exceeded": "too_long",
    "request_too_large": "too_long",
    "exceed_context_size_error": "too_long",
    "insufficient_quota": "refused",
    "billing_error": "refused",
    "permission_error": "refused",
    "invalid_request_error": "refused",
    "invalid_prompt": "refused",
}


def of_status(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """An answer with an HTTP status other than 200: the provider received the request and did not
    take it."""
    message, words = _error_in(body)
    detail = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    return ModelError(
        _cause(status, words, message), bounded(detail), "yes", retry_after_s(headers)
    )


def reported(error: Any) -> ModelError:
    """An error that came as an event of the stream."""
    message, words = _message(error), _words(error)
    cause = next((_KINDS[word] for word in words if word in _KINDS), None)
    code = error.get("code") if isinstance(error, dict) else None
    if cause in (None, "refused"):
        status = (
            code
            if isinstance(code, int) and 400 <= code < 600
            else (400 if cause == "refused" else 500)
        )
        cause = _cause(status, words, message)
    return ModelError(
        cause or "server_error",
        bounded(message or "the provider reported an error"),
        "yes",
    )


def unreadable(error: Exception) -> ModelError:
    """An event that is not of its format: the stream cannot be read any further."""
    return ModelError(
        "dropped", bounded(f"a piece of the stream could not be read: {error}"), "yes"
    )


def bounded(detail: str) -> str:
    return (
        detail
        if len(detail) <= DETAIL_CHARS_MAX
        else f"{detail[: DETAIL_CHARS_MAX - 1]}…"
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks us to wait: milliseconds, seconds or a date."""
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return min(ms / 1000, RETRY_AFTER_S_MAX)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return min(seconds, RETRY_AFTER_S_MAX)
    try:
        date = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return min(max(date.timestamp() - time(), 0.0), RETRY_AFTER_S_MAX)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _cause(status: int, words: list[str], message: str) -> str:
    if status in (400, 413, 422) and (
        status == 413 or _TOO_LONG.search(" ".join([message, *words]))
    ):
        return "too_long"
    if "insufficient_quota" in words:
        return "refused"
    match status:
        case 401:
            return "no_key"
        case 404:
            return "unknown_model"
        case 408:
            return "timeout"
        case 429:
            return "rate_limited"
        case 503 | 529:
            return "overloaded"
        case _:
            return "server_error" if status >= 500 else "refused"


def _error_in(body: bytes) -> tuple[str, list[str]]:
    text = body.decode("utf-8", "replace").strip()
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return text, []
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    return _message(error) or text, _words(error)


def _message(error: Any) -> str:
    if isinstance(error, dict):
        found = next(
            (error[key] for key in ("message", "detail", "error") if error.get(key)),
            "",
        )
        return (
            found if isinstance(found, str) else msgspec.json.encode(found).decode()
        )
    return error if isinstance(error, str) else ""


def _words(error: Any) -> list[str]:
    if not isinstance(error, dict):
        return []
    return [
        word
        for word in (error.get("code"), error.get("type"))
        if isinstance(word, str)
    ]
