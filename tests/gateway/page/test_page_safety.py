"""Nobody gets into the page who does not belong, and nothing that anybody wrote runs in it."""

import json
import socket
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, Request, expect

from tests.gateway.client import Answer
from tests.gateway.page.browser import Desk, needs_chromium, wait_for
from tests.program.model_server import Reply

pytestmark = needs_chromium

TRICKS = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<img src='http://evil.example/a.png'>",
    "<svg onload='window.pwned = 3'></svg>",
    "<iframe src='javascript:parent.pwned = 4'></iframe>",
    "<a href='javascript:window.pwned = 5'>click</a>",
    "</textarea></pre></code><script>window.pwned = 6</script>",
    "<base href='http://evil.example/'><form action='http://evil.example/'><button>go</button>",
    "<style>@import url('http://evil.example/a.css');</style>",
    "<meta http-equiv='refresh' content='0;url=http://evil.example/'>",
    "[click](javascript:window.pwned=7)",
    "[click](JaVaScRiPt:window.pwned=8)",
    "[click](data:text/html,<script>window.pwned=9</script>)",
    "[click](vbscript:window.pwned)",
    "![picture](http://evil.example/b.png)",
    "![picture](javascript:window.pwned=10)",
    "[a]: http://evil.example/c.png\n![x][a]",
    '[q](http://ok.example/"onmouseover="window.pwned=11)',
    "<http://evil.example/auto>",
    "```html\n<script>window.pwned = 12</script>\n```",
    '```"><script>window.pwned=13</script>\ncode\n```',
    "`<script>window.pwned = 14</script>`",
    "| a |\n|---|\n| <img src=x onerror=window.pwned=15> |",
    "&lt;script&gt;window.pwned = 16&lt;/script&gt;",
    "&#x3c;script&#x3e;window.pwned=17&#x3c;/script&#x3e;",
    "\x1b]8;;javascript:window.pwned=18\x07link\x1b]8;;\x07",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "invoice\u202egpj.exe \u2066hidden\u2069 \u200f",
    "{title} {id} %s ${7*7} {{7*7}}",
    "a\x00b\x7fc",
    "data-copy=\"code\" id=\"banner\" class='go' data-key='s1'",
)
ALL = "\n\n".join(TRICKS)
HANDLERS = """[...document.querySelectorAll("*")].filter(
  (one) => [...one.attributes].some((attribute) => attribute.name.startsWith("on"))
).length"""


def leaves(desk: Desk, page: Page) -> list[str]:
    """What the page asks of anybody but us, from now on."""
    found: list[str] = []

    def seen(request: Request) -> None:
        if not request.url.startswith((desk.url, "data:")):
            found.append(request.url)

    page.on("request", seen)
    return found


@pytest.mark.promise(66)
def test_tricks_in_every_place_stay_inert(desk: Desk) -> None:
    call = ("shell", json.dumps({"command": f"cat <<'EOF'\n{ALL}\nEOF".replace("\0", "")}))
    desk.script(Reply((ALL,), tools=(call,)), Reply((ALL,)))
    page = desk.tab("/")
    outside = leaves(desk, page)
    page.on("dialog", lambda dialog: outside.append(dialog.message))
    session = desk.gateway.make(title=f"<b>title</b> {TRICKS[0]} {TRICKS[27]}"[:200])
    page.goto(f"{desk.url}/s/{session}")
    page.fill("#say", ALL.replace("\0", ""))
    page.click("#send")
    page.fill(".decide input[name=reason]", TRICKS[1])
    page.click("button[value=allow]")
    expect(page.locator(".answer .prose")).to_have_count(2)
    for path in (f"/s/{session}", "/", "/approvals", "/usage", f"/s/{session}?before=1000"):
        page.goto(f"{desk.url}{path}")
        for details in page.locator(".call details").all():
            details.evaluate("one => one.open = true")
        assert page.evaluate("window.pwned") is None
        assert (
            page.locator("main iframe, main script, main base, main style, main object").count()
            == 0
        )
        assert page.evaluate(HANDLERS) == 0
        hrefs = page.evaluate("[...document.links].map(a => a.protocol)")
        assert set(hrefs) <= {"http:", "https:", "mailto:"}
        forms = page.evaluate("[...document.forms].map(f => new URL(f.action).origin)")
        assert set(forms) <= {desk.url}
    page.goto(f"{desk.url}/s/{session}")
    shown = page.locator("#log").inner_text()
    assert "\u202e" not in shown
    assert "\\u202e" in shown
    assert "<script>window.pwned = 1</script>" in shown
    assert "\x1b" not in shown
    assert outside == []


