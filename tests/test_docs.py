"""The documentation says what the program has: commands, keys, settings, verbs, errors and facts.
Its links lead somewhere, the configuration that it shows is accepted, and its Python runs."""

import argparse
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steno.cli.parsing import parser, prompted, query_last
from steno.config import ChannelConfig, Config, McpConfig, Place, load
from steno.journal import facts, parts
from steno.models.providers import ModelTuning, ProviderConfig
from steno.models.specs import VENDORS, Access
from steno.store import errors
from steno.store.protocol import Store
from steno.store.sqlite import database
from steno.store.sqlite.database import SqliteSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
TAGGED = [
    thing
    for thing in {**vars(facts), **vars(parts)}.values()
    if isinstance(thing, type) and issubclass(thing, msgspec.Struct) and thing.__struct_config__.tag
]
NOT_FOR_PEOPLE = ("carry", "remember")


def text(page: str) -> str:
    return (DOCS / "reference" / page).read_text()


def options(verb: argparse.ArgumentParser) -> set[str]:
    """Those of a command and of its own commands."""
    within = [
        option
        for action in verb._actions
        if isinstance(action, argparse._SubParsersAction) and verb.prog != "steno"
        for act in action.choices.values()
        for option in options(act)
    ]
    return {*within} | {
        option
        for action in verb._actions
        for option in action.option_strings
        if option.startswith("--")
    } - {"--help"}


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    root = parser()
    yield "", root
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (
                (name, verb) for name, verb in action.choices.items() if name not in NOT_FOR_PEOPLE
            )


@pytest.mark.parametrize(
    ("name", "verb"), list(commands()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_the_synopsis_has_every_option_of_a_command_and_no_other(
    name: str, verb: argparse.ArgumentParser
) -> None:
    synopsis, agent = text("command-line.md").split("```")[1].split("AGENT: ")
    entries = re.split(r"^steno ", synopsis, flags=re.MULTILINE)
    mine = [
        entry
        for entry in entries
        if re.match(rf"(\w+ ID(?: \[SEQ\])? \| )?{name}\b" if name else r"\[--|--", entry)
    ]
    assert mine
    said = set(
        re.findall(
            r"--[a-z-]+", " ".join(mine) + (agent if any("[AGENT]" in one for one in mine) else "")
        )
    )
    assert said - ({"--reason"} if name == "approve" else set()) == options(verb)


def test_the_table_has_every_key_of_the_configuration_and_no_other() -> None:
    said: set[tuple[str, str]] = set()
    section = ""
    for row in re.findall(
        r"^\|.*", text("configuration.md").split("## Keys")[1].split("\n## ")[0], re.MULTILINE
    ):
        _, name, keys, *_ = row.split("|")
        section = name.strip("` ") or section
        said |= {(section, key) for key in re.findall(r"`(\w+)`", keys)}
    known = {
        (section.name, key.name)
        for section in msgspec.structs.fields(Config)
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct)
        for key in msgspec.structs.fields(section.type)
    }
    named: dict[str, type[msgspec.Struct]] = {"mcp.NAME": McpConfig, "channels.NAME": ChannelConfig}
    named |= {"providers.NAME": ProviderConfig, 'models."SPEC"': ModelTuning}
    named |= {vendor.name: Access for vendor in VENDORS}
    assert said == known | {
        (name, key.name) for name, kind in named.items() for key in msgspec.structs.fields(kind)
    }


def test_the_table_has_every_setting_and_no_other() -> None:
    said = re.findall(r"^\| `(\w+)` \|", text("settings.md"), re.MULTILINE)
    assert said == [field.name for field in msgspec.structs.fields(SqliteSettings)]


def test_the_reference_has_every_verb_of_the_store_with_its_arguments() -> None:
    said = re.findall(r"^\| `((\w+)\(.*?\))`", text("store.md"), re.MULTILINE)
    verbs = {
        name: verb
        for name, verb in vars(Store).items()
        if inspect.isfunction(verb) and name[0] != "_"
    }
    assert {name for _, name in said} == verbs.keys() | {"vacuum", "backup"}
    for call, name in said:
        if name in verbs:
            names = [
                argument
                for argument in inspect.signature(verbs[name]).parameters
                if argument != "self"
            ]
            assert re.findall(r"[(,] ?(\w+)", call) == names, call


def test_the_error_tree_is_the_one_of_the_code() -> None:
    tree = re.findall(r"^( *)([A-Z]\w+)", errors.__doc__.split("\n\n")[1], re.MULTILINE)
    page = text("errors.md")
    assert re.findall(r"^( *)([A-Z]\w+)", page.split("```")[1], re.MULTILINE) == tree
    classes = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and thing.__module__ == errors.__name__
    }
    assert {name for _, name in tree} == classes
    finer = {
        name
        for name, thing in vars(database).items()
        if isinstance(thing, type)
        and issubclass(thing, errors.StoreError)
        and thing.__module__ == database.__name__
    }
    said = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(said) == (classes | finer) - {"StoreError"}


