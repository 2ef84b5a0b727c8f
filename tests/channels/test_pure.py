"""What channels decide without I/O: cutting text, converting it, the next step of a delivery, who
may."""

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steno.config import ChannelConfig
from steno.engine.people import (
    CODE_LEN,
    CODE_MS,
    LETTERS,
    LOCK_MS,
    Account,
    Code,
    Let,
    Refuse,
    Rules,
    Sender,
    enter,
    may,
    may_give,
    rank_of,
)
from steno.gateway.channels.commands import NAMES, parse
from steno.gateway.channels.inbox import new_code, shown_name
from steno.gateway.channels.outbox import (
    Done,
    Fill,
    GiveUp,
    Later,
    Look,
    Pace,
    Place,
    Reserve,
    Rest,
    Step,
    Wanted,
    decide,
)
from steno.gateway.channels.protocol import ChannelSetup, Limits, Message
from steno.gateway.channels.text import length, split
from steno.gateway.platforms.hook import Hook, sign
from steno.gateway.platforms.telegram import Telegram, to_html
from steno.journal.debts import OwedDelivery
from steno.journal.facts import AnyFact, ChatBound, CodeMissed, PersonPaired, PersonRemoved, Record
from tests.channels.telegram_stub import Refused
from tests.channels.telegram_stub import parse as as_seen

UTF16 = Limits(text_max=200, unit="utf16", edits=True)
MARKDOWN = st.lists(
    st.sampled_from(
        [
            "word ",
            "A sentence. ",
            "\n",
            "\n\n",
            "```py\n",
            "```\n",
            "~~~\n",
            "😀",
            "x" * 90,
            "`code`",
            "**b**",
        ]
    ),
    max_size=80,
).map("".join)


# --- text -----------------------------------------------------------------------------------------


@given(MARKDOWN)
def test_parts_fit_and_say_the_text_in_order_without_cutting_a_fence(text: str) -> None:
    parts = split(text, UTF16)
    assert all(length(part, "utf16") <= 200 for part in parts)
    marks = re.compile(r"[`~\s]|py")
    assert marks.sub("", "".join(parts)) == marks.sub("", text)
    for part in parts[:-1]:
        opened = ""
        for line in part.split("\n"):
            found = re.match(r" {0,3}(`{3,}|~{3,})", line)
            if found and not opened:
                opened = found[1][0]
            elif found and line.strip() in ("```", "~~~") and found[1][0] == opened:
                opened = ""
        assert opened == "", part


@given(MARKDOWN, MARKDOWN)
def test_parts_stay_as_they_are_while_a_text_grows(text: str, more: str) -> None:
    parts, later = split(text, UTF16), split(text + more, UTF16)
    assert later[: len(parts) - 1] == parts[:-1]


@given(st.text() | MARKDOWN)
def test_html_is_always_taken_and_shows_what_was_written(text: str) -> None:
    if not text.strip() or length(text, "utf16") > 4_000:
        return
    html = to_html(text)
    try:
        seen = as_seen(html, "HTML")
    except Refused as refused:
        assert "can't parse" in str(refused) or "empty" in str(refused)
        return
    letters = [one for one in text if one.isalpha()]
    assert [one for one in seen if one.isalpha()] == letters or "```" in text


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("a **b** c", "a <b>b</b> c"),
        ("*i* and 2*3*4", "<i>i</i> and 2*3*4"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("# Title\ntext", "<b>Title</b>\ntext"),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1</code></pre>'),
        (
            "[here](https://example.org/?a=1&b=2)",
            '<a href="https://example.org/?a=1&amp;b=2">here</a>',
        ),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ],
)
def test_markdown_becomes_the_html_that_telegram_takes(markdown: str, html: str) -> None:
    assert to_html(markdown) == html


# --- deliveries -----------------------------------------------------------------------------------

OWED = OwedDelivery(3, 60, 0)
EDITS = Limits(text_max=100, edits=True)
PLAIN = Limits(text_max=100)
KEYED = Limits(text_max=100, client_id_s=3_600.0)
FINDS = Limits(text_max=100, finds=True)
STREAMING = Wanted(("a", "b"), False, True)
FINAL = Wanted(("a", "b"), True, True)
AT_ONCE = Wanted(("a",), True, False)


