"""Talking to steno in Telegram, on the running program."""

from tests.channels.conftest import OWNER, Serve
from tests.channels.telegram_stub import Telegram
from tests.program.model_server import ModelServer, Reply


def test_what_is_said_in_a_chat_is_answered_there(
    serve: Serve, telegram: Telegram, server: ModelServer
) -> None:
    server.replies = [Reply(("Hello ", "Ann."))]
    serve()
    telegram.say("hello")
    telegram.wait_text(OWNER, "Hello Ann.")
    assert telegram.texts(OWNER) == ["Hello Ann."]
