"""People in XMPP: clients of a real prosody, on a loop of their own."""

import asyncio
import os
import threading
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import slixmpp
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from tests.channels.contract import OWNER, Subject
from tests.channels.servers import port_of

_numbers = count(1)
_ORIGIN = "{urn:xmpp:sid:0}origin-id"
_REPLACE = "{urn:xmpp:message-correct:0}replace"


class Loop:
    """Where the clients of one test run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, act: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(act, self.loop).result(60)

    def close(self) -> None:
        async def end() -> None:
            others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.do(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


class User:
    """`made` is what arrived: id to text, as corrected."""

    def __init__(self, loop: Loop, jid: str) -> None:
        self.jid = jid
        self.made: dict[str, str] = {}
        self.typed = 0
        self._loop = loop
        loop.do(self._connect())

    async def _connect(self) -> None:
        client: Any = slixmpp.ClientXMPP(self.jid, "test")
        began = asyncio.Event()
        client.add_event_handler("session_start", lambda _: began.set())
        client.add_event_handler("message", self._arrived)
        state = MatchXPath(
            "{jabber:client}message/{http://jabber.org/protocol/chatstates}composing"
        )
        client.register_handler(Callback("state", state, self._types))
        client.enable_plaintext, client.enable_starttls = True, False
        client.enable_direct_tls = False
        client.plugin["feature_mechanisms"].unencrypted_plain = True
        client.connect("127.0.0.1", port_of("prosody"))
        await asyncio.wait_for(began.wait(), 30)
        client.send_presence()
        self._client = client

    def _types(self, stanza: Any) -> None:
        self.typed += 1

    def _arrived(self, stanza: Any) -> None:
        if not str(stanza["body"]):
            return
        corrected = stanza.xml.find(_REPLACE)
        id = str(stanza["id"]) if corrected is None else str(corrected.get("id"))
        self.made[id] = str(stanza["body"])

    def say(self, to: str, text: str, corrects: str = "", retracts: str = "") -> str:
        async def send() -> str:
            stanza = self._client.make_message(to, text, mtype="chat")
            stanza["id"] = id = f"s{next(_numbers)}"
            stanza.xml.append(Element(_ORIGIN, {"id": id}))
            if corrects:
                stanza.xml.append(Element(_REPLACE, {"id": corrects}))
            if retracts:
                stanza.xml.append(Element("{urn:xmpp:message-retract:1}retract", {"id": retracts}))
            stanza.send()
            return id

        return str(self._loop.do(send()))

    def close(self) -> None:
        async def leave() -> None:
            self._client.abort()

        self._loop.do(leave())


class XmppSubject(Subject):
    buttons = False
    files = False
    secret = "test"

    def __init__(self, folder: Path) -> None:
        self._name = f"{os.getpid()}-{next(_numbers)}"
        self.jid = f"steno-{self._name}@localhost"
        self._people: dict[str, User] = {}

    def open(self) -> None:
        port_of("prosody")
        self._loop = Loop()

    def close(self) -> None:
        for one in self._people.values():
            one.close()
        self._loop.close()

    def id(self, person: str) -> str:
        return f"p{person}-{self._name}@localhost"

    def person(self, person: str) -> User:
        if person not in self._people:
            self._people[person] = User(self._loop, self.id(person))
        return self._people[person]

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "xmpp",
            "url": f"xmpp://127.0.0.1:{port_of('prosody')}",
            "options": {
                "jid": self.jid,
                "chat_per_s": 1_000,
                "all_per_s": 1_000,
                "edit_s": 0.1,
                "text_max": 4_000,
            },
        }

    def say(self, text: str, person: str = OWNER) -> Any:
        return self.person(person).say(self.jid, text)

    def again(self, said: Any) -> None:
        """The archive gives nothing out twice but after a kill."""

    def change(self, said: Any, text: str) -> None:
        self.person(OWNER).say(self.jid, text, corrects=said)

    def active(self) -> bool:
        return any(one.typed for one in self._people.values())

    def delete(self, said: Any) -> None:
        told = "This person took a message back, which your client does not understand."
        self.person(OWNER).say(self.jid, told, retracts=said)

    def texts(self, person: str = OWNER) -> list[str]:
        return list(self.person(person).made.values())
