"""Clients that say things to any worker and read what comes, and whether what they saw can have
happened: inputs one after the other, each answered once, pieces without a gap and none twice, and
all of it stored."""

import http.client
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from msgspec import Struct, field

from tests.chance import chance_of
from tests.gateway.client import WAIT_S, Event, Gateway, parse, wait_until

PATIENCE_S = 120.0
AWAY = (OSError, ValueError, KeyError, AssertionError, http.client.HTTPException)
"""What a client meets while a worker or the database is away."""


class History(Struct):
    """What one client saw of its session, in the order in which it saw it."""

    session: str
    said: list[str] = field(default_factory=list)
    """What was acknowledged, in order."""
    seqs: list[int] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    """What was shown of each answer, by the seq of its step."""
    ends: list[str] = field(default_factory=list)
    """How each turn ended."""
    violations: list[str] = field(default_factory=list)

    def acknowledged(self, text: str, seq: int) -> None:
        if self.seqs and seq <= self.seqs[-1]:
            self.violations.append(f"{text!r} was given seq {seq} after {self.seqs[-1]}")
        self.said.append(text)
        self.seqs.append(seq)

    def piece(self, step: int, offset: int, text: str) -> None:
        shown = self.texts.setdefault(step, "")
        if offset != len(shown):
            kind = "a gap" if offset > len(shown) else "shown twice"
            self.violations.append(f"{kind} in step {step}: {text!r} at {offset} after {shown!r}")
        if self.texts and step < max(self.texts):
            self.violations.append(f"text of step {step} after that of {max(self.texts)}")
        self.texts[step] = shown + text


