"""steno under the Claude Agent SDK.

    options = ClaudeAgentOptions(session_store=StenoSessionStore("chats.db"))

`StenoSessionStore` keeps the transcripts that the SDK mirrors, a batch in one commit. The `uuid` of
an entry is its key: an entry that is sent again is kept once. It runs under asyncio and under trio.
"""

from os import PathLike
from typing import Any

from steno.adapters import in_thread, opened
from steno.items import Items
from steno.library import Library

PREFIX = "claude:"
FORMAT = "claude.transcript"
SUMMARY = "claude.summary"
PLATFORM = "claude-agent"
FOLD_AGAIN_MAX = 200
"""So many entries may be folded again each time that sessions are listed."""

Json = Any


class StenoSessionStore:
    """`store` is an open library, or the path of a store."""

    def __init__(self, store: Library | str | PathLike[str] = ":memory:") -> None:
        self.chats = opened(store)

    async def append(self, key: Json, entries: list[Json]) -> None:
        """All of them, or none; those whose `uuid` is there are left out."""
        unique = {entry.get("uuid") or at: entry for at, entry in enumerate(entries)}
        keys = [uuid if isinstance(uuid, str) else None for uuid in unique]
        if entries:
            items = self._items(_name(key))
            await in_thread(
                lambda: items.change(list(unique.values()), keys=keys, same="first")
            )

    async def load(self, key: Json) -> list[Json] | None:
        items = self._items(_name(key))
        tail = await in_thread(items.last)
        return [item.value for item in tail.items] or None

    async def list_sessions(self, project_key: str) -> list[Json]:
        times = await in_thread(lambda: self._times(project_key))
        return [{"session_id": session, "mtime": ms} for session, ms in times.items()]

    async def list_session_summaries(self, project_key: str) -> list[Json]:
        def summaries() -> list[Json]:
            times = self._times(project_key)
            return [
                self._summary(project_key, session, ms)
                for session, ms in times.items()
            ]

        return await in_thread(summaries)

    async def delete(self, key: Json) -> None:
        """A session goes after all that is under it: cut off in the middle, it can be deleted
        again."""

        def delete() -> None:
            if not key.get("subpath"):
                for listed in self.chats.named(_name(key) + "/"):
                    self._items(listed.row.name or "").delete()
            self._items(_name(key)).delete()

        await in_thread(delete)

    async def list_subkeys(self, key: Json) -> list[str]:
        prefix = _name({**key, "subpath": None}) + "/"
        found = await in_thread(lambda: list(self.chats.named(prefix)))
        return [(listed.row.name or "")[len(prefix) :] for listed in found]

    def close(self) -> None:
        self.chats.close()

    def _items(self, name: str, format: str = FORMAT) -> Items:
        return self.chats.items(name, format, PLATFORM)

    def _times(self, project: str) -> dict[str, int]:
        """When the sessions of a project were changed. They grow in the order of the commits, also
        where the clock was set back or two have the same millisecond."""
        prefix = PREFIX + _quoted(project) + "/"
        found = [
            listed
            for listed in self.chats.named(prefix)
            if "/" not in (listed.row.name or "")[len(prefix) :]
        ]
        times: dict[str, int] = {}
        last = 0
        for listed in sorted(found, key=lambda one: one.mark):
            last = max(listed.row.updated_ms, last + 1)
            times[_unquoted((listed.row.name or "")[len(prefix) :])] = last
        return times

    def _summary(self, project: str, session: str, mtime: int) -> Json:
        """What the SDK shows of a session in a list. It is kept beside the entries, and what came
        since is folded into it."""
        from claude_agent_sdk import fold_session_summary

        key = {"project_key": project, "session_id": session}
        kept = self._items(_name(key), SUMMARY)
        before = kept.last(1).items
        known: Json = before[-1].value if before else {"summary": None, "upto": 0}
        tail = self._items(_name(key)).since(known["upto"])
        entries = [item.value for item in tail.items]
        summary = fold_session_summary(known["summary"], key, entries)
        if len(entries) > FOLD_AGAIN_MAX:
            now = {"summary": summary, "upto": tail.items[-1].seq}
            kept.change([now], withdraw=[item.seq for item in before])
        return {**summary, "mtime": mtime}


def _name(key: Json) -> str:
    parts = [_quoted(key["project_key"]), _quoted(key["session_id"])]
    return PREFIX + "/".join(
        [*parts, *([key["subpath"]] if key.get("subpath") else [])]
    )


def _quoted(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


def _unquoted(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")
