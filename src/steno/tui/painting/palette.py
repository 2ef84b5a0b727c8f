"""The colours of the chat: for dark and for light terminals, and a person's own.

A file `themes/NAME.toml` in the home is a theme. It says which one it is `like` and gives the
colours that differ, as "#rrggbb":

    like = "dark"
    accent = "#ffb86c"
"""

import re
import tomllib
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace
from textual.theme import Theme

Shade = str
"""The name of a theme: "dark", "light", or another."""
THEME_BYTES_MAX = 100_000
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class Palette(Struct, frozen=True):
    """What each colour is for. Everything that carries meaning is also said by a word or a sign."""

    text: str
    soft: str
    """Beside the text: times, counts, folded things."""
    faint: str
    """Lines and borders."""
    ground: str
    raised: str
    """Under code, cards and what a person said."""
    chosen: str
    """Under the message that is selected."""
    accent: str
    """The person, the cursor, what can be done."""
    heading: str
    link: str
    good: str
    warn: str
    bad: str
    keyword: str
    string: str
    number: str
    name: str
    comment: str
    added: str
    added_word: str
    removed: str
    removed_word: str
    """Under lines and words of a diff."""


DARK = Palette(
    text="#d6d9e0",
    soft="#8b93a7",
    faint="#3b4254",
    ground="#14171f",
    raised="#1c212c",
    chosen="#262d3d",
    accent="#7aa2f7",
    heading="#c8d3f5",
    link="#7dcfff",
    good="#8fce7a",
    warn="#e0af68",
    bad="#f7768e",
    keyword="#bb9af7",
    string="#9ece6a",
    number="#ff9e64",
    name="#7dcfff",
    comment="#7d86a5",
    added="#17301f",
    added_word="#2c6a41",
    removed="#391c23",
    removed_word="#83303f",
)

LIGHT = Palette(
    text="#24292f",
    soft="#606a78",
    faint="#c4ccd6",
    ground="#fbfbfa",
    raised="#f0f2f4",
    chosen="#e1e8f2",
    accent="#1f5fbf",
    heading="#123a75",
    link="#0b6e99",
    good="#15692d",
    warn="#7a4f00",
    bad="#b3213a",
    keyword="#8250df",
    string="#116329",
    number="#a04100",
    name="#0550ae",
    comment="#6e7781",
    added="#def5e2",
    added_word="#a4e0b1",
    removed="#fbe4e7",
    removed_word="#f2b0ba",
)

CONTRAST = replace(
    DARK,
    text="#ffffff",
    soft="#c8cedb",
    faint="#6b7488",
    ground="#000000",
    raised="#12151c",
    chosen="#26334d",
    accent="#66d9ff",
    good="#6dff7d",
    warn="#ffd75f",
    bad="#ff6b81",
    comment="#b4bccd",
)
WARM = replace(
    DARK,
    text="#e6dccb",
    soft="#a3957f",
    faint="#4a4136",
    ground="#1d1a16",
    raised="#26221c",
    chosen="#332c23",
    accent="#e9a35b",
    heading="#f2d8a7",
    link="#8ec1b7",
    comment="#94866f",
)

PALETTES: dict[Shade, Palette] = {
    "dark": DARK,
    "light": LIGHT,
    "contrast": CONTRAST,
    "warm": WARM,
}


class BadTheme(Exception):
    """A file that is no theme; the message says what is wrong with it."""


def palette_of(shade: Shade, home: Path) -> Palette:
    """The colours of a theme by its name. Raises `BadTheme`."""
    if shade in PALETTES:
        return PALETTES[shade]
    file = _file(shade, home)
    try:
        if file.stat().st_size > THEME_BYTES_MAX:
            raise BadTheme(f"{file} is too large for a theme")
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadTheme(
            f"there is no theme {shade!r}: it is one of {', '.join(names(home))}"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadTheme(f"{file} cannot be read: {error}") from error
    like = said.pop("like", "dark")
    if like not in PALETTES:
        raise BadTheme(f"{file}: like is one of {', '.join(PALETTES)}")
    for key, colour in said.items():
        if key not in Palette.__struct_fields__:
            raise BadTheme(f"{file}: there is no colour {key!r}")
        if not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
            raise BadTheme(f'{file}: {key} is a colour such as "#7aa2f7"')
    return replace(PALETTES[like], **said)


def names(home: Path) -> list[Shade]:
    """The themes that there are, a person's own last."""
    own = (file.stem for file in sorted((home / "themes").glob("*.toml")))
    return [
        *PALETTES,
        *(name for name in own if name not in PALETTES and _NAME.fullmatch(name)),
    ]


def write_own(shade: Shade, like: Palette, home: Path) -> Path:
    """A theme to change, with the colours of another; the one that is there stays as it is."""
    if shade in PALETTES:
        raise BadTheme(f"{shade} comes with steno; choose another name")
    file = _file(shade, home)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    if not file.exists():
        file.write_text(_toml(like), encoding="utf-8")
    return file


def _toml(palette: Palette) -> str:
    lines = (f'{name} = "{colour}"' for name, colour in asdict(palette).items())
    return "\n".join(["# the colours of the chat; /theme takes them up", *lines, ""])


def _file(shade: Shade, home: Path) -> Path:
    if not _NAME.fullmatch(shade):
        raise BadTheme(
            f"{shade!r} is no name for a theme: small letters, digits, - and _"
        )
    return home / "themes" / f"{shade}.toml"


def is_dark(palette: Palette) -> bool:
    red, green, blue = (int(palette.ground[at : at + 2], 16) for at in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue < 128


def theme(shade: Shade, colours: Palette) -> Theme:
    """The same colours for Textual's own widgets."""
    return Theme(
        name=f"steno-{shade}",
        primary=colours.accent,
        secondary=colours.link,
        accent=colours.accent,
        warning=colours.warn,
        error=colours.bad,
        success=colours.good,
        foreground=colours.text,
        background=colours.ground,
        surface=colours.raised,
        panel=colours.raised,
        dark=is_dark(colours),
        variables={
            "soft": colours.soft,
            "faint": colours.faint,
            "raised": colours.raised,
            "chosen": colours.chosen,
            "border": colours.faint,
            "border-blurred": colours.faint,
            "block-cursor-foreground": colours.text,
            "block-cursor-background": colours.chosen,
            "block-cursor-text-style": "none",
            "block-cursor-blurred-background": colours.chosen,
            "block-cursor-blurred-foreground": colours.text,
            "scrollbar": colours.faint,
            "scrollbar-hover": colours.soft,
            "scrollbar-active": colours.accent,
            "scrollbar-background": colours.ground,
            "scrollbar-background-hover": colours.ground,
            "scrollbar-background-active": colours.ground,
            "scrollbar-corner-color": colours.ground,
        },
    )
