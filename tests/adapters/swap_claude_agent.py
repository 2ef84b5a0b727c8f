"""A plugin for the Claude Agent SDK's own tests: our store in the place of theirs in memory."""

from typing import Any

from steno.adapters.claude_agent import StenoSessionStore, _name


class InPlaceOfMemory(StenoSessionStore):
    """With what their tests look into."""

    def get_entries(self, key: Any) -> list[Any]:
        return [item.value for item in self._items(_name(key)).last().items]

    @property
    def size(self) -> int:
        names = [listed.row.name or "" for listed in self.chats.named("claude:")]
        return sum(name.count("/") == 1 for name in names)

    def clear(self) -> None:
        for listed in self.chats.named("claude:"):
            self._items(listed.row.name or "").delete()


def pytest_configure() -> None:
    import claude_agent_sdk
    from claude_agent_sdk._internal import session_store

    for module in (claude_agent_sdk, session_store):
        module.InMemorySessionStore = InPlaceOfMemory
