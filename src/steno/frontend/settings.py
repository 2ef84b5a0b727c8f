"""One key of config.toml, read and written. The rest of the file, comments too, stays as it is.

A key is named SECTION.KEY, as in model.default or providers.work.address. A part with a dot in it
is quoted: models."openai:gpt-4.1".effort.
"""

import os
import re
from difflib import get_close_matches
from pathlib import Path

import msgspec

from steno import config as configuration
from steno.config import Config, ConfigError, Place

_PART = re.compile(r'"([^"]*)"|([^."]+)')
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parts_of(name: str) -> list[str]:
    """Raises `ConfigError` for a name that is none."""
    parts = [quoted or bare for quoted, bare in _PART.findall(name)]
    joined = ".".join(parts)
    if len(parts) < 2 or not all(parts) or joined != name.replace('"', ""):
        raise ConfigError(
            f"{name!r} is no key: name it SECTION.KEY, for example model.default"
        )
    return parts


def value_of(config: Config, name: str) -> object:
    """What holds now, whether the file, a variable or the default says it. Keys are left out."""
    found: object = _shown(config)
    for part in parts_of(name) if "." in name else [name]:
        if not isinstance(found, dict) or part not in found:
            raise ConfigError(f"there is no key {name!r}; steno config get lists all")
        found = found[part]
    return found


def everything(config: Config) -> dict[str, object]:
    """Every key with its value, by name; secrets left out."""
    flat: dict[str, object] = {}

    def walk(name: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{name}.{_word(str(key))}" if name else str(key), inner)
        elif value not in ({},):
            flat[name] = value

    walk("", _shown(config))
    return flat


def _shown(config: Config) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(config)
    found |= found.pop("vendors")  # type: ignore[call-overload]
    found.pop("keyed")
    return {name: _without_secrets(value) for name, value in found.items()}


def _without_secrets(value: object) -> object:
    if not isinstance(value, dict):
        return value
    hidden = ("key", "headers", "env", "url", "options")
    return {
        key: "(set; not shown)"
        if key in hidden and inner
        else _without_secrets(inner)
        for key, inner in value.items()
    }


def keep_value(where: Place, name: str, value: str) -> str:
    """Set a key in the file; how it was written. Raises `ConfigError` and leaves the file as it is
    if that cannot be done."""
    *section, key = parts_of(name)
    text = where.config.read_text(encoding="utf-8") if where.config.exists() else ""
    written = _as_toml(value, section, key)
    changed = with_value(text, section, key, written)
    before, after = _parsed(text, where.config), _parsed(changed, where.config)
    if _without(before, section, key) != _without(after, section, key):
        raise ConfigError(
            f"{where.config} is written in a way that cannot be changed here; edit it with "
            "steno config edit; nothing was touched"
        )
    replace_file(where.config, changed)
    return written


def replace_file(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}-{os.getpid()}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(handle)
    beside.replace(file)


def with_value(text: str, section: list[str], key: str, value: str) -> str:
    """A file's text with a key set. Pure."""
    header = "[" + ".".join(map(_word, section)) + "]"
    line = f"{_word(key)} = {value}"
    lines = text.splitlines()
    starts = [
        at for at, one in enumerate(lines) if one.partition("#")[0].strip() == header
    ]
    if not starts:
        return "\n".join([*lines, *([""] if lines else []), header, line]) + "\n"
    begin = starts[0] + 1
    ends = (at for at in range(begin, len(lines)) if lines[at].startswith("["))
    end = next(ends, len(lines))
    named = re.compile(rf'\s*"?{re.escape(key)}"?\s*=')
    for at in range(begin, end):
        if named.match(lines[at]):
            comment = ""
            return "\n".join([*lines[:at], line + comment, *lines[at + 1 :]]) + "\n"
    return "\n".join([*lines[:begin], line, *lines[begin:]]) + "\n"


def _word(part: str) -> str:
    return part if _BARE.fullmatch(part) else msgspec.json.encode(part).decode()


def _as_toml(value: str, section: list[str], key: str) -> str:
    """The value as it was typed if that is a value of TOML that the key takes; else as a string,
    or a list of them."""
    as_text = msgspec.json.encode(value).decode()
    as_list = msgspec.json.encode(
        [one.strip() for one in value.split(",") if one.strip()]
    ).decode()
    failed: list[ConfigError] = []
    for written in (value, as_text, as_list):
        try:
            configuration.parsed(
                with_value("", section, key, written), f"{key} = {value}"
            )
        except ConfigError as error:
            failed.append(error)
            continue
        return written
    checked = (
        error
        for error in failed
        if isinstance(error.__cause__, msgspec.ValidationError)
    )
    raise _refused(".".join([*section, key]), value, next(checked, failed[0]))


_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of its own",
    "str": "text",
}


def _refused(name: str, value: str, error: ConfigError) -> ConfigError:
    """What is wrong with a key, or with its value, in words for a person who typed both."""
    found = str(error.__cause__).partition(" - at")[0]
    if "unknown field" in found:
        near = get_close_matches(name, everything(Config()), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        return ConfigError(
            f"there is no setting {name!r}; {hint}steno config get lists all; nothing was changed"
        )
    if expected := re.match(r"Expected `(\w+)[^`]*`(?: (>=|<=|>|<) (\S+))?", found):
        kind, than, bound = expected.groups()
        found = (
            f"it takes {_KINDS.get(kind, kind)}{f' {than} {bound}' if than else ''}"
        )
    return ConfigError(
        f"{name} = {value} cannot be set: {found}; nothing was changed"
    )


def _parsed(text: str, file: Path) -> dict[str, object]:
    import tomllib

    configuration.parsed(text, str(file))
    return tomllib.loads(text)


def _without(
    tables: dict[str, object], section: list[str], key: str
) -> dict[str, object]:
    """The tables without one key, and without tables that are empty then."""
    if not section:
        return {name: value for name, value in tables.items() if name != key}
    head, *rest = section
    inner = tables.get(head)
    left = _without(inner, rest, key) if isinstance(inner, dict) else {}
    others = {name: value for name, value in tables.items() if name != head}
    return others | ({head: left} if left else {})
