"""Connections to PostgreSQL the way a journal needs them, the SQL that is run there, and the
server's errors in the store's words. Beyond those of `store/errors.py`:

StoreUnwritable
  StoreUnreachable   the database does not answer; what was accepted is kept there; try again
"""

import contextlib
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec import Struct
from msgspec.structs import asdict
from psycopg import Connection, errors

from steno.journal.codec import JOURNAL_VERSION
from steno.store.backend import named_statements, sql_text
from steno.store.errors import (
    JournalCorrupt,
    NotAStore,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnopenable,
    StoreUnwritable,
)
from steno.store.protocol import Settings

VERSION = 4
OLDEST_SERVER = 150_000
SCHEMES = ("postgresql://", "postgres://")

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_SYNCHRONOUS = {"power": "on", "process": "off"}
_PINNED = (
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off "
    "-c enable_mergejoin=off -c jit=off"
)
"""What is found by an index stays found by it, whatever a table's statistics say. A plan that is
not wanted costs so much on paper that the server would compile it."""

_NOTICES_A_DEAD_LINK = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""A network that swallows everything would else hold a commit up for many minutes."""

_SESSION_ROW = """s.n, s.id, s.name, s.parent, s.base, h.token, h.owner, s.touched, s.listed,
    s.listing, s.crc, s.owes, s.memory, h.head, h.stamp"""

Connected = Connection[tuple[Any, ...]]


class PostgresSettings(Settings, frozen=True, kw_only=True):
    """What only PostgreSQL can be told. A worker whose beat is older than `short_ms` is dead if its
    connections are gone, too; with them, or where they cannot be seen, after `long_ms`."""

    short_ms: int = 1_000
    long_ms: int = 10_000
    lock_wait_ms: int = 5_000
    give_up_ms: int = 30_000
    """How long what runs here waits for a database that does not answer."""
    refuse_ms: int = 1_000
    """How long a new input waits for it."""
    synchronous_commit: str = ""
    """Instead of what `durability` means: on, remote_apply, remote_write, local or off."""
    only_reads: bool = False
    """Nothing will be written: a standby will do."""
    pooled: bool = False
    """There is a pooler between us and the server that gives each transaction any connection."""
    direct: str = ""
    """Then: the server's own address, for the one connection that listens."""
    role: str = ""

    @classmethod
    def of(cls, settings: Settings | None) -> "PostgresSettings":
        """With defaults for what was not said."""
        if isinstance(settings, cls):
            return settings
        if settings is None:
            return cls()
        common = set(Settings.__struct_fields__)
        return cls(
            **{name: it for name, it in asdict(settings).items() if name in common}
        )


class StoreUnreachable(StoreUnwritable):
    pass


class Address(Struct, frozen=True):
    """Where a store is: a database, and the schema in it that the store has to itself."""

    url: str
    schema: str

    @property
    def shown(self) -> str:
        """Without the password."""
        parts = urlsplit(self.url)
        where = parts.netloc.rpartition("@")[2]
        query = f"?schema={self.schema}" if self.schema != "steno" else ""
        return f"{parts.scheme}://{where}{parts.path}{query}"


def is_address(where: str) -> bool:
    return where.startswith(SCHEMES)


def address(where: str) -> Address:
    """`postgresql://…`, with `schema=NAME` beside what libpq knows; else the schema is `steno`."""
    try:
        parts = urlsplit(where)
        named = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
        )
    except ValueError as error:
        raise StoreUnopenable(
            f"the address of the store is not one: {error}"
        ) from error
    schema = dict(named).get("schema", "steno")
    if _SCHEMA.fullmatch(schema) is None:
        raise StoreUnopenable(
            f"{schema!r} cannot be the schema of a store: small letters, digits and _, 40 at most"
        )
    query = urlencode([(name, value) for name, value in named if name != "schema"])
    return Address(urlunsplit(parts._replace(query=query)), schema)


