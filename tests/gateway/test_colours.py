"""The page can be read by people who see little contrast: text of every colour on every ground that
it stands on, light and dark (WCAG 2, AA)."""

import re
from itertools import product

from steno.gateway.page.static import contents

LEAST = 4.5
GROUNDS = ("ground", "side", "raised", "sunken", "tint")
TEXTS = ("text", "soft", "accent", "good", "warn", "bad")
OTHERS = (
    ("on-accent", "accent"),
    ("ground", "warn"),
    ("ground", "bad"),
    ("ground", "text"),
    ("text", "warn-tint"),
    ("soft", "warn-tint"),
    ("warn", "warn-tint"),
    ("bad", "bad-tint"),
)
PAIR = r"light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)"


def light_of(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((light_of(one), light_of(other)))
    return (light + 0.05) / (dark + 0.05)


def test_text_of_every_colour_stands_out_from_its_ground_in_light_and_in_dark() -> None:
    style = contents()["style.css"][0].decode()
    named = {name: pair for name, *pair in re.findall(rf"--([\w-]+): {PAIR}", style)}
    code = {f"code {light}": [light, dark] for light, dark in re.findall(rf"color: {PAIR}", style)}
    assert code
    pairs = [(text, ground) for text, ground in (*product(TEXTS, GROUNDS), *OTHERS)]
    pairs += list(product(code, ("sunken", "raised")))
    both = named | code
    weak = [
        (text, ground, "dark" if scheme else "light")
        for text, ground in pairs
        for scheme in (0, 1)
        if contrast(both[text][scheme], both[ground][scheme]) < LEAST
    ]
    assert weak == []
