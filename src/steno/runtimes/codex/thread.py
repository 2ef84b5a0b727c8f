"""Which thread of codex a session has, what codex lost of it, and what it is told again.

A thread that knows all that counts is resumed. One that fell behind (another model answered since,
or the history was edited) is left, and a new one is begun from our history: that follows from what
a person did. A thread that cannot be resumed is said to be lost, and a new one is begun only where
that was asked for.

Codex keeps nothing of an item that it did not complete. Our journal has all of it, so the next turn
tells codex what it lost, in the same request that begins the turn:

    "go" · answer "Hel", steno and codex killed
        inputs: none of "go", its echo came
        note: You had said, and the user was shown: Hel
    "go", codex killed before it said "go" back
        inputs: "go" and the new one, in one message
    "go" · "Hello." completed in codex; we had stored "Hel"
        inputs: the new one
        note: Of your last message the user was shown 3 characters
    "go" · command c1 running, both killed
        note: Call c1: it was cut off; its output so far

Whether codex has an input is known from the input's id in what the thread lists. Codex writes an
input for its model first and lists it then. If it was killed in between, only its own file of the
thread says so:

    listed  "a" · "b"    file  "a" · "b" · "c"    so the model knows "c", and it is not said again
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard, assert_never

import msgspec
from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import InputAdmitted, ThreadBound, ToolSpec
from steno.journal.history import (
    Answered,
    Closed,
    Entry,
    Noted,
    Said,
    Settled,
    Summarised,
)
from steno.journal.parts import (
    File,
    Hash,
    Image,
    Interrupted,
    Seq,
    Unknown,
    outcome_parts,
    text_of,
)
from steno.models import wording
from steno.models.conversation import (
    FromModel,
    FromTools,
    FromUser,
    Message,
    Plain,
    Shown,
    Thought,
    Words,
    conversation,
    shown_text,
)
from steno.models.openai_responses import CALL_ID
from steno.models.wire import schema
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.policy import is_confined
from steno.runtimes.codex.process import (
    CodexServer,
    Declined,
    InUse,
    ThreadBusy,
    ThreadLost,
    log,
)
from steno.session.lease import HeldSession
from steno.store.protocol import Store

INJECTED_MAX = 200
"""Items in one request."""
KNOWN_MAX = 400
"""How many items back we look for inputs that the thread has, at the most: the last answer is
nearly always near."""
LISTED_MAX = 4
"""Items in one answer: each can hold as many images as an input may have, and all of them come in
one line."""
SAID_CHARS_MAX = 1 << 20
"""Codex takes no more text than this in one message."""
LOST_CHARS_MAX = 20_000
TAIL_BYTES_MAX = 32 * 1024 * 1024
"""How much of the end of codex's file is read."""
NEXT = "\n\n[The user said next:]\n\n"
_TOGETHER = "+"
_WRITER_WAIT_S = 5.0
_LOOK_AGAIN_S = 0.1


class Shape(Struct, frozen=True):
    """How a thread is begun. `model` is "" for codex's own choice."""

    folder: str
    sandbox: str
    model: str = ""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    begin_anew: bool = False


class CodexThread(Struct):
    """`known` are the ids of inputs that it has; `ran` are the calls that were started since it was
    opened, each with its fact: any of them may say more after its turn. `fresh`: it was just told
    our history, and lost nothing of it. `answered` is the last answer that it had when it was
    resumed, until it has another turn. `path` is codex's file. `empty`: it has nothing; `seen`:
    back to an input that was answered, or to its beginning, we know what it has."""

    id: str
    model: str
    known: set[str]
    fresh: bool = False
    answered: str = ""
    ran: dict[str, Seq] = {}
    path: str = ""
    empty: bool = False
    seen: bool = True


# --- the ids of our inputs in a thread ------------------------------------------------------------