@pytest.mark.parametrize(
    ("wanted", "one", "filled", "limits", "step"),
    [
        (STREAMING, OWED, {}, EDITS, Reserve(0)),
        (STREAMING, replace(OWED, placed={0: "m"}), {}, EDITS, Fill(0)),
        (STREAMING, replace(OWED, placed={0: "m"}), {0: "a"}, EDITS, Reserve(1)),
        (STREAMING, replace(OWED, placed={0: "m", 1: "n"}), {0: "a", 1: "b"}, EDITS, Rest()),
        (FINAL, replace(OWED, placed={0: "m", 1: "n"}), {0: "a", 1: "b"}, EDITS, Done()),
        (FINAL, replace(OWED, placed={0: "m", 1: "n"}), {0: "a", 1: "b…"}, EDITS, Fill(1)),
        # An attempt of which nothing is known:
        (FINAL, replace(OWED, trying=(0,), attempts={0: 1}), {}, EDITS, Reserve(0)),
        (FINAL, replace(OWED, trying=(0,), attempts={0: 5}), {}, EDITS, Reserve(0)),
        (FINAL, replace(OWED, trying=(0,), attempts={0: 9}), {}, EDITS, Later(22.0)),
        (FINAL, replace(OWED, trying=(0,), attempts={0: 99}), {}, EDITS, Later(290.0)),
        (AT_ONCE, replace(OWED, trying=(0,), attempts={0: 1}), {}, PLAIN, GiveUp("", True)),
        (AT_ONCE, replace(OWED, trying=(0,), attempts={0: 1}), {}, KEYED, Place(0)),
        (AT_ONCE, replace(OWED, trying=(0,), attempts={0: 1}), {}, FINDS, Look(0)),
        (replace(AT_ONCE, final=False), OWED, {}, PLAIN, Rest()),
        (AT_ONCE, OWED, {}, PLAIN, Place(0)),
    ],
)
def test_the_next_step_of_a_delivery(
    wanted: Wanted, one: OwedDelivery, filled: dict[int, str], limits: Limits, step: Step
) -> None:
    chosen = decide(wanted, one, filled, limits, age_s=10.0)
    if isinstance(chosen, GiveUp):
        chosen = replace(chosen, cause="")
    assert chosen == step


def test_a_clock_that_was_set_back_holds_no_further_try_up() -> None:
    one = replace(OWED, trying=(0,), attempts={0: 9})
    assert decide(FINAL, one, {}, EDITS, age_s=-3_600.0) == Reserve(0)


def test_a_key_is_not_trusted_longer_than_the_platform_remembers_it() -> None:
    one = replace(OWED, trying=(0,), attempts={0: 1})
    assert isinstance(decide(AT_ONCE, one, {}, KEYED, age_s=3_601.0), GiveUp)


def test_rates_are_kept_in_a_chat_and_in_all() -> None:

    clock = [0.0]

    async def go() -> list[float]:
        pace = Pace(Limits(100, chat_per_s=1.0, all_per_s=2.0, burst=1), lambda: clock[0])
        went = []
        for chat in ("a", "a", "b"):
            await pace.wait(chat)
            went.append(clock[0])
        return went

    async def skip(seconds: float) -> None:
        clock[0] += seconds

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "sleep", skip)
        went = asyncio.run(go())
    assert went[1] - went[0] >= 1.0


# --- who may --------------------------------------------------------------------------------------


def account(*facts: AnyFact) -> Account:
    folded = Account()
    for seq, fact in enumerate(facts, start=1):
        folded.apply(Record(seq, 1_000, fact))
    return folded


RULES = Rules(frozenset({"1"}), frozenset({"2"}), frozenset({"-5"}), frozenset({"99"}))


@pytest.mark.parametrize(
    ("sender", "verdict"),
    [
        (Sender("1", "1"), Let("owner")),
        (Sender("2", "2"), Let("person")),
        (Sender("3", "3"), Refuse("unknown")),
        (Sender("", "3"), Refuse("empty")),
        (Sender("3", ""), Refuse("empty")),
        (Sender("3", "3", name="1"), Refuse("unknown")),
        (Sender("1 ", "1"), Refuse("unknown")),
        (Sender("11", "11"), Refuse("unknown")),
        (Sender("1", "-6", group=True), Refuse("group")),
        (Sender("3", "-5", group=True), Let("person")),
        (Sender("1", "-5", group=True), Let("owner")),
        (Sender("2", "2", bot=True), Refuse("bot")),
    ],
)
def test_ids_are_compared_by_equality_and_names_decide_nothing(
    sender: Sender, verdict: Let | Refuse
) -> None:
    assert may(account(), RULES, sender) == verdict


