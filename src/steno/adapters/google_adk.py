"""steno under Google's Agent Development Kit.

    runner = Runner(agent=agent, app_name="app", session_service=StenoSessionService("chats.db"))

An event is stored with the changes of state that it brings, those of the user and of the
application too, in one commit. An event that is sent again is kept once. A session that others
changed since it was read is refused with `StaleSessionError`.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as clock
from google.adk.platform import uuid as ids
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from msgspec.structs import replace

from steno.adapters import in_thread, opened
from steno.adapters.google_adk_state import PLATFORM, States, name_of, unquoted
from steno.items import Items
from steno.library import Library
from steno.store.errors import Stale, warn
from steno.store.protocol import Keeping

EVENT = "adk.event"

Json = Any


class StenoSessionService(BaseSessionService):  # type: ignore[misc,unused-ignore]
    """`store` is an open library, or the path of a store."""

    def __init__(self, store: Library | str | PathLike[str] = ":memory:") -> None:
        self.chats = opened(store)
        self._states = States(self.chats)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        id = (session_id or "").strip() or ids.new_uuid()
        made = {"created": clock.get_time()}

        def create() -> Session:
            items = self._items(app_name, user_id, id)
            changes = self._states.changes(app_name, user_id, id, state or {})
            self._keep(items.keeping([made], expect=0), lambda: changes)
            return self._load(app_name, user_id, id, None)

        try:
            return await in_thread(create)
        except Stale as error:
            raise AlreadyExistsError(
                f"Session with id {id} already exists."
            ) from error

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        return await in_thread(
            lambda: self._load(app_name, user_id, session_id.strip(), config)
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """In the order of their last changes."""

        def found() -> list[Session]:
            parts = [app_name] if user_id is None else [app_name, user_id]
            listed = self.chats.named(name_of("session", *parts) + "/")
            last = GetSessionConfig(num_recent_events=1)
            names = [
                one.row.name or "" for one in sorted(listed, key=lambda one: one.mark)
            ]
            places = [tuple(map(unquoted, name.split("/")))[1:] for name in names]
            loaded = [self._load(app_name, user, id, last) for user, id in places]
            return [
                one.model_copy(update={"events": []})
                for one in loaded
                if one is not None
            ]

        return ListSessionsResponse(sessions=await in_thread(found))

    async def delete_session(
        self, *, app_name: str, user_id: str, session_id: str
    ) -> None:
        await in_thread(self._items(app_name, user_id, session_id.strip()).delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await in_thread(lambda: self._states.of("user", app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        new = await in_thread(lambda: self._append(session, event))
        if new:
            self._commit_event_to_session(session, event)
            session.last_update_time = event.timestamp
        return event

    def _append(self, session: Session, event: Event) -> bool:
        """Whether it was not there before."""
        app, user, id = session.app_name, session.user_id, session.id
        items = self._items(app, user, id)
        value = event.model_dump(mode="json", exclude_none=True, by_alias=True)
        before = items.by_key(event.id)
        if before is not None and before.value == value:
            return False
        delta = (event.actions.state_delta if event.actions else None) or {}
        expect = session._storage_update_marker
        while True:
            tail = items.last(0)
            if tail.session is None:
                raise SessionNotFoundError(f"Session {id} not found.")
            if expect is not None and tail.head != int(expect):
                warn(
                    "refused an event of a session that was read at %s: it is at %s",
                    expect,
                    tail.head,
                )
                raise StaleSessionError(
                    "The session was changed since it was read; read it again."
                )
            keeping = items.keeping([value], expect=tail.head, keys=[event.id])
            try:
                head = self._keep(
                    keeping, lambda: self._states.changes(app, user, id, delta)
                )
            except Stale:
                continue
            session._storage_update_marker = str(head)
            return True

    # --- sessions and states as items

    def _keep(
        self, keeping: Keeping, changes: Callable[[], dict[str, Keeping]]
    ) -> int:
        """In one commit; the last fact about the items of the session."""
        others = changes()
        own = others.pop("session", None)
        if own is not None:
            keeping = replace(
                keeping, items=(*keeping.items, *own.items), withdraw=own.withdraw
            )
        return self.chats.keep_all([keeping, *others.values()])[0].items

    def _load(
        self, app: str, user: str, id: str, config: GetSessionConfig | None
    ) -> Session | None:
        recent = None if config is None else config.num_recent_events
        tail = self._items(app, user, id).last(recent)
        if tail.session is None:
            return None
        values = [item.value for item in tail.items]
        events = [
            Event.model_validate(value) for value in values if "created" not in value
        ]
        state = self._states.seen(app, user, id)
        at = (
            events[-1].timestamp
            if events
            else (values or [{}])[0].get("created", 0.0)
        )
        since = None if config is None else config.after_timestamp
        while since is not None and events and events[0].timestamp < since:
            events = events[1:]
        found = Session(
            app_name=app,
            user_id=user,
            id=id,
            state=state,
            events=events,
            last_update_time=at,
        )
        found._storage_update_marker = str(tail.head)
        return found

    def _items(self, app: str, user: str, id: str) -> Items:
        return self.chats.items(name_of("session", app, user, id), EVENT, PLATFORM)
