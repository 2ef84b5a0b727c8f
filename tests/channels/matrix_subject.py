"""People in Matrix: users of a real Synapse, by plain HTTP."""

import json
import os
import threading
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.channels.contract import OWNER, Subject
from tests.channels.servers import port_of

_numbers = count(1)
_SYNC_MS = 10_000
_FILTER = json.dumps({"room": {"timeline": {"limit": 1_000}}})


class User:
    """Somebody with an account of their own."""

    def __init__(self, name: str) -> None:
        self._seen: dict[str, list[dict[str, Any]]] = {}
        self._reads: threading.Thread | None = None
        self.shown: set[str] = set()
        self._base = f"http://127.0.0.1:{port_of('synapse')}/_matrix/client/v3"
        self.token = ""
        made = self.ask(
            "POST",
            "/register",
            {
                "username": f"{name}-{os.getpid()}-{next(_numbers)}",
                "password": "test",
                "auth": {"type": "m.login.dummy"},
            },
        )
        self.id, self.token, self.device = made["user_id"], made["access_token"], made["device_id"]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(
            self._base + path, data, headers | {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error

    def upload(self, body: bytes) -> str:
        """The address of what was put into the server's store."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"}
        address = self._base.replace("/client/v3", "/media/v3/upload")
        asked = urllib.request.Request(address, body, headers, method="POST")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return str(json.load(answer)["content_uri"])

    def make_room(self, *others: "User", **fields: Any) -> str:
        """A room with others, who have joined."""
        invited = [one.id for one in others]
        made = self.ask(
            "POST",
            "/createRoom",
            {"invite": invited, "is_direct": len(others) == 1, "preset": "trusted_private_chat"}
            | fields,
        )
        room = str(made["room_id"])
        for one in others:
            one.ask("POST", f"/rooms/{quote(room)}/join", {})
        return room

    def say(self, room: str, text: str, txn: str = "", **fields: Any) -> tuple[str, str]:
        """Write in a room; the transaction id and the event's."""
        txn = txn or f"t{next(_numbers)}"
        path = f"/rooms/{quote(room)}/send/m.room.message/{txn}"
        told = self.ask("PUT", path, {"msgtype": "m.text", "body": text} | fields)
        return txn, str(told["event_id"])

    def events(self, room: str) -> list[dict[str, Any]]:
        """Everything in a room, oldest first."""
        told = self.ask("GET", f"/rooms/{quote(room)}/messages?dir=b&limit=1000")
        return list(reversed(told["chunk"]))

    def texts(self, room: str, sender: str) -> list[str]:
        """What stands in a room from a sender, as edited."""
        self._read_on()
        shown: dict[str, str] = {}
        for event in list(self._seen.get(room, ())):
            content = event.get("content", {})
            if event["type"] != "m.room.message" or event["sender"] != sender or not content:
                continue
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]] = content["m.new_content"]["body"]
            else:
                shown[event["event_id"]] = content["body"]
        return list(shown.values())

    def _read_on(self) -> None:
        """From the first look on, what comes is collected as it comes: to ask again and again keeps
        the server busy."""
        if self._reads is None:
            since = self._sync("")
            self._reads = threading.Thread(target=self._follow, args=(since,), daemon=True)
            self._reads.start()
        assert self._reads.is_alive(), "the rooms are not read any more"

    def _follow(self, since: str) -> None:
        while True:
            since = self._sync(f"&since={quote(since)}&timeout={_SYNC_MS}")

    def _sync(self, query: str) -> str:
        told = self.ask("GET", f"/sync?filter={quote(_FILTER)}{query}")
        for room, news in told.get("rooms", {}).get("join", {}).items():
            self._seen.setdefault(room, []).extend(news["timeline"]["events"])
            for event in news.get("ephemeral", {}).get("events", ()):
                if event["type"] == "m.typing" and event["content"]["user_ids"]:
                    self.shown.add("typing")
                elif event["type"] == "m.receipt":
                    self.shown.add("read")
        return str(told["next_batch"])


class MatrixSubject(Subject):
    client_ids = True
    buttons = False

    def __init__(self, folder: Path) -> None:
        self.bot = User("steno")
        self.secret = self.bot.token
        self.people: dict[str, User] = {}
        self.rooms: dict[str, str] = {}

    def person(self, person: str) -> User:
        if person not in self.people:
            self.people[person] = User(f"p{person}")
        return self.people[person]

    def room(self, person: str) -> str:
        if person not in self.rooms:
            self.rooms[person] = self.person(person).make_room(self.bot)
        return self.rooms[person]

    def id(self, person: str) -> str:
        return str(self.person(person).id)

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "matrix",
            "url": f"http://127.0.0.1:{port_of('synapse')}",
            "options": {
                "user": self.bot.id,
                "chat_per_s": 1_000,
                "all_per_s": 1_000,
                "edit_s": 0.1,
                "text_max": 4_000,
                "timeline": 4,
            },
        }

    def say(self, text: str, person: str = OWNER) -> Any:
        txn, event = self.person(person).say(self.room(person), text)
        return person, text, txn, event

    def again(self, said: Any) -> None:
        person, text, txn, _ = said
        self.person(person).say(self.room(person), text, txn)

    def change(self, said: Any, text: str) -> None:
        relation = {"rel_type": "m.replace", "event_id": said[3]}
        new = {"msgtype": "m.text", "body": text}
        edit: dict[str, Any] = {"m.new_content": new, "m.relates_to": relation}
        self.person(OWNER).say(self.room(OWNER), f"* {text}", **edit)

    def delete(self, said: Any) -> None:
        path = f"/rooms/{quote(self.room(OWNER))}/redact/{quote(said[3])}/r{next(_numbers)}"
        self.person(OWNER).ask("PUT", path, {})

    def active(self) -> bool:
        return {"typing", "read"} in [one.shown for one in self.people.values()]

    def attach(self, text: str, name: str, body: bytes) -> None:
        address = self.person(OWNER).upload(body)
        info = {"mimetype": "text/plain", "size": len(body)}
        file: dict[str, Any] = {"msgtype": "m.file", "url": address, "filename": name, "info": info}
        self.person(OWNER).say(self.room(OWNER), text, **file)

    def texts(self, person: str = OWNER) -> list[str]:
        return self.person(person).texts(self.room(person), self.bot.id)