@pytest.mark.promise(66)
def test_the_policy_of_the_page_allows_nothing_of_others(desk: Desk) -> None:
    page = desk.tab("/")
    refused: list[str] = []
    page.on("console", lambda line: refused.append(line.text))
    with socket.create_server(("127.0.0.1", 0)) as evil:
        page.evaluate(
            """(evil) => {
              const script = document.createElement("script");
              script.textContent = "window.pwned = 1";
              document.body.append(script);
              const image = new Image();
              image.src = `${evil}/x.png`;
              document.body.append(image);
              return fetch(evil).catch(() => null);
            }""",
            f"http://127.0.0.1:{evil.getsockname()[1]}",
        )
        wait_for(page, lambda: len(refused) >= 3, "three refusals")
        evil.setblocking(False)
        with pytest.raises(BlockingIOError):
            evil.accept()
    assert page.evaluate("window.pwned") is None


@pytest.mark.promise(65)
def test_a_link_logs_in_once_and_its_cookie_is_no_business_of_scripts(desk: Desk) -> None:
    link = desk.link()
    code = link.partition("#")[2]
    context = desk.context(logged_in=False)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{desk.url}/")
    assert page.url == f"{desk.url}/login"
    page.goto(link)
    page.wait_for_url(f"{desk.url}/")
    (cookie,) = context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (
        f"steno-{desk.gateway.port}",
        True,
        "Strict",
    )
    assert page.evaluate("document.cookie") == ""
    assert not any(code in url for url in asked if "#" not in url)
    secret = cookie["value"]
    assert code not in page.content()
    assert secret not in page.content()
    other = desk.context(logged_in=False).new_page()
    other.goto(link)
    expect(other.locator("h1")).to_have_text("That did not work")
    assert other.locator("main code").inner_text() == "steno gateway open"
    page.click(".leave button")
    page.wait_for_url(f"{desk.url}/login")
    old = {"Cookie": f"steno-{desk.gateway.port}={secret}"}
    assert desk.gateway.ask("GET", "/api/sessions", headers=old, token=None).status == 401
    files = [path.read_text(errors="replace") for path in desk.world.home.rglob("*.json")]
    assert not any(code in text or secret in text for text in files)


@pytest.mark.promise(66)
def test_a_form_of_another_origin_or_of_none_does_nothing(desk: Desk) -> None:
    desk.context()
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in desk.cookies)

    def post(path: str, kind: str = "application/x-www-form-urlencoded", **more: str) -> Answer:
        headers = {"Cookie": cookie, "Content-Type": kind} | {
            name.replace("_", "-"): value for name, value in more.items()
        }
        body = urlencode({"text": "hello", "key": "a" * 16}).encode()
        return desk.gateway.ask("POST", path, body, headers, token=None)

    before = len(desk.world.sessions())
    own = desk.url
    assert post("/new").status == 403
    assert post("/new", Origin="http://evil.example").status == 403
    assert post("/new", Origin="null").status == 403
    assert post("/new", Origin=own, Sec_Fetch_Site="same-site").status == 403
    assert post("/new", Origin=own, Host="evil.example").status == 421
    assert post("/new", "text/plain", Origin=own).status == 415
    assert post("/api/sessions", Origin=own).status == 415
    assert post("/login").status == 403
    assert len(desk.world.sessions()) == before
    assert post("/new", Origin=own, Sec_Fetch_Site="same-origin").status == 303
    assert len(desk.world.sessions()) == before + 1
    crossing = {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}
    for path in ("/", "/page/events?after=now", "/api/events"):
        assert desk.gateway.ask("GET", path, headers=crossing, token=None).status == 403
    answer = desk.gateway.ask("GET", "/", headers={"Cookie": cookie}, token=None)
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not any(name.startswith("access-control") for name in answer.headers)
