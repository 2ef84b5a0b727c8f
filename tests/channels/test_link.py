"""One session in two chats of two channels, on a terminal and over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from tests.channels.contract import FolderSubject, TelegramSubject, configure_all
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import terminal
from tests.program.world import World, wait_until


@pytest.mark.promise(46, 61)
def test_linked_chats_a_terminal_and_the_page_share_every_input_and_answer_once(
    server: ModelServer, world: World, tmp_path: Path
) -> None:
    server.choose = lambda request: Reply((f"answer {_inputs(request)}",))
    world.environment["STENO_MEMORY_TITLES"] = "false"
    telegram, folder = TelegramSubject(tmp_path), FolderSubject(tmp_path)
    with telegram.stub:
        configure_all(world, telegram, folder)
        gateway = Gateway(world, tmp_path)
        try:
            telegram.say("from Telegram")
            telegram.wait("answer 1")
            session = world.only_session()
            folder.say(f"/link {session}")
            folder.wait_like(f"goes on with {session}")
            folder.say("from the folder")
            telegram.wait_like("from the folder")
            telegram.wait("answer 2")
            assert gateway.say(session, "over HTTP", wait=20).status == 200
            with terminal(world, "--plain", "--resume", session) as chat:
                chat.wait_seen("you> ")
                chat.type("from the terminal\n")
                chat.wait_seen("answer 4")
                wait_until(lambda: "answer 4" in folder.texts(), "the last answer")
            telegram.say("once more from Telegram")
            for shown in (telegram, folder):
                shown.wait("answer 5")
            assert gateway.stop() == 0
            world.steno("run", "while no service runs", "--session", session)
            gateway.start()
            telegram.say("again from Telegram")
            for shown in (telegram, folder):
                shown.wait("answer 6")
                shown.wait("answer 7")
        finally:
            gateway.close()
    answers = [f"answer {number}" for number in range(1, 8)]
    assert [one["text"] for one in world.messages(session, "assistant")] == answers
    assert [one for one in telegram.texts() if one.startswith("answer")] == answers
    assert [one for one in folder.texts() if one.startswith("answer")] == answers[1:]
    for said in ("over HTTP", "from the terminal", "while no service runs"):
        for shown in (telegram, folder):
            assert sum(said in one for one in shown.texts()) == 1, (said, shown.texts())


def _inputs(request: dict[str, Any]) -> int:
    return sum(one["role"] == "user" for one in request["messages"])
