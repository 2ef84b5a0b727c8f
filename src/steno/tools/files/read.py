"""The tool `read_file`: text, by lines; or an image, whole."""

import asyncio
import io
from typing import Annotated, Literal

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Failed, Image, Interrupted, Outcome, Returned, Text
from steno.tools.builtin import READ_SPEC
from steno.tools.files.handles import content, folder_of, locate, text_in
from steno.tools.protocol import (
    BadArguments,
    Journaled,
    Output,
    Prepared,
    Unusable,
    Workspace,
    decode_arguments,
)

REPLACED = "\N{REPLACEMENT CHARACTER}"


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    offset: Annotated[int, Meta(ge=1)] = 1
    limit: Annotated[int, Meta(ge=1)] | None = None


class ReadFile:
    spec: ToolSpec = READ_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, ReadArguments)
        locate(self._workspace.folder, asked.path)
        return _ReadCall(self._workspace, asked)


class _ReadCall:
    """It is short: it is stopped before it began, or tells how it went."""

    def __init__(self, workspace: Workspace, asked: ReadArguments) -> None:
        self.group: int | None = None
        self._workspace = workspace
        self._asked = asked
        self._stopped = False

    async def run(self, output: Output) -> Outcome:
        if self._stopped:
            return Interrupted()
        from steno.models.conversation import (
            picture_type,
        )  # heavy, and so loaded with the call

        path = self._asked.path
        try:
            data = await asyncio.to_thread(self._content)
            if picture_type(data) is not None and isinstance(output, Journaled):
                return Returned((await _picture(data, path, output),))
            return Returned((Text(self._text(text_in(data, path))),))
        except (Unusable, BadArguments) as error:
            return Failed((Text(str(error)),))
        except OSError as error:
            return Failed((Text(f"{path}: {error.strerror or error}"),))

    async def stop(self) -> None:
        self._stopped = True

    def _content(self) -> bytes:
        with folder_of(self._workspace, self._asked.path) as (folder, name):
            return content(folder, name, self._asked.path)

    def _text(self, data: bytes) -> str:
        most = self._workspace.output_chars_max
        try:
            return excerpt(data.decode(), self._asked, most)
        except UnicodeDecodeError:
            replaced = excerpt(data.decode("utf-8", "replace"), self._asked, most)
            note = f"[bytes of the file that are not UTF-8 are shown as {REPLACED}]"
            return _noted(replaced, note)


async def _picture(data: bytes, path: str, output: Journaled) -> Image:
    from steno.models.conversation import PICTURE_BYTES_MAX, picture_type

    media_type = picture_type(data) or ""
    if len(data) > PICTURE_BYTES_MAX:
        raise Unusable(
            f"{path} is too large: an image may have {PICTURE_BYTES_MAX} bytes"
        )
    return Image(
        await output.put(data), media_type, len(data), path.rpartition("/")[2]
    )


def excerpt(text: str, asked: ReadArguments, chars_max: int) -> str:
    """The lines that were asked for, as far as they fit, and a last line that says what they are if
    not all."""
    lines = io.StringIO(text, newline="\n").readlines()
    if not lines:
        return "[the file is empty]"
    if asked.offset > len(lines):
        raise Unusable(
            f"`offset` is {asked.offset}, but the file has {len(lines)} lines"
        )
    wanted = lines[asked.offset - 1 :][: asked.limit]
    if len(wanted[0]) > chars_max:
        note = (
            f"[line {asked.offset} of {len(lines)} has {len(wanted[0])} characters; the first "
            f"{chars_max} are shown]"
        )
        return _noted(wanted[0][:chars_max], note)
    taken: list[str] = []
    room = chars_max
    for line in wanted:
        room -= len(line)
        if room < 0:
            break
        taken.append(line)
    shown = "".join(taken)
    if len(taken) == len(lines):
        return shown
    last = asked.offset + len(taken) - 1
    more = f"; go on with offset {last + 1}" if last < len(lines) else ""
    return _noted(shown, f"[lines {asked.offset} to {last} of {len(lines)}{more}]")


def _noted(text: str, note: str) -> str:
    return text + ("" if text.endswith("\n") else "\n") + note
