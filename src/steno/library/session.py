"""A session as a value."""

from collections.abc import AsyncGenerator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from steno.journal.facts import InputAdmitted, SessionRenamed
from steno.journal.parts import File, Image, Seq, Text, to_text
from steno.library.given import a_path, a_str, a_wait, an_input, an_int
from steno.library.means import SOURCE, Means
from steno.library.reply import AsyncReply
from steno.session.cursors import Place, from_print
from steno.store.errors import NotAllowed
from steno.store.protocol import (
    PAGE,
    Admission,
    Admitted,
    Cursor,
    Event,
    Piece,
    Store,
    give_way,
)

if TYPE_CHECKING:
    from steno.journal.history import History
    from steno.journal.transcript import Message, Transcript
    from steno.journal.usage import UsageTotal
    from steno.service.redaction_traces import Redaction


OUTPUT_CHARS_MAX = 10_000
"""Of a tool's long output in `messages`: so much of its beginning and its end together."""
OUTPUTS_BYTES_MAX = 32 << 20
"""What `messages` reads of long outputs, the latest first. Of older ones it says how long they
are."""

HISTORY = (
    "steno.journal.history",
    "steno.engine.request",
    "steno.models.providers",
    "steno.models.wording",
    "steno.runtimes.loop",
)
TRANSFERS = ("steno.service.transfers", "steno.service.views", "steno.session.load")

WireFormat = Literal["openai-chat", "openai-responses", "anthropic"]
_FORMATS = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic": "messages",
}

Attached = str | PathLike[str] | tuple[str, bytes]


class Followed(Struct, frozen=True):
    """A fact or a piece, and the cursor after it: what a web handler gives as the id of an event,
    and what `follow` goes on from. `text`: what a piece adds to what is shown."""

    event: Event
    cursor: str
    text: str = ""


