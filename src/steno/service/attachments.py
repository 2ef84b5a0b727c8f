"""What is sent along with a prompt: images, and files of text. What a file is is decided by its
bytes, not its name.

The part is in the input's fact and names the bytes by their hash; the bytes are stored in the same
commit.
"""

import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from steno.journal.parts import File, Image, hash_of
from steno.models.conversation import FILE_CHARS_MAX, PICTURE_BYTES_MAX, picture_type
from steno.session.errors import Misused

ATTACHMENTS_MAX = 20
TOTAL_BYTES_MAX = 20 * 2**20
NAME_LEN_MAX = 200

_UTF8_BYTES_MAX = 4
READ_BYTES_MAX = max(PICTURE_BYTES_MAX, FILE_CHARS_MAX * _UTF8_BYTES_MAX) + 1
"""Whatever is longer is too long, whatever it is."""


class Attachment(Struct, frozen=True):
    part: Image | File
    data: bytes


def read_attachment(path: Path) -> Attachment:
    """The attachment in a file. Reads no more than one may have, and nothing that is no file: a
    device has no end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Misused(f"{path} is not a file; nothing was stored")
        with path.open("rb") as file:
            data = file.read(READ_BYTES_MAX)
    except OSError as error:
        raise Misused(
            f"{path} cannot be read: {error.strerror or error}; nothing was stored"
        ) from error
    return attachment(path.name, data)


def attachment(name: str, data: bytes) -> Attachment:
    """What some bytes are for a model: an image, or text. Anything else is refused, and so is what
    no model takes."""
    if not data:
        raise Misused(f"{name} is empty; nothing was stored")
    hash, short = hash_of(data), name[-NAME_LEN_MAX:]
    if (media_type := picture_type(data)) is not None:
        if len(data) > PICTURE_BYTES_MAX:
            most = f"an image may have {PICTURE_BYTES_MAX} bytes"
            raise Misused(f"{name} is too large: {most}; nothing was stored")
        return Attachment(Image(hash, media_type, len(data), short), data)
    if (chars := _chars(data)) is None:
        raise Misused(
            f"{name} is neither text in UTF-8 nor an image that models take (PNG, JPEG, GIF, "
            "WebP); nothing was stored"
        )
    if chars > FILE_CHARS_MAX:
        raise Misused(
            f"{name} is too long: a file may have {FILE_CHARS_MAX} characters. Nothing was stored; "
            "where tools are allowed, name its path in the prompt instead, and it is read in parts"
        )
    return Attachment(File(hash, "text/plain", len(data), short), data)


def check_together(attachments: Sequence[Attachment]) -> None:
    """Each may be fine and all of them too much."""
    if len(attachments) > ATTACHMENTS_MAX:
        raise Misused(
            f"{len(attachments)} attachments are too many: {ATTACHMENTS_MAX} at most; nothing was "
            "stored"
        )
    size = sum(len(one.data) for one in attachments)
    if size > TOTAL_BYTES_MAX:
        raise Misused(
            f"the attachments have {size} bytes together: {TOTAL_BYTES_MAX} at most; nothing was "
            "stored"
        )


def _chars(data: bytes) -> int | None:
    """How long a text is; None if it is none. A character that the bound of reading cut in two is
    not held against it."""
    if b"\0" in data:
        return None
    try:
        return len(data.decode())
    except UnicodeDecodeError as error:
        cut = (
            len(data) >= READ_BYTES_MAX
            and error.start > READ_BYTES_MAX - _UTF8_BYTES_MAX
        )
        return error.start // _UTF8_BYTES_MAX if cut else None
