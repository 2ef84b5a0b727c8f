"""steno config: what is set, and setting it."""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import msgspec

from steno import config as configuration
from steno.cli.stdio import complain, show, tell
from steno.compose import Setup
from steno.config import ConfigError
from steno.frontend import settings
from steno.service.objects import to_json

DONE, FAILED = 0, 1


def act(options: argparse.Namespace, setup: Setup) -> int:
    match options.act:
        case "path":
            tell(options, str(setup.where.config), config=str(setup.where.config))
        case "get" if options.name is None:
            everything = settings.everything(setup.config)
            if options.json:
                show(to_json(everything))
            for name, value in () if options.json else everything.items():
                show(f"{name} = {_written(value)}")
        case "get":
            value = settings.value_of(setup.config, options.name)
            show(
                value
                if isinstance(value, str) and not options.json
                else _written(value)
            )
        case "set":
            written = settings.keep_value(setup.where, options.name, options.value)
            said = f"{options.name} = {written} in {setup.where.config}"
            value = settings.value_of(configuration.load(setup.where), options.name)
            tell(
                options,
                said,
                key=options.name,
                value=value,
                config=str(setup.where.config),
            )
        case _:
            return _edit(setup)
    return DONE


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _edit(setup: Setup) -> int:
    """A copy is edited: what cannot be used does not take the place of what can."""
    file = setup.where.config
    editor = configuration.editor()
    before = (
        file.read_text(encoding="utf-8") if file.exists() else configuration.example()
    )
    handle, name = tempfile.mkstemp(
        prefix=".config-", suffix=".toml", dir=file.parent
    )
    copy = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(before)
        try:
            status = subprocess.run([*editor, str(copy)], check=False).returncode  # noqa: S603 - the person's own
        except OSError as error:
            raise ConfigError(
                f"the editor {editor[0]!r} cannot be started: {error.strerror}; set EDITOR"
            ) from error
        after = copy.read_text(encoding="utf-8", errors="replace")
        if status or after == before:
            show("nothing was changed")
            return DONE if not status else FAILED
        try:
            configuration.parsed(after, "what you wrote")
        except ConfigError as error:
            kept = file.with_name("config.toml.rejected")
            settings.replace_file(kept, after)
            complain(f"{error}. Your text is kept in {kept}; {file} is as it was")
            return FAILED
        settings.replace_file(file, after)
        show(f"{file} is changed")
        return DONE
    finally:
        copy.unlink(missing_ok=True)
