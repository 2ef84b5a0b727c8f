"""Keys that a person gave to `steno login`: in the system's keyring where there is one, else in
`keys.json` in the home, which its owner alone may read.

The file names every provider that has a key, also those whose key is in the keyring, so that a
start need not ask the keyring, which can be slow or want a password.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

SERVICE = "steno"
FILE_BYTES_MAX = 1_000_000

Where = Literal["keyring", "file"]


class KeysUnusable(Exception):
    """The file of keys cannot be used; the message says why and what to do."""


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """A key, or that it is in the keyring."""

    key: str = ""
    keyring: bool = False

    def __repr__(self) -> str:
        return "_Kept()"


class Keys:
    def __init__(self, home: Path) -> None:
        self.file = home / "keys.json"

    def names(self) -> frozenset[str]:
        """The providers that have a key here."""
        return frozenset(self._read())

    def get(self, name: str) -> str:
        """The key of a provider; "" if there is none, or the keyring does not give it."""
        kept = self._read().get(name, _Kept())
        return _from_keyring(self._account(name)) if kept.keyring else kept.key

    def keep(self, name: str, key: str) -> Where:
        """Keep a key, in the place of one that was there; where it is now."""
        everything = self._read()
        in_keyring = _to_keyring(self._account(name), key)
        everything[name] = _Kept(keyring=True) if in_keyring else _Kept(key)
        self._write(everything)
        return "keyring" if in_keyring else "file"

    def forget(self, name: str) -> bool:
        """Whether there was one."""
        everything = self._read()
        kept = everything.pop(name, None)
        if kept is None:
            return False
        if kept.keyring:
            _to_keyring(self._account(name), None)
        self._write(everything)
        return True

    def _account(self, name: str) -> str:
        """Each home has keys of its own."""
        return f"{name} ({self.file.parent})"

    def _read(self) -> dict[str, _Kept]:
        try:
            about = self.file.stat()
            if about.st_mode & 0o077:
                raise KeysUnusable(
                    f"{self.file} holds keys, and others may read it: chmod 600 it, and change the "
                    "keys if somebody may have; nothing was sent"
                )
            if about.st_size > FILE_BYTES_MAX:
                raise KeysUnusable(
                    f"{self.file} is too large to be a file of keys; put it aside"
                )
            return msgspec.json.decode(self.file.read_bytes(), type=dict[str, _Kept])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KeysUnusable(
                f"{self.file} cannot be read: {error.strerror or error}"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise KeysUnusable(
                f"{self.file} is damaged: put it aside and log in again; nothing was touched"
            ) from None

    def _write(self, everything: dict[str, _Kept]) -> None:
        """The file is replaced whole, so that a kill leaves the old or the new one."""
        beside = self.file.with_name(f".keys-{os.getpid()}.tmp")
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as opened:
            os.fchmod(handle, 0o600)
            opened.write(
                msgspec.json.format(msgspec.json.encode(everything), indent=2) + b"\n"
            )
            opened.flush()
            os.fsync(handle)
        beside.replace(self.file)


def _from_keyring(account: str) -> str:
    if find_spec("keyring") is None:
        return ""
    import keyring
    import keyring.errors

    try:
        return str(keyring.get_password(SERVICE, account) or "")
    except (keyring.errors.KeyringError, OSError, RuntimeError):
        return ""


def _to_keyring(account: str, key: str | None) -> bool:
    """Whether the keyring has it now. Some take a key and keep nothing, so it is read back."""
    if find_spec("keyring") is None:
        return False
    import keyring
    import keyring.errors

    try:
        if key is None:
            keyring.delete_password(SERVICE, account)
            return True
        keyring.set_password(SERVICE, account, key)
        return bool(keyring.get_password(SERVICE, account) == key)
    except (keyring.errors.KeyringError, OSError, RuntimeError):
        return False