@pytest.mark.parametrize("thing", TAGGED, ids=lambda thing: thing.__struct_config__.tag)
def test_the_reference_has_every_field_of_a_fact_in_order(thing: type[msgspec.Struct]) -> None:
    tag = thing.__struct_config__.tag
    section = re.split(
        rf"^####? `{tag}`.*$", text("journal-format.md"), maxsplit=1, flags=re.MULTILINE
    )[1]
    fields = re.findall(
        r"^\| `(\w+)` \|", re.split("^#", section, maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE
    )
    assert fields == [field.encode_name for field in msgspec.structs.fields(thing)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        there = (page.parent / name) if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(link)
    assert broken == []


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


FOR_OTHERS = ("write-a-channel.md",)
"""Its Python is parts of a module."""
INSTALLED = {
    "openai-agents": "agents",
    "langgraph-checkpoint": "langgraph.checkpoint",
    "pydantic-ai-slim": "pydantic_ai",
    "claude-agent-sdk": "",  # the adapter does without it
}
IN_MAKE_ADAPTERS = ("pydantic-ai-harness", "google-adk")


def programs() -> list[Path]:
    return [page for page in PAGES if page.name not in FOR_OTHERS and blocks(page, "python")]


@pytest.mark.parametrize("page", programs(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    needs = [(re.match(r"# ([a-z-]+)\n", block), block) for block in blocks(page, "python")]
    code = [block for need, block in needs if need is None or need[1] not in IN_MAKE_ADAPTERS]
    assert {need[1] for need, _ in needs if need} <= {*INSTALLED, *IN_MAKE_ADAPTERS}
    exec(compile("\n".join(code), str(page), "exec"), {"__name__": "page"})


def shown_commands() -> Iterator[tuple[str, str]]:
    """Lines that run steno, in blocks of how-tos and of the tutorial."""
    for page in (*(DOCS / "how-to").glob("*.md"), *(DOCS / "tutorial").glob("*.md")):
        for shown in plain_blocks(page):
            prompted = [line[2:] for line in shown if line.startswith("$ ")]
            for line in prompted or shown:
                if run := re.match(r"(?:[A-Z_]+=\S+ )*(steno(?: .*|$))", line):
                    yield page.name, run[1]


def plain_blocks(page: Path) -> Iterator[list[str]]:
    opened, shown = "", list[str]()
    for line in page.read_text().splitlines():
        fence = line.lstrip()
        if fence.startswith("```"):
            if opened.strip() == "```":
                yield shown
            opened, shown = ("" if opened else line), []
        elif opened:
            shown.append(line[len(opened) - len(opened.lstrip()) :])


@pytest.mark.parametrize(("page", "command"), sorted(set(shown_commands())))
def test_a_command_that_a_page_shows_is_one(page: str, command: str) -> None:
    told = re.split(r"\s{2,}(?=\S)| # | [|>&]+ |\s&$", command)[0]
    words = [word for word in shlex.split(told)[1:] if word]
    try:
        parser().parse_args(query_last(prompted(words)))
    except SystemExit as error:
        pytest.fail(f"{told}: {error}")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "json")], ids=lambda page: page.name
)
def test_the_json_of_a_page_is_json_and_names_a_command_of_steno(page: Path) -> None:
    for block in blocks(page, "json"):
        for server in json.loads(block).get("agent_servers", {}).values():
            assert server["command"] == "steno"
            assert parser().parse_args(server["args"]).verb == server["args"][0]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name
)
def test_the_configuration_that_a_page_shows_is_accepted(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        if "project" not in tomllib.loads(block):
            (tmp_path / "config.toml").write_text(block)
            load(Place(tmp_path, tmp_path), {})
