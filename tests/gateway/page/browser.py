"""A real browser before the running gateway: Debian's chromium, without its windows where that is
installed, driven by playwright."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.debian_parts import found
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

CHROMIUM = found("chromium-headless-shell")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # One process for all tabs of a browser, and none for drawing.
    "--in-process-gpu",
    "--process-per-site",
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
)
WAIT_MS = 30_000

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Desk:
    """One gateway, one model server and one browser, shared by the tests of the page. Each test has
    sessions and tabs of its own; what its tabs keep is cleared when it ends."""

    def __init__(self, gateway: Gateway, server: ModelServer, browser: Browser) -> None:
        self.gateway, self.server, self.browser = gateway, server, browser
        self.cookies: list[Any] = []
        self.faults: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._own: BrowserContext | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    @property
    def world(self) -> World:
        return self.gateway.world

    def script(self, *replies: Reply) -> None:
        """What the model answers from here on, in this order. What an earlier test left running
        would take the first of it, so that is waited for."""
        deadline = time.monotonic() + 10
        while self.server.in_flight and time.monotonic() < deadline:
            self.server.go_on()
            time.sleep(0.05)
        self.server.hold_again()
        self.server.choose = None
        self.server.requests.clear()
        self.server.replies = list(replies)

    def link(self) -> str:
        return self.world.steno("gateway", "open", "--no-browser").splitlines()[0]

    def context(self, logged_in: bool = True, **options: Any) -> BrowserContext:
        """A browser of its own, until the test ends."""
        made = self._context(logged_in, options)
        self._contexts.append(made)
        return made

    def _context(self, logged_in: bool, options: dict[str, Any]) -> BrowserContext:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        options.setdefault("reduced_motion", "reduce")  # what moves is drawn again and again
        made = self.browser.new_context(**options)
        made.set_default_timeout(WAIT_MS)
        if logged_in:
            made.add_cookies(self._cookies())
        return made

    def _cookies(self) -> list[Any]:
        if not self.cookies:
            code = self.link().partition("#")[2]
            said = {"Origin": self.url, "Content-Type": "application/x-www-form-urlencoded"}
            answer = self.gateway.ask("POST", "/login", f"code={code}".encode(), said, token=None)
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            kept = {"httpOnly": True, "sameSite": "Strict"}
            self.cookies = [{"name": name, "value": value, "url": self.url} | kept]
        return self.cookies

    def tab(self, path: str = "/", context: BrowserContext | None = None, **options: Any) -> Page:
        own = self.context(**options) if options else self._shared()
        page = (context or own).new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(f"{self.url}{path}")
        return page

    def _shared(self) -> BrowserContext:
        """Its first tab stays open, and so its process."""
        if self._own is None:
            self._own = self._context(True, {})
            self._own.new_page().goto(f"{self.url}/health")
        return self._own

    def clear(self) -> None:
        for one in self._contexts:
            one.close()
        self._contexts.clear()
        if self._own is not None:
            first, *others = self._own.pages
            for page in others:
                page.close()
            first.evaluate("localStorage.clear()")


@contextmanager
def desk_at(folder: Path) -> Iterator[Desk]:
    expect.set_options(timeout=WAIT_MS)
    with ModelServer() as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        gateway = Gateway(World(folder, server.url), folder)
        try:
            yield Desk(gateway, server, browser)
        finally:
            browser.close()
            gateway.close()


def say(page: Page, text: str) -> None:
    page.fill("#say", text)
    page.click("#send")


def answers(page: Page) -> list[str]:
    return page.locator(".answer .prose").all_inner_texts()


def live_text(page: Page) -> str:
    """What is shown of an answer under way."""
    found = page.locator(".live")
    return (found.last.text_content() or "") if found.count() else ""


def wait_for(page: Page, true: Callable[[], bool], what: str) -> None:
    """Events of the browser are taken in meanwhile."""
    for _ in range(WAIT_MS // 50):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"waited {WAIT_MS} ms for {what}")
