"""Every struct that a body can hold, found from the declarations of the facts."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec

from steno.journal.facts import AnyFact


def structs() -> dict[str, type[msgspec.Struct]]:
    """By tag; those that have none, by class name. Facts first, each followed by what it can
    hold."""
    found: dict[str, type[msgspec.Struct]] = {}
    for kind in get_args(AnyFact):
        _collect(kind, found)
    return found


def _collect(annotation: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        if found.setdefault(name_of(annotation), annotation) is not annotation:
            raise AssertionError(f"two structs are called {name_of(annotation)!r}")
        for hint in get_type_hints(annotation).values():
            _collect(hint, found)
    for argument in get_args(annotation):
        _collect(argument, found)


def name_of(kind: type[msgspec.Struct]) -> str:
    tag = kind.__struct_config__.tag
    return tag if isinstance(tag, str) else kind.__name__


def declared_fields() -> set[str]:
    return {
        f"{name}.{field}" for name, kind in structs().items() for field in kind.__struct_fields__
    }


def written_fields(value: Any) -> set[str]:
    """The fields inside a value that hold something other than their default."""
    return set(_written(value))


def _written(value: Any) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            held = getattr(value, field.name)
            if held != field.default:
                yield f"{name_of(type(value))}.{field.name}"
            yield from _written(held)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _written(item)
