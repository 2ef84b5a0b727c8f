"""What codex does, in the words of our journal: calls, outcomes, causes of failure. Pure."""

import json
import posixpath
import shlex

import msgspec
from msgspec import Raw

from steno.engine.approval import PATCH
from steno.journal.parts import (
    Content,
    Failed,
    Outcome,
    Refused,
    Returned,
    Text,
    ToolCall,
    outcome_parts,
    text_of,
)
from steno.models import wording as words
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import items as i
from steno.runtimes.codex.protocol import CommandApproval, Failure, WaitingCall

SHELL, SEARCH, TYPE = "shell", "web_search", "write_stdin"
DECLINED = "not run: it was declined"
UNRUN = {
    "completed": "not run: the turn ended first",
    "interrupted": "not run: the turn was stopped first",
    "failed": "not run: the turn failed first",
}
"""By how the turn ended: a call that was not decided about was not declined."""
UNHEARD = "codex said nothing of it: it was not run, or it failed at once"
REPLACED = "not run: a hook of codex's own put another call in its place"
SANDBOX = "sandbox under [codex] chooses what its commands may do"


def call_of(item: i.CallItem) -> ToolCall:
    match item:
        case i.CommandExecution():
            return command_call(item.id, plain_command(item.command))
        case i.FileChange():
            return patch_call(
                item.id, [change for one in item.changes for change in _changes(one)]
            )
        case i.McpToolCall():
            return ToolCall(
                item.id, f"{item.server}__{item.tool}", _object(item.arguments)
            )
        case i.DynamicToolCall():
            return ToolCall(item.id, item.tool, _object(item.arguments))
        case i.WebSearch():
            return ToolCall(item.id, SEARCH, _json({"query": item.query}))
        case i.OtherCall():
            return ToolCall(item.id, f"{RUNTIME}_{item.kind}", item.json)


def command_call(id: str, command: str) -> ToolCall:
    return ToolCall(id, SHELL, _json({"command": command}))


def patch_call(id: str, changes: list[dict[str, str]]) -> ToolCall:
    return ToolCall(id, PATCH, _json({"changes": changes}))


def typing_call(id: str, into: str, text: str) -> ToolCall:
    return ToolCall(id, TYPE, _json({"call": into, "text": text}))


def typed_in(asked: CommandApproval) -> str | None:
    """What codex asks to type. It says it as words of a command: `write_stdin --session-id N
    TEXT`."""
    try:
        words = shlex.split(asked.command or "")
    except ValueError:
        return None
    return (
        words[3] if len(words) == 4 and words[:2] == [TYPE, "--session-id"] else None
    )


def waiting_call(waiting: WaitingCall) -> ToolCall:
    if (command := waiting.command()) is not None:
        return command_call(waiting.call, command)
    return ToolCall(
        waiting.call, waiting.tool.removeprefix("mcp__"), _object(waiting.input)
    )


def same_call(waited: ToolCall, told: ToolCall) -> bool:
    """True if codex runs what waited at the gate: another hook can change a call on the way."""
    if waited.name == told.name == PATCH:
        return _places(waited) == _places(told)
    return waited.name == told.name and json.loads(waited.arguments) == json.loads(
        told.arguments
    )


def outcome_of(item: i.CallItem, collected: str) -> Outcome:
    """`collected` is what came as output while it ran."""
    match item:
        case i.CommandExecution(status="declined") | i.FileChange(status="declined"):
            return Refused(DECLINED)
        case i.CommandExecution():
            said = (
                collected
                if item.aggregated_output is None
                else item.aggregated_output
            )
            if item.status == "completed" and not item.exit_code:
                return Returned(_text(said))
            line = "" if item.exit_code is None else f"[exit status {item.exit_code}]"
            between = "" if not said or said.endswith("\n") else "\n"
            return Failed(_text(f"{said}{between}{line}"))
        case i.FileChange():
            changed = "\n".join(f"{one.kind.type} {one.path}" for one in item.changes)
            said = f"{collected}{changed}"
            return (
                Returned(_text(said))
                if item.status == "completed"
                else Failed(_text(said))
            )
        case i.McpToolCall():
            content = () if item.result is None else item.result.content
            said = "\n".join(
                one.text or f"[{one.type}, not shown]" for one in content
            )
            if item.status == "completed":
                return Returned(_text(said))
            return Failed(
                _text(said or ("" if item.error is None else item.error.message))
            )
        case i.WebSearch():
            return Returned(_text(bytes(item.action).decode("utf-8", "replace")))
        case i.OtherCall():
            return Returned(_text(item.json))
        case i.DynamicToolCall():
            return Returned(_text(collected))


def of_the_sandbox(outcome: Outcome) -> bool:
    """True if it failed because codex's sandbox could not be built: bubblewrap or codex says so in
    place of the command. Only a log depends on it."""
    said = text_of(outcome.parts) if isinstance(outcome, Failed) else ""
    return (
        said.startswith("bwrap: ")
        or "spawn codex-linux-sandbox" in said.partition("\n")[0]
    )


def told_of(outcome: Outcome) -> str:
    """What codex is told of the outcome of one of our tools."""
    said = "\n".join(
        part.text for part in outcome_parts(outcome) if isinstance(part, Text)
    )
    return "\n".join(filter(None, (said, words.verdict(outcome)))) or words.NO_OUTPUT


def plain_command(command: str) -> str:
    """The script inside `/bin/bash -lc '…'`, which is what a person and a rule mean by the
    command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    shell = (
        len(words) == 3
        and words[0].rpartition("/")[2] in ("bash", "zsh", "sh")
        and words[1] in ("-lc", "-c")
    )
    return words[2] if shell else command


def cause_of(failure: Failure) -> str:
    """Our word for what went wrong. Codex has no code for a stream that breaks off on some ways, so
    there its message is read."""
    info = msgspec.json.decode(failure.codex_error_info)
    name, more = (
        next(iter(info.items()), ("", None))
        if isinstance(info, dict)
        else (info, None)
    )
    status = more.get("httpStatusCode") if isinstance(more, dict) else None
    if isinstance(status, int) and status >= 400:
        return _BY_STATUS.get(status, "refused" if status < 500 else "server_error")
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    return "dropped" if "stream disconnected" in failure.message else "server_error"


_BY_STATUS = {
    401: "no_key",
    403: "no_key",
    404: "unknown_model",
    413: "too_long",
    429: "rate_limited",
    503: "overloaded",
}
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


def _changes(change: i.Change) -> list[dict[str, str]]:
    """To move a file is to make another one, and the rules for that one count, too."""
    moved = (
        []
        if change.kind.move_path is None
        else [{"path": change.kind.move_path, "kind": "move", "diff": ""}]
    )
    return [
        {"path": change.path, "kind": change.kind.type, "diff": change.diff},
        *moved,
    ]


def _places(patch: ToolCall) -> set[tuple[str, str]]:
    """What a patch does where. The gate and codex's items write the change itself differently."""
    changes = json.loads(patch.arguments).get("changes", ())
    return {
        (posixpath.normpath(change["path"]), change["kind"]) for change in changes
    }


def _text(text: str) -> tuple[Content, ...]:
    return (Text(text),) if text else ()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(raw: Raw) -> str:
    text = bytes(raw).decode("utf-8", "replace")
    return text if text.startswith("{") else _json({"value": text})
