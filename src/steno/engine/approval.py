"""Whether a call may run, by the rules that a person has set.

A rule names a tool, or a tool and what it is called with: `shell`, `shell:git status*`. `*` stands
for any text, and `\\*` for a star.

1. A rule that denies wins, wherever it was set.
2. What this run was told to allow comes next, then the rules of the session, then those of its
   folder, then those of the configuration.
3. Among rules of one place the most specific counts: one with a pattern before one without, the
   longer before the shorter; of two that are equally specific, the one that asks.
4. Where no rule fits, the mode of the session says it; else the tool, whether it needs approval.
   In the mode `plan` nothing runs that does more than read, whatever a rule allows.

A pattern meets the command of a shell call, the path of a file call, and the arguments as JSON of
any other. A command can hide another one, so a `*` allows only commands without ; & | < > ( ) $ `
and line breaks. A rule that asks or denies meets more: each part of a command, and each text among
the arguments of any other call. These are rules against accidents, not a wall: a sandbox is one.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.journal import facts

STAR = r"\*"
"""In a pattern: a star, and not any text."""

_STARS = re.compile(r"(\\\*|\*)")
_MEANING = {"*": ".*", STAR: re.escape("*")}

Verdict = Literal["allow", "ask", "deny"]
Mode = facts.Mode

PATCH = "apply_patch"
"""The tool that changes several files in one call."""

_BETWEEN_COMMANDS = re.compile(r"[;&|\n\r()`]|\$\(")
_HOST = re.compile(r"https?://[^/?#*]+")
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


Kind = Literal["command", "path", "url"]

KINDS: dict[str, Kind] = {
    "shell": "command",
    "read_file": "path",
    "write_file": "path",
    "edit_file": "path",
    "list_folder": "path",
    "fetch_url": "url",
}
"""The tools of which rules know what they are called with: the argument of that name. In a tool of
others such an argument may mean anything."""


EDITS = frozenset(("write_file", "edit_file"))
"""Tools that change files of the workspace, and can be undone."""
ALWAYS_ASKED = frozenset(("change_job",))
"""Tools whose every call a person decides about, whatever rule, mode or command allows it: what
they set up acts later, when no one watches."""
LOOKS = frozenset(("fetch_url",))
"""Tools that only read, and ask all the same: what they read is outside."""


def in_mode(
    mode: Mode, tool: str, default: Verdict, edits: Sequence[tuple[str, str]] = ()
) -> Verdict | None:
    """What a mode says of a call, and of the edits that it stands for; None if nothing."""
    match mode:
        case "plan":
            return None if default == "allow" or tool in LOOKS else "deny"
        case "edits":
            named = [name for name, _ in edits] or [tool]
            return "allow" if EDITS.issuperset(named) else None
        case "everything":
            return "allow"
        case "ask":
            return None


class Target(Struct, frozen=True):
    """What rules look at: the tool, what it is called with, and the texts among its arguments."""

    tool: str
    kind: Kind | None
    text: str
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, tool: str, arguments: str) -> "Target":
        import json  # lenient, as what calls are; loaded with the first call

        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            given = None
        given = given if isinstance(given, dict) else {}
        kind = KINDS.get(tool)
        if kind is not None and isinstance(text := given.get(kind), str):
            return cls(
                tool,
                kind,
                posixpath.normpath(text) if kind == "path" else text.strip(),
            )
        texts = tuple(text for text in given.values() if isinstance(text, str))
        return cls(tool, None, arguments, texts)


class Policy(Struct, frozen=True):
    """`rules` are the configuration's, `folder` holds for all sessions of one folder, `session` for
    one session, `allowed` for this run alone."""

    rules: tuple[Rule, ...] = ()
    allowed: tuple[Rule, ...] = ()
    session: tuple[Rule, ...] = ()
    folder: tuple[Rule, ...] = ()

    def within(self, rules: Mapping[str, Verdict]) -> "Policy":
        """The policy in a session that has these rules."""
        return replace(
            self,
            session=tuple(
                Rule.parse(rule, verdict) for rule, verdict in rules.items()
            ),
        )

    def decide(
        self, tool: str, arguments: str, default: Verdict
    ) -> tuple[Verdict, Rule | None]:
        """The verdict about a call, and the rule that it comes from."""
        call = Target.of(tool, arguments)
        places = [
            [rule for rule in rules if _fits(rule, call)]
            for rules in (self.allowed, self.session, self.folder, self.rules)
        ]
        for rule in chain.from_iterable(places):
            if rule.verdict == "deny":
                return "deny", rule
        for fitting in places:
            if fitting:
                closest = max(fitting, key=_closeness)
                return closest.verdict, closest
        return default, None

    def decide_all(
        self, calls: Sequence[tuple[str, str]], default: Verdict
    ) -> tuple[Verdict, Rule | None]:
        """About a call that stands for others. Whatever denies one of them denies it; a rule for
        the call itself, the first, comes next; without one, it is asked about if one of the others
        is."""
        decided = [self.decide(tool, arguments, default) for tool, arguments in calls]
        if (
            denied := next((one for one in decided if one[0] == "deny"), None)
        ) is not None:
            return denied
        if decided[0][1] is not None or len(decided) == 1:
            return decided[0]
        return next((one for one in decided[1:] if one[0] == "ask"), decided[1])


def edits_in(tool: str, arguments: str) -> tuple[tuple[str, str], ...]:
    """A patch is as many edits as it changes files, and the rules for edits count. Empty for any
    other call."""
    if tool != PATCH:
        return ()
    import json

    changes = json.loads(arguments).get("changes", ())
    return tuple(
        ("edit_file", json.dumps({"path": change["path"]})) for change in changes
    )


def rules_for(tool: str, arguments: str) -> tuple[str, ...]:
    """The rules that meet this call and those like it. For a patch it is one for each file: a rule
    for the tool would let it change every other file, too."""
    calls = edits_in(tool, arguments) or ((tool, arguments),)
    return tuple(dict.fromkeys(rule_for(*call) for call in calls))


def rule_for(tool: str, arguments: str) -> str:
    """The rule that meets this call and those like it: the same command or path; else every call of
    the tool."""
    call = Target.of(tool, arguments)
    return tool if call.kind is None else f"{tool}:{call.text.replace('*', STAR)}"


def patterns_for(tool: str, arguments: str) -> tuple[str, ...]:
    """Rules that meet this call and more than it, the narrower first: commands with the same first
    words, files of the same folder, pages of the same host."""
    call = Target.of(tool, arguments)
    match call.kind:
        case "command":
            if _HIDES_COMMANDS.search(call.text) is not None:
                return ()
            words = call.text.replace("*", STAR).split()
            two = len(words) > 2 and words[1][:1].isalpha()
            found = [f"{tool}:{' '.join(words[:2])} *"] if two else []
            return (*found, f"{tool}:{words[0]} *") if len(words) > 1 else ()
        case "path":
            folder = posixpath.dirname(call.text).replace("*", STAR)
            return (f"{tool}:{folder}/*",) if folder else ()
        case "url":
            host = _HOST.match(call.text)
            return () if host is None else (f"{tool}:{host[0]}/*",)
        case None:
            return ()


def _closeness(rule: Rule) -> tuple[bool, int, bool, int, bool]:
    pattern = (rule.pattern or "").replace(STAR, "+")
    return (
        rule.pattern is not None,
        len(pattern) - pattern.count("*"),
        "*" not in pattern,
        len(rule.tool) - rule.tool.count("*"),
        rule.verdict == "ask",
    )


def _fits(rule: Rule, call: Target) -> bool:
    if not _matches(rule.tool, call.tool):
        return False
    if rule.pattern is None:
        return True
    if rule.verdict == "allow":
        return _matches(rule.pattern, call.text) and (
            _exact(rule.pattern) or _plain(call)
        )
    parts = [call.text, *call.texts]
    if call.kind == "command":
        parts += [part.strip() for part in _BETWEEN_COMMANDS.split(call.text)]
    return any(_matches(rule.pattern, part) for part in parts)


def _plain(call: Target) -> bool:
    """Whether there is nothing in the text that a pattern with a `*` would let slip through."""
    match call.kind:
        case "command":
            return _HIDES_COMMANDS.search(call.text) is None
        case "path":
            return ".." not in call.text.split("/")
        case "url" | None:
            return True


def _exact(pattern: str) -> bool:
    return "*" not in pattern.replace(STAR, "")


def _matches(pattern: str, text: str) -> bool:
    wanted = (_MEANING.get(some, re.escape(some)) for some in _STARS.split(pattern))
    return re.fullmatch("".join(wanted), text, re.DOTALL) is not None
