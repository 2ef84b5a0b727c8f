"""What callers pass, checked before anything is stored."""

import math
from os import PathLike
from pathlib import Path

from steno.journal.parts import Seq
from steno.store.protocol import Admitted, Settings


def a_str(name: str, value: object) -> str:
    """A subclass of `str` is stored as the text that it is."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return str.__str__(value)


def an_int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(value)


def a_wait(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(
            f"wait must be a number of seconds, not {type(value).__name__}"
        )
    if not 0 <= value < math.inf:
        raise ValueError(f"wait must be a number of seconds from 0 on, not {value}")
    return float(value)


def an_input(to: object, session: str) -> Seq | None:
    if to is None:
        return None
    if not isinstance(to, Admitted):
        return an_int("to", to)
    if to.session != session:
        raise ValueError(
            f"to is an input of session {to.session!r}, not of {session!r}"
        )
    return to.seq


def a_path(path: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
    return Path(path)


def some_settings(settings: object) -> Settings | None:
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(
            f"settings must be steno.Settings, not {type(settings).__name__}"
        )
    return settings
