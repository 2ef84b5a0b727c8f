# ruff: noqa: RUF001 - letters that look like others are the point
"""Texts that searches get wrong, by family, and pieces of them."""

from random import Random

FAMILIES: dict[str, tuple[str, ...]] = {
    "case": ("Straße STRASSE ẞ", "Ὀδυσσεύς ΣΊΣΥΦΟΣ", "İstanbul ısı I i", "ǅungla", "ᏣᎳᎩ ꮳꮃꭹ"),
    "marks": (
        "über uber",
        "Zoe\u0308 Zoë",
        "й и\u0306 и ё е",
        "がか か\u3099",
        "Việt Vie\u0323\u0302t",
    ),
    "compatibility": ("ﬁnal ﬃ", "ＡＢＣ　ｄ", "ｶﾞｷﾞ ﾊﾟ", "① ㎏ 𝓕𝟙 ℌ", "¨ ½ …"),
    "hangul": ("한국어를 배워요", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "ㅎㅏㄴ"),
    "no spaces": ("ภาษาไทยน้ำ", "ພາສາລາວ", "ភាសាខ្មែរ", "မြန်မာဘာသာ", "我用API写代码v2", "東京でGit"),
    "astral": ("𠮷野家 𠮷", "👨\u200d👩\u200d👧 ok", "🇩🇪🇫🇷", "1\ufe0f\u20e3 ❤\ufe0f ❤", "𝒳"),
    "bytes": (
        "a\0b \0",
        "\ud800x \udfff",
        "\ufdd0 \ufdd00041",
        "\ufffe\uffff",
        "\x01\x02\x1b[31mred\x1b[0m",
    ),
    "white space": (
        "a\tb\n\nc",
        "x\u00a0y\u3000z",
        "so\u00adft zero\u200bwidth",
        "\u202eabc\u202c",
        "  lead  ",
    ),
    "code": (
        "snake_case camelCaseWord SCREAMING_ID",
        "std::vector<a.b::c> C:\\dir\\file /usr/lib/x.py",
        "https://example.org/p%20q?x=1&y=2#z v1.20.04-rc1 0xDEADBEEF 2026-11-05T10:00",
        "\"quoted\" 'it''s' (a*b)^-c:d AND OR NOT NEAR don't multi-agent",
    ),
    "length": ("a", "ab", "abc", "the and to", "zq", "x" * 70_000 + "needle"),
    "right to left": ("العَرَبِيَّة العـربية", "שָׁלוֹם שלום", "mixed עברית text"),
}
TEXTS = tuple(text for texts in FAMILIES.values() for text in texts)
SAMPLES = tuple(text for text in TEXTS if len(text) < 1_000)


def cut(chance: Random, text: str, most: int = 40) -> str:
    """A piece of a text, of 1 to 40 code points."""
    length = chance.randint(1, min(most, len(text)))
    start = chance.randrange(len(text) - length + 1)
    return text[start : start + length]
