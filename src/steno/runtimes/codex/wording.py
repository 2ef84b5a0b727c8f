"""What codex does, in our words: calls, outcomes, causes of failure. Pure."""

import json
import re
import shlex

import msgspec
from msgspec import Raw

from steno.journal.parts import Content, Failed, Outcome, Refused, Returned, Text, ToolCall, text_of
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import items as i
from steno.runtimes.codex.protocol import Failure, Held

SHELL, PATCH, SEARCH, TYPE = "shell", "apply_patch", "web_search", "write_stdin"
DECLINED = "not run: it was declined"
MORE_RIGHTS = "not run: codex asks for more rights first"
SANDBOX = "sandbox under [codex] chooses what its commands may do"


def call_of(item: i.Item) -> ToolCall:
    match item:
        case i.CommandExecution():
            return command_call(item.id, plain_command(item.command))
        case i.FileChange():
            changes = [{"path": one.path, "kind": one.kind.type, "diff": one.diff} for one in item.changes]
            return ToolCall(item.id, PATCH, _json({"changes": changes}))
        case i.McpToolCall():
            return ToolCall(item.id, f"{item.server}__{item.tool}", _object(item.arguments))
        case i.DynamicToolCall():
            return ToolCall(item.id, item.tool, _object(item.arguments))
        case i.WebSearch():
            return ToolCall(item.id, SEARCH, _json({"query": item.query}))
        case i.OtherCall():
            return ToolCall(item.id, f"{RUNTIME}_{item.kind}", item.json)
        case _:
            raise AssertionError(f"{type(item).__name__} is no call")


def command_call(id: str, command: str) -> ToolCall:
    return ToolCall(id, SHELL, _json({"command": command}))


def typing_call(id: str, into: str, text: str) -> ToolCall:
    return ToolCall(id, TYPE, _json({"call": into, "text": text}))


def held_call(held: Held) -> ToolCall:
    if (command := held.command()) is not None:
        return command_call(held.call, command)
    return ToolCall(held.call, held.tool.removeprefix("mcp__"), _object(held.input))


def outcome_of(item: i.Item, collected: str) -> Outcome:
    """`collected` is what came as output while it ran."""
    match item:
        case i.CommandExecution(status="declined") | i.FileChange(status="declined"):
            return Refused(DECLINED)
        case i.CommandExecution():
            said = collected if item.aggregated_output is None else item.aggregated_output
            if item.status == "completed" and not item.exit_code:
                return Returned(_text(said))
            line = "" if item.exit_code is None else f"[exit status {item.exit_code}]"
            between = "" if not said or said.endswith("\n") else "\n"
            return Failed(_text(f"{said}{between}{line}"))
        case i.FileChange():
            changed = "\n".join(f"{one.kind.type} {one.path}" for one in item.changes)
            said = f"{collected}{changed}"
            return Returned(_text(said)) if item.status == "completed" else Failed(_text(said))
        case i.McpToolCall():
            content = () if item.result is None else item.result.content
            said = "\n".join(one.text or f"[{one.type}, not shown]" for one in content)
            if item.status == "completed":
                return Returned(_text(said))
            return Failed(_text(said or ("" if item.error is None else item.error.message)))
        case i.WebSearch():
            return Returned(_text(bytes(item.action).decode("utf-8", "replace")))
        case i.OtherCall():
            return Returned(_text(item.json))
        case _:
            return Returned(_text(collected))


def of_the_sandbox(outcome: Outcome) -> bool:
    """Whether it failed because codex's sandbox could not be built: bubblewrap or codex says so in place of the
    command."""
    said = text_of(outcome.parts) if isinstance(outcome, Failed) else ""
    return said.startswith("bwrap: ") or "spawn codex-linux-sandbox" in said.partition("\n")[0]


def edits_in(call: ToolCall) -> tuple[tuple[str, str], ...]:
    """A patch is as many edits as it changes files, and the rules for edits count."""
    if call.name != PATCH:
        return ()
    changes = json.loads(call.arguments)["changes"]
    return tuple(("edit_file", json.dumps({"path": change["path"]})) for change in changes)


def plain_command(command: str) -> str:
    """The script inside `/bin/bash -lc '…'`, which is what a person and a rule mean by the command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    shell = len(words) == 3 and words[0].rpartition("/")[2] in ("bash", "zsh", "sh") and words[1] in ("-lc", "-c")
    return words[2] if shell else command


def is_patch(call: ToolCall) -> bool:
    """Whether codex takes a command for a change of files, which it asks about as such."""
    return call.name == SHELL and _PATCHES.fullmatch(json.loads(call.arguments)["command"]) is not None


def cause_of(failure: Failure) -> str:
    """Our word for what went wrong."""
    info = msgspec.json.decode(failure.codex_error_info)
    name = next(iter(info), "") if isinstance(info, dict) else info
    status = info[name].get("httpStatusCode") if isinstance(info, dict) and isinstance(info[name], dict) else None
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    return "dropped" if "stream disconnected" in failure.message else "server_error"


_PATCHES = re.compile(
    r"""\s*(cd\s+('[^']*'|"[^"$`\\]*"|[\w./~+-]+)\s*&&\s*)?apply_?patch\s*<<\s*(['"]?)(\w+)\3\n.*\n\4\s*""", re.DOTALL
)
_BY_STATUS = {401: "no_key", 403: "no_key", 404: "unknown_model", 429: "rate_limited", 503: "overloaded"}
_BY_NAME = {
    "contextWindowExceeded": "too_long",
    "usageLimitExceeded": "rate_limited",
    "rateLimitExceeded": "rate_limited",
    "serverOverloaded": "overloaded",
    "internalServerError": "server_error",
    "unauthorized": "no_key",
    "badRequest": "refused",
    "sandboxError": "sandbox",
    "httpConnectionFailed": "unreachable",
    "responseStreamConnectionFailed": "unreachable",
    "responseStreamDisconnected": "dropped",
    "responseTooManyFailedAttempts": "server_error",
    "sessionBudgetExceeded": "budget",
}


def _text(text: str) -> tuple[Content, ...]:
    return (Text(text),) if text else ()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(raw: Raw) -> str:
    text = bytes(raw).decode("utf-8", "replace")
    return text if text.startswith("{") else _json({"value": text})
