"""The checks about people in chats, as docs/reference/gateway.md lists them: each has its line in
`steno doctor` and its tests. A test that is renamed or taken out must be named there again."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from steno.gateway.channels.registry import KINDS
from tests.channels.contract import Subject, TelegramSubject
from tests.channels.discord_stub import DiscordSubject
from tests.channels.mail_subject import MailSubject
from tests.channels.matrix_subject import MatrixSubject
from tests.channels.slack_stub import SlackSubject
from tests.channels.xmpp_subject import XmppSubject
from tests.program.world import World

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "gateway.md").read_text()
PEOPLE: dict[str, type[Subject]] = {
    "telegram": TelegramSubject,
    "matrix": MatrixSubject,
    "email": MailSubject,
    "xmpp": XmppSubject,
    "slack": SlackSubject,
    "discord": DiscordSubject,
}
ROWS = {
    int(cells[1]): (cells[3].strip(), re.findall(r"`([^`]+::[^`]+)`", cells[4]))
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \|", line) and len(cells := line.split("|")) == 6
}


def test_the_table_has_every_check_about_people_and_what_they_send() -> None:
    assert list(ROWS) == list(range(15, 29))


@pytest.mark.parametrize("check", ROWS)
def test_each_check_has_tests(check: int) -> None:
    _, tests = ROWS[check]
    assert tests
    for one in tests:
        file, _, name = one.partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), one


def test_each_check_is_a_line_of_the_doctor(world: World) -> None:
    channel = {"kind": "telegram", "token_env": "CH_SECRET"}
    world.environment["STENO_CHANNELS"] = json.dumps({"tg": channel})
    lines = world.steno("doctor", expect=None).splitlines()
    said = [line.removeprefix("gateway").strip() for line in lines if line.startswith("gateway")]
    for check, (line, _) in ROWS.items():
        assert [one for one in said if one.startswith(line)], f"{check}: {line!r}"
    assert len({line for line, _ in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_channel_has_is_what_the_reference_says(kind: str) -> None:
    [line] = [one for one in PAGE.splitlines() if one.startswith(f"| `{kind}` |")]
    edits, again, buttons, _, changes, deletions, files, _ = line.strip("| ").split(" | ")[1:]
    limits = import_module(KINDS[kind]).LIMITS
    said = [one.startswith("yes") for one in (edits, buttons, changes, deletions, files)]
    assert said[:2] == [limits.edits, limits.buttons]
    assert ("looking" in again) is limits.finds
    assert again.startswith("its ") is (limits.client_id_s > 0)
    subject = PEOPLE.get(kind)
    told = [False] * 3 if subject is None else [subject.changes, subject.deletes, subject.files]
    assert said[2:] == told


LOADS = """
import sys
from pathlib import Path
import steno.cli.gateway, steno.gateway.serve, steno.gateway.channels.worker
from steno.config import ChannelConfig, Place
from steno.gateway.channels.registry import make
make("tg", ChannelConfig(kind="telegram", token_env="CH_SECRET"), Place(Path("."), Path(".")))
print(" ".join(sys.modules))
"""


def test_what_a_channel_needs_is_loaded_only_where_one_is_configured() -> None:
    environment = os.environ | {"CH_SECRET": "4711:secret"}
    words = [sys.executable, "-c", LOADS]
    made = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    loaded = set(made.stdout.split())
    assert KINDS["telegram"] in loaded
    others = {module for kind, module in KINDS.items() if kind not in ("telegram", "hook")}
    assert not loaded & {*others, "nio", "slack_sdk", "slixmpp", "imaplib", "smtplib"}
