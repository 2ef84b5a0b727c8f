"""Sessions with enough in them to be distilled, a model that is asked to, and what came of it."""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from steno.journal.facts import AnyFact, Distilled, HelperEnded, HelperStarted
from steno.store.sqlite.store import BlockingStore
from tests.program import forking
from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S, World, wait_until

LINES = ("my name is Ada", "I like tea", "the port is 8080", "what else?", "goodbye")
TEA, PORT, SECRET = "Ada likes tea.", "The port is 8080.", "swordfish-ä☃-4711"


def answer(*facts: str, seqs: tuple[int, ...] = (3,)) -> str:
    """What a model says of a session."""
    found = [{"text": text, "seqs": seqs} for text in facts]
    return json.dumps(
        {
            "title": "Tea and ports",
            "summary": "They met.",
            "decisions": [],
            "open": [],
            "facts": found,
        },
        ensure_ascii=False,
    )


GOOD = Reply((answer(TEA, PORT),))
HANGS = Reply(("{",), then="hang")
LEFT_S = 3.0
"""A third of a second where nothing else runs, with a distillation or without. What hangs here
hangs for an hour."""


def is_distillation(request: dict[str, Any]) -> bool:
    return "worth keeping" in json.dumps(request["messages"][0])


def distillations(server: ModelServer) -> list[dict[str, Any]]:
    return [request for request in server.requests if is_distillation(request)]


def distils(server: ModelServer, *replies: Reply) -> None:
    """Answers to requests for a distillate, in order; the last one is repeated. All else is
    answered with ok."""

    def choose(request: dict[str, Any]) -> Reply:
        if not is_distillation(request):
            return Reply(("ok",))
        return replies[min(len(distillations(server)), len(replies) - 1)]

    server.choose = choose


def chat(
    world: World,
    *lines: str,
    words: tuple[str, ...] = (),
    script: str = "",
) -> float:
    """Type lines into the chat, or one that a script has changed, to its end; how long it took to
    leave after the last answer."""
    changed = (str(Path(__file__).with_name(script)),) if script else ()
    chatting = forking.start_fed((*changed, *words), world.environment, world.work)
    seen = b""
    for number, line in enumerate(lines, start=1):
        chatting.stdin.write(line.encode() + b"\n")
        chatting.stdin.flush()
        while seen.count(b"you> ") < number + 1:
            seen += os.read(chatting.stdout.fileno(), 65_536)
    left_s = time.monotonic()
    chatting.stdin.close()
    while chatting.stdout.read(65_536):
        pass
    assert chatting.wait(WAIT_S) == 0
    left_s = time.monotonic() - left_s
    chatting.stdout.close()
    return left_s


def quietly(world: World, *lines: str) -> str:
    """A session of the chat that nobody has distilled; its id."""
    world.environment["STENO_MEMORY_DISTILL"] = "off"
    chat(world, *lines)
    world.environment["STENO_MEMORY_DISTILL"] = "auto"
    return str(world.sessions()[0]["id"])


def facts(world: World, id: str) -> list[AnyFact]:
    with BlockingStore(world.home / "store.db") as store:
        return [record.fact for record in store.read_all(id)]


def made(world: World, id: str) -> list[Distilled]:
    return [fact for fact in facts(world, id) if isinstance(fact, Distilled)]


def helpers(world: World, id: str) -> list[str]:
    """How each call for a distillate ended."""
    stored = facts(world, id)
    started = {
        seq: "open" for seq, fact in enumerate(stored, start=1) if isinstance(fact, HelperStarted)
    }
    for fact in stored:
        if isinstance(fact, HelperEnded):
            started[fact.started] = fact.outcome
    return list(started.values())


def remembered(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(world.steno("memory", "--json"))
    return found


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


def wait_made(world: World, id: str, count: int = 1) -> None:
    wait_until(lambda: len(made(world, id)) == count, f"{count} distillate(s)")


def run(world: World, *lines: str, name: str = "program") -> str:
    """Say lines by `steno run`, in one session; its id."""
    for line in lines:
        world.steno("run", line, "--key", name)
    return next(str(one["id"]) for one in world.sessions() if one["name"] == name)


def remembering_now(world: World) -> list[int]:
    """The processes in the background that belong to this home."""
    home, found = f"STENO_HOME={world.home}".encode(), []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                place.name.isdecimal()
                and b"\0steno\0remember\0" in (place / "cmdline").read_bytes()
            ):
                found += [int(place.name)] if home in (place / "environ").read_bytes() else []
    return found
