"""Files that came with messages: fetched before their turn, and kept."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from steno.gateway.channels.protocol import (
    Channel,
    ChannelError,
    ChannelRefused,
    RemoteFile,
)
from steno.journal.facts import AwaitedFile
from steno.journal.parts import File, Seq, hash_of
from steno.service.attachments import Attachment, attachment
from steno.service.chats import Chats
from steno.session.errors import Misused

FETCHES_MAX = 2
AGAIN_S = 1.0
_log = logging.getLogger("steno.channels")


async def fetch(chats: Chats, session: str, channels: Sequence[Channel]) -> Seq:
    """Fetch what pending inputs of a session await; up to where it was looked. What cannot be
    fetched is recorded as such, so that a turn never waits for it twice."""
    by_account = {one.account: one for one in channels}
    looked, awaited = await chats.awaited(session)
    for input, source, file in awaited:
        channel = by_account.get(source)
        if channel is None:
            continue
        try:
            body = await _try(channel, file)
            found = _as_attachment(file, body)
        except ChannelError as error:
            _log.warning("a file of session %s was not fetched: %s", session, error)
            await chats.attach(session, input, file.id, None, str(error)[:200])
        else:
            await chats.attach(session, input, file.id, found, "")
    return looked


def _as_attachment(file: AwaitedFile, body: bytes) -> Attachment:
    """Images and text as a model can be shown them; anything else is kept, and named to it."""
    name = file.name or "file"
    with contextlib.suppress(Misused):
        return attachment(name, body)
    kind = file.media_type or "application/octet-stream"
    return Attachment(File(hash_of(body), kind, len(body), name), body)


async def _try(channel: Channel, file: AwaitedFile) -> bytes:
    remote = RemoteFile(file.id, file.name, file.media_type, file.size)
    most = channel.limits.file_bytes_max
    for attempt in range(FETCHES_MAX):
        try:
            return await channel.fetch(remote, most)
        except ChannelRefused:
            raise
        except ChannelError:
            if attempt == FETCHES_MAX - 1:
                raise
            await asyncio.sleep(AGAIN_S)
    raise ChannelError("the file was not fetched")
