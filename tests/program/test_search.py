"""Searching, on the running program: what another process finds, and when."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import steno
from tests.gateway.client import Gateway, eventually
from tests.program import forking
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_compact import long_session
from tests.program.world import World


def found(world: World, *words: str) -> dict[str, Any]:
    status = None  # 1 if nothing is found
    told: dict[str, Any] = json.loads(world.steno("search", *words, "--json", expect=status))
    return told


def places(world: World, *words: str) -> set[tuple[str, int]]:
    return {(hit["session"], hit["seq"]) for hit in found(world, *words, "--all")["hits"]}


def index_files(world: World) -> list[Path]:
    return list(world.home.glob("store.db-search*"))


@pytest.mark.promise(56)
def test_text_that_is_being_streamed_is_found(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("a zebra in ", "the stréam"), then="hang")]
    with world.start("run", "hello") as program:
        program.wait_shown("stréam")
        [hit] = found(world, "zebra in the stream", "--literal")["hits"]
        assert hit["streaming"]
        assert hit["role"] == "assistant"
        program.kill()
    [again] = found(world, "zebra")["hits"]
    assert (again["session"], again["seq"]) == (hit["session"], hit["seq"])


@pytest.mark.promise(26, 29)
def test_after_compaction_messages_are_found_once_and_the_summary_is_not(
    world: World, server: ModelServer
) -> None:
    id = long_session(world, server, Reply(("A SUMMARY OF IT",)))
    before = places(world, "prompt")
    world.steno("search", "--build")
    for _ in range(2):
        world.steno("compact", id)
        assert places(world, "prompt") == before
    assert len({seq for _, seq in before}) == len(before) > 1
    assert places(world, "SUMMARY OF IT", "--literal") == set()


ASKED = ("strasse", "中", "文", "ns", "question 2", "answer -inside")


def in_one_process(world: World) -> dict[str, set[tuple[str, int]]]:
    with steno.open(world.home / "store.db") as chats:
        found = {query: chats.search(query, all=True).hits for query in ASKED}
    return {query: {(hit.session, hit.seq) for hit in hits} for query, hits in found.items()}


@pytest.mark.promise(49)
def test_an_index_that_is_damaged_or_gone_changes_nothing(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("the answer with 中文 inside",))]
    for i in range(4):
        world.steno("run", f"question {i} about Straße", "--key", "k")
    id = world.only_session()
    expected = {query: places(world, query) for query in ASKED}
    assert len(expected["strasse"]) == len(expected["中"]) == 4
    shown = world.show(id)
    assert "100%" in world.steno("search", "--build")
    assert in_one_process(world) == expected
    [index] = [file for file in index_files(world) if file.name == "store.db-search"]
    body = index.read_bytes()
    for broken in (body[: len(body) // 2], b"x" * len(body), b"", body[:5_000] + b"y" * 9_000):
        index.write_bytes(broken)
        assert places(world, "strasse") == expected["strasse"]
        index.write_bytes(broken)
        assert in_one_process(world) == expected
        assert world.show(id) == shown
    for file in index_files(world):
        file.unlink(missing_ok=True)
    assert in_one_process(world) == expected
    world.steno("run", "question 9", "--key", "k")
    assert "100%" in world.steno("search", "--build")
    assert places(world, "question 9") == {(id, world.messages(id, "user")[-1]["seq"])}


SECRET = "ᏣᎳᎩ"


def holding(world: World, text: str) -> list[str]:
    letters = [letter.encode() for one in (text, text.casefold(), text.upper()) for letter in one]
    return [
        file.name for file in index_files(world) if any(one in file.read_bytes() for one in letters)
    ]


@pytest.mark.promise(55, 60)
@pytest.mark.parametrize("how", ["redact", "delete", "hide"])
def test_what_was_removed_is_not_found_when_the_command_returns(
    world: World, server: ModelServer, how: str
) -> None:
    world.steno("run", f"my secret {SECRET}", "--key", "one")
    id = world.only_session()
    world.steno("run", "something else", "--key", "two")
    [(_, seq)] = places(world, SECRET)
    world.steno("search", "--build")
    assert holding(world, SECRET)
    if how == "delete":
        world.steno("delete", id, "--yes")
    else:
        world.steno(how, id, "--seq", str(seq), *(["--yes"] if how == "redact" else []))
    told = found(world, SECRET)
    assert told["hits"] == []
    assert told["left_out"]["hidden"] == (1 if how == "hide" else 0)
    if how != "hide":
        assert holding(world, SECRET) == []
    assert len(places(world, "something")) == 1


@pytest.mark.promise(60)
def test_an_ephemeral_session_is_not_found_and_leaves_nothing(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "kept words")
    world.steno("search", "--build")
    world.steno("run", f"fleeting {SECRET}", "--ephemeral")
    assert places(world, "fleeting") == set()
    assert holding(world, SECRET) == []


@pytest.mark.promise(46, 60)
def test_over_http_the_same_is_found_and_no_more_than_a_token_may_see(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    world.steno("run", "a plum for everyone", "--key", "one")
    world.steno("run", "a plum for one", "--key", "two")
    one = next(iter(places(world, "everyone")))[0]
    gateway = Gateway(world, tmp_path)
    try:
        told = gateway.ask("GET", "/api/search?q=plum&all=true").json()
        over = {(hit["session"], hit["seq"]) for hit in told["hits"]}
        assert over == places(world, "plum")
        own = gateway.ask("GET", f"/api/sessions/{one}/search?q=plum").json()
        assert {hit["session"] for hit in own["hits"]} == {one}
        bound = world.steno("gateway", "token", "add", "b", "--scope", "read", "--session", one)
        gateway.token = bound.strip()
        eventually(gateway, f"/api/sessions/{one}/search?q=plum", 200)
        assert gateway.ask("GET", "/api/search?q=plum").status == 403
        for bad in ("limit=9999", "before=x", "order=odd", "all=perhaps"):
            path = f"/api/sessions/{one}/search?q=a&{bad}"
            assert gateway.ask("GET", path).status == 400
        nothing = gateway.ask("GET", f"/api/sessions/{one}/search?q=").json()
        assert nothing["hits"] == []
    finally:
        gateway.close()


def test_an_answer_says_what_it_left_out_and_how_to_go_on(
    world: World, server: ModelServer
) -> None:
    for i in range(3):
        world.steno("run", f"needle {i}", "--key", f"k{i}")
    told = world.steno("search", "before:never", "--limit", "2", "needle", expect=1)
    assert told.startswith("[No matches;")
    assert "before:never was searched as text" in told
    assert len(places(world, "needle", "-2")) == len(places(world, "needle", "-1", "-0")) + 1 == 2
    page = found(world, "needle", "--limit", "2")
    rest = found(world, "needle", "--limit", "2", "--before", page["next"])
    sessions = [hit["session"] for hit in page["hits"] + rest["hits"]]
    assert len(sessions) == len(set(sessions)) == 3
    assert rest["next"] is None
    assert world.steno("search", "no such words", expect=1) == "[No matches]\n"


WRITER = """
import sys, steno
from pathlib import Path
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with steno.open(path) as chats:
    session = chats.session(name)
    for i in range(count):
        session.say(f"message {name}-{i:03} 中{i}文")
        print(f"{name}-{i:03}", flush=True)
