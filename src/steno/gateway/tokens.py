"""Tokens: who may call the service, and with which rights.

A token is 32 random bytes behind the prefix `st_`. It is shown once; the file keeps its SHA-256 and
its rights. The file is looked at again for each request if it has changed, so a token that was
revoked is refused by the next one, whichever process revoked it.

    read      look at sessions and follow them
    write     also say something, stop a turn, edit
    approve   also decide about calls of tools
    admin     everything, tokens and deletion included

A scope holds those before it.

    TokenError
      BadToken     no token, or one that is unknown, revoked or expired
      NameTaken    there is a token of this name
      NoSuchName   there is none
"""

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

Scope = Literal["read", "write", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "approve", "admin")
PREFIX = "st_"
TOKENS_MAX = 1_000
NAME_LEN_MAX = 100
ADDRESS_FILE = "gateway.url"
"""Beside the tokens: where the gateway of this home was reached last."""
LINK_S = 60
VISIT_S = 30 * 86_400


class TokenError(Exception):
    pass


class BadToken(TokenError):
    pass


class NameTaken(TokenError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a token {name!r} already; revoke it first or take another name"
        )
        self.name = name


class NoSuchName(TokenError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no token {name!r}")
        self.name = name


class Token(Struct, frozen=True):
    """A token as it is stored. `session`: it may use this session alone. `once`: it is a link that
    is exchanged for a cookie."""

    name: str
    digest: str
    scope: Scope
    created_ms: int
    expires_ms: int | None = None
    session: str | None = None
    once: bool = False

    def allows(self, needed: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


class _File(Struct):
    version: int = 1
    tokens: list[Token] = []


class Tokens:
    """The tokens of one home. Every method looks at the file as it is now."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now_s = now_s
        self._seen: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()
        self._by_digest: dict[str, Token] = {}

    def all(self) -> tuple[Token, ...]:
        return tuple(one for one in self._load() if not one.once)

    def find(self, secret: str) -> Token:
        """The token of this secret. It is looked up by its digest, from which nothing about a
        secret of 32 random bytes can be learnt, and compared in constant time."""
        digest = _digest(secret)
        self._load()
        found = self._by_digest.get(digest)
        if found is None or not hmac.compare_digest(found.digest, digest):
            raise BadToken("the token is unknown, revoked or expired")
        if found.once or self.is_over(found):
            raise BadToken("the token is unknown, revoked or expired")
        return found

    def is_good(self, token: Token) -> bool:
        """Whether a token that was found before is still there."""
        return token in self._load() and not self.is_over(token)

    def add(
        self,
        name: str,
        scope: Scope,
        session: str | None = None,
        expires_s: float | None = None,
        once: bool = False,
    ) -> str:
        """Store a new token; its secret, which is told once."""
        with self._alone():
            return self._add(name, scope, session, expires_s, once)

    def _add(
        self,
        name: str,
        scope: Scope,
        session: str | None = None,
        expires_s: float | None = None,
        once: bool = False,
    ) -> str:
        known = [one for one in self._load() if not self.is_over(one)]
        if not 0 < len(name) <= NAME_LEN_MAX or not name.isprintable():
            raise TokenError(f"the name of a token has 1 to {NAME_LEN_MAX} letters")
        if any(one.name == name for one in known):
            raise NameTaken(name)
        secret = PREFIX + secrets.token_urlsafe(32)
        now_ms = int(self._now_s() * 1000)
        expires_ms = None if expires_s is None else now_ms + int(expires_s * 1000)
        made = Token(name, _digest(secret), scope, now_ms, expires_ms, session, once)
        self._save([*known, made])
        return secret

    def revoke(self, name: str) -> None:
        with self._alone():
            known = self._load()
            if all(one.name != name for one in known):
                raise NoSuchName(name)
            self._save([one for one in known if one.name != name])

    def link(self) -> str:
        """A secret that `redeem` takes once, within a minute."""
        return self.add(
            f"link-{secrets.token_hex(8)}", "admin", expires_s=LINK_S, once=True
        )

    def redeem(self, secret: str) -> str:
        """Exchange a link for the secret of a browser's cookie."""
        with self._alone():
            digest = _digest(secret)
            known = self._load()
            link = next(
                (one for one in known if hmac.compare_digest(one.digest, digest)),
                None,
            )
            if link is None or not link.once or self.is_over(link):
                raise BadToken("this link was used before, or is older than a minute")
            self._save([one for one in known if one != link])
            return self._add(
                f"browser-{secrets.token_hex(4)}", link.scope, expires_s=VISIT_S
            )

    def is_over(self, token: Token) -> bool:
        return (
            token.expires_ms is not None and token.expires_ms <= self._now_s() * 1000
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time changes the file: else a token that was revoked could come back
        with what another one wrote."""
        path = self._path.with_name(f"{self._path.name}.lock")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _load(self) -> tuple[Token, ...]:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - at each request, and half as dear
        except FileNotFoundError:
            self._seen, self._known, self._by_digest = None, (), {}
            return ()
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen != self._seen:
            self._known = tuple(
                msgspec.json.decode(self._path.read_bytes(), type=_File).tokens
            )
            self._by_digest = {one.digest: one for one in self._known}
            self._seen = seen
        return self._known

    def _save(self, tokens: list[Token]) -> None:
        """Replace the file whole, readable by its owner alone from its first byte on."""
        if len(tokens) > TOKENS_MAX:
            raise TokenError(
                f"there are {TOKENS_MAX} tokens already; revoke some first"
            )
        beside = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_File(tokens=tokens)))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._seen = None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def without_secret(token: Token) -> Token:
    return replace(token, digest="")
