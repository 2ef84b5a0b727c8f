"""What a channel is: a platform's account, behind four verbs and its limits as values.

    receive   what arrives, in batches; to ask for the next batch is to say that the last is stored
    send      make a message in a chat
    edit      change one
    find      look for one that may have been sent, where the platform can

A channel keeps nothing that must last, never tries again by itself, and raises nothing but
`ChannelError`: what came of sending and editing is a value.

    ChannelError
      ChannelRefused   the account cannot be used: a wrong secret, say. A person must mend it
      ChannelLost      not now: no network, a server error, a second reader. It is tried again
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from steno.config import ChannelConfig

Unit = Literal["chars", "utf16", "bytes"]


class ChannelError(Exception):
    """`wait_s`: how long the platform asks to wait, if it says so."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class ChannelRefused(ChannelError):
    pass


class ChannelLost(ChannelError):
    pass


class Limits(Struct, frozen=True):
    """`client_id_s`: for how long a repeated key is sure to make no second message; 0: never.
    `chat_per_s` and `all_per_s`: messages and edits a second, in one chat and in all; `burst`: how
    many may go out at once after a rest. `edit_s`: between two edits of one message while it is
    streamed. `pairing`: a stranger may be given a code there."""

    text_max: int
    unit: Unit = "chars"
    edits: bool = False
    finds: bool = False
    client_id_s: float = 0.0
    chat_per_s: float = 1.0
    all_per_s: float = 30.0
    burst: int = 3
    edit_s: float = 1.5
    buttons: bool = False
    pairing: bool = True
    file_bytes_max: int = 20 << 20


# --- what arrives ---------------------------------------------------------------------------------


class RemoteFile(Struct, frozen=True):
    """A file that came with a message: the platform's id of it."""

    id: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size: int | None = None


class Message(Struct, frozen=True):
    """`id` is unique in the account, for ever, and the same however often it arrives. `person` and
    `chat` are the platform's own ids; `name` is what the platform shows. `message` is its id in the
    chat. `addressed`: in a group, it is said to us. `quoted`: what it answers to or passes on."""

    id: str
    chat: str
    person: str
    text: str
    message: str = ""
    name: str = ""
    group: bool = False
    bot: bool = False
    addressed: bool = True
    quoted: str = ""
    files: tuple[RemoteFile, ...] = ()


class Edited(Struct, frozen=True):
    """A message that arrived before, in its `of`, says something else now."""

    id: str
    chat: str
    person: str
    of: str
    text: str
    group: bool = False


class Deleted(Struct, frozen=True):
    id: str
    chat: str
    of: str
    person: str = ""
    group: bool = False


class Tapped(Struct, frozen=True):
    """A button was pressed. `token` is what it carried; `tap` is what `answer_tap` wants."""

    id: str
    chat: str
    person: str
    token: str
    tap: str = ""
    name: str = ""
    group: bool = False


Update = Message | Edited | Deleted | Tapped


class Batch(Struct, frozen=True):
    """`mark` is where to read on after a restart, where the platform needs to be told; it is stored
    after the updates are."""

    updates: tuple[Update, ...]
    mark: str = ""


# --- what goes out --------------------------------------------------------------------------------


class Button(Struct, frozen=True):
    label: str
    token: str


class Outgoing(Struct, frozen=True):
    """`text` is Markdown, or plain text with `plain`. It fits the channel's limit."""

    text: str
    plain: bool = False
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""


class Sent(Struct, frozen=True):
    """It is there. `message` is its id in the chat."""

    message: str


class NotNow(Struct, frozen=True):
    """Nothing was sent. Try again, after `wait_s` if that is said."""

    cause: str
    wait_s: float | None = None


class Unsure(Struct, frozen=True):
    """It may be there."""

    cause: str


class No(Struct, frozen=True):
    """Refused for good. `formatting`: as plain text it might be taken."""

    cause: str
    formatting: bool = False


Result = Sent | NotNow | Unsure | No


class Channel(Protocol):
    @property
    def account(self) -> str:
        """Whose account it is, by an id of the platform that never changes. Known before anything
        is asked over the network."""
        ...

    @property
    def limits(self) -> Limits: ...

    async def open(self) -> None:
        """Check that the account can be used. Raises `ChannelError`."""
        ...

    def receive(self, mark: str) -> AsyncIterator[Batch]:
        """What arrives, from `mark` on or from where the platform stands. What was given out is
        acknowledged when the next batch is asked for, and no earlier."""
        ...

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        """Make a message. The same key means the same message."""
        ...

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        """Have a message say this. That it says so already is `Sent`."""
        ...

    async def find(self, chat: str, key: str) -> str | None:
        """The message that was sent under a key; None if there is none. Raises `ChannelError` if
        that cannot be known now."""
        ...

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        """The bytes of a file. Raises `ChannelError`."""
        ...

    async def show_typing(self, chat: str) -> None:
        """Say that an answer is being written, where the platform can. Never raises."""
        ...

    async def answer_tap(self, tap: str, text: str) -> None:
        """Tell who pressed a button what came of it, where the platform can. Never raises."""
        ...

    def check_id(self, id: str) -> str:
        """What is wrong with an id of a person or chat in the configuration; "" if nothing is. A
        name that its owner can change is no id."""
        ...

    async def close(self) -> None: ...


class ChannelSetup(Struct, frozen=True):
    """What a channel is made from. `secret` is the token or password; `folder` is for what a
    library insists to keep."""

    name: str
    config: ChannelConfig
    secret: str
    folder: Path

    @property
    def options(self) -> Mapping[str, Any]:
        return self.config.options

    def limits(self, usual: Limits) -> Limits:
        """A platform's limits, as far as the options do not say otherwise."""
        said = {
            name: self.options[name] for name in _ADJUSTABLE if name in self.options
        }
        try:
            return msgspec.convert(
                msgspec.structs.asdict(usual) | said, Limits, strict=False
            )
        except msgspec.ValidationError as error:
            raise ChannelRefused(f"the options cannot be used: {error}") from error


_ADJUSTABLE = ("text_max", "chat_per_s", "all_per_s", "edit_s")


class Quiet:
    """A channel without the verbs that many platforms lack."""

    async def open(self) -> None:
        return None

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        return No("messages cannot be edited here")

    async def find(self, chat: str, key: str) -> str | None:
        return None

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        raise ChannelRefused("files cannot be fetched here")

    async def show_typing(self, chat: str) -> None:
        return None

    async def answer_tap(self, tap: str, text: str) -> None:
        return None

    async def close(self) -> None:
        return None
