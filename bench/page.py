"""The page in a real browser: the first paint of a session of 10,000 messages, against one of 100.
Chromium, the service and this process share the cores."""

import shutil
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from bench.building import MESSAGES_PER_TURN, build
from bench.gateway import Service, running
from bench.result import Plan, Result, at_most, noted
from steno.gateway.tokens import Tokens

NAME = "page"
MANY, FEW = 10_000, 100
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_PAINT = "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"


def run(plan: Plan) -> list[Result]:
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        return [noted(NAME, "chromium is not installed", 0.0, "")]
    home = Path(plan.folder) / "page"
    home.mkdir(parents=True)
    many, few = (
        build(home / "store.db", 1, count // MESSAGES_PER_TURN)[0] for count in (MANY, FEW)
    )
    with running(home) as service, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = _logged_in(browser.new_page(), service, home)
        _painted_ms(page, service, few)
        rounds = [
            (_painted_ms(page, service, many), _painted_ms(page, service, few))
            for _ in range(plan.pick(15, 5))
        ]
        browser.close()
    many_ms, few_ms = (median(one[at] for one in rounds) for at in (0, 1))
    detail = f"{len(rounds)} rounds in turn"
    return [
        at_most(NAME, f"{MANY:,} messages: first paint", many_ms, 500, "ms", detail),
        at_most(NAME, f"the same, against {FEW}", many_ms / few_ms, 1.5, "×", detail),
    ]


def _logged_in(page: Page, service: Service, home: Path) -> Page:
    url = f"http://127.0.0.1:{service.port}"
    page.goto(f"{url}/login#{Tokens(home / 'tokens.json').link()}")
    page.wait_for_url(f"{url}/")
    return page


def _painted_ms(page: Page, service: Service, session: str) -> float:
    page.goto("about:blank")
    page.goto(f"http://127.0.0.1:{service.port}/s/{session}")
    while not (painted := page.evaluate(_PAINT)):  # to wait in the page would need `unsafe-eval`
        page.wait_for_timeout(5)
    return float(painted[0])
