"""Stores of earlier versions in PostgreSQL, with the tables, functions and rows that the programs
of their times left, are migrated to what a store made anew looks like."""

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.store.errors import StoreLocked
from steno.store.postgres.database import VERSION, in_schema
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Admission
from tests import postgres

HERE = Path(__file__).parent
KEPT = (
    *("select session, seq, place, at_ms, crc, body from @facts order by 1, 2",),
    *("select * from @drafts order by 1, 2, 3, 4", "select * from @keys order by 1, 2"),
    *("select * from @payloads", "select * from @chunks", "select * from @payload_owners"),
    *("select * from @changes order by 1", "select * from @deletions"),
    *("select n, id, name, parent, base, touched, listing, crc, owes from @sessions order by 1",),
    *("select n, head, token, owner, stamp, place from @heads order by 1",),
)
"""What a migration may not touch."""
SHAPE = (
    "select table_name, column_name, ordinal_position, data_type, is_nullable, column_default "
    "from information_schema.columns where table_schema = '{s}' order by 1, 3",
    "select indexdef from pg_indexes where schemaname = '{s}' order by 1",
    "select conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint "
    "where connamespace = '{s}'::regnamespace order by 1, 2",
    "select pg_get_functiondef(oid) from pg_proc "
    "where pronamespace = '{s}'::regnamespace order by 1",
    "select relname, relkind, reloptions from pg_class "
    "where relnamespace = '{s}'::regnamespace and relkind in ('r', 'S', 'v') order by 1",
)
"""What tells two schemas apart, but for their names."""


def placed(version: int) -> str:
    """The address of a store as an earlier program left it."""
    url = postgres.server().new_store()
    schema = postgres.schema_of(url)
    text = (HERE / f"postgres_version_{version}.sql").read_text(encoding="utf-8")
    with closing(postgres.connect(url)) as connection, connection.transaction():
        connection.execute(f"create schema {schema}; set local search_path = {schema}".encode())
        connection.execute(in_schema(text, schema).encode())
    return url


def asked(url: str, *questions: str) -> list[list[tuple[Any, ...]]]:
    schema = postgres.schema_of(url)
    with closing(postgres.connect(url)) as connection:
        return [
            connection.execute(in_schema(one, schema).replace("{s}", schema).encode()).fetchall()
            for one in questions
        ]


def shape(url: str) -> list[str]:
    schema = postgres.schema_of(url)
    return [repr(rows).replace(schema, "@") for rows in asked(url, *SHAPE)]


def admit(store: BlockingPostgresStore, text: str, session: str, key: str) -> tuple[int, bool]:
    said = InputAdmitted((Text(text),), "front-end", key)
    found = store.admit(Admission(input=said, session=session))
    return found.seq, found.first


@pytest.mark.promise(54)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_of_an_earlier_version_is_migrated(version: int) -> None:
    url = placed(version)
    before = asked(url, *KEPT)
    fresh = postgres.server().new_store()
    BlockingPostgresStore(fresh).close()
    with BlockingPostgresStore(url) as store:
        assert asked(url, *KEPT) == before
        assert shape(url) == shape(fresh)
        assert asked(url, "select version from @store") == [[(VERSION,)]]
        assert store.verify().damage == ()
        fork = store.list()[2].id
        assert [one.id for one in store.list()] == ["dan", "eve", fork, "bob", "ada"]
        assert store.read(fork)[:6] == store.read("ada")[:6]
        assert [one.text for one in store.drafts("dan")] == ["under way \ud83d\ude00"]
        assert admit(store, "waits", "bob", "k3") == (2, False), "keys are remembered"
        assert admit(store, "and more", "bob", "k9") == (3, True)
        taken = store.acquire("dan")
        assert taken.token == 2, "whoever had it is dead"
        claimed = {one.id for one in store.claim(10, anew=True)}
        assert claimed == {"ada", "bob", fork, "eve"}, "what has something to run is in the queue"


def test_a_store_whose_version_2_had_no_secret_yet_is_migrated() -> None:
    url = placed(2)
    with closing(postgres.connect(url)) as connection:
        schema = postgres.schema_of(url)
        connection.execute(f"alter table {schema}.store drop column secret".encode())
    BlockingPostgresStore(url).close()
    [[(secret,)]] = asked(url, "select secret::text from @store")
    assert len(secret) == 36


@pytest.mark.promise(54)
def test_a_kill_during_a_migration_leaves_the_store_as_it_was_and_the_next_start_goes_on() -> None:
    url = placed(1)
    before, looked = asked(url, *KEPT), shape(url)
    schema = postgres.schema_of(url)
    with closing(psycopg.connect(url.split("&schema=")[0])) as holding:
        holding.execute(f"lock table {schema}.heads in access exclusive mode".encode())
        going = subprocess.Popen([sys.executable, "-c", _OPEN, url])
        try:
            _until_it_waits(url)
        finally:
            going.send_signal(signal.SIGKILL)
            going.wait(20)
    assert asked(url, "select version from @store") == [[(1,)]]
    assert (asked(url, *KEPT), shape(url)) == (before, looked)
    with BlockingPostgresStore(url) as store:
        assert asked(url, *KEPT) == before
        assert store.verify().damage == ()


_OPEN = """
import sys
from steno.store.postgres.store import BlockingPostgresStore
BlockingPostgresStore(sys.argv[1])
"""


def _until_it_waits(url: str) -> None:
    """In the middle of the migration, for a table that we hold."""
    until_s = time.monotonic() + 30
    waits = (
        "select 1 from pg_locks l join pg_class c on c.oid = l.relation "
        "where not l.granted and c.relnamespace = '{s}'::regnamespace"
    )
    while asked(url, waits) == [[]]:
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_a_migration_waits_until_the_workers_of_the_earlier_version_are_stopped() -> None:
    url = placed(2)
    schema = postgres.schema_of(url)
    with closing(postgres.connect(url)) as connection:
        connection.execute(f"update {schema}.owners set beat = clock_timestamp()".encode())
    with pytest.raises(StoreLocked, match="stop all workers"):
        BlockingPostgresStore(url)
    with closing(postgres.connect(url)) as connection:
        connection.execute(f"update {schema}.owners set dead = true".encode())
    with BlockingPostgresStore(url) as store:
        store.create(SessionStarted("test"))
