"""The facts about what is worth keeping of a session, and the values in them. They are part of
`facts.AnyFact`."""

from typing import Literal

from steno.journal.fact import Fact
from steno.journal.parts import Seq


class ItemAt(Fact, frozen=True):
    """An item of a distillate: in that session, in the fact at `seq`, the one of this number, from
    0."""

    session: str
    seq: Seq
    item: int


class Item(Fact, frozen=True):
    """Something worth keeping; `seqs` are the messages it came from."""

    kind: Literal["decision", "open", "fact"]
    text: str
    seqs: tuple[Seq, ...] = ()


class Distilled(Fact, frozen=True, tag="distilled"):
    """What a helper call made of the facts after `after` and up to `upto`. No message and nothing
    that a model is told comes of it here; other sessions may be told its items. `title` is a
    proposal, where nobody had given one."""

    after: Seq
    upto: Seq
    title: str = ""
    summary: str = ""
    items: tuple[Item, ...] = ()
    model: str = ""


class MemoryRemoved(Fact, frozen=True, tag="memory.removed"):
    """A person does not want an item to be remembered. `item` is its number in the distillate, from
    0."""

    distilled: Seq
    item: int
