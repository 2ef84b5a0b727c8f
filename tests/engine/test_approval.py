"""The rules by which a call may run, must be asked about, or may not."""

import json
from typing import Literal

import pytest

from steno.engine.approval import Policy, Rule, Verdict, rule_for


def policy(rules: dict[str, Verdict], *allowed: str) -> Policy:
    return Policy(
        tuple(Rule.parse(rule, verdict) for rule, verdict in rules.items()),
        tuple(Rule.parse(rule, "allow") for rule in allowed),
    )


def shell(rules: dict[str, Verdict], command: str, *allowed: str) -> Verdict:
    return policy(rules, *allowed).decide("shell", json.dumps({"command": command}), "ask")[0]


def write(rules: dict[str, Verdict], path: str) -> Verdict:
    return policy(rules).decide("write_file", json.dumps({"path": path, "text": "x"}), "ask")[0]


@pytest.mark.parametrize("default", ["allow", "ask"])
def test_without_a_rule_the_tool_decides(default: Literal["allow", "ask"]) -> None:
    assert Policy().decide("shell", "{}", default) == (default, None)


def test_a_rule_for_a_tool_holds_for_each_call_of_it() -> None:
    assert shell({"shell": "allow"}, "rm -r .; echo $HOME") == "allow"
    assert policy({"read_file": "ask"}).decide("read_file", '{"path": "a"}', "allow")[0] == "ask"
    assert policy({"*": "deny"}).decide("anything", "not json", "allow")[0] == "deny"
    assert policy({"mcp_*": "allow"}).decide("mcp_files_read", "{}", "ask")[0] == "allow"


def test_the_most_specific_rule_counts() -> None:
    rules: dict[str, Verdict] = {
        "shell": "allow",
        "shell:git *": "ask",
        "shell:git status*": "allow",
    }
    assert shell(rules, "ls") == "allow"
    assert shell(rules, "git push") == "ask"
    assert shell(rules, "git status --short") == "allow"
    assert shell({"shell:a*": "allow", "shell:*b": "ask"}, "ab") == "ask"
    assert shell({"shell:a*": "ask", "shell:a": "allow"}, "a") == "allow"


def test_a_rule_that_denies_wins_over_everything() -> None:
    rules: dict[str, Verdict] = {"shell:git push*": "allow", "shell:*push*": "deny"}
    assert shell(rules, "git push", "shell") == "deny"
    assert policy(rules).decide("shell", '{"command": "git push"}', "ask")[1] == Rule(
        "shell", "*push*", "deny"
    )


def test_what_the_run_allows_comes_before_rules_that_ask() -> None:
    assert shell({"shell:make *": "ask"}, "make test", "shell:make test") == "allow"
    assert shell({"shell:make *": "ask"}, "make clean", "shell:make test") == "ask"


@pytest.mark.parametrize(
    "hidden",
    [
        "git status; rm -r .",
        "git status && rm -r .",
        "git status | sh",
        "git status & rm x",
        "git status\nrm x",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > .bashrc",
        "git status <(rm x)",
    ],
)
def test_a_pattern_allows_no_command_that_hides_another(hidden: str) -> None:
    assert shell({"shell:git status*": "allow"}, hidden) == "ask"


@pytest.mark.parametrize(
    "hidden", ["cd src; rm x", "true && rm x", "echo $(rm x)", "(rm x)", "echo `rm x`", "a\nrm x"]
)
def test_a_pattern_that_denies_finds_a_command_among_others(hidden: str) -> None:
    assert shell({"shell": "allow", "shell:rm *": "deny"}, hidden) == "deny"


def test_a_command_that_is_spelled_out_is_allowed_as_it_is() -> None:
    assert shell({"shell:make clean && make": "allow"}, "make clean && make") == "allow"


def test_a_path_is_looked_at_without_its_detours() -> None:
    rules: dict[str, Verdict] = {"write_file": "allow", "write_file:secrets/*": "deny"}
    assert write(rules, "./secrets/key") == "deny"
    assert write(rules, "src/../secrets/key") == "deny"
    assert write({"write_file:src/*": "allow"}, "src/a/b.py") == "allow"
    assert write({"write_file:src/*": "allow"}, "src/../other") == "ask"
    assert write({"write_file:*": "allow"}, "../outside") == "ask"


def test_a_tool_of_others_is_met_by_its_arguments_whatever_they_are_called() -> None:
    """An argument of an MCP server that is called `command` or `path` may be anything."""
    rules: dict[str, Verdict] = {'notes__add:{"path": *}': "allow"}
    assert policy(rules).decide("notes__add", '{"path": "a; b"}', "ask")[0] == "allow"
    assert (
        policy({"notes__add:a*": "allow"}).decide("notes__add", '{"path": "a"}', "ask")[0] == "ask"
    )
    assert rule_for("db__run", as_arguments("select 1")) == "db__run"


def test_a_pattern_that_denies_finds_an_argument_of_a_tool_of_others() -> None:
    rules: dict[str, Verdict] = {"files__*": "allow", "files__*:secrets/*": "deny"}
    arguments = json.dumps({"path": "secrets/key", "lines": 3})
    assert policy(rules).decide("files__read", arguments, "ask")[0] == "deny"
    assert policy(rules).decide("files__read", '{"path": "src/key"}', "ask")[0] == "allow"


def test_nothing_in_a_pattern_but_the_star_is_special() -> None:
    assert shell({"shell:[ab]?.c": "allow"}, "a1.c") == "ask"
    assert shell({"shell:echo .": "allow"}, "echo x") == "ask"


@pytest.mark.parametrize(
    "command", ["make test", "rm *.tmp", r"find . -name \*.py", "echo a; echo b", "a\nb", "\\"]
)
def test_the_rule_for_a_call_meets_that_command_and_no_other(command: str) -> None:
    def decided(text: str) -> Verdict:
        given = Policy().within({rule_for("shell", as_arguments(command)): "allow"})
        return given.decide("shell", as_arguments(text), "ask")[0]

    assert decided(command) == "allow"
    for other in (
        command.replace("*", "x"),
        command + "x",
        "x" + command,
        command.replace("\\", ""),
    ):
        assert decided(other) == ("allow" if other == command else "ask")


def test_a_session_counts_before_the_configuration_and_deny_before_everything() -> None:
    given = policy({"shell:ls*": "ask"}, "shell:cat").within(
        {"shell": "allow", "shell:cat": "deny"}
    )
    assert given.decide("shell", as_arguments("ls -l"), "ask")[0] == "allow"
    assert given.decide("shell", as_arguments("cat"), "ask")[0] == "deny"


def as_arguments(command: str) -> str:
    return json.dumps({"command": command})


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({}, "ask"),
        ({"edit_file": "allow"}, "allow"),
        ({"edit_file:a*": "allow"}, "ask"),
        ({"edit_file:a*": "allow", "edit_file:b*": "deny"}, "deny"),
        ({"apply_patch": "allow"}, "allow"),
        ({"apply_patch": "allow", "edit_file:b*": "deny"}, "deny"),
        ({"apply_patch": "ask", "edit_file": "allow"}, "ask"),
    ],
)
def test_a_call_that_stands_for_others_meets_their_rules(
    rules: dict[str, Verdict], verdict: Verdict
) -> None:
    edits = [("edit_file", json.dumps({"path": path})) for path in ("a.txt", "b.txt")]
    assert policy(rules).decide_all([("apply_patch", "{}"), *edits], "ask")[0] == verdict
