"""A real pooler in transaction mode between stores and the server: everything works but listening,
which needs an address of its own."""

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from msgspec.structs import replace

from steno.journal.drafts import Stream
from steno.journal.facts import SessionStarted, StepSealed
from steno.journal.parts import File, Text
from steno.store.errors import LeaseLost, SessionBusy
from steno.store.postgres.database import PostgresSettings
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Admission, Admitted, Piece
from tests import postgres
from tests.debian_parts import SYSTEM_PATH
from tests.store.test_postgres import QUICK, admit, begin, said

POOLED = replace(QUICK, pooled=True, long_ms=1_500)


@contextmanager
def pooler(server: postgres.Server) -> Iterator[Path]:
    """The folder of its socket. Three connections to the server, whoever comes."""
    program = shutil.which("pgbouncer", path=SYSTEM_PATH)
    if program is None:
        pytest.skip("pgbouncer is not installed: python -m tests.debian_parts")
    with tempfile.TemporaryDirectory(prefix="steno-pool-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "users").write_text(f'"{postgres.USER}" ""\n')
        (folder / "conf").write_text(
            f"[databases]\n* = host={server.folder} user={postgres.USER}\n[pgbouncer]\n"
            f"unix_socket_dir = {folder}\nlisten_port = 6432\nlisten_addr =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"
            f"logfile = {folder}/log\nauth_file = {folder}/users\n"
        )
        running = subprocess.Popen(
            postgres.as_user([program, "-q", str(folder / "conf")]),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(folder)
            yield folder
        finally:
            running.terminate()
            running.wait(20)


def _wait_for(folder: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with suppress(psycopg.OperationalError):
            psycopg.connect(_address(folder), prepare_threshold=None).close()
            return
        time.sleep(0.02)
    pytest.fail((folder / "log").read_text()[-2000:])


def _address(folder: Path, schema: str = "") -> str:
    words = {"host": str(folder), "port": "6432"} | ({"schema": schema} if schema else {})
    return f"postgresql://{postgres.USER}@/postgres?{urlencode(words)}"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with pooler(postgres.server()) as found:
        yield found


@pytest.fixture
def urls(folder: Path) -> tuple[str, str]:
    """Through the pooler, and the server's own."""
    own = postgres.server().new_store()
    return _address(folder, postgres.schema_of(own)), own


def follow(store: BlockingPostgresStore, session: str, seen: list[str]) -> threading.Thread:
    def read() -> None:
        for event in store.follow(session):
            if isinstance(event, Piece):
                seen.append(event.text)
                if "".join(seen).endswith("!"):
                    return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("direct", [False, True])
def test_through_a_pooler_stores_work_together(
    urls: tuple[str, str], direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    url, own = urls
    settings = replace(POOLED, direct=own if direct else "")
    with (
        BlockingPostgresStore(url, settings) as store,
        BlockingPostgresStore(url, settings) as other,
    ):
        lease, step = begin(store)
        session = lease.session
        seen: list[str] = []
        reading = follow(other, session, seen)
        with pytest.raises(SessionBusy):
            other.acquire(session)
        text = Stream(step, "text")
        for piece in ("Hel", "lo", "!"):
            store.draft(lease, text, piece)
        reading.join(20)
        assert "".join(seen) == "Hello!"
        body = b"x" * (3 << 20)
        hash = store.put(session, body)
        store.append(
            lease, [StepSealed(step, (Text("Hello!"), File(hash, "a", len(body), "x")))], step
        )
        assert other.get(hash) == body
        assert admit(other, "more", session, "key") == Admitted(session, step + 2, True)
        assert admit(store, "more", session, "key") == Admitted(session, step + 2, False)
        assert not store.release(lease, step + 1).released, "it has not seen the input"
        assert store.release(lease, step + 2).released
        assert [one.id for one in other.claim(5)] == [session]
        store.redact(session, 2)
        store.delete(session)
        assert other.verify().damage == ()
    assert ("nothing tells at once" in caplog.text) == (not direct), "it says so"


@pytest.mark.promise(18, 72)
def test_through_a_pooler_a_dead_worker_is_replaced_after_the_long_term(
    urls: tuple[str, str],
) -> None:
    url, _ = urls
    with BlockingPostgresStore(url, POOLED) as left:
        going = BlockingPostgresStore(url, POOLED)
        lease, step = begin(going)
        going.backend.owners._stop.set()
        since = time.monotonic()
        while left.running(lease.session) is not None:
            assert time.monotonic() - since < 30
            time.sleep(0.05)
        assert time.monotonic() - since > POOLED.long_ms / 1000 - 0.5
        left.acquire(lease.session)
        with pytest.raises(LeaseLost):
            going.append(lease, [StepSealed(step, ())], step)
        going.close()


@pytest.mark.promise(73)
def test_a_pooler_that_is_restarted_loses_nothing(urls: tuple[str, str]) -> None:
    with BlockingPostgresStore(urls[0], POOLED) as store:
        session = store.admit(Admission(input=said("a"), create=SessionStarted("test"))).session
        for n in range(20):
            if n % 5 == 2:
                with psycopg.connect(postgres.server().url, autocommit=True) as connection:
                    connection.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity "
                        "where pid <> pg_backend_pid() and application_name = %s",
                        (f"steno:{store.owner[-50:]}",),
                    )
            admit(store, f"input {n}", session, f"key-{n}")
        assert [record.seq for record in store.read(session)] == [*range(1, 23)]


def test_settings_of_a_pooled_store_are_refused_by_nobody(urls: tuple[str, str]) -> None:
    with BlockingPostgresStore(urls[0], PostgresSettings(pooled=True)) as store:
        assert store.backend.database().version.startswith("15")