def client_id(session: str, said: Said) -> str:
    """The id that an input has in codex's thread. In a copy of a session, or in a store that was
    restored, another input can have the same seq: so the id also tells what was said."""
    hashes = "".join(
        part.hash for part in said.parts if isinstance(part, Image | File)
    )
    digest = sha256(
        (text_of(said.parts) + hashes).encode("utf-8", "surrogatepass")
    ).hexdigest()
    return f"steno/{session}/{said.seq}/{digest[:12]}"


def message_id(session: str, inputs: Sequence[Said]) -> str:
    """The id of one message that says these inputs."""
    return _TOGETHER.join(client_id(session, said) for said in inputs)


def client_ids(message: str) -> list[str]:
    """The inputs that a message with this id says."""
    return message.split(_TOGETHER)


def seq_in(client_id: str, session: str) -> Seq | None:
    """Which input of this session an id means; None if none."""
    match client_id.split("/"):
        case ["steno", of, seq, _] if of == session and seq.isdecimal():
            return int(seq)
        case _:
            return None


# --- opening a thread -----------------------------------------------------------------------------


async def open_thread(
    server: CodexServer,
    store: Store,
    held: HeldSession,
    shape: Shape,
    payloads: Mapping[Hash, bytes],
    inputs: Sequence[Seq],
) -> CodexThread:
    """The thread of a session, ready for a turn with these inputs."""
    bound = held.state.threads.get(RUNTIME)
    entries = before(held.history.entries(), inputs)
    if bound is not None and RUNTIME not in held.state.behind:
        try:
            thread = await _gone_on_with(server, store, held, shape, payloads, bound)
        except Declined as error:
            if entries and not shape.begin_anew:
                raise ThreadLost(f"cannot resume thread {bound}: {error}") from error
        else:
            if thread is not None:
                return thread
    thread = await _begun(server, shape, told(entries, payloads))
    thread.known = {
        client_id(held.id, entry) for entry in entries if isinstance(entry, Said)
    }
    await held.record(ThreadBound(RUNTIME, thread.id))
    return thread


async def _gone_on_with(
    server: CodexServer,
    store: Store,
    held: HeldSession,
    shape: Shape,
    payloads: Mapping[Hash, bytes],
    bound: str,
) -> CodexThread | None:
    """The thread that the session has; None if a new one is to be begun."""
    entries = held.history.entries()
    thread = await _resumed(server, bound, shape, answered(entries, held.id))
    await _look_closer(thread, held, payloads)
    if why := await _unlike(thread, store, held):
        if shape.begin_anew:
            return None
        raise ThreadLost(why)
    if _takes(unsaid(entries, thread, held.id), payloads):
        return thread
    log().warning(
        "codex lost more inputs than fit one message; a new thread is told everything"
    )
    return None


async def _resumed(
    server: CodexServer, id: str, shape: Shape, answered: frozenset[str]
) -> CodexThread:
    """A process that was killed a moment ago may still hold it."""
    asked = {
        "threadId": id,
        "excludeTurns": True,
        "cwd": shape.folder,
        **_policy(shape),
        **server.opening,
    }
    deadline_s = time.monotonic() + _WRITER_WAIT_S
    opened: p.ThreadOpened | None = None
    while opened is None:
        try:
            opened = await server.ask("thread/resume", asked, p.ThreadOpened)
        except InUse as error:
            if time.monotonic() > deadline_s:
                raise ThreadBusy(
                    f"says that another program has thread {id} open"
                ) from error
            await asyncio.sleep(_LOOK_AGAIN_S)
    thread = CodexThread(
        opened.thread.id, opened.model, set(), path=opened.thread.path or ""
    )
    await _read(server, thread, answered)
    return thread


async def _read(
    server: CodexServer, thread: CodexThread, answered: frozenset[str]
) -> None:
    """Take in the ids of what was said last in a thread, back to an input that was answered; and
    its last answer."""
    listing: dict[str, Any] = {
        "threadId": thread.id,
        "limit": LISTED_MAX,
        "sortDirection": "desc",
    }
    thread.empty = True
    for _ in range(0, KNOWN_MAX, LISTED_MAX):
        listed = await server.ask("thread/items/list", listing, p.ItemsListed)
        thread.known |= {
            id for message in listed.said() for id in client_ids(message)
        }
        thread.answered = thread.answered or listed.answer()
        thread.empty = thread.empty and not listed.data
        if listed.next_cursor is None or not thread.known.isdisjoint(answered):
            return
        listing["cursor"] = listed.next_cursor
    thread.seen = False


