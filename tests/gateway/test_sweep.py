"""Kills of the service at random moments, under clients that try again with the same key."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chance import REPEAT, chance_of
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

CLIENTS = 40
WAITING_MAX = 8
"""A client that has so many inputs without an answer says nothing more until one came."""
PIECES = ("one ", "two ", "three ", "four")
WHOLE = "".join(PIECES)


class Talker(threading.Thread):
    """Says one thing after the other in a session of its own, each until it is accepted, and reads
    what is answered, from the last cursor on."""

    def __init__(self, gateway: Gateway, number: int, token: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._token = token
        self.gateway, self._over, self._number = gateway, over, number
        self.session = ""
        self.accepted: list[int] = []
        self.texts: dict[int, str] = {}
        self._ended = 0
        self._cursor = "0"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._left = False

    def run(self) -> None:
        while not self.session:
            made = self._try("POST", "/api/sessions", {"name": f"talker {self._number}"}, {})
            self.session = made["id"] if made else ""
        self._reader.start()
        while not self._over.is_set():
            if len(self.accepted) - self._ended > WAITING_MAX:
                self._over.wait(0.02)
                continue
            key = {"Idempotency-Key": f"{self._number}-{len(self.accepted)}"}
            body = {"text": f"input {len(self.accepted)} of {self._number}"}
            path = f"/api/sessions/{self.session}/inputs"
            if (accepted := self._try("POST", path, body, key)) is not None:
                self.accepted.append(accepted["seq"])
            self._over.wait(0.1)

    def _try(self, method: str, path: str, body: object, headers: dict[str, str]) -> Any:
        try:
            answer = self.gateway.ask(method, path, body, headers)
        except OSError:
            time.sleep(0.05)
            return None
        assert answer.status in (200, 201, 202, 503), answer.body
        return answer.json() if answer.status < 300 else None

    def leave(self) -> None:
        """Before the service goes: its port may be another's soon. A turn that was cut off may have
        no text, so its reader would wait for ever."""
        self._left = True

    def _read(self) -> None:
        while not (self._over.is_set() and len(self.texts) >= len(self.accepted)):
            if self._left:
                return
            try:
                as_reader = {"Authorization": f"Bearer {self._token}"}
                for event in self.gateway.events(self.session, self._cursor, **as_reader):
                    self._cursor = event.id or self._cursor
                    self._ended += event.name == "turn_ended"
                    if event.name == "text":
                        seq, offset = event.data["seq"], event.data["offset"]
                        assert offset == len(self.texts.get(seq, "")), "a gap, or twice"
                        self.texts[seq] = self.texts.get(seq, "") + event.data["text"]
            except OSError:
                time.sleep(0.05)


@pytest.mark.promise(2, 9, 16, 62, 63)
@pytest.mark.parametrize("kills", [10, 40, 200])
@pytest.mark.suite("10")
@pytest.mark.timeout(1800)
def test_every_accepted_input_is_answered_once_whenever_the_service_is_killed(
    world: World, server: ModelServer, tmp_path: Path, kills: int
) -> None:
    server.replies = [Reply(PIECES, delay_s=0.01)]
    chance = chance_of("gateway", "sweep", kills)
    gateway = Gateway(world, tmp_path)
    over = threading.Event()
    add = ("gateway", "token", "add")
    tokens = [world.steno(*add, f"reader {i}").strip() for i in range(2)]  # 32 streams each
    clients = CLIENTS if kills > 10 else 12
    talkers = [Talker(gateway, i, tokens[i % 2], over) for i in range(clients)]
    try:
        for talker in talkers:
            talker.start()
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.6))
            gateway.kill()
            gateway.start()
        over.set()
        for talker in talkers:
            talker.join(30)
            _check(world, talker)
        assert sum(len(one.accepted) for one in talkers) > kills, "too little was said"
        assert sum(len(one.texts) for one in talkers) > kills, "too little was read"
    finally:
        over.set()
        for talker in talkers:
            talker.leave()
        gateway.close()


def _check(world: World, talker: Talker) -> None:
    """Each input is stored once, in order, under its own text; each turn is one answer or is said
    to be interrupted; what was read is what is stored."""
    wanted = [f"input {i} of {talker._number}" for i in range(len(talker.accepted))]

    def ended() -> bool:
        turns = talker.gateway.ask("GET", f"/api/sessions/{talker.session}").json()["turns"]
        return len(turns) >= len(wanted) and all(turn["outcome"] for turn in turns)

    wait_until(ended, f"all turns of {talker.session}; {REPEAT}")
    shown = world.show(talker.session)
    said = [one["text"] for one in shown["messages"] if one["role"] == "user"]
    assert said[: len(wanted)] == wanted, REPEAT
    assert len(said) <= len(wanted) + 1, "one more may have been stored and not told"
    assert len(shown["turns"]) == len(said), REPEAT
    done = [turn["id"] for turn in shown["turns"] if turn["outcome"] == "done"]
    for turn in shown["turns"]:
        answers = [
            one["text"]
            for one in shown["messages"]
            if one["turn"] == turn["id"] and one["role"] == "assistant"
        ]
        assert len(answers) <= 1, REPEAT
        if turn["id"] in done:
            assert answers == [WHOLE], REPEAT
        else:
            assert turn["outcome"] == "interrupted", (turn, REPEAT)
            assert turn["cause"] == "killed", (turn, REPEAT)
    stored = {one["seq"]: one["text"] for one in shown["messages"] if one["role"] == "assistant"}
    for seq, text in list(talker.texts.items()):
        assert any(whole.startswith(text) for whole in stored.values()), (seq, text, REPEAT)
        if seq in stored:
            assert stored[seq].startswith(text), REPEAT
