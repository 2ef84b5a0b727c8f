"""The glossary is the language of the code. A word that it says to avoid, and that has no meaning
of its own there, names no module and no class; a word that a reader needs first has an entry."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "GLOSSARY.md"
SRC = ROOT / "src" / "steno"
NEEDED = ("session", "fact", "lease", "backend", "event", "mark", "hold", "change", "primitive")


@cache
def entries() -> dict[str, str]:
    """Each word with its text. One entry may define several."""
    found = {}
    for paragraph in GLOSSARY.read_text().split("\n\n"):
        head, dash, text = paragraph.partition(" — ")
        if dash and head.startswith("**"):
            for word in re.findall(r"\*\*(.+?)\*\*", head):
                found[word] = " ".join(text.split())
    return found


def avoided() -> dict[str, str]:
    """Each word to avoid, with the entry that says so."""
    found = {}
    for word, text in entries().items():
        for phrase in re.findall(r"\*Avoid(?: it)?: (.+?)\*", text):
            for one in re.split(r",\s*", phrase.rstrip(". ")):
                if re.fullmatch(r"[a-z]+", one):
                    found[one] = word
    return found


@cache
def names() -> dict[str, str]:
    """The words that modules and public classes are named by, each with a place. Private classes
    are mostly the shapes of providers, in their words."""
    found: dict[str, str] = {}
    for file in sorted(SRC.rglob("*.py")):
        place = file.relative_to(SRC).as_posix()
        for word in file.stem.split("_"):
            found.setdefault(word, place)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for word in re.findall(r"[A-Z][a-z]*", node.name):
                    found.setdefault(word.lower(), f"{place}: {node.name}")
    return found


def test_no_module_and_no_class_is_named_by_a_word_to_avoid() -> None:
    used = {word: names()[word] for word in avoided().keys() - entries().keys() if word in names()}
    assert used == {}


def test_the_words_that_a_reader_needs_first_are_defined() -> None:
    assert [word for word in NEEDED if word not in entries()] == []


def test_words_are_in_plain_text_and_each_has_a_meaning() -> None:
    assert [word for word, text in entries().items() if len(text) < 20] == []