async def _look_closer(
    thread: CodexThread, held: HeldSession, payloads: Mapping[Hash, bytes]
) -> None:
    """If the last turn was cut off, codex may have been told what it does not list: also an input
    that steered, which for us is still pending, and one that a later turn took up and answered."""
    last, entries = held.state.last_turn, held.history.entries()
    missed = _missed(thread, held)
    if (
        last is None
        or (last.ending.outcome == "done" and not missed)
        or not thread.path
    ):
        return
    messages = await asyncio.to_thread(
        unlisted, thread.path, answered(entries, held.id)
    )
    waiting = [
        said for said in pending(held) if client_id(held.id, said) not in thread.known
    ]
    for said in told_in(
        messages, [*missed, *unsaid(entries, thread, held.id), *waiting], payloads
    ):
        thread.known.add(client_id(held.id, said))


def _missed(thread: CodexThread, held: HeldSession) -> list[Said]:
    """The last input that was both said and answered since the thread was bound, if it does not
    list that."""
    said = said_since(held.history.entries(), held.state.bound[RUNTIME])[-1:]
    return [
        one
        for one in said
        if thread.seen and client_id(held.id, one) not in thread.known
    ]


def pending(held: HeldSession) -> list[Said]:
    """The inputs that no turn has taken yet."""
    return [Said(seq, input.parts) for seq, input in held.state.pending.items()]


async def _unlike(thread: CodexThread, store: Store, held: HeldSession) -> str:
    """How a thread differs from this session, if it does: then it is not gone on with."""
    if await _knows_more(thread, store, held):
        return f"was told things in thread {thread.id} that only a copy of this session has"
    entries, bound = held.history.entries(), held.state.bound[RUNTIME]
    answers = (one for one in entries if _is_whole(one) and one.seq > bound)
    if _missed(thread, held) or (thread.empty and any(answers)):
        return f"has lost the end of thread {thread.id}, or all of it"
    return ""


async def _knows_more(thread: CodexThread, store: Store, held: HeldSession) -> bool:
    """True if something was said in it under the name of this session that is not in our
    journal."""
    entries = held.history.entries()
    ours = {client_id(held.id, entry) for entry in entries if isinstance(entry, Said)}
    for id in thread.known - ours:
        if (seq := seq_in(id, held.id)) is None:
            continue
        facts = [one.fact for one in await store.read(held.id, seq - 1, 1)]
        inputs = (
            Said(seq, one.parts) for one in facts if isinstance(one, InputAdmitted)
        )
        if not any(id == client_id(held.id, said) for said in inputs):
            return True
    return False


async def _begun(
    server: CodexServer, shape: Shape, items: list[dict[str, Any]]
) -> CodexThread:
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "inputSchema": schema(tool),
        }
        for tool in shape.tools
    ]
    asked: dict[str, Any] = {
        "cwd": shape.folder,
        "dynamicTools": tools,
        **_policy(shape),
    }
    if shape.instructions:
        asked["developerInstructions"] = shape.instructions
    opened = await server.ask("thread/start", asked | server.opening, p.ThreadOpened)
    id, path = opened.thread.id, opened.thread.path or ""
    for at in range(0, len(items), INJECTED_MAX):
        injected = {"threadId": id, "items": items[at : at + INJECTED_MAX]}
        await server.ask("thread/inject_items", injected, dict)
    return CodexThread(id, opened.model, set(), fresh=True, path=path)