"""

SEARCHER = """
import sys, time, steno
from steno.search import beside
from steno.search.keeper import Search
path, writers, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with steno.open(path) as chats:
    index = Search(chats.store, beside(chats.store.path), part_texts=20)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        index.step(idle=False)
        found = chats.search("message", all=True, newest=True, limit=100_000)
        seen = [(hit.session, hit.seq) for hit in found.hits]
        assert len(seen) == len(set(seen)), "found twice"
        time.sleep(0.01)
        if len(seen) == writers * count:
            break
    index.close()
    print(len(seen), flush=True)
"""


@pytest.mark.promise(48, 56)
def test_eight_write_and_two_search_and_each_message_is_found_once(tmp_path: Path) -> None:
    path, count = str(tmp_path / "s.db"), 8
    steno.open(path).close()

    for name, script in (("writer", WRITER), ("searcher", SEARCHER)):
        (tmp_path / f"{name}.py").write_text(script)

    def start(name: str, *words: object) -> forking.Process:
        given = (str(tmp_path / f"{name}.py"), path, *map(str, words))
        return forking.start(given, dict(os.environ), tmp_path)

    searchers = [start("searcher", 8, count) for _ in range(2)]
    writers = [start("writer", f"w{n}", count) for n in range(8)]
    with ExitStack() as pipes:
        for process in [*searchers, *writers]:
            pipes.enter_context(process.stdout)
            pipes.enter_context(process.stderr)
        for process in writers:
            assert process.wait(90) == 0, process.stderr.read()
            assert len(process.stdout.read().split()) == count
        for process in searchers:
            assert process.wait(90) == 0, process.stderr.read()
            assert process.stdout.read().split() == [b"%d" % (8 * count)]
    with steno.open(path) as chats:
        for n in range(8):
            hits = chats.search(f"w{n}-007", literal=True).hits
            assert len(hits) == 1
