"""A model behind HTTP, from before it is first asked. What talks to servers takes a tenth of a
second to load, so a front end that only begins does without it."""

from collections.abc import AsyncGenerator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from steno.engine.request import Request
from steno.journal.parts import Hash
from steno.models.protocol import Endpoint, ModelEvent

if TYPE_CHECKING:
    from steno.models.http import Format, HttpModel


class OverHttp:
    def __init__(self, spec: str, format: "Format", endpoint: Endpoint) -> None:
        self.spec, self.provider = spec, format.provider
        self._format, self._endpoint = format, endpoint

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        return self._format.to_wire(request, payloads)

    def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        return self._asked.stream(body)

    async def close(self) -> None:
        if "_asked" in vars(self):
            await self._asked.close()

    @cached_property
    def _asked(self) -> "HttpModel":
        from steno.models.http import HttpModel

        return HttpModel(self.spec, self._format, self._endpoint)


def load() -> None:
    """What asks servers, before the first of them is asked."""
    import steno.models.http  # noqa: F401
