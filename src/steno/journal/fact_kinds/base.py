"""What every fact is."""

from msgspec import Struct


class Fact(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Base of all facts: strict when read, compact when written."""


class OutsideFact(Fact, frozen=True):
    """What the session has to do with the world outside it: visits, plugins, deliveries."""
