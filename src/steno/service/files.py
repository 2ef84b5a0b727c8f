"""Files that a session's tools changed: how they differ, and putting them back.

What must be true: nothing is overwritten that is not kept. What is about to be put back is stored
first, so a process that dies in the middle leaves a fact behind by which another one finishes.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from steno.engine import file_undo
from steno.engine.approval import EDITS
from steno.engine.file_undo import FileHistory
from steno.journal.facts import FilesPutBack, FilesSettled, FileVersions
from steno.journal.parts import Hash, Seq, hash_of
from steno.session.lease import HeldSession, hold
from steno.session.load import Sessions
from steno.store.errors import NotAllowed
from steno.tools.files.change import edit_file, write_file
from steno.tools.files.handles import put, there_now
from steno.tools.protocol import BadArguments, Unusable, Workspace
from steno.workspace.diffs import Diff, diff


class PutBack(Struct, frozen=True):
    """`files` were put back; those in `left` hold something that was not kept, and stay."""

    files: tuple[str, ...]
    left: tuple[str, ...]


class Files:
    """`workspace_in` gives where the tools of a session work, by the folder it belongs to."""

    def __init__(
        self, sessions: Sessions, workspace_in: Callable[[str], Workspace]
    ) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._workspace_in = workspace_in

    async def diff(self, file: FileVersions) -> Diff:
        """How a change makes a file differ, by what was kept of it."""
        before, after = (
            await self._content(file.before),
            await self._content(file.after),
        )
        return await asyncio.to_thread(diff, file.path, before, after)

    async def preview(self, folder: str, tool: str, arguments: str) -> Diff | None:
        """What a call would change; None if it is no edit, or could not be made."""
        if tool not in EDITS:
            return None
        workspace = self._workspace_in(folder)
        act = (
            write_file(workspace).plan
            if tool == "write_file"
            else edit_file(workspace).plan
        )
        try:
            change = await asyncio.to_thread(act, arguments)
        except (BadArguments, Unusable, OSError):
            return None
        return await asyncio.to_thread(diff, change.path, change.before, change.after)

    async def of_session(self, session: str) -> list[Diff]:
        """How the files differ that the session changed, from first to last."""
        history = FileHistory()
        loaded = await self._sessions.whole(session, history)
        workspace = self._workspace_in(loaded.state.folder)
        now = {
            one.path: await self._held(workspace, one.path)
            for one in history.since(0)
        }
        return [await self.diff(file) for file in history.whole(now)]

    async def changed_since(self, session: str, turn: Seq) -> int:
        """How many files were changed from a turn on."""
        history = FileHistory()
        await self._sessions.whole(session, history)
        return len(history.since(turn))

    async def undo(self, session: str, turn: Seq) -> PutBack:
        """Put files back as they were before a turn. One that was cut off is finished first."""
        async with hold(self._sessions, session, to_run=False) as held:
            await self._finish(held)
            history = await self._history(session)
            done = await self._put_back(held, history.since(turn), turn, 0)
            await held.close()
            return done

    async def redo(self, session: str) -> PutBack:
        """Take the last undo of files back."""
        async with hold(self._sessions, session, to_run=False) as held:
            await self._finish(held)
            history = await self._history(session)
            last = history.can_be_taken_back()
            if last is None:
                raise NotAllowed(
                    f"session {session!r} has no undo of files to take back"
                )
            turn = history.put_back[last].turn
            done = await self._put_back(held, history.before(last), turn, last)
            await held.close()
            return done

    async def undone_last(self, session: str) -> tuple[Seq, Seq] | None:
        """The last undo of files that can be taken back, and the turn that it was from."""
        history = await self._history(session)
        last = history.can_be_taken_back()
        return None if last is None else (last, history.put_back[last].turn)

    async def finish(self, session: str) -> PutBack:
        """Finish what a process that died was putting back."""
        async with hold(self._sessions, session, to_run=False) as held:
            done = await self._finish(held)
            await held.close()
            return done

    async def _history(self, session: str) -> FileHistory:
        history = FileHistory()
        await self._sessions.whole(session, history)
        return history

    async def _put_back(
        self,
        held: HeldSession,
        targets: tuple[file_undo.UndoTarget, ...],
        turn: Seq,
        taken: Seq,
    ) -> PutBack:
        workspace = self._workspace_in(held.state.folder)
        now = {one.path: await self._held(workspace, one.path) for one in targets}
        planned = file_undo.plan(targets, now)
        if not planned.changes:
            return PutBack((), planned.left)
        at = await held.record(FilesPutBack(planned.changes, turn, taken))
        left = await self._carry_out(workspace, planned.changes)
        await held.record(FilesSettled(at, left))
        done = tuple(one.path for one in planned.changes if one.path not in left)
        return PutBack(done, (*planned.left, *left))

    async def _held(self, workspace: Workspace, path: str) -> Hash | None:
        """What a file holds now, by its hash."""
        try:
            data = await asyncio.to_thread(there_now, workspace, path)
        except (BadArguments, Unusable, OSError):
            return "unreadable"
        return None if data is None else hash_of(data)

    async def _finish(self, held: HeldSession) -> PutBack:
        done: list[str] = []
        left: list[str] = []
        workspace = self._workspace_in(held.state.folder)
        for seq, fact in sorted(held.state.putting_back.items()):
            stayed = await self._carry_out(workspace, fact.files)
            await held.record(FilesSettled(seq, stayed))
            done += [one.path for one in fact.files if one.path not in stayed]
            left += stayed
        return PutBack(tuple(done), tuple(left))

    async def _carry_out(
        self, workspace: Workspace, changes: tuple[FileVersions, ...]
    ) -> tuple[str, ...]:
        """Make the changes that are not made yet; the files that hold something else by now."""
        left = []
        for one in changes:
            before, after = (
                await self._content(one.before),
                await self._content(one.after),
            )
            try:
                if await asyncio.to_thread(there_now, workspace, one.path) != after:
                    await asyncio.to_thread(put, workspace, one.path, before, after)
            except (BadArguments, Unusable, OSError):
                left.append(one.path)
        return tuple(left)

    async def _content(self, hash: Hash | None) -> bytes | None:
        return None if hash is None else await self._store.get(hash)
