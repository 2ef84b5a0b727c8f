"""What helper calls made of a session: what is worth keeping of it, and its title."""

from typing import Literal

from steno.journal.fact_kinds.base import Fact
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


class MemoryFact(Fact, frozen=True):
    """What other sessions may be told of this one."""


class Distilled(MemoryFact, frozen=True, tag="distilled"):
    """What a helper call made of the facts after `after` and up to `upto`. No message and nothing
    that a model is told comes of it here; other sessions may be told its items. `title` is a
    proposal, for a session without one."""

    after: Seq
    upto: Seq
    title: str = ""
    summary: str = ""
    items: tuple[Item, ...] = ()
    model: str = ""


class SessionTitled(MemoryFact, frozen=True, tag="session.titled"):
    """A helper call made a title of the facts up to `upto`. One that a person gave stands before
    it, whichever came first."""

    upto: Seq
    title: str
    model: str = ""


class MemoryRemoved(MemoryFact, frozen=True, tag="memory.removed"):
    """A person does not want an item to be remembered. `item` is its number in the distillate, from
    0."""

    distilled: Seq
    item: int
