"""The painted screen, compared by equality with pictures of it in golden/: its text, and of a talk
its colours too.

    STENO_TESTS_PAINT=1 pytest tests/tui/test_pictures.py

paints them anew; look at what changed before you keep it.

Nothing in them varies from run to run: ids are replaced by letters, and every clock says the same.
"""

import json
import os
from itertools import groupby
from pathlib import Path

import pytest
from msgspec.structs import replace

from steno.tui import status_line, wording
from steno.tui.composer import Composer
from steno.tui.painting.palette import Shade
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import Person, chat_with

GOLDEN = Path(__file__).with_name("golden")
WIDE, NARROW = (80, 24), (44, 20)
REST_TRIES = 100

ANSWER = """\
## Tides

The moon **pulls** the sea; so does the sun, *less*. See `tides.py`:

- spring tides: both pull in a line
- neap tides: at a right angle, 山と海 🌊

```python
def height(hour: int) -> float:
    return 1.5 * cos(hour * 30)  # two a day
```

| place | range |
|---|---|
| Fundy | 16 m |
"""
LOOK = Reply(
    ("Let me look.",), tools=(("shell", json.dumps({"command": r"printf 'low\nhigh\n'"})),)
)


@pytest.fixture(autouse=True)
def one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "duration", lambda ms: "1 s")
    monkeypatch.setattr(status_line, "ago", lambda at_ms, now_s: "just now")


async def compare(person: Person, name: str, coloured: bool = False) -> None:
    """With what is on the screen when it has come to rest."""
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("STENO_TESTS_PAINT"):
        await person.pilot.pause(1.0)
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(picture(person, coloured), encoding="utf-8")
    wanted = golden.read_text(encoding="utf-8")
    for _ in range(REST_TRIES):
        if picture(person, coloured) == wanted:
            return
        await person.pilot.pause(0.1)
    assert picture(person, coloured) == wanted


def picture(person: Person, coloured: bool) -> str:
    text = colours(person) if coloured else person.screen() + "\n"
    id = person.chat.watched.id
    return text if id is None else text.replace(id, "s" * len(id))


def colours(person: Person) -> str:
    """Line by line, each stretch in one style: the style, then the text. The cursor blinks, so its
    line is left out."""
    found = []
    typing = person.chat.query_one(Composer).region.y
    for number, strip in enumerate(
        person.chat.screen._compositor.render_strips(person.chat.screen.size)
    ):
        found.append(f"--- {number}")
        if number == typing:
            continue
        for style, parts in groupby(strip, key=lambda part: str(part.style)):
            found.append(f"{style:<40} |{''.join(part.text for part in parts)}|")
    return "\n".join(found) + "\n"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_first_screen_of_a_user_with_no_key(world: World, size: tuple[int, int]) -> None:
    for name in ("STENO_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        world.environment.pop(name)

    async def talk(person: Person) -> None:
        wiring = person.chat.wiring
        wiring.where = replace(
            wiring.where, home=Path("~/.steno")
        )  # the real one has another length each time
        person.chat.welcome()
        await person.sees("F1 or /help")
        await compare(person, f"first-{size[0]}")

    chat_with(world, talk, size=size)


@pytest.mark.parametrize("shade", ["dark", "light"])
def test_a_talk_with_markdown_code_and_a_card(
    world: World, server: ModelServer, shade: Shade
) -> None:
    server.replies = [Reply((ANSWER,)), LOOK, Reply(("It is high.",))]

    async def talk(person: Person) -> None:
        await person.say("What are tides?")
        await person.sees("Fundy")
        await person.rests()
        await person.say("And now?")
        await person.allow("shell")
        await person.sees("It is high.")
        await person.rests()
        await compare(person, f"talk-{shade}", coloured=True)

    chat_with(world, talk, size=(80, 38), shade=shade)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_talk_that_is_asked_about_queued_listed_and_helped(
    world: World, server: ModelServer, size: tuple[int, int]
) -> None:
    server.replies = [Reply((ANSWER,)), LOOK, Reply(("It is",), then="hang")]
    world.steno("run", "海について話そう。" * 6, "--model", "scripted:echo")
    width = size[0]

    async def talk(person: Person) -> None:
        await person.say("What are tides?")
        await person.sees("Fundy")
        await person.rests()
        await compare(person, f"answer-{width}")
        await person.say("And now?")
        await person.sees("Allow shell?")
        await compare(person, f"question-{width}")
        await person.allow("shell")
        await person.sees("It is")
        await person.say("Where is it highest?")
        await person.say("And when? " + "Tell me all of it. " * 5)
        await person.sees("queued  Where", "queued  And when?", "takes it back")
        await compare(person, f"queued-{width}")
        await person.press("ctrl+o")
        await person.sees("type to find", "海")
        await compare(person, f"sessions-{width}")
        await person.press("escape", "f1")
        await person.sees("Keys and commands")
        await compare(person, f"help-{width}")

    chat_with(world, talk, size=size)