@cache
def statements(schema: str) -> dict[str, bytes]:
    named = named_statements(sql_text(__file__, "statements.sql"))
    return {
        name: in_schema(body.replace("{session_row}", _SESSION_ROW), schema).encode()
        for name, body in named.items()
    }


def in_schema(sql: str, schema: str) -> str:
    return re.sub(r"@(?=[a-z])", f"{schema}.", sql)


def application_name(owner: str) -> str:
    """By which an owner's connections are told from others'; the server cuts longer ones."""
    return f"steno:{owner[-50:]}"


class Connector:
    """Makes the connections of one open store."""

    def __init__(
        self, where: Address, settings: PostgresSettings, owner: str
    ) -> None:
        self.where, self.settings, self.owner = where, settings, owner
        self.statements = statements(where.schema)
        self.channel, self.work_channel = (
            f"steno_{where.schema}",
            f"steno_work_{where.schema}",
        )
        if settings.durability not in _SYNCHRONOUS:
            raise StoreUnopenable(
                f"durability is 'power' or 'process', not {settings.durability!r}"
            )

    @property
    def listens(self) -> bool:
        """Whether there is a way to hear at once what others commit."""
        return not self.settings.pooled or bool(self.settings.direct)

    def connect_to_listen(self) -> Connected:
        """Always the same connection of the server's: a pooler would give it to others."""
        with translated("cannot reach the database"):
            return psycopg.connect(
                address(self.settings.direct).url
                if self.settings.direct
                else self.where.url,
                autocommit=True,
                application_name=application_name(self.owner),
                **_NOTICES_A_DEAD_LINK,  # type: ignore[arg-type]
            )

    def connect(self, reads: bool = False) -> Connected:
        settings = self.settings
        options = {
            "application_name": application_name(self.owner),
            **_NOTICES_A_DEAD_LINK,
        }
        if not settings.pooled:
            level = settings.synchronous_commit or _SYNCHRONOUS[settings.durability]
            waits = f"-c lock_timeout={settings.lock_wait_ms}"
            writes = f"{_PINNED} -c synchronous_commit={level} {waits}"
            options["options"] = _PINNED if reads else writes
        with translated("cannot reach the database"):
            return psycopg.connect(
                self.where.url,
                autocommit=True,
                prepare_threshold=None if settings.pooled else 1,
                **options,  # type: ignore[arg-type]
            )


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        # The driver's frames hold the error of a failed connection, and it holds them: 16 kB a try
        # that would stay until garbage is collected.
        raise translate(error, doing) from error.with_traceback(None)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection went, so that what became of the statement is not known."""
    state = error.sqlstate or ""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not state
        or (state[:2] in ("57", "08") and not isinstance(error, errors.QueryCanceled))
    )


def is_conflict(error: psycopg.Error) -> bool:
    """Whether others were quicker, and the same again may go well."""
    return error.sqlstate in ("STS01", "40001", "40P01", "23505", "23503", "55006")


def translate(error: psycopg.Error, doing: str) -> StoreError:
    """PostgreSQL's error in our words."""
    said = str(error).strip().split("\n")[0]
    match error:
        case errors.DiskFull():
            return StoreFull(f"{doing}: the disk of the database is full")
        case errors.ReadOnlySqlTransaction():
            return StoreReadOnly(f"{doing}: the database is read-only (a standby?)")
        case errors.InsufficientPrivilege():
            return StoreReadOnly(f"{doing}: {said}")
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return StoreLocked(
                f"{doing}: another process has been writing to it for too long"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return JournalCorrupt(f"{doing}: the database is damaged ({said})")
        case errors.InvalidPassword() | errors.InvalidAuthorizationSpecification():
            return StoreUnopenable(f"{doing}: {said}")
        case errors.InvalidCatalogName():
            return StoreUnopenable(f"{doing}: {said}")
        case _ if is_lost(error):
            return StoreUnreachable(f"{doing}: {said}")
        case psycopg.InterfaceError():
            return StoreClosed(f"{doing}: {said}")
        case _:
            return StoreUnwritable(f"{doing}: {said}")


def prepare(connector: Connector) -> tuple[int, Connected]:
    """Make the store if there is none, check that it is one; what its marks begin above, and the
    connection, to write with."""
    shown = connector.where.shown
    with translated(f"cannot open {shown}"), contextlib.ExitStack() as held:
        connection = held.enter_context(contextlib.closing(connector.connect()))
        if connection.info.server_version < OLDEST_SERVER:
            raise StoreUnopenable(
                f"{shown} is PostgreSQL {connection.info.server_version // 10_000}; 15 or later is "
                "needed"
            )
        restored = Preparing(connection, connector.where).prepare()
        held.pop_all()
        return restored, connection


class Preparing:
    """A connection while a store is made, checked or migrated."""

    def __init__(self, connection: Connected, where: Address) -> None:
        self.connection, self.where, self.schema = connection, where, where.schema
        self._statements = statements(where.schema)

    def one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        cursor = self.connection.execute(self._statements[name], values)
        return None if cursor.description is None else cursor.fetchone()

    def run_file(self, name: str) -> None:
        self.connection.execute(
            in_schema(sql_text(__file__, name), self.schema).encode()
        )

    def prepare(self) -> int:
        if not self._exists():
            self._make()
        version, journal, was, restored = self._about()
        if version > VERSION or journal > JOURNAL_VERSION:
            raise StoreTooNew(
                f"{self.where.shown} was written by a newer steno (format {version}, journal "
                f"{journal}; this one knows {VERSION} and {JOURNAL_VERSION}); upgrade steno"
            )
        if version < VERSION:
            self._migrate()
        now = self._identity()
        if was == now:
            return restored
        moved = self.one("store_moved", now, was)
        return int(moved[0]) if moved is not None else self._about()[3]

    def _exists(self) -> bool:
        return self.one("store_exists", f"{self.schema}.store") == (True,)

    def _make(self) -> None:
        """In one transaction, unless another process has made it."""
        with self.connection.transaction():
            self.one("make_alone", f"steno.{self.schema}")
            if self._exists():
                return
            self.connection.execute(
                f"create schema if not exists {self.schema}".encode()
            )
            self.connection.execute(f"set local search_path = {self.schema}".encode())
            self.run_file("schema.sql")
            self.run_file("commit.sql")
            self.one("make_store", VERSION, JOURNAL_VERSION, self._identity())

    def _migrate(self) -> None:
        """To the tables of this steno, in one transaction: a kill leaves them as they were."""
        with self.connection.transaction():
            self.one("make_alone", f"steno.{self.schema}")
            version = self._about()[0]
            if version >= VERSION:
                return
            if (living := self.one("living")) is not None:
                raise StoreLocked(
                    f"{self.where.shown} is of an earlier steno, and {living[0]} still runs on it; "
                    "stop all workers, then start this one"
                )
            self.connection.execute(f"set local search_path = {self.schema}".encode())
            for step in range(version + 1, VERSION + 1):
                self.run_file(f"to_{step}.sql")
            self.run_file("commit.sql")
            self.one("migrated", VERSION)

    def _identity(self) -> str:
        """Of the server and of the schema in it: a copy of the store elsewhere has another one."""
        found = self.one("identity", self.schema)
        return "" if found is None else str(found[0])

    def _about(self) -> tuple[int, int, str, int]:
        found = self.one("about_store")
        if found is None:
            raise NotAStore(
                f"{self.where.shown} is no steno store: its table `store` is empty"
            )
        version, journal, identity, restored = found
        return int(version), int(journal), str(identity), int(restored)


def host() -> tuple[str, int]:
    return (os.uname().nodename if hasattr(os, "uname") else ""), os.getpid()
