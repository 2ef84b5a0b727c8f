"""The colours of the chat, for dark and for light terminals."""

from typing import Literal

from msgspec import Struct
from textual.theme import Theme

Shade = Literal["dark", "light"]


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

PALETTES: dict[Shade, Palette] = {"dark": DARK, "light": LIGHT}


def theme(shade: Shade) -> Theme:
    """The same colours for Textual's own widgets."""
    colours = PALETTES[shade]
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
        dark=shade == "dark",
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
