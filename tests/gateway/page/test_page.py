"""The page in a real browser: what a person says, reads and decides there, live, through reloads,
kills and sleep."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.gateway.client import text_of
from tests.gateway.page.browser import Desk, answers, live_text, needs_chromium, say, wait_for
from tests.gateway.test_http import ANSWER
from tests.program.model_server import Reply
from tests.program.world import wait_until

pytestmark = needs_chromium

ONE_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


LOSE_ANSWERS = """() => {
  const real = window.fetch;
  window.fetch = async (...words) => {
    await real(...words);
    throw new TypeError("the answer was lost");
  };
}"""


REST_OF = """
async (places) => {
  const rests = []
  for (const place of places) {
    rests.push(await new Promise((done) => {
      const source = new EventSource(`/api/sessions/${place}`)
      let rest = ""
      source.addEventListener("text", (event) => { rest += JSON.parse(event.data).text })
      source.addEventListener("turn_ended", () => { source.close(); done(rest) })
    }))
  }
  return rests
}
"""
"""What a browser is told of an answer from each place on."""


def session_of(page: Page) -> str:
    page.wait_for_url("**/s/*")
    return page.url.rpartition("/")[2]


@pytest.mark.promise(9, 15, 36, 46)
def test_what_is_said_is_answered_live_and_a_reload_in_mid_answer_loses_nothing(desk: Desk) -> None:
    desk.script(Reply(("Hel", "lo ", "wörld", "!"), held=True), Reply(("second",)))
    page = desk.tab()
    say(page, "Say hello")
    session = session_of(page)
    wait_for(page, lambda: live_text(page) == "Hello wörld", "the text")
    page.reload()
    assert live_text(page) == "Hello wörld"
    desk.server.go_on()
    expect(page.locator(".answer .prose")).to_have_text("Hello wörld!")
    say(page, "Again")
    expect(page.locator(".answer .prose")).to_have_count(2)
    stored = desk.world.messages(session)
    assert [one["role"] for one in stored] == ["user", "assistant"] * 2
    assert answers(page) == [one["text"] for one in stored if one["role"] == "assistant"]
    assert page.locator(".said .typed").all_inner_texts() == ["Say hello", "Again"]


@pytest.mark.promise(62)
@pytest.mark.parametrize("step", [1, 37])
@pytest.mark.suite("37")
def test_an_event_source_resumes_at_every_code_point_after_a_kill(desk: Desk, step: int) -> None:
    pieces = tuple(ANSWER[i : i + 7] for i in range(0, len(ANSWER), 7))
    desk.script(Reply(pieces, then="hang"))
    session = desk.gateway.make(title="points")
    desk.gateway.say(session, "tell me")
    seen = []
    for event in desk.gateway.events(session):
        seen.append(event)
        if text_of(seen) == ANSWER:
            break
    desk.gateway.kill()
    # Three such ends in five minutes would hold back the jobs of the tests that follow.
    shutil.rmtree(desk.world.home / "starts")
    desk.gateway.start()
    started = next(one.data["seq"] for one in seen if one.name == "text")
    offsets = list(range(0, len(ANSWER) + 1, step))
    places = [f"{session}/events?after={started - 1}~{started}t{offset}" for offset in offsets]
    rests = desk.tab().evaluate(REST_OF, places)
    assert [ANSWER[:at] + rest for at, rest in zip(offsets, rests, strict=True)] == [
        ANSWER for _ in offsets
    ]


@pytest.mark.promise(62)
def test_a_kill_of_the_gateway_is_a_pause_and_the_text_goes_on_where_it_was(desk: Desk) -> None:
    call = ("shell", '{"command": "echo tool ran"}')
    desk.script(Reply(("Before. ",), tools=(call,)), Reply(("Aft", "er", "."), held=True))
    session = desk.gateway.make(title="killed")
    page = desk.tab(f"/s/{session}")
    page.evaluate("window.same = true")
    said: list[str] = []
    page.expose_function("heard", lambda word: said.append(word))
    page.evaluate(
        "new MutationObserver(() => heard(banner.textContent)).observe(banner, {childList: true})"
    )
    say(page, "Use the tool")
    page.click("button[value=allow]")
    wait_for(page, lambda: live_text(page) == "After", "the text")
    desk.gateway.kill()
    wait_for(page, lambda: bool(said), "the word")
    desk.gateway.start()
    expect(page.locator("#banner")).to_be_empty()
    wait_for(page, lambda: "After" in answers(page), "the sealed text")
    assert [word for word in said if word] == ["Reconnecting…"]
    assert page.evaluate("window.same") is True
    desk.server.go_on()
    page.locator("#controls").get_by_text("Continue").click()
    wait_for(page, lambda: len(desk.server.requests) == 3, "the turn to be taken up")
    stored = desk.world.messages(session, "assistant")
    wait_for(page, lambda: answers(page)[:2] == ["Before.", "After"], "the same texts")
    assert [one["text"] for one in stored][:2] == ["Before. ", "After"]


@pytest.mark.promise(61)
def test_eight_tabs_show_the_same_and_an_input_of_one_appears_in_all(desk: Desk) -> None:
    desk.script(Reply(("first ", "answer"), held=True), Reply(("second",)))
    session = desk.gateway.make(title="tabs")
    tabs = [desk.tab(f"/s/{session}") for _ in range(8)]
    say(tabs[0], "From the first tab")
    for tab in tabs:
        wait_for(tab, lambda tab=tab: live_text(tab) == "first ", "the text")  # type: ignore[misc]
    desk.server.go_on()
    say(tabs[7], "From the last tab")
    for tab in tabs:
        expect(tab.locator(".answer .prose")).to_have_text(["first answer", "second"])
        assert tab.locator(".said .typed").all_inner_texts() == [
            "From the first tab",
            "From the last tab",
        ]


@pytest.mark.promise(36)
@pytest.mark.suite("short")
@pytest.mark.parametrize("asleep_s", [0, 60], ids=["short", "a-minute"])
def test_a_server_that_sleeps_is_waited_for(desk: Desk, asleep_s: int) -> None:
    desk.script(Reply(("before ", "after"), held=True))
    session = desk.gateway.make(title="asleep")
    page = desk.tab(f"/s/{session}")
    say(page, "Go")
    wait_for(page, lambda: live_text(page) == "before ", "the text")
    desk.gateway.program.put_to_sleep()
    say(page, "Said meanwhile")
    desk.server.go_on()
    expect(page.locator("#outbox")).to_contain_text("Said meanwhile")
    page.wait_for_timeout(asleep_s * 1_000)
    desk.gateway.program.signal(signal.SIGCONT)
    expect(page.locator(".answer .prose").first).to_have_text("before after")
    expect(page.locator(".said .typed")).to_have_text(["Go", "Said meanwhile"])
    expect(page.locator("#outbox")).to_be_empty()


@pytest.mark.promise(21)
def test_five_inputs_during_a_turn_wait_in_order_and_one_can_be_taken_back(desk: Desk) -> None:
    desk.script(Reply(("an answer",)))
    desk.server.choose = lambda request: (
        Reply(("part", " end"), held=True)
        if "zero" in str(request["messages"][-1])
        else Reply(("an answer",))
    )
    session = desk.gateway.make(title="queue")
    page = desk.tab(f"/s/{session}")
    say(page, "zero")
    wait_for(page, lambda: live_text(page) == "part", "the text")
    expect(page.locator("#send")).to_have_text("Queue")
    for n in range(1, 6):
        say(page, f"input {n}")
    expect(page.locator("#queue li .typed")).to_have_text([f"input {n}" for n in range(1, 6)])
    page.locator("#queue li").nth(2).get_by_text("Take back").click()
    expect(page.locator("#queue li .typed")).to_have_count(4)
    desk.server.go_on()
    expect(page.locator(".answer .prose")).to_have_count(5)
    expect(page.locator("#queue")).to_be_empty()
    said = [one["text"] for one in desk.world.messages(session, "user") if one["turn"]]
    assert said == ["zero", "input 1", "input 2", "input 4", "input 5"]


def test_a_double_click_and_a_reload_while_it_is_sent_send_once(desk: Desk) -> None:
    desk.script(Reply(("once",)))
    session = desk.gateway.make(title="double")
    page = desk.tab(f"/s/{session}")
    page.fill("#say", "Only once")
    page.dblclick("#send")
    expect(page.locator(".answer .prose")).to_have_text("once")
    page.fill("#say", "A draft that stays")
    page.reload()
    expect(page.locator("#say")).to_have_value("A draft that stays")
    page.evaluate(LOSE_ANSWERS)
    page.click("#send")
    expect(page.locator("#outbox")).to_contain_text("A draft that stays")
    page.reload()
    expect(page.locator("#outbox")).to_be_empty()
    expect(page.locator(".answer .prose")).to_have_count(2)
    said = [one["text"] for one in desk.world.messages(session, "user")]
    assert said == ["Only once", "A draft that stays"]


@pytest.mark.promise(37)
def test_a_call_is_decided_in_place_and_in_the_inbox_with_a_reason(desk: Desk) -> None:
    call = ("shell", '{"command": "echo first"}')
    desk.script(Reply(tools=(call,)), Reply(tools=(call,)), Reply(("understood",)))
    session = desk.gateway.make(title="asks")
    inbox, page = desk.tab("/approvals"), desk.tab(f"/s/{session}")
    say(page, "Run it")
    expect(page.locator(".call.is-asked")).to_contain_text("echo first")
    expect(inbox.locator("#shelf .call")).to_contain_text("echo first")
    expect(inbox.locator("#asked")).to_have_text("1")
    desk.gateway.kill()
    desk.gateway.start()
    asked = inbox.locator("#shelf form.decide").get_attribute("action") or ""
    page.locator("input[name=reason]").fill("not that one")
    page.click("button[value=deny]")
    expect(page.locator(".call.is-refused")).to_have_count(1)
    expect(page.locator(".call.is-asked")).to_have_count(1)
    expect(inbox.locator("#shelf form.decide")).not_to_have_attribute("action", asked)
    inbox.click("button[value=allow]")
    expect(page.locator(".answer .prose")).to_have_text("understood")
    expect(inbox.locator("#shelf .call")).to_have_count(0)
    outcomes = [one["text"] for one in desk.world.messages(session, "tool")]
    assert "not that one" in outcomes[0]
    assert outcomes[1].startswith("first")
    late = desk.gateway.ask("GET", "/api/approvals").json()["approvals"]
    assert late == []


def test_stop_retry_undo_fork_rename_model_and_delete_are_done_from_the_page(desk: Desk) -> None:
    desk.script(Reply(("part",), then="hang"), Reply(("whole",)))
    session = desk.gateway.make()
    page = desk.tab(f"/s/{session}")
    say(page, "Begin")
    wait_for(page, lambda: live_text(page) == "part", "the text")
    page.locator("#controls").get_by_text("Stop").click()
    expect(page.locator(".notice")).to_contain_text("Stopped by you")
    page.locator("#controls").get_by_text("Retry").click()
    wait_for(page, lambda: "whole" in answers(page), "the answer")
    page.locator("#controls").get_by_text("Undo").click()
    expect(page.locator(".block.faded").first).to_contain_text("Undone")
    page.locator(".menu > summary").click()
    page.fill("input[name=title]", "A better title")
    page.get_by_text("Rename").click()
    expect(page.locator("#title")).to_have_text("A better title")
    expect(page.locator("#sessions [aria-current] .title")).to_have_text("A better title")
    page.locator(".menu > summary").click()
    page.fill("input[name=model]", "openai-chat:other")
    page.get_by_text("Choose").click()
    expect(page.locator("#model")).to_have_text("openai-chat:other")
    page.locator(".answer").last.hover()
    page.locator(".answer").last.get_by_text("Fork from here").click()
    page.wait_for_url(lambda url: session not in url and "/s/" in url)
    assert "whole" in answers(page)
    page.locator(".menu > summary").click()
    page.get_by_text("Delete…").click()
    page.get_by_text("Delete for good").click()
    page.wait_for_url(f"{desk.url}/")
    assert session in [one["id"] for one in desk.world.sessions()]


def test_a_picture_goes_with_an_input_and_is_shown(desk: Desk, tmp_path: Path) -> None:
    import base64

    picture, text = tmp_path / "dot.png", tmp_path / "notes.txt"
    picture.write_bytes(base64.b64decode(ONE_PIXEL))
    text.write_text("some notes")
    desk.script(Reply(("seen",)))
    page = desk.tab()
    page.set_input_files("#files", [picture, text])
    expect(page.locator("#attached li")).to_have_count(2)
    say(page, "What is this?")
    session_of(page)
    expect(page.locator(".answer .prose")).to_have_text("seen")
    assert page.locator(".file img").evaluate("image => image.naturalWidth") == 1
    with page.expect_download() as saved:
        page.locator(".file", has_text="notes.txt").click()
    assert saved.value.path().read_text() == "some notes"


def test_reasoning_and_tools_are_folded_and_output_comes_live(desk: Desk) -> None:
    script = "for i in 1 2 3; do echo line $i; done; while [ ! -e go ]; do sleep 0.05; done"
    edit = json.dumps({"path": "a.txt", "old": "one", "new": "two"})
    desk.script(
        Reply(tools=(("shell", json.dumps({"command": script})),)),
        Reply(tools=(("edit_file", edit),)),
        Reply(("```python\nimport os\n```",)),
    )
    session = desk.gateway.make(title="tools")
    page = desk.tab(f"/s/{session}")
    say(page, "Work")
    page.click("button[value=allow]")
    expect(page.locator(".call.is-running .output")).to_contain_text("line 3")
    (desk.world.home / "workspaces" / session / "go").touch()
    page.locator(".call.is-asked").wait_for()
    assert page.locator(".call.is-asked .diff .added").inner_text().strip("+ \n") == "two"
    page.click("button[value=deny]")
    expect(page.locator(".prose .kn")).to_have_text("import")
    assert page.locator(".call.is-returned details").get_attribute("open") is None


def test_an_answer_is_announced_copied_and_exported_and_its_thought_is_folded(desk: Desk) -> None:
    code = "import os\n"
    desk.script(Reply((f"Here *it* is:\n\n```python\n{code}```",), thought="Let me think."))
    session = desk.gateway.make(title="kept", model="anthropic:test")
    context = desk.context(permissions=["clipboard-read", "clipboard-write"])
    page = desk.tab(f"/s/{session}", context)
    say(page, "Write it")
    thought = page.locator(".thought")
    expect(page.locator(".answer .prose")).to_have_count(1)
    expect(thought.locator(".thinking")).to_be_hidden()
    thought.locator("summary").click()
    expect(thought.locator(".thinking")).to_have_text("Let me think.")
    expect(page.locator("#announce")).to_contain_text("Here it is:")
    for role, name in (("navigation", "Sessions"), ("log", "Conversation"), ("textbox", "Message")):
        expect(page.get_by_role(role, name=name)).to_be_visible()  # type: ignore[arg-type]
    expect(page.get_by_role("article", name="Answer")).to_have_count(1)
    (stored,) = desk.world.messages(session, "assistant")
    pasted = "navigator.clipboard.readText()"
    page.locator(".answer").hover()
    page.locator(".answer > .acts").get_by_text("Copy").click()
    wait_for(page, lambda: page.evaluate(pasted) == stored["text"], "the copy of the answer")
    page.locator(".code [data-copy]").click()
    wait_for(page, lambda: page.evaluate(pasted).strip() == code.strip(), "the copied code")
    for link, begins in (("Export as Markdown", "# kept"), ("Export to import elsewhere", "{")):
        page.locator(".menu > summary").click()
        with page.expect_download() as saved:
            page.get_by_text(link).click()
        assert saved.value.path().read_text().startswith(begins)
        page.keyboard.press("Escape")


@pytest.mark.promise(21)
def test_an_input_steers_a_decision_can_be_for_all_such_calls_and_colours_are_chosen(
    desk: Desk,
) -> None:
    call = ("shell", '{"command": "echo same"}')
    desk.script(Reply(tools=(call,)), Reply(tools=(call,)), Reply(("done",)))
    session = desk.gateway.make(title="steers")
    page = desk.tab(f"/s/{session}")
    assert page.locator("#steer").is_hidden()
    say(page, "Run it twice")
    page.locator(".call.is-asked").wait_for()
    page.fill("#say", "and be brief")
    page.click("#steer")
    expect(page.locator("#queue .tag")).to_have_text("Steers")
    page.check("input[name=always]")
    page.click("button[value=allow]")
    expect(page.locator(".answer .prose")).to_have_text("done")
    expect(page.locator(".call.is-returned")).to_have_count(2)
    assert "and be brief" in str(desk.server.requests[1]["messages"]), "told at the next step"
    theme = "document.documentElement.dataset.theme ?? ''"
    chosen = []
    for _ in range(2):
        page.click("#theme")
        page.reload()
        chosen.append((page.evaluate(theme), page.locator("#theme").get_attribute("aria-label")))
    assert chosen == [("light", "Colours: light"), ("dark", "Colours: dark")]


@pytest.mark.promise(46)
def test_a_long_session_shows_its_end_and_earlier_messages_on_demand(desk: Desk) -> None:
    turns = 44
    desk.script(*(Reply((f"answer {n}",)) for n in range(turns)))
    session = desk.gateway.make(title="long")
    for n in range(turns):
        desk.gateway.say(session, f"input {n}", wait=20)
    page = desk.tab(f"/s/{session}")
    shown = page.locator(".said .typed").all_inner_texts()
    assert 0 < len(shown) < turns
    assert shown[-1] == f"input {turns - 1}"
    while page.locator("#earlier").count():
        before = page.locator(".said").count()
        page.click("#earlier")
        wait_for(page, lambda before=before: page.locator(".said").count() > before, "more")  # type: ignore[misc]
    assert page.locator(".said .typed").all_inner_texts() == [f"input {n}" for n in range(turns)]
    assert answers(page) == [f"answer {n}" for n in range(turns)]


def test_it_can_be_read_and_used_without_script(desk: Desk, tmp_path: Path) -> None:
    desk.script(Reply(("plain **answer**",)), Reply(("two",)))
    context = desk.context(java_script_enabled=False)
    page = desk.tab("/", context)
    key = page.locator("#composer input[name=key]").get_attribute("value")
    page.fill("#say", "No script here")
    page.click("#send")
    session = session_of(page)
    wait_until(lambda: len(desk.world.messages(session, "assistant")) == 1, "the answer")
    page.reload()
    assert answers(page) == ["plain answer"]
    again = context.request.post(
        f"{desk.url}/new",
        form={"text": "No script here", "key": str(key), "mode": "queue"},
        headers={"Origin": desk.url},
        max_redirects=0,
    )
    assert again.headers["location"] == f"/s/{session}"
    notes = tmp_path / 'no"tes ü.txt'
    notes.write_bytes(b"line\r\n--line\r\n")
    page.set_input_files("#files", notes)
    page.fill("#say", "And once more")
    page.click("#send")
    wait_until(lambda: len(desk.world.messages(session, "assistant")) == 2, "the answer")
    page.reload()
    with page.expect_download() as saved:
        page.locator(".file", has_text="tes ü.txt").click()
    assert saved.value.path().read_bytes() == notes.read_bytes()
    assert len(desk.world.messages(session, "user")) == 2
    page.goto(f"{desk.url}/?q=NO SCRIPT")
    assert page.locator("#sessions .title").all_inner_texts() == ["No script here"]


def test_it_fits_a_phone_and_is_usable_by_keyboard(desk: Desk) -> None:
    wide = "| " + " | ".join(f"column number {n}" for n in range(12)) + " |\n" + "|---" * 12 + "|\n"
    desk.script(Reply((f"{wide}\n```\n{'x' * 300}\n```\n{'y' * 300}",)))
    phone = {"width": 390, "height": 844}
    page = desk.tab(viewport=phone, has_touch=True)
    say(page, "On a phone")
    session_of(page)
    expect(page.locator(".answer .prose")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".side").is_hidden()
    page.click(".back")
    expect(page.locator("#sessions .title").first).to_have_text("On a phone")
    page = desk.tab()
    page.keyboard.press("/")
    page.keyboard.type("phone")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=phone")
    page.keyboard.press("n")
    page.wait_for_url(f"{desk.url}/")
    page.keyboard.press("c")
    assert page.evaluate("document.activeElement.id") == "say"


def test_the_list_marks_what_is_unread_running_and_where_it_comes_from(desk: Desk) -> None:
    desk.script(Reply(("part", "end"), held=True))
    page = desk.tab("/")
    session = desk.gateway.make(title="made elsewhere")
    row = page.locator(f"#sessions [data-id='{session}']")
    expect(row.locator(".new")).to_be_visible()
    desk.gateway.say(session, "run")
    expect(row.locator(".mark.runs")).to_be_visible()
    desk.server.go_on()
    expect(row.locator(".mark.runs")).to_have_count(0)
    assert row.locator(".source").inner_text() == "web"
    row.locator("a").click()
    session_of(page)
    page.goto(f"{desk.url}/")
    expect(page.locator(f"#sessions [data-id='{session}'] .new")).to_be_hidden()


def test_usage_and_deliveries_have_a_page(desk: Desk) -> None:
    desk.script(Reply(("counted",), input_tokens=1_234))
    session = desk.gateway.make(title="counted")
    desk.gateway.say(session, "count", wait=20)
    page = desk.tab("/usage")
    assert page.locator(".plot rect.in").count() >= 1
    assert page.locator("table tbody tr").count() >= 1
    page.goto(f"{desk.url}/deliveries")
    assert "Nothing was delivered yet" in page.locator("main").inner_text()


def test_jobs_and_people_have_a_page_and_a_job_is_run_and_paused_there(desk: Desk) -> None:
    desk.script(Reply(("nothing new",)))
    wanted = {"prompt": "What is <b>new</b>?", "cron": "0 9 * * *", "zone": "UTC", "name": "news"}
    assert desk.gateway.ask("POST", "/api/jobs", wanted).status == 201
    page = desk.tab("/jobs")
    assert "What is <b>new</b>?" in page.locator(".job").inner_text()
    assert "Next: 20" in page.locator(".job").inner_text()
    with page.expect_navigation():  # or looking again would take the request back
        page.click("text=Run now")
    for _ in range(60):
        page.reload()
        if page.locator(".occurrences .good").count():
            break
        page.wait_for_timeout(500)
    assert "done" in page.locator(".occurrences").inner_text()
    page.click("text=Pause")
    assert page.locator(".job .mark").first.inner_text() == "paused"
    page.goto(f"{desk.url}/people")
    assert "No chat account is set up" in page.locator("main").inner_text()


def test_search_finds_titles_and_what_was_said_and_leads_there(desk: Desk) -> None:
    desk.script(Reply(("The quokka <b>smiles</b>.",)))
    session = desk.gateway.make(title="about animals")
    desk.gateway.say(session, "Who smiles?", wait=20)
    page = desk.tab("/?q=quokka")
    assert page.locator(".hit mark").inner_text() == "quokka"
    assert "<b>smiles</b>" in page.locator(".hit p").inner_text()
    page.click(".hit a")
    assert session_of(page).startswith(session)
    expect(page.locator(".answer:target")).to_contain_text("quokka")
    page.goto(f"{desk.url}/?q=ABOUT anim")
    expect(page.locator("#sessions .title")).to_have_text("about animals")
    page.goto(f"{desk.url}/?q=nobody said this")
    expect(page.locator("main .empty")).to_be_visible()
