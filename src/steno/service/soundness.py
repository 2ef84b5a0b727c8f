"""Whether a session can be read, asked before an input to it is accepted."""

from steno.journal.parts import Seq
from steno.runtimes import opening
from steno.store.protocol import Store

_REMEMBERED_MAX = 10_000


class Soundness:
    """An input is not accepted to a session that nobody could run. What this process has read is
    not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, Seq] = {}

    async def check(self, session: str | None, name: str | None) -> None:
        """Raises what reading raises, of all that a runner of the session would read."""
        if session is None and name is not None:
            session = await self._store.find(name)
        if session is None:
            return
        after = self._read.get(session)
        if after is None:
            after = await self._begin(session)
        async for record in opening.everything(self._store, session, after):
            after = record.seq
        if len(self._read) >= _REMEMBERED_MAX:
            self._read.clear()
        self._read[session] = after

    async def _begin(self, session: str) -> Seq:
        begin, _ = await opening.to_run(self._store, session)
        async for _ in opening.carried(self._store, session, begin.carries):
            pass
        return begin.upto