class AsyncSession:
    def __init__(self, means: Means, id: str) -> None:
        self.id = id
        self._means = means
        self._store = means.store

    @classmethod
    def over(cls, store: Store, id: str) -> "AsyncSession":
        """A session of a store that is open already."""
        from asyncio import sleep, to_thread

        return cls(Means(store, sleep, to_thread), id)

    async def say(
        self,
        text: str,
        key: str | None = None,
        author: str | None = None,
        attach: Sequence[Attached] = (),
    ) -> Admitted:
        """Accept what someone said, with files and images: paths, or names with bytes. The same
        `key` with the same text is accepted once, however often it comes. Raises `JournalCorrupt`,
        and stores nothing, if what a reply would be built from is damaged."""
        parts: tuple[Image | File, ...] = ()
        payloads: tuple[bytes, ...] = ()
        if attach:
            parts, payloads = await self._means.aside(lambda: _attachments(attach))
        said = InputAdmitted(
            (Text(a_str("text", text)), *parts),
            f"{SOURCE}/{self.id}",
            None if key is None else a_str("key", key),
            None if author is None else a_str("author", author),
        )
        await (await self._means.loaded_sessions()).check(self.id)
        admission = Admission(input=said, session=self.id, payloads=payloads)
        return await self._store.admit(admission)

    def reply(
        self, model: str, to: Admitted | Seq | None = None, wait: float = 0.0
    ) -> AsyncReply:
        """Answer an input: `to`, as `say` returned it, or the oldest that waits.

        `wait` is how many seconds to wait if another reply is under way. An older input then goes
        first, if its own reply begins within `wait` seconds of when it was said. Without `wait`,
        `SessionBusy` says that another reply is under way. `NotPending` says that the input has
        been taken, or withdrawn.
        """
        return AsyncReply(
            self._means,
            self.id,
            a_str("model", model),
            an_input(to, self.id),
            a_wait(wait),
        )

    async def follow(
        self, after: str | None = None
    ) -> AsyncGenerator[Followed, None]:
        """Every fact and every piece after a cursor, and then what comes, from any process, for
        ever. Without a cursor, from the beginning."""
        place = Place(cursor_at(after))
        events = self._store.follow(self.id, place.cursor())
        try:
            async for event in events:
                yield followed(event, place)
        finally:
            await events.aclose()

    # --- editing: what a model is told. All but `redact` and `delete` can be taken back.

    async def rename(self, title: str) -> None:
        await self._store.add(self.id, [SessionRenamed(a_str("title", title))])

    async def undo(self) -> Seq:
        """Take the last turn that is not undone out of the model's view; what to `redo`."""
        return (await (await self._means.edits()).undo(self.id))[1]

    async def rewind(self, to: "Message | Seq") -> Seq:
        """Take what follows a message out of the model's view; what to `redo`."""
        return await (await self._means.edits()).rewind(self.id, _seq(to))

    async def redo(self, undone: Seq) -> None:
        """Take an undo or a rewind back."""
        await (await self._means.edits()).redo(self.id, an_int("undone", undone))

    async def hide(self, message: "Message | Seq", hidden: bool = True) -> bool:
        """Take one message out of the model's view, or put it back. False if it was so before."""
        return await (await self._means.edits()).hide(self.id, _seq(message), hidden)

    async def redact(self, message: "Message | Seq") -> "Redaction":
        """Take the text of a message out of the store for good, in forks too. The answer names
        where else it may stand."""
        return await (await self._means.edits()).redact(self.id, _seq(message))

    async def fork(self, at: "Message | Seq") -> "AsyncSession":
        """A session of its own with everything up to the end of a message or of a turn."""
        return AsyncSession(
            self._means, await (await self._means.edits()).fork(self.id, _seq(at))
        )

    async def delete(self, with_forks: bool = False) -> int:
        """Remove the session for good; how many sessions were removed."""
        return await self._store.delete(self.id, with_forks)

    async def export(self, to: str | PathLike[str], overwrite: bool = False) -> None:
        """Write a file that `bring` and `steno import` take. It is there whole or not at all."""
        await self._means.need("steno.transfer.export")
        from steno.transfer.export import export, written_whole

        aside = self._means.aside
        whole = written_whole(a_path(to), overwrite)
        file = await aside(whole.__enter__)
        try:
            async for piece in export(self._store, self.id):
                file.write(piece)
        except BaseException as error:
            how = type(error), error, error.__traceback__
            await aside(lambda: whole.__exit__(*how))
            raise
        await aside(lambda: whole.__exit__(None, None, None))

    async def markdown(self) -> str:
        """The session as a text for people."""
        await self._means.need(*TRANSFERS, "steno.transfer.markdown")
        from steno.service.transfers import Transfers
        from steno.service.views import Views

        transfers = Transfers(self._store, Views(self._means.sessions))
        return "".join(
            [piece.decode() async for piece in transfers.markdown(self.id)]
        )

    # --- reading

    async def usage(self) -> "UsageTotal":
        """What its answers have used."""
        await self._means.need("steno.journal.usage")
        from steno.journal.usage import UsageTotal

        total = UsageTotal()
        await (await self._means.loaded_sessions()).whole(self.id, total)
        return total

    async def messages(
        self, limit: int | None = None, after: Seq = 0
    ) -> "list[Message]":
        """Everything said so far, with what is being streamed at this moment: what stands after a
        seq, and of that the last `limit`. Of a long output of a tool the text has the beginning and
        the end; `output` reads all of it."""
        least = an_int("after", after)
        messages = [
            one for one in (await self.transcript()).messages if one.seq > least
        ]
        if limit is not None:
            most = max(an_int("limit", limit), 0)
            messages = messages[max(len(messages) - most, 0) :]
        room = OUTPUTS_BYTES_MAX
        for at, message in enumerate(reversed(messages)):
            if at % PAGE == 0:
                await give_way()
            for part in _outputs(message):
                room -= part.size
                text = "" if room < 0 else await self._output(part)
                message.parts = (
                    Text(_excerpt(text, part, message.seq)),
                    *message.parts,
                )
        return messages

    async def output(self, message: "Message | Seq") -> str:
        """The whole text of a message, however long it is."""
        seq = _seq(message)
        found = [one for one in (await self.transcript()).messages if one.seq == seq]
        if not found:
            raise NotAllowed(f"session {self.id!r} has no message {seq}")
        outputs = [await self._output(part) for part in _outputs(found[0])]
        return found[0].text + "".join(outputs)

    async def _output(self, part: File) -> str:
        return to_text(await self._store.get(part.hash))

    async def history(self, format: WireFormat) -> list[Any]:
        """What a model is told of the session, in the words of a provider: the messages, or the
        items, that a request to it has. What still waits is not among it."""
        if format not in _FORMATS:
            raise ValueError(
                f"format must be one of {', '.join(_FORMATS)}, not {format!r}"
            )
        await self._means.need(*HISTORY, f"steno.models.{format.replace('-', '_')}")
        from steno.journal.history import History

        told = History()
        await (await self._means.loaded_sessions()).whole(self.id, told)
        return await _to_wire(self._means, told, format)

    async def transcript(self) -> "Transcript":
        """The view for people. What a dead process left open is shown as the next one will close
        it."""
        await self._means.need("steno.journal.transcript")
        from steno.journal.transcript import Transcript

        view = Transcript()
        await (await self._means.loaded_sessions()).whole(self.id, view)
        return view


