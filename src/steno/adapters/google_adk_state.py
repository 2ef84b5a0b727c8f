"""The states of Google's Agent Development Kit as items: of an application, of one of its users and
of a session. Each change is an item; a state is all of them, one over the other."""

from typing import Any

from google.adk.sessions import _session_util
from google.adk.sessions.state import State

from steno.items import Items
from steno.library import Library
from steno.store.protocol import Keeping

PREFIX = "adk:"
STATE = "adk.state"
PLATFORM = "google-adk"
CHANGES_MAX = 64
"""So many changes of a state are kept before they are put together."""

Json = Any


class States:
    def __init__(self, chats: Library) -> None:
        self._chats = chats

    def changes(
        self, app: str, user: str, id: str, state: Json
    ) -> dict[str, Keeping]:
        """What to keep for a change of state, by scope."""
        deltas = _session_util.extract_state_delta(
            _session_util.make_json_safe_state(state)
        )
        places = {"app": (app,), "user": (app, user), "session": (app, user, id)}
        return {
            scope: self._change(delta, scope, *places[scope])
            for scope, delta in deltas.items()
            if delta
        }

    def _change(self, delta: Json, scope: str, *place: str) -> Keeping:
        items = self._items(scope, *place)
        tail = items.last()
        if len(tail.items) < CHANGES_MAX:
            return items.keeping([delta])
        whole = _folded(item.value for item in tail.items) | delta
        seqs = [item.seq for item in tail.items]
        return items.keeping([whole], withdraw=seqs, expect=tail.head)

    def seen(self, app: str, user: str, id: str) -> dict[str, Any]:
        """The whole state as a session shows it."""
        state = self.of("session", app, user, id)
        state |= {
            State.APP_PREFIX + key: value
            for key, value in self.of("app", app).items()
        }
        return state | {
            State.USER_PREFIX + key: value
            for key, value in self.of("user", app, user).items()
        }

    def of(self, scope: str, *place: str) -> dict[str, Any]:
        return _folded(item.value for item in self._items(scope, *place).last().items)

    def _items(self, scope: str, *place: str) -> Items:
        return self._chats.items(name_of(scope, *place), STATE, PLATFORM)


def _folded(changes: Any) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for change in changes:
        state |= change
    return state


def name_of(scope: str, *parts: str) -> str:
    return PREFIX + scope + ":" + "/".join(map(_quoted, parts))


def _quoted(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


def unquoted(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")
