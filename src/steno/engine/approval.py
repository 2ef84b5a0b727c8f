"""Whether a call may run, by the rules that a person has set.

A rule names a tool, or a tool and what it is called with: `shell`, `shell:git status*`. `*` stands for any text.

1. A rule that denies wins.
2. What this run was told to allow comes next.
3. Then the most specific rule: one with a pattern before one without, the longer before the shorter; of two that are
   equally specific, the one that asks.
4. Where no rule fits, the tool says whether it needs approval.

A pattern meets the command of a shell call, the path of a file call, and the arguments as JSON of any other. A command
can hide another one, so a `*` allows only commands without ; & | < > ( ) $ ` and line breaks, and a rule that asks or
denies meets each part of a command, too. These are rules against accidents, not a wall: a sandbox is one.
"""

import json
import posixpath
import re
from typing import Literal

from msgspec import Struct

Verdict = Literal["allow", "ask", "deny"]

_BETWEEN_COMMANDS = re.compile(r"[;&|\n\r()`]|\$\(")
_HIDES_COMMANDS = re.compile(r"[;&|<>()$`\n\r]")


class Rule(Struct, frozen=True):
    """`pattern` is None for every call of the tool."""

    tool: str
    pattern: str | None
    verdict: Verdict

    @classmethod
    def parse(cls, text: str, verdict: Verdict) -> "Rule":
        tool, colon, pattern = text.partition(":")
        return cls(tool.strip(), pattern if colon else None, verdict)

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}:{self.pattern}"


class Call(Struct, frozen=True):
    """What rules look at: the tool, and what it is called with."""

    tool: str
    kind: Literal["command", "path", "other"]
    text: str

    @classmethod
    def of(cls, tool: str, arguments: str) -> "Call":
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = None
        if isinstance(given, dict):
            if isinstance(command := given.get("command"), str):
                return cls(tool, "command", command.strip())
            if isinstance(path := given.get("path"), str):
                return cls(tool, "path", posixpath.normpath(path))
        return cls(tool, "other", arguments)


class Policy(Struct, frozen=True):
    """`allowed` holds for this run alone."""

    rules: tuple[Rule, ...] = ()
    allowed: tuple[Rule, ...] = ()

    def decide(self, tool: str, arguments: str, default: Verdict) -> tuple[Verdict, Rule | None]:
        """The verdict about a call, and the rule that it comes from."""
        call = Call.of(tool, arguments)
        fitting = [rule for rule in self.rules if _fits(rule, call)]
        if (denied := next((rule for rule in fitting if rule.verdict == "deny"), None)) is not None:
            return "deny", denied
        if (allowed := next((rule for rule in self.allowed if _fits(rule, call)), None)) is not None:
            return "allow", allowed
        if not fitting:
            return default, None
        closest = max(fitting, key=_closeness)
        return closest.verdict, closest


def _closeness(rule: Rule) -> tuple[bool, int, bool, int, bool]:
    pattern = rule.pattern or ""
    return (
        rule.pattern is not None,
        len(pattern) - pattern.count("*"),
        "*" not in pattern,
        len(rule.tool) - rule.tool.count("*"),
        rule.verdict == "ask",
    )


def _fits(rule: Rule, call: Call) -> bool:
    if not _matches(rule.tool, call.tool):
        return False
    if rule.pattern is None:
        return True
    if rule.verdict == "allow":
        return _matches(rule.pattern, call.text) and ("*" not in rule.pattern or _plain(call))
    parts = [call.text]
    if call.kind == "command":
        parts += [part.strip() for part in _BETWEEN_COMMANDS.split(call.text)]
    return any(_matches(rule.pattern, part) for part in parts)


def _plain(call: Call) -> bool:
    """Whether there is nothing in the text that a pattern with a `*` would let slip through."""
    match call.kind:
        case "command":
            return _HIDES_COMMANDS.search(call.text) is None
        case "path":
            return ".." not in call.text.split("/")
        case "other":
            return True


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
