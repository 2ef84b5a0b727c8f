"""Everything at once: turns that end in every way, tools, images, thoughts, summaries, kills,
stops, undos, forks, and hidden and redacted messages, in an order left to chance. Whatever came
before, each request is valid, is what a fold of the stored facts gives, and says what it must and
nothing that it must not."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.engine.request import build
from steno.journal.facts import StepStarted, Takes, TurnStarted
from steno.journal.history import History
from steno.models.specs import Access, ModelSettings, make
from steno.runtimes.loop import payloads_told
from tests.chance import chance_of
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_compaction import FILLER, is_summary
from tests.program.test_editing import withdrawal
from tests.program.world import World

ACTS = 16
CALL = ("shell", json.dumps({"command": "head -c 600 /dev/zero | tr '\\0' x"}))
PICTURE = b"\x89PNG\r\n\x1a\n dot"


class Play:
    """One session and its forks, and what was said in them."""

    def __init__(self, folder: Path, server: ModelServer, seed: int) -> None:
        self.chance = chance_of("play", seed)
        self.kind = ("openai-chat", "anthropic")[seed % 2]
        self.world, self.server = World(folder, server.url, f"{self.kind}:m"), server
        self.world.environment |= {
            "STENO_MODEL_CONTEXT_TOKENS": "2600",
            "STENO_TOOLS_SEARCH": "false",
            "STENO_TOOLS_DELEGATE": "false",
            "STENO_APPROVALS_SHELL": "allow",
            "STENO_LIMITS_ATTEMPTS_MAX": "1",
        }
        self.reply = Reply(("answer",))
        self.said, self.taken_back = 0, dict[str, list[str]]()
        server.choose = self._choose
        self.world.steno("run", "prompt-00")
        self.ids = [self.world.only_session()]
        self.done: list[tuple[str, str]] = []

    def _choose(self, request: dict[str, Any]) -> Reply:
        if is_summary(request):
            return Reply(("They spoke of many things.",), usage=False)
        last = json.dumps(request["messages"][-1])
        return (
            Reply(("after the tool",)) if "tool_result" in last or '"tool"' in last else self.reply
        )

    def act(self) -> None:
        """Do something to a session, and look at every request that came of it."""
        acts: dict[Callable[[str], None], int] = {
            self.say: 6, self.fail: 4, self.kill: 2, self.stop: 1, self.compact: 3, self.undo: 2,
            self.take_back: 2, self.rewind: 3, self.hide: 2, self.fork: 1, self.redact: 1,
            self.again: 3,
        }  # fmt: skip
        [act] = self.chance.choices(list(acts), list(acts.values()))
        id = self.chance.choice(self.ids)
        head, asked = len(self.records(id)), len(self.server.requests)
        self.done.append((act.__name__, id))
        act(id)
        self.check(id, head, self.server.requests[asked:])

    def prompt(self) -> str:
        self.said += 1
        return f"prompt-{self.said:02} {self.chance.choice(('', FILLER))}"

    def say(self, id: str) -> None:
        thought = self.chance.choice(("", "hm"))
        self.reply = self.chance.choice(
            (Reply(("answer",), thought=thought), Reply(tools=(CALL, CALL), thought=thought))
        )
        (self.world.work / "dot.png").write_bytes(PICTURE)
        with_image = self.chance.choice(((), ("--attach", "dot.png")))
        prompt = self.prompt()
        self.world.steno("run", prompt, "--session", id, *with_image)
        latest = next(
            request for request in reversed(self.server.requests) if not is_summary(request)
        )
        assert json.dumps(prompt)[1:-1] in json.dumps(latest), (
            "the latest prompt stands word for word"
        )

    def fail(self, id: str) -> None:
        self.reply = self.chance.choice(
            (Reply(status=400), Reply(then="close"), Reply(("half",), then="close"))
        )
        self.world.steno("run", self.prompt(), "--session", id, expect=1)

    def kill(self, id: str) -> None:
        self._cut_off(id, lambda running: running.kill())

    def stop(self, id: str) -> None:
        self._cut_off(id, lambda running: (self.world.steno("interrupt", id), running.end()))

    def _cut_off(self, id: str, end: Callable[[Any], object]) -> None:
        self.reply = Reply(("half ",), then="hang")
        with self.world.start("run", self.prompt(), "--session", id) as running:
            running.wait_shown("half ")
            end(running)

    def compact(self, id: str) -> None:
        self.world.steno("compact", id)

    def undo(self, id: str) -> None:
        printed = self.world.steno("undo", id, expect=None)
        if printed:
            self.taken_back.setdefault(id, []).append(withdrawal(printed))

    def rewind(self, id: str) -> None:
        printed = self.world.steno("rewind", id, "--to", self.message(id))
        self.taken_back.setdefault(id, []).append(withdrawal(printed))

    def take_back(self, id: str) -> None:
        if standing := self.taken_back.get(id):
            self.world.steno(
                "undo", id, "--withdraw", standing.pop(self.chance.randrange(len(standing)))
            )

    def hide(self, id: str) -> None:
        self.world.steno(
            "hide", id, "--seq", self.message(id), *self.chance.choice(((), (), ("--show",)))
        )

    def redact(self, id: str) -> None:
        self.world.steno("redact", id, "--yes", "--seq", self.message(id), expect=None)

    def fork(self, id: str) -> None:
        self.ids.append(self.world.steno("fork", id, "--at", self.message(id)).strip())

    def again(self, id: str) -> None:
        self.reply = Reply(("at last",))
        self.world.steno(self.chance.choice(("retry", "continue")), id, expect=None)

    def message(self, id: str) -> str:
        return str(self.chance.choice(self.world.messages(id))["seq"])

    def records(self, id: str) -> list[Any]:
        with steno.open(self.world.home / "store.db") as library:
            return list(library.store.read_all(id))

    def check(self, id: str, head: int, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            check(self.kind, request)
        self._check_folded(id, head)
        shown = self.world.show(id)
        answered = {
            m["turn"] for m in shown["messages"] if m["role"] != "user" and m["state"] != "lost"
        }
        empty = {
            t["id"] for t in shown["turns"] if t["outcome"] != "done" and t["cause"] != "forked"
        } - answered
        gone = empty | {t["id"] for t in shown["turns"] if t["undone"]}
        begun = [
            (one.seq, one.fact.origin)
            for one in self.records(id)
            if isinstance(one.fact, TurnStarted)
        ]
        for message in shown["messages"]:
            takers = {turn for turn, origin in begun if origin == Takes(message["seq"])}
            if takers and max(takers) <= head and (message["hidden"] or takers <= gone):
                told = [
                    request for request in requests if message["text"][:9] in json.dumps(request)
                ]
                assert told == [], (message, self.done)

    def _check_folded(self, id: str, head: int) -> None:
        """The bytes of each request since are those that a fold of everything before it gives. What
        it says beside that is a note, at its end."""
        url = self.server.url
        settings = ModelSettings(
            {
                "openai": Access(base_url=url),
                "anthropic": Access(base_url=url.removesuffix("/v1")),
            }
        )
        sent = {sha256(body).hexdigest()[:32]: body for body in self.server.bodies}
        history = History()
        for record in self.records(id):
            if (
                record.seq > head
                and isinstance(record.fact, StepStarted)
                and record.fact.digest in sent
            ):
                request = build(history, record.fact.takes)
                with steno.open(self.world.home / "store.db") as library:
                    payloads = {
                        hash: library.store.get(hash) for hash in payloads_told(request.entries)
                    }
                body = make(record.fact.model, settings).to_wire(request, payloads)
                noted = b"[Note from the runtime" in sent[record.fact.digest]
                assert noted or body == sent[record.fact.digest]
            history.apply(record)


@pytest.mark.promise(24, 35, 40)
@pytest.mark.promise(45, 57, 58)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.suite("3")
def test_whatever_happens_in_whatever_order_requests_are_valid_folds_of_what_is_stored(
    tmp_path: Path, server: ModelServer, seed: int
) -> None:
    play = Play(tmp_path, server, seed)
    for _ in range(ACTS):
        play.act()
    for id in play.ids:
        users = play.world.messages(id, "user")
        assert [m["seq"] for m in users] == sorted(m["seq"] for m in users)
        texts = [m["text"][:9] for m in users if m["text"].startswith("prompt-")]
        assert len(texts) == len(set(texts)), "each is there once"
    assert "no damage" in play.world.steno("verify")
