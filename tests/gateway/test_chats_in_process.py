"""Chats in gateways that are killed at every commit, in one process: what is stored, and what the
chat says afterwards."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest
from msgspec.structs import replace

from steno.engine.request import Request
from steno.gateway.channels.commands import Commands
from steno.gateway.channels.protocol import (
    ChannelLost,
    Limits,
    Message,
    RemoteFile,
    Tapped,
)
from steno.journal.facts import (
    ApprovalDecided,
    CommandGiven,
    Delivered,
    DeliveryRefused,
    DeliverySettled,
    InputAdmitted,
    RuleSet,
    TurnEnded,
)
from steno.journal.history import Said, Settled
from steno.journal.parts import File
from tests.world.boundaries import saying
from tests.world.gateway import FAST, KEYED, OWNER, Platform, start, until_quiet
from tests.world.listeners import Ear
from tests.world.model import Reply
from tests.world.store import Kill
from tests.world.world import World, play

PLATFORMS = {
    "keyed": KEYED,
    "finds": replace(FAST, finds=True),
    "edits": replace(FAST, edits=True),
    "bare": FAST,
}
DAY_MS = 86_400_000
F = TypeVar("F")
Act = Callable[[World, Platform], Awaitable[None]]


def facts(world: World, kind: type[F]) -> list[F]:
    found = (one.fact for id in world.sessions() for one in world.facts(id))
    return [one for one in found if isinstance(one, kind)]


def killed_everywhere(
    limits: Limits,
    act: Act,
    check: Act,
    choose: Callable[[Request], Reply],
) -> None:
    """Do something with a gateway that is killed at each of its commits; another goes on."""

    def once(kill: Kill | None) -> list[str]:
        async def test(world: World) -> list[str]:
            world.model.choose = choose
            world.approval = "ask"
            world.tools = [{"name": "look", "approval": "ask"}]
            platform = Platform(limits)
            gateway = start(world, platform, kill)
            await act(world, platform)
            await until_quiet(world)
            if kill is not None:
                await gateway.process.kill()
                start(world, platform)
                await until_quiet(world)
            await check(world, platform)
            assert world.verify() == ()
            return gateway.process.commits

        return play(test)

    commits = once(None)
    for n in range(1, len(commits) + 1):
        for when in ("before", "after"):
            with saying(f"killed {when} commit {n} of {len(commits)}: {commits[n - 1]}"):
                once(Kill(when, n))


def answer(request: Request) -> Reply:
    """Says what it was asked."""
    last = re.findall(r"q-(\d)", str(request.entries))[-1]
    return Reply(("answer ", "to ", f"q-{last}"))


@pytest.mark.promise(9, 14, 63, 67, 68)
@pytest.mark.parametrize("kind", PLATFORMS)
def test_what_was_said_is_stored_once_answered_once_and_shown_as_it_is_stored(kind: str) -> None:
    async def act(world: World, platform: Platform) -> None:
        first = platform.say("q-1")
        await until_quiet(world)
        platform.push(first)
        second = platform.say("q-2")
        platform.push(first, second)

    async def check(world: World, platform: Platform) -> None:
        assert len(facts(world, InputAdmitted)) == 2
        ended = [one for one in facts(world, TurnEnded) if one.outcome == "done"]
        assert len(ended) == 2
        told = platform.texts()
        assert all(_is_answer(one) for one in told), told
        assert len(told) == len({one[-1] for one in told}), "each once"
        settled = [one.outcome for one in facts(world, DeliverySettled)]
        unknown = [one for one in settled if isinstance(one, DeliveryRefused) and one.final]
        assert len(told) + len(unknown) >= 2
        if kind != "bare":
            assert (len(told), unknown) == (2, [])
        assert sum(isinstance(one, Delivered) for one in settled) + len(unknown) == 2

    killed_everywhere(PLATFORMS[kind], act, check, answer)


def _is_answer(text: str) -> bool:
    """What a turn said that was cut off and went on is the beginning, and then all of it."""
    whole = f"answer to q-{text[-1]}"
    return text.endswith(whole) and whole.startswith(text.removesuffix(whole))


def asks_then_ends(request: Request) -> Reply:
    """Asks for a tool when something was said, and ends when that is settled, however."""
    settled = sum(isinstance(one, Settled) for one in request.entries)
    said = sum(isinstance(one, Said) for one in request.entries)
    return Reply(tools=(("look", "{}"),)) if settled < said else Reply(("done",))


def token(platform: Platform) -> str:
    """What the last button that was shown carries."""
    return platform.tokens[-1]


@pytest.mark.promise(37, 70)
def test_a_tap_decides_once_and_a_second_one_hears_what_was_decided() -> None:
    async def act(world: World, platform: Platform) -> None:
        platform.say("q-1")
        await until_quiet(world)
        for n, said in enumerate("yn"):
            if platform.tokens:
                platform.push(Tapped(f"t{n}", OWNER, OWNER, f"{token(platform)}:{said}", f"t{n}"))
                await until_quiet(world)

    async def check(world: World, platform: Platform) -> None:
        if platform.tokens and not facts(world, ApprovalDecided):
            platform.push(Tapped("t9", OWNER, OWNER, f"{token(platform)}:y", "t9"))
            await until_quiet(world)
        assert len(world.runs) <= 1, "started and killed, it is not run again"
        assert len([one for one in platform.texts() if one.startswith("done")]) == 1
        if not platform.tokens:
            return  # killed between the call and the question: it will not run
        assert [one.decision for one in facts(world, ApprovalDecided)] == ["allow"]
        before = "Nothing was changed: this call was allowed before."
        assert platform.answered[-1] in ("Allowed.", before)

    killed_everywhere(KEYED, act, check, asks_then_ends)


@pytest.mark.promise(70)
def test_always_ends_after_thirty_days_and_is_listed_until_then() -> None:
    async def test(world: World) -> None:
        world.model.choose = asks_then_ends
        world.approval, world.tools = "ask", [{"name": "look", "approval": "ask"}]
        platform = Platform()
        start(world, platform)
        for text in ("q-1", "/approve always", "q-2", "/status"):
            platform.say(text)
            await until_quiet(world)
        assert len(world.runs) == 2, "the second call ran without asking"
        [rule] = facts(world, RuleSet)
        assert rule.until_ms - world.now_ms() in range(29 * DAY_MS, 30 * DAY_MS)
        assert "Rule: allow  look  (until " in platform.texts()[-1]
        world.shift_ms += 30 * DAY_MS
        platform.say("q-3")
        await until_quiet(world)
        assert len(world.runs) == 2, "it waits for a person again"
        world.shift_ms += 400 * DAY_MS
        await until_quiet(world)
        assert len(world.runs) == 2, "waiting never turns into yes"
        platform.say("/status")
        await until_quiet(world)
        assert "(ended " in platform.texts()[-1]
        platform.say("/approve")
        await until_quiet(world)
        assert len(world.runs) == 3

    play(test)


COMMANDS = {
    "/new": 2,
    "/fork": 2,
    "/undo": 1,
    "/status": 1,
    "/stop": 1,
    "/link": 1,
    "/sessions": 1,
}


@pytest.mark.promise(16, 23, 67)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.suite("/new", "/fork", "/undo")
def test_a_command_is_carried_out_and_answered_once(command: str) -> None:
    async def act(world: World, platform: Platform) -> None:
        platform.say("q-1")
        await until_quiet(world)
        given = platform.say(command)
        platform.push(given)
        await until_quiet(world)
        platform.push(given)

    async def check(world: World, platform: Platform) -> None:
        assert len(facts(world, CommandGiven)) == 1
        assert len(platform.texts()) == 2, platform.texts()
        # /fork: nothing is there to copy yet, or a kill between the copy and its use costs one
        few, many = (1, 3) if command == "/fork" else (COMMANDS[command], COMMANDS[command])
        assert few <= len(world.sessions()) - 1 <= many

    killed_everywhere(KEYED, act, check, answer)


# --- one conversation, whatever happens to the chat -----------------------------------------------


@pytest.mark.promise(36, 9)
def test_a_platform_that_is_away_for_a_minute_stops_nothing_and_misses_nothing() -> None:
    async def test(world: World) -> None:
        world.model.choose = lambda _: Reply(tuple(f"piece {n} " for n in range(20)), pause_s=1.0)
        platform = Platform(replace(FAST, edits=True))
        start(world, platform)
        platform.say("q-1")
        await asyncio.sleep(5)
        platform.away = True
        await asyncio.sleep(60)
        [ended] = facts(world, TurnEnded)
        assert (ended.outcome, ended.cause) == ("done", ""), "nobody stopped it"
        assert platform.texts()[0].count("piece") < 20
        platform.away = False
        await until_quiet(world, 400.0)
        assert platform.texts() == ["".join(f"piece {n} " for n in range(20))]

    play(test)


@pytest.mark.promise(21, 22, 17)
def test_five_messages_during_a_turn_wait_through_a_kill_each_as_its_own_input() -> None:
    async def test(world: World) -> None:
        world.model.choose = lambda request: replace(answer(request), pause_s=2.0)
        platform = Platform()
        first = start(world, platform)
        platform.say("q-0")
        await asyncio.sleep(1)
        for n in range(1, 6):
            platform.say(f"q-{n}")
        await asyncio.sleep(1)
        await first.process.kill()
        inputs = [str(one.parts[0]) for one in facts(world, InputAdmitted)]
        assert [one.partition("q-")[2][:1] for one in inputs] == list("012345"), "each is stored"
        start(world, platform)
        await until_quiet(world, 40.0)
        assert len(facts(world, InputAdmitted)) == 6
        assert [one[-1] for one in platform.texts()] == list("012345"), "in order, each once"
        assert world.model.most_at_once == 1, "one after the other"
        for n, request in enumerate(world.model.requests[-5:], 1):
            assert f"answer to q-{n - 1}" in str(request.entries), "the outcome before it is told"

    play(test)


def test_a_file_that_comes_while_a_turn_runs_is_fetched_before_its_own() -> None:
    async def test(world: World) -> None:
        world.model.choose = lambda request: replace(answer(request), pause_s=2.0)
        platform = Platform()
        platform.files["f"] = b"the notes of Monday"
        start(world, platform)
        platform.say("q-1")
        await asyncio.sleep(1)
        platform.say("q-2", files=(RemoteFile("f", "notes.txt"),))
        await until_quiet(world)
        last = world.model.requests[-1].entries[-1]
        assert isinstance(last, Said)
        assert [one.name for one in last.parts if isinstance(one, File)] == ["notes.txt"]
        assert [one[-1] for one in platform.texts()] == ["1", "2"]

    play(test)


# --- what nobody foresaw --------------------------------------------------------------------------


@pytest.mark.promise(14)
def test_a_message_that_cannot_be_looked_for_now_is_looked_for_again() -> None:
    async def test(world: World) -> None:
        world.model.choose = answer
        platform = Platform(PLATFORMS["finds"])
        platform.raises = {"send": OSError("gone"), "find": ChannelLost("not now")}
        start(world, platform)
        platform.say("q-1")
        await until_quiet(world, 20.0)
        assert platform.raises == {}
        assert platform.texts() == ["answer to q-1"]
        [settled] = facts(world, DeliverySettled)[-1:]
        assert isinstance(settled.outcome, Delivered)

    play(test)


@pytest.mark.promise(63)
def test_a_channel_that_raises_anything_and_an_update_that_is_none_end_nothing() -> None:
    async def test(world: World) -> None:
        world.model.choose = answer
        platform = Platform()
        platform.raises["receive"] = KeyError("a library's mistake")
        gateway = start(world, platform)
        platform.push(Message("bad", OWNER, OWNER, cast(str, None)))
        platform.say("q-1")
        await until_quiet(world, 90.0)
        assert platform.texts() == ["answer to q-1"]
        assert [one.state for one in gateway.channels.health()] == ["receiving"]

    play(test)


def test_a_command_that_fails_as_nobody_foresaw_says_so_and_is_not_carried_out_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(Commands, "_status", broken)

    async def test(world: World) -> None:
        world.model.choose = answer
        platform = Platform()
        start(world, platform)
        platform.say("/status")
        platform.say("q-1")
        await until_quiet(world)
        said, told = platform.texts()
        assert "does not know why" in said
        assert told == "answer to q-1"

    play(test)


@pytest.mark.promise(39)
def test_plugins_hear_the_end_of_a_chats_session_though_the_gateway_was_killed() -> None:
    async def test(world: World) -> None:
        world.ear = Ear()
        world.model.choose = answer
        platform = Platform()
        first = start(world, platform)
        platform.say("q-1")
        await until_quiet(world)
        await first.process.kill()
        next = world.process()
        await next.run(lambda process: process.service.visits.look())
        [told] = world.ear.heard
        assert (told["completed"], told["reason"]) == (True, "killed")
        assert (told["platform"], told["model"]) == ("test", "fake:one")

    play(test)
