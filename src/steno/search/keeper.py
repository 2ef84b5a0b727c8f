"""The search of one open store: its index in a file, who fills it and when, and what asks it.

    Search     what everything else calls
    Upkeep     a thread that fills the index while its process has nothing better to do

A file that is damaged, of another version or of another store is thrown away. Until it is made
again everything is scanned: that takes longer and finds the same.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from steno.search.feed import Searched
from steno.search.index_file import Busy, IndexFile, Unusable, remove
from steno.search.indexer import BULK, IDLE, LIVE, PART_TEXTS, Indexer, Progress
from steno.search.scope import FromSession, Origin, Origins
from steno.search.searching import UNWATCHED, Asked, Found, Searching, Watch
from steno.store.errors import StoreError
from steno.store.protocol import FeedMark

_REST_S = 0.02
_PAUSE_LOOKS = 2
_IDLE_LOOKS = 5
_BUSY_LOOKS = 50
_LOOK_AGAIN_S = 1.0
_SCRUB_TRIES = 5
_log = logging.getLogger("steno.search")


class Search:
    """`path` None: there is no index, and everything is scanned. Safe to use from many threads; one
    query at a time."""

    def __init__(
        self,
        store: Searched,
        path: Path | None,
        identity: str = "",
        part_texts: int = PART_TEXTS,
    ) -> None:
        self._store = store
        self._path = path
        self._identity = identity
        self._part_texts = part_texts
        self._lock = threading.Lock()
        self._file: IndexFile | None = None
        self._origins = Origins(store)
        self._upkeep: Upkeep | None = None
        self._of_file: Indexer | None = None
        self._inode = (0, 0)

    # --- asking

    def find(self, asked: Asked, watch: Watch = UNWATCHED) -> Found:
        """What is in the store at this moment. Who watches a long search is told what it has so
        far, and can stop it."""
        with self._lock:
            file = self._opened(make=False)
            if file is not None:
                try:
                    with contextlib.suppress(Busy):
                        self._indexer(file).clear()
                    with file.moment():
                        return Searching(
                            self._store, file, asked, self._origins, watch
                        ).run()
                except (Unusable, apsw.Error) as error:
                    self._failed(error)
            return Searching(self._store, None, asked, self._origins, watch).run()

    def scope_of(self, session: str) -> FromSession:
        """What the model of a session may see."""
        return FromSession(session, self._origins.of(session))

    def origin_of(self, session: str) -> Origin:
        return self._origins.of(session)

    def progress(self) -> Progress:
        with self._lock:
            file = self._opened(make=False)
            if file is None:
                return Progress(0, self._store.changes(None).mark, 0)
            return self._indexer(file).progress()

    # --- filling and emptying

    def clear(self) -> None:
        """Have what was removed from the journal in no file of the index. Somebody else who writes
        to it is waited for, or has done it."""
        with self._lock:
            if self._opened(make=False) is None:
                return
            for _ in range(_SCRUB_TRIES):
                try:
                    if (file := self._opened(make=False)) is not None:
                        self._indexer(file).clear()
                        if file.one("select dirty from about"):
                            continue
                    return
                except Busy:
                    continue
                except (Unusable, apsw.Error) as error:
                    self._throw_away(str(error))
                    return
            self._throw_away("what was removed is still in its log")

    def build(
        self, tell: Callable[[Progress], None], stopped: Callable[[], bool]
    ) -> Progress:
        """Fill the index at full speed, until it is whole or `stopped`. What is there is kept."""
        while not stopped():
            with self._lock:
                file = self._opened(make=True)
                if file is None:
                    break
                try:
                    indexer = self._indexer(file)
                    more = indexer.step(BULK)
                    progress = indexer.progress()
                except (Unusable, apsw.Error) as error:
                    self._failed(error)
                    continue
            tell(progress)
            if not more and progress.covered >= progress.marks:
                return progress
            if not more:  # somebody else fills it
                time.sleep(_REST_S)
        return self.progress()

    def fill_for(self, seconds: float) -> None:
        """Fill the index for a moment."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.step(idle=True):
            pass

    def step(self, idle: bool) -> bool:
        """One transaction; whether there is more to do."""
        with self._lock:
            file = self._opened(make=True)
            if file is None:
                return False
            try:
                return self._indexer(file).step(IDLE if idle else LIVE)
            except (Unusable, apsw.Error) as error:
                return self._failed(error)

    def keep_up(self) -> None:
        """Fill the index beside everything else, from now until `close`."""
        if self._upkeep is None and self._path is not None:
            self._upkeep = Upkeep(
                self._store, self._path, self._identity, self._part_texts
            )
            self._upkeep.start()

    def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.stop()
        with self._lock:
            self._let_go()

    # --- the file

    def _indexer(self, file: IndexFile) -> Indexer:
        if self._of_file is None:
            self._of_file = Indexer(self._store, file, self._part_texts)
        return self._of_file

    def _opened(self, make: bool) -> IndexFile | None:
        """The file, if there is one or may be made. One that was deleted or replaced under us is
        let go."""
        path = self._path
        if path is None:
            return None
        inode = _inode(path)
        if self._file is not None and inode == self._inode:
            return self._file
        self._let_go()
        if inode == (0, 0) and not make:
            return None
        try:
            self._file = IndexFile(path, self._identity, make)
        except Unusable as error:
            self._throw_away(str(error))
            if not make:
                return None
            with contextlib.suppress(Unusable):
                self._file = IndexFile(path, self._identity, make)
        self._inode = _inode(path)
        return self._file

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._of_file = None, None

    def _failed(self, error: Exception) -> bool:
        """Throw the file away, unless it is whole and only cannot be used now; whether it was."""
        cause = error.__cause__ if isinstance(error, Unusable) else error
        if isinstance(cause, apsw.BusyError | apsw.LockedError | apsw.FullError):
            return False
        self._throw_away(str(error))
        return True

    def _throw_away(self, why: str) -> None:
        _log.info("the index was thrown away: %s", why)
        self._let_go()
        if self._path is not None:
            with contextlib.suppress(OSError):
                remove(self._path)


def _inode(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


class Pauses:
    """Whether those who append pause, by how far the feed is every 20 ms.

    nothing came for 0.1 s          True: fill, many texts at a time
    nothing at the last two looks   False: a few
    something at every other look   None: not now; but a few every second
    """

    def __init__(self) -> None:
        self._mark = -1
        self._quiet = 0
        self._busy = 0

    def look(self, mark: FeedMark) -> bool | None:
        came, self._mark = mark != self._mark, mark
        self._quiet = 0 if came else self._quiet + 1
        self._busy = self._busy + 1 if self._quiet < _PAUSE_LOOKS else 0
        return None if self._busy % _BUSY_LOOKS else self._quiet >= _IDLE_LOOKS


class Upkeep(threading.Thread):
    """Fills the index in the pauses of those who append, so that they do not notice. What it has
    not taken in yet is scanned."""

    def __init__(
        self, store: Searched, path: Path, identity: str, part_texts: int
    ) -> None:
        super().__init__(name="search index", daemon=True)
        self._store = store
        self._search = Search(store, path, identity, part_texts)
        self._ended = threading.Event()

    def run(self) -> None:
        pauses = Pauses()
        try:
            while not self._ended.wait(_REST_S):
                idle = pauses.look(self._store.changes(None).mark)
                if idle is not None and not self._search.step(idle):
                    self._ended.wait(_LOOK_AGAIN_S)
        except StoreError as error:
            _log.info("the index is not filled any more: %s", error)
        finally:
            self._search.close()

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join(5.0)
