"""What the engine asks of a model, and the events that come back.

ModelError         nothing came back; the attempt is lost
  .cause           worth another attempt: rate_limited, overloaded, server_error, unreachable,
                   dropped, timeout
                   not: refused, not_trusted, no_key, no_model, unknown_model, too_long
  .sent            whether the provider may have received the request
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import StepEnding, Usage
from steno.journal.parts import Content, Hash


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    text: str


class Finished(Struct, frozen=True):
    """Always the last event. `ended` is incomplete if the stream stopped without its end marker."""

    parts: tuple[Content, ...]
    ended: StepEnding
    usage: Usage | None = None


ModelEvent = TextDelta | ReasoningDelta | Finished


class ModelError(Exception):
    """Nothing of an answer came back."""

    def __init__(
        self,
        cause: str,
        detail: str,
        sent: Literal["yes", "no", "unknown"],
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.cause, self.detail, self.sent, self.retry_after_s = (
            cause,
            detail,
            sent,
            retry_after_s,
        )


class Endpoint(Struct, frozen=True):
    """Where a model is and how to reach it. `key_header` is sent with `key_prefix` and the key, if
    there is one. `proxy` is the address to go by, if not straight."""

    url: str
    key: str = ""
    key_needed: bool = False
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    headers: tuple[tuple[str, str], ...] = ()
    idle_s: float = 120.0
    proxy: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


class Model(Protocol):
    """One wire format at one address. `spec` is how people name it, `provider` whom its blobs are
    bound to."""

    spec: str
    provider: str

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        """The request's bytes. Pure: the same request gives the same bytes in every process."""
        ...

    def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        """Send the bytes and yield what comes back, ending with one `Finished`, or raise
        `ModelError`. No retries."""
        ...

    async def close(self) -> None: ...
