"""Random values of every fact, built from the declarations: a new fact is covered the day it is
declared."""

import types
import typing
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from steno.journal.facts import AnyFact, Record
from tests.journal.folding import in_place

FACT_KINDS: tuple[type[msgspec.Struct], ...] = get_args(AnyFact)

NASTY = [
    "\0",
    "\ud800",
    "\udfff",
    "\ud83d\ude00",  # two lone surrogates, not an emoji
    "🙂",
    "\ufdd0",
    "\ufdd0d800",
    "\ufdd0fdd0",
    "\ufffe",
    "\u2028",
    "\x1b[0m",
    "\r\n",
    '"\\/',
    "\\u0000",
    "漢字かな",
    "שלום",
    "e\u0301",
]

texts: st.SearchStrategy[str] = st.lists(
    st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=()), max_size=8), max_size=6
).map("".join)

wide_ints: st.SearchStrategy[int] = st.integers(-(2**63), 2**63 - 1)
near_seqs: st.SearchStrategy[int] = st.integers(0, 30)


def built(
    annotation: Any, ints: st.SearchStrategy[int], strings: st.SearchStrategy[str]
) -> st.SearchStrategy[Any]:
    """A strategy for any type that a fact may hold. An unforeseen type is an error, never left
    out."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of([built(kind, ints, strings) for kind in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*(built(kind, ints, strings) for kind in arguments))
    if origin is tuple:
        return st.lists(built(arguments[0], ints, strings), max_size=3).map(tuple)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        hints = get_type_hints(annotation)
        fields = {name: built(hints[name], ints, strings) for name in annotation.__struct_fields__}
        return st.builds(annotation, **fields)
    plain = {str: strings, int: ints, bool: st.booleans(), types.NoneType: st.none()}
    return plain[annotation]


def facts(
    ints: st.SearchStrategy[int] = wide_ints, strings: st.SearchStrategy[str] = texts
) -> st.SearchStrategy[AnyFact]:
    """Any fact. With `near_seqs`, the facts of one list refer to each other often."""
    return typing.cast(st.SearchStrategy[AnyFact], built(AnyFact, ints, strings))


def fact_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[AnyFact]:
    return typing.cast(st.SearchStrategy[AnyFact], built(kind, wide_ints, texts))


def any_records() -> st.SearchStrategy[list[Record]]:
    """Facts in an order that no writer would produce, few calls and few seqs, so that they meet."""
    calls = st.sampled_from(["a", "b", "c"])
    return st.lists(facts(near_seqs, calls), max_size=30).map(in_place)