class Client:
    """Says something, waits for its answer, and says the next thing, to whichever worker; and reads
    from whichever, at its cursor."""

    def __init__(self, workers: Sequence[Gateway], session: str, seed: int, answer: str) -> None:
        self.workers, self.answer = workers, answer
        self.history = History(session)
        self.over = threading.Event()
        self._said_all = threading.Event()
        """Nothing more is on its way to a worker, either."""
        self.refusals: list[tuple[int, str]] = []
        self.met: deque[str] = deque(maxlen=20)
        """What its reader came upon of late, with the time."""
        self._chance = chance_of("client", seed)
        self._cursor = "0"
        self._reading: socket.socket | None = None
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._say_all, self._read_all)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Once it has the answer to all that it said."""
        self.over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), self.account()

    def account(self) -> str:
        """Of a client that still waits."""
        history, lines = self.history, [f"a client of {self.history.session} still waits"]
        lines.append(f"said {len(history.said)}, {history.said[-1:]} at {history.seqs[-3:]}")
        lines.append(f"{len(history.ends)} ends, {history.ends[-3:]}; it reads at {self._cursor}")
        lines += [*history.violations[:5], *map(str, self.refusals[-3:]), *self.met]
        for worker in self.workers:
            with suppress(*AWAY):
                answer = worker.ask("GET", f"/api/sessions/{history.session}")
                lines.append(f"{worker.port}: {answer.status} {answer.body[-600:]!r}")
        return "\n".join(lines)

    def _worker(self) -> Gateway:
        return self._chance.choice(self.workers)

    # --- saying

    def _say_all(self) -> None:
        n = 0
        while not self.over.is_set():
            n += 1
            if not self._say(f"input {n} of {self.history.session}", f"key-{n}"):
                break
            self._until(lambda: len(self.history.ends) >= len(self.history.said))
        self._said_all.set()
        self._hang_up()

    def _say(self, text: str, key: str) -> bool:
        """The same key until it is accepted: whatever became of an earlier try, it is one input."""
        until = time.monotonic() + PATIENCE_S
        session = self.history.session
        while time.monotonic() < until:
            with suppress(*AWAY):
                answer = self._worker().say(session, text, f"{session}-{key}")
                if answer.status in (200, 202):
                    self.history.acknowledged(text, int(answer.json()["seq"]))
                    return True
                self.refusals.append((answer.status, answer.json().get("detail", "")))
            time.sleep(0.05)
        self.history.violations.append(f"{text!r} was never accepted: {self.refusals[-3:]}")
        return False

    def _until(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > until:
                self.history.violations.append(f"no answer to {self.history.said[-1]!r}")
                return
            time.sleep(0.02)

    # --- reading

    def _done(self) -> bool:
        return self._said_all.is_set() and len(self.history.ends) >= len(self.history.said)

    def _hang_up(self) -> None:
        """Who reads may wait for what will not come: it has seen all, or goes on elsewhere."""
        with suppress(OSError, AttributeError):
            self._reading.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def _events(self, worker: Gateway) -> Iterator[Event]:
        path = f"/api/sessions/{self.history.session}/events?after={self._cursor}"
        there = http.client.HTTPConnection(worker.host, worker.port, timeout=WAIT_S)
        with closing(there) as wire:
            wire.connect()
            self._reading = wire.sock
            if self._done():
                return
            wire.request("GET", path, headers={"Authorization": f"Bearer {worker.token}"})
            answer = wire.getresponse()
            assert answer.status == 200, answer.read()
            yield from parse(answer)

    def _read_all(self) -> None:
        until = time.monotonic() + 20 * PATIENCE_S
        while not self._done() and time.monotonic() < until:
            worker = self._worker()
            self._meets(f"reads from {worker.port} at {self._cursor}")
            try:
                for event in self._events(worker):
                    self._see(event.name, event.data)
                    self._cursor = event.id or self._cursor
                    self._meets(f"{event.name} {event.id}")
                    if self._done() or (event.name == "turn_ended" and self._chance.random() < 0.3):
                        break  # and go on at another worker
            except AWAY as error:
                self._meets(repr(error)[:300])
            time.sleep(0.02)

    def _meets(self, what: str) -> None:
        self.met.append(f"{time.strftime('%H:%M:%S')} {what}")

    def _see(self, name: str, data: dict[str, Any]) -> None:
        if name == "text":
            self.history.piece(data["seq"], data["offset"], data["text"])
        elif name == "turn_ended":
            self.history.ends.append(data["outcome"])


def stored(gateway: Gateway, session: str) -> Any:
    """Once the database answers."""
    found: list[Any] = []

    def ask() -> bool:
        with suppress(*AWAY):
            found.append(gateway.ask("GET", f"/api/sessions/{session}").json())
            return "messages" in found[-1]
        return False

    wait_until(ask, "the session")
    return found[-1]


def violations(client: Client, shown: Any) -> Iterator[str]:
    """Between what a client saw and what is stored."""
    history, answer = client.history, client.answer
    yield from history.violations
    said = [one for one in shown["messages"] if one["role"] == "user"]
    if [one["text"] for one in said] != history.said:
        yield f"said {history.said}, stored {[one['text'] for one in said]}"
    if [one["seq"] for one in said] != history.seqs:
        yield f"acknowledged at {history.seqs}, stored at {[one['seq'] for one in said]}"
    outcomes = [one["outcome"] for one in shown["turns"]]
    if len(outcomes) != len(history.said) or not set(outcomes) <= {"done", "interrupted"}:
        yield f"{len(history.said)} inputs, turns {outcomes}"
    if outcomes != history.ends:
        yield f"turns ended {history.ends}, stored {outcomes}"
    kept = {one["seq"]: one["text"] for one in shown["messages"] if one["role"] == "assistant"}
    for seq, text in kept.items():
        if not answer.startswith(text):
            yield f"the answer at {seq} is {text!r}"
    shown_texts = [text for _, text in sorted(history.texts.items()) if text]
    if shown_texts != [text for _, text in sorted(kept.items()) if text]:
        yield f"shown {shown_texts}, stored {kept}"
    turns = [one["turn"] for one in shown["messages"] if one["role"] == "assistant"]
    if turns != sorted(turns):
        yield f"turns are not one after the other: {turns}"
    seqs = [one["seq"] for one in shown["messages"]]
    if seqs != sorted(set(seqs)):
        yield f"messages are not in order: {seqs}"


def check(clients: Sequence[Client], gateway: Gateway) -> None:
    found = [
        f"{client.history.session}: {one}"
        for client in clients
        for one in violations(client, stored(gateway, client.history.session))
    ]
    assert not found, "\n".join(found)
    assert gateway.world.steno("verify").endswith("no damage\n")
