"""What people write in chats, and what a model answers, is inert wherever it is read: on the page,
in a terminal, in what is exported."""

import re
from pathlib import Path

from tests.channels.contract import FolderSubject, TelegramSubject, configure_all
from tests.gateway.client import Gateway
from tests.gateway.page.browser import Desk, needs_chromium
from tests.gateway.page.test_page_safety import ALL, HANDLERS, leaves
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import terminal
from tests.program.world import World, wait_until

pytestmark = needs_chromium

OWN_STYLE = re.compile("\x1b\\[[0-9;]*m|\x1b]8;(id=[0-9]+)?;(https?://[!-~]*)?\x1b\\\\")
"""Colours, and links to web addresses, which stand beside their words; a terminal opens none by
itself."""


def test_tricks_from_two_chats_stay_inert_on_the_page_in_a_terminal_and_in_exports(
    desk: Desk, world: World, server: ModelServer, tmp_path: Path
) -> None:
    server.choose = lambda request: Reply((ALL,))
    telegram, folder = TelegramSubject(tmp_path), FolderSubject(tmp_path)
    with telegram.stub:
        configure_all(world, telegram, folder)
        gateway = Gateway(world, tmp_path)
        try:
            for subject in (telegram, folder):
                subject.say(ALL)
            wait_until(lambda: len(world.sessions()) == 2, "two sessions")
            wait_until(lambda: bool(telegram.texts() and folder.texts()), "both answers")
            _check_the_page(Desk(gateway, server, desk.browser), desk)
        finally:
            gateway.close()
    for row in world.sessions():
        assert world.messages(row["id"], "user")[0]["text"] == ALL, "it is stored as it was said"
    session = world.sessions()[0]["id"]
    with terminal(world, "show", session) as program:
        assert program.end() == 0
        seen = OWN_STYLE.sub("", program.seen())
    assert re.findall("\x1b.{0,60}|[\x07\x08\x9b\u202a-\u202e\u2066-\u2069]", seen) == []
    assert "<script>window.pwned = 1</script>" in seen
    saved = tmp_path / "saved.html"
    saved.write_text(world.steno("export", session, "--html"))
    page = desk.context(logged_in=False).new_page()
    outside = leaves(desk, page)
    page.goto(saved.as_uri())
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(HANDLERS) == 0
    assert [one for one in outside if not one.startswith("file:")] == []


def _check_the_page(shown: Desk, desk: Desk) -> None:
    page = desk.context(logged_in=False).new_page()
    page.context.add_cookies(shown._cookies())
    outside = leaves(shown, page)
    for row in shown.world.sessions():
        page.goto(f"{shown.url}/s/{row['id']}")
        page.wait_for_selector(".answer .prose")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main iframe, main script, main base, main style").count() == 0
        assert page.evaluate(HANDLERS) == 0
        text = page.locator("#log").inner_text()
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert text.count("<script>window.pwned = 1</script>") == 2
    page.goto(f"{shown.url}/")
    assert page.evaluate("window.pwned") is None
    assert outside == []