def _policy(shape: Shape) -> dict[str, Any]:
    """Without a sandbox codex asks about everything but what its own rules files allow. With one it
    must not: what was approved, and what the sandbox stops, it would run once more outside. So it
    asks only about what is to leave the sandbox, and the gate stands before everything. We
    answer."""
    policy = "on-request" if is_confined(shape.sandbox) else "untrusted"
    asked = {
        "approvalPolicy": policy,
        "approvalsReviewer": "user",
        "sandbox": shape.sandbox,
    }
    return asked | ({"model": shape.model} if shape.model else {})


# --- what a thread is told; pure ------------------------------------------------------------------


def before(entries: Sequence[Entry], inputs: Sequence[Seq]) -> list[Entry]:
    """What was said before the inputs that are about to be sent: those stand last."""
    end = len(entries)
    while end and isinstance(last := entries[end - 1], Said) and last.seq in inputs:
        end -= 1
    return list(entries[:end])


def told(
    entries: Sequence[Entry], payloads: Mapping[Hash, bytes]
) -> list[dict[str, Any]]:
    """Entries as items of a thread."""
    lasting = conversation(
        Request("", "", (), tuple(entries), ""), payloads, "", CALL_ID
    ).lasting
    items: list[dict[str, Any]] = []
    for message in lasting:
        match message:
            case Plain(speaker="user"):
                items.append(
                    _message("user", [{"type": "input_text", "text": message.text}])
                )
            case Plain():
                items.append(
                    _message(
                        "assistant", [{"type": "output_text", "text": message.text}]
                    )
                )
            case FromUser():
                items.append(
                    _message("user", [_block(block) for block in message.shown])
                )
            case FromModel():
                items += [
                    _answered(block)
                    for block in message.blocks
                    if not isinstance(block, Thought)
                ]
            case FromTools():
                items += [
                    {
                        "type": "function_call_output",
                        "call_id": one.call,
                        "output": shown_text(one.shown),
                    }
                    for one in message.results
                ]
            case unreachable:
                assert_never(unreachable)
    return items