async def bring(means: Means, file: str | PathLike[str], trust: bool) -> AsyncSession:
    await means.need(*TRANSFERS, "steno.transfer.incoming")
    from steno.service.transfers import Transfers
    from steno.service.views import Views

    transfers = Transfers(means.store, Views(means.sessions))
    with a_path(file).open("rb") as opened:
        brought = await transfers.bring(opened, trust)
    return AsyncSession(means, brought.session)


def followed(event: Event, place: Place) -> Followed:
    """An event, taken in by the place of a reader."""
    if isinstance(event, Piece):
        _, text = place.piece(event.stream, event.offset, event.text)
        return Followed(
            event, place.id(), text if event.stream.kind == "text" else ""
        )
    place.fact(event)
    return Followed(event, place.id())


def cursor_at(after: str | None) -> Cursor:
    return Cursor() if after is None else from_print(a_str("after", after))


def _seq(message: "Message | Seq") -> Seq:
    from steno.journal.transcript import Message

    return message.seq if isinstance(message, Message) else an_int("message", message)


def _attachments(
    attach: Sequence[Attached],
) -> tuple[tuple[Image | File, ...], tuple[bytes, ...]]:
    from steno.service.attachments import attachment, check_together, read_attachment

    read = [
        attachment(*one) if isinstance(one, tuple) else read_attachment(a_path(one))
        for one in attach
    ]
    check_together(read)
    return tuple(one.part for one in read), tuple(one.data for one in read)


async def _to_wire(means: Means, told: "History", format: str) -> list[Any]:
    import json
    from importlib import import_module

    from steno.engine.request import build
    from steno.models.providers import ModelTuning
    from steno.models.wording import GO_ON
    from steno.runtimes.loop import payloads_told

    request = await means.aside(lambda: build(told))
    hashes = await means.aside(lambda: sorted(payloads_told(request.entries)))
    payloads = {hash: await means.store.get(hash) for hash in hashes}
    wire = import_module(f"steno.models.{format.replace('-', '_')}")

    def worded() -> list[Any]:
        format_ = wire.format("", "", ModelTuning(max_tokens=1))
        body = msgspec.json.decode(format_.to_wire(request, payloads))
        messages: list[Any] = body[_FORMATS[format]]
        # A request ends with the user's words; that note is no part of the session.
        return (
            messages[:-1]
            if messages and GO_ON in json.dumps(messages[-1])
            else messages
        )

    return await means.aside(worded)


def _outputs(message: "Message") -> list[File]:
    """The long output of a tool: text that lies in a payload."""
    if message.role != "tool":
        return []
    files = (part for part in message.parts if isinstance(part, File))
    return [part for part in files if part.media_type == "text/plain"]


def _excerpt(text: str, part: File, seq: Seq) -> str:
    if not text:
        return f"[{part.size} bytes of text; output({seq}) has all of it]"
    if len(text) <= OUTPUT_CHARS_MAX:
        return text
    half = OUTPUT_CHARS_MAX // 2
    left_out = f"[characters {half} to {len(text) - half} of {len(text)} are left out"
    return (
        f"{text[:half]}\n{left_out}; output({seq}) has all of them]\n{text[-half:]}"
    )
