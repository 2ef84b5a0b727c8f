"""A channel in one file, to begin your own from: its chats are folders.

    inbox/0001.json         {"id", "chat", "person", "text"}: a message to steno. It is removed when
                            it is stored
    chats/CHAT/KEY.json     {"text", "made"}: a message of steno, written again when it is edited

Name the function `channel` in an entry point, and the kind is there:

    [project.entry-points."steno.channels"]
    folder = "folder_channel:channel"

    [channels.notes]
    kind = "folder"
    token_env = "NOTES_SECRET"
    options = { path = "/srv/notes" }
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from steno.gateway.channels.protocol import (
    Batch,
    Channel,
    ChannelRefused,
    ChannelSetup,
    Deleted,
    Edited,
    Limits,
    Message,
    No,
    Outgoing,
    Quiet,
    Result,
    Sent,
    Tapped,
    Unsure,
    Update,
)

LOOK_S = 0.05
SAFE = re.compile(r"[A-Za-z0-9_-]{1,100}")
KINDS = {"message": Message, "edited": Edited, "deleted": Deleted, "tapped": Tapped}


class FolderChannel(Quiet):
    """`Quiet` answers for the verbs that a platform lacks: write those that yours has."""

    def __init__(self, setup: ChannelSetup) -> None:
        path = setup.options.get("path")
        if not isinstance(path, str) or not Path(path).is_dir():
            raise ChannelRefused("options.path must name a folder that exists")
        self._path = Path(path)
        # A key names a file, so the same key never makes a second message, and one can be looked
        # for. What your platform cannot do, leave as it is: the outbox decides by these values.
        self.limits = Limits(
            text_max=int(str(setup.options.get("text_max", 1_000))),
            edits=True,
            finds=True,
            client_id_s=86_400.0,
            chat_per_s=1_000.0,
            all_per_s=1_000.0,
            burst=1_000,
            edit_s=0.05,
            buttons=True,
        )

    @property
    def account(self) -> str:
        """An id that never changes and is known without asking: keys of inputs are unique in it."""
        return f"folder:{self._path.name}"

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        """Give out what is there, and take it away when we are asked for more: then it is
        stored."""
        while True:
            files = sorted((self._path / "inbox").glob("*.json"))[:100]
            if files:
                yield Batch(tuple(one for file in files for one in _read(file)))
                for file in files:
                    file.unlink(missing_ok=True)
            else:
                await asyncio.sleep(LOOK_S)

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        """Say what came of it as a value. `Unsure` if it may be there, `NotNow` if it is not."""
        if not (SAFE.fullmatch(chat) and SAFE.fullmatch(key)):
            return No("ids have letters, digits, - and _ here")
        return self._write(chat, key, what)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        return self._write(chat, message, what)

    async def find(self, chat: str, key: str) -> str | None:
        return key if self._file(chat, key).exists() else None

    def check_id(self, id: str) -> str:
        return "" if SAFE.fullmatch(id) else "ids have letters, digits, - and _ here"

    def _write(self, chat: str, key: str, what: Outgoing) -> Result:
        file = self._file(chat, key)
        buttons = {one.label: one.token for one in what.buttons}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            beside = file.with_suffix(".new")
            made = json.loads(file.read_text())["made"] if file.exists() else time.time_ns()
            told = {"text": what.text, "buttons": buttons, "made": made}
            beside.write_text(json.dumps(told))
            beside.replace(file)
        except OSError as error:
            return Unsure(str(error.strerror))
        return Sent(key)

    def _file(self, chat: str, key: str) -> Path:
        return self._path / "chats" / chat / f"{key}.json"


def _read(file: Path) -> list[Update]:
    """What cannot be read is nobody's message: it goes away with the others."""
    try:
        told = json.loads(file.read_text())
        kind = KINDS[told.pop("kind", "message")]
        return [msgspec.convert(told, kind)]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def channel(setup: ChannelSetup) -> Channel:
    return FolderChannel(setup)