def _message(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _block(block: Any) -> dict[str, Any]:
    if isinstance(block, Words):
        return {"type": "input_text", "text": block.text}
    return {
        "type": "input_image",
        "image_url": f"data:{block.media_type};base64,{block.base64}",
    }


def _answered(block: Any) -> dict[str, Any]:
    if isinstance(block, Words):
        return _message("assistant", [{"type": "output_text", "text": block.text}])
    return {
        "type": "function_call",
        "call_id": block.id,
        "name": block.name,
        "arguments": block.arguments,
    }


def said_to(
    inputs: Sequence[Said], payloads: Mapping[Hash, bytes]
) -> list[dict[str, Any]]:
    """Inputs as codex takes them in one message, and where each but the first begins."""
    items: list[dict[str, Any]] = []
    for message in conversation(
        Request("", "", (), tuple(inputs), ""), payloads, "", CALL_ID
    ).lasting:
        items += [{"type": "text", "text": NEXT}] * bool(items)
        items += [
            {"type": "text", "text": block.text}
            if isinstance(block, Words)
            else {
                "type": "image",
                "url": f"data:{block.media_type};base64,{block.base64}",
            }
            for block in _shown(message)
        ]
    return items


def _shown(message: Message) -> Shown:
    match message:
        case Plain():
            return (Words(message.text),)
        case FromUser():
            return message.shown
        case FromModel() | FromTools():
            return ()
        case unreachable:
            assert_never(unreachable)


def _takes(inputs: Sequence[Said], payloads: Mapping[Hash, bytes]) -> bool:
    """True if codex takes these in one message. A single input that is too long is refused when it
    is sent."""
    if len(inputs) < 2:
        return True
    return (
        sum(len(item.get("text", "")) for item in said_to(inputs, payloads))
        <= SAID_CHARS_MAX
    )


def _before_last_answer(entries: Sequence[Entry]) -> list[Said]:
    """The inputs that stand before the last whole answer."""
    whole = (
        at
        for at, entry in enumerate(entries)
        if isinstance(entry, Answered) and entry.ended == "complete"
    )
    return [one for one in entries[: max(whole, default=0)] if isinstance(one, Said)]


def answered(entries: Sequence[Entry], session: str) -> frozenset[str]:
    """The ids of inputs that stand before a whole answer."""
    return frozenset(client_id(session, one) for one in _before_last_answer(entries))


def said_since(entries: Sequence[Entry], bound: Seq) -> list[Said]:
    """The inputs that stand before a whole answer and came after the thread was bound. One that it
    was bound for may have been told without its id."""
    return [one for one in _before_last_answer(entries) if one.seq > bound]


def unsaid(entries: Sequence[Entry], thread: CodexThread, session: str) -> list[Said]:
    """What was said since the last whole answer and is not in the thread: it must be sent, again if
    need be."""
    found: list[Said] = []
    for entry in reversed(entries):
        if isinstance(entry, Answered) and entry.ended == "complete":
            break
        if isinstance(entry, Said) and client_id(session, entry) not in thread.known:
            found.append(entry)
    return found[::-1]


def told_in(
    messages: Sequence[list[str]],
    inputs: Sequence[Said],
    payloads: Mapping[Hash, bytes],
) -> list[Said]:
    """Those of the inputs that these messages say, alone or several together. They come in the same
    order."""
    found: list[Said] = []
    left = list(inputs)
    for texts in messages:
        for end in range(len(left), 0, -1):
            if texts == [
                item["text"]
                for item in said_to(left[:end], payloads)
                if "text" in item
            ]:
                found, left = found + left[:end], left[end:]
                break
    return found


def context(note: str) -> dict[str, Any]:
    """What goes with an input in the same request."""
    return (
        {"additionalContext": {"steno": {"value": note, "kind": "application"}}}
        if note
        else {}
    )


def cut_note(shown: str) -> str:
    """What is told with an input that steers: codex keeps nothing of the answer that this cuts off.
    Whether it comes in time for that is not known yet."""
    if not shown:
        return ""
    return f"When the user said this, so much of your answer was shown:\n{shown[-LOST_CHARS_MAX:]}"


def lost_note(entries: Sequence[Entry], turn: Seq, answered: str = "") -> str:
    """What codex lost of the end of the last turn. `turn` is the one under way. `answered` is the
    last answer in its thread, "" if it was not resumed: it may have completed one that we were
    killed before the end of. A command that it left running at the end of a turn ended with the
    process that it resumes."""
    lines: list[str] = []
    end = max(
        (at for at, one in enumerate(entries, start=1) if _is_whole(one)), default=0
    )
    whole = next(
        (text_of(one.parts) for one in reversed(entries) if _is_whole(one)), ""
    )
    kept = "" if answered == whole else answered
    for entry in reversed(entries[end:]):
        match entry:
            case Answered(parts=parts) if kept and kept.startswith(text_of(parts)):
                shown = len(text_of(parts))
                if shown < len(kept):
                    lines.append(
                        f"Of your last message the user was shown {shown} characters."
                    )
                kept = ""
            case Answered(parts=parts):
                if text := text_of(parts)[-LOST_CHARS_MAX:]:
                    ended = wording.ending(entry.ended)
                    lines.append(
                        f"You had said, and the user was shown:\n{text}\n{ended}"
                    )
            case Settled(outcome=Interrupted() | Unknown()):
                lines.append(_lost_call(entry))
            case Closed():
                lines.append(wording.closing(entry))
            case Said() | Settled() | Noted() | Summarised():
                pass
            case unreachable:
                assert_never(unreachable)
    beside = _lost_beside(entries, end, turn, bool(answered))
    return "\n\n".join(filter(None, (*beside, *reversed(lines))))


def _lost_beside(
    entries: Sequence[Entry], end: int, turn: Seq, resumed: bool
) -> list[str]:
    """Calls that ran beside the last whole answer, which ends there, and were cut off with its
    turn; or while that waited for a person, and still does; or that it left running."""
    closed = next(
        (entry for entry in entries[end:] if isinstance(entry, Closed)), None
    )
    since, lost = (
        (turn, Unknown) if closed is None else (closed.seq, Interrupted | Unknown)
    )
    said = max(
        (at for at, entry in enumerate(entries[:end]) if isinstance(entry, Said)),
        default=0,
    )
    return [
        _lost_call(call)
        for at, call in enumerate(entries[:end])
        if isinstance(call, Settled)
        and (
            (call.seq > since and isinstance(call.outcome, lost))
            or (resumed and at > said and isinstance(call.outcome, Interrupted))
        )
    ]


def _lost_call(call: Settled) -> str:
    output = text_of(outcome_parts(call.outcome))[-LOST_CHARS_MAX:]
    verdict = wording.verdict(call.outcome)
    return f"Call {call.call}: {verdict}\nIts output so far:\n{output}".rstrip()


def _is_whole(entry: Entry) -> TypeGuard[Answered]:
    return isinstance(entry, Answered) and entry.ended in ("complete", "length")


# --- codex's own file of a thread -----------------------------------------------------------------
#
# Codex's hooks do not say in which folder and with which rights a command is to run; the file does,
# and codex writes it before it runs a hook. The file is codex's own and may look otherwise one day:
# what cannot be read here says nothing.

_arguments = msgspec.json.Decoder(dict[str, Any])


def unlisted(path: str, answered: frozenset[str]) -> list[list[str]]:
    """The texts of each message of a user that the model is told and that is not listed, the oldest
    first. What stands before an input that was answered does not count."""
    found: list[list[str]] = []
    listed = False
    for line in _from_the_end(path):
        match _message_in(line):
            case str(client_id):
                if not answered.isdisjoint(client_ids(client_id)):
                    break
                listed = True
            case list(texts):
                found += [] if listed else [texts]
                listed = False
            case None:
                pass
    return found[::-1]


def folder_asked(path: str | None, call: str) -> str | None:
    """The folder in which a command is to run, as its model asked for; "" if it did not. None if
    that is not known."""
    folders = {
        str(arguments.get("workdir") or "") for arguments in arguments_of(path, call)
    }
    return folders.pop() if len(folders) == 1 else None


def arguments_of(path: str | None, call: str) -> list[dict[str, Any]]:
    """What a command was called with: each call of the last turn that has this id, since they
    cannot be told apart. None of them if the file says nothing of it, or something that cannot be
    read."""
    found: list[dict[str, Any]] = []
    for line in () if path is None else _from_the_end(path):
        if b'"function_call"' not in line and b'"task_started"' not in line:
            continue
        try:
            match msgspec.json.decode(line):
                case {"type": "event_msg", "payload": {"type": "task_started"}}:
                    break
                case {
                    "payload": {
                        "type": "function_call",
                        "call_id": id,
                        "arguments": str(arguments),
                    }
                } if id == call:
                    found.append(_arguments.decode(arguments))
        except (msgspec.DecodeError, RecursionError):
            return []
    return found


def _from_the_end(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(end - TAIL_BYTES_MAX, 0))
            yield from reversed(file.read(TAIL_BYTES_MAX).split(b"\n"))
    except OSError:
        return


def _message_in(line: bytes) -> str | list[str] | None:
    """The id of an input that is listed, the texts of one that the model is told, or None for
    anything else."""
    if b'"UserMessage"' not in line and b'"user.' not in line:
        return None
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    match entry:
        case {
            "payload": {
                "type": "item_completed",
                "item": {"type": "UserMessage", **item},
            }
        }:
            return str(item.get("client_id") or "")
        case {
            "payload": {
                "type": "message",
                "role": "user",
                "content": [*blocks],
                **rest,
            }
        } if _is_said(rest):
            return [
                str(one["text"])
                for one in blocks
                if isinstance(one, dict) and "text" in one
            ]
        case _:
            return None


def _is_said(message: dict[Any, Any]) -> bool:
    """True if a person said it: codex tells its model other things in the same way."""
    match message.get("internal_chat_message_metadata_passthrough"):
        case {"content_item_kinds": [*kinds]}:
            return any(str(kind).startswith("user.") for kind in kinds)
        case _:
            return False
