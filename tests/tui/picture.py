"""`python -m tests.tui.picture`: paints docs/images/chat.svg, the picture in the README, from a
real talk."""

import asyncio
import json
import re
import tempfile
from pathlib import Path

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import chatting

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "chat.svg"
SIZE = (98, 42)

_ANSWER = """\
A fact is stored **before** its effect is seen. So a kill takes nothing back:

- an input is stored before it is *accepted*
- each piece of an answer, before it is *shown*

```python
async def say(text: str) -> Seq:
    # durable before it returns
    admitted = await service.admit(text)
    return admitted.seq
```
"""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


async def paint() -> str:
    with ModelServer() as server, tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), server.url)
        world.environment["STENO_MODEL"] = "anthropic:claude-sonnet-5"
        (world.work / "journal.md").write_text("# Journal\n")
        server.replies = [
            Reply((_ANSWER,)),
            Reply(
                ("Let me look first.",),
                tools=(("shell", json.dumps({"command": "ls && wc -w *.md"})),),
            ),
            Reply(("There is one file. I would put a note into it.",), tools=(_write(),)),
        ]
        async with chatting(world, size=SIZE) as person:
            await person.say("Why is everything stored before it is shown?")
            await person.sees("admitted.seq")
            await person.rests()
            await person.say("Note that in the journal of this folder.")
            await person.allow("shell")
            await person.sees("Allow write_file?")
            await person.service.admit("And then show me the file.", person.session, None, None, "")
            await person.sees("queued  And then show me the file.")
            return person.chat.export_screenshot(title="steno")


def _write() -> tuple[str, str]:
    given = {"path": "journal.md", "content": "# Journal\n\nStored before it is shown.\n"}
    return "write_file", json.dumps(given)


def tidied(svg: str) -> str:
    """Without fonts that are fetched from elsewhere: whoever looks at it has one."""
    return _COMMENT.sub("", _FONT.sub("", svg)).replace("Fira Code", "ui-monospace")


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(tidied(asyncio.run(paint())))


if __name__ == "__main__":
    main()