def test_pairing_gives_the_direct_chat_alone_and_can_be_taken_back() -> None:
    paired = account(PersonPaired("3", "3"))
    assert may(paired, Rules(), Sender("3", "3")) == Let("person")
    assert may(paired, Rules(), Sender("3", "-5", group=True)) == Refuse("group")
    removed = account(PersonPaired("3", "3"), PersonRemoved("3"))
    assert may(removed, Rules(), Sender("3", "3")) == Refuse("unknown", code=True)


def test_who_the_configuration_named_once_is_nobody_when_it_does_not() -> None:
    assert rank_of(account(PersonPaired("3", "3", "owner", by="config")), Rules(), "3") is None


def test_a_code_is_good_for_an_hour_once_and_locked_after_five_misses() -> None:
    code, given = new_code(1_000, Sender("3", "3", "Eve"))
    assert len(code) == CODE_LEN
    assert len(LETTERS) == len(set(LETTERS)) == 32
    asked = account(given)
    assert isinstance(enter(asked, code, "", 2_000), Code)
    assert isinstance(enter(asked, code.lower(), "", 2_000), Code)
    assert enter(asked, code, "", 1_000 + CODE_MS) == "wrong"
    assert enter(asked, code, "3", 2_000) == "wrong"  # a stranger cannot enter it
    missed = account(given, *(CodeMissed() for _ in range(5)))
    assert enter(missed, code, "", 2_000) == "locked"
    assert isinstance(enter(account(given), code, "", 1_000 + CODE_MS - 1), Code)
    assert enter(missed, code, "", 1_000 + LOCK_MS) == "wrong"
    used = account(given, PersonPaired("3", "3", code=1))
    assert enter(used, code, "", 2_000) == "wrong"
    assert code not in json.dumps([given.salt, given.digest])


def test_three_codes_wait_at_most_and_one_for_each() -> None:
    given = [new_code(1_000, Sender(f"{n}", f"{n}"))[1] for n in range(3)]
    assert not may_give(account(*given[:1]), "0", 2_000)
    assert may_give(account(*given[:2]), "7", 2_000)
    assert not may_give(account(*given), "7", 2_000)
    assert may_give(account(*given), "7", 1_000 + CODE_MS)


def test_a_chat_belongs_to_the_session_it_was_bound_to_last() -> None:
    bound = account(ChatBound("a", "s1"), ChatBound("b", "s1"), ChatBound("a", "s2"))
    assert bound.chats == {"a": "s2", "b": "s1"}
    assert bound.chats_of("s1") == {"b"}


# --- what arrives ---------------------------------------------------------------------------------


def telegram() -> Telegram:
    setup = ChannelSetup("tg", ChannelConfig(kind="telegram"), "4711:secret", Path())
    return Telegram(setup)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
KEYS = [
    "message_id",
    "from",
    "chat",
    "text",
    "caption",
    "photo",
    "document",
    "voice",
    "id",
    "data",
    "reply_to_message",
    "quote",
    "forward_origin",
    "type",
    "message",
    "first_name",
    "is_bot",
]
ODD = st.recursive(
    JSON, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=6), max_leaves=20
)


@given(
    st.dictionaries(
        st.sampled_from(["update_id", "message", "edited_message", "callback_query"]), ODD
    )
)
def test_whatever_an_update_holds_it_is_read_or_left_out(update: dict[str, object]) -> None:
    read = telegram()._read(update)
    if isinstance(read, Message):
        assert read.person.lstrip("-").isdecimal()
        assert read.chat.lstrip("-").isdecimal()


@given(st.text())
def test_a_text_is_a_command_only_if_it_names_one(text: str) -> None:
    found = parse(text)
    assert found is None or (found[0] in NAMES and text.strip().startswith("/"))


@given(st.text())
def test_a_name_is_one_short_line(name: str) -> None:
    shown = shown_name(name)
    assert len(shown) <= 64
    assert shown.isprintable()


def test_a_hook_takes_what_is_signed_with_its_secret_and_nothing_else() -> None:

    setup = ChannelSetup("ci", ChannelConfig(kind="hook"), "s" * 16, Path())
    hook, now = Hook(setup), str(int(time.time()))
    good = sign(b"s" * 16, now, "k", b"{}")
    assert hook.signed(now, "k", b"{}", good)
    assert not hook.signed(now, "k", b"{} ", good)
    assert not hook.signed(now, "other", b"{}", good)
    assert not hook.signed("1", "k", b"{}", sign(b"s" * 16, "1", "k", b"{}"))
    assert not hook.signed(now, "k", b"{}", "")
    assert not hook.signed(now, "k", b"{}", sign(b"", now, "k", b"{}"))
