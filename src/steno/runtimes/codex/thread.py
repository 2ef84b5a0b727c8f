"""Which thread of codex a session has, and what that thread is told of the session.

A thread that knows all that counts is resumed. One that fell behind (another model answered since, or the history was
edited) is left, and a new one is begun from our history: that follows from what a person did. A thread that cannot be
resumed is said to be lost, and a new one is begun only where that was asked for.

    ThreadLost   codex does not have the thread any more, or it is another copy's by now; the message says how to begin
                 a new one
    ThreadBusy   another program has the thread open; nothing is lost
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeGuard, assert_never

from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import InputAdmitted, ThreadBound, ToolSpec
from steno.journal.history import Answered, Closed, Entry, Said, Settled
from steno.journal.parts import File, Hash, Image, Interrupted, Seq, Unknown, outcome_parts, text_of
from steno.models import wording
from steno.models.conversation import FromModel, FromTools, FromUser, Plain, Thought, Words, conversation, shown_text
from steno.models.openai_responses import CALL_ID
from steno.models.wire import schema
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.process import CodexError, Declined, Server
from steno.runtimes.held import HeldSession
from steno.store.protocol import Store

INJECTED_MAX = 200
"""Items in one request."""
KNOWN_MAX = 40
"""How many items back we look for inputs that the thread has."""
LISTED_MAX = 4
"""Items in one answer: each can hold as many images as an input may have, and all of them come in one line."""
LOST_CHARS_MAX = 20_000
_WRITER_WAIT_S = 5.0
_LOOK_AGAIN_S = 0.1


class ThreadLost(CodexError):
    pass


class ThreadBusy(CodexError):
    pass


class Shape(Struct, frozen=True):
    """How a thread is begun. `model` is "" for codex's own choice."""

    folder: str
    sandbox: str
    model: str = ""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    begin_anew: bool = False


class Thread(Struct):
    """`known` are the ids of inputs that it has; `ran` are the calls that were started since it was opened, each with
    its fact: any of them may say more after its turn. `fresh`: it was just told our history, and lost nothing of it.
    `answered` is the last answer that it had when it was resumed, until it has another turn."""

    id: str
    model: str
    known: set[str]
    resumed: bool = False
    fresh: bool = False
    answered: str = ""
    ran: dict[str, Seq] = {}


async def open_thread(
    server: Server, store: Store, held: HeldSession, shape: Shape, payloads: Mapping[Hash, bytes], inputs: Sequence[Seq]
) -> Thread:
    """The thread of a session, ready for a turn with these inputs."""
    bound = held.state.threads.get(RUNTIME)
    entries = before(held.history.entries(), inputs)
    if bound is not None and RUNTIME not in held.state.behind:
        try:
            thread = await _resumed(server, bound, shape, answered(held.history.entries(), held.id))
            if not await _knows_more(thread, store, held):
                return thread
            if not shape.begin_anew:
                raise ThreadLost(f"was told things in thread {bound} that this session does not have, by a copy of it")
        except Declined as error:
            if entries and not shape.begin_anew:
                raise ThreadLost(f"cannot resume thread {bound}: {error}") from error
    thread = await _begun(server, shape, told(entries, payloads))
    thread.known = {client_id(held.id, entry) for entry in entries if isinstance(entry, Said)}
    await held.record(ThreadBound(RUNTIME, thread.id))
    return thread


async def _resumed(server: Server, id: str, shape: Shape, answered: frozenset[str]) -> Thread:
    """A process that was killed a moment ago may still hold it."""
    asked = {"threadId": id, "excludeTurns": True, "cwd": shape.folder, **_policy(shape), **server.opening}
    deadline_s = time.monotonic() + _WRITER_WAIT_S
    opened: p.ThreadOpened | None = None
    while opened is None:
        try:
            opened = await server.ask("thread/resume", asked, p.ThreadOpened)
        except Declined as error:
            if "active writer" not in str(error):
                raise
            if time.monotonic() > deadline_s:
                raise ThreadBusy(f"says that another program has thread {id} open") from error
            await asyncio.sleep(_LOOK_AGAIN_S)
    known, last = await _known(server, id, answered)
    return Thread(opened.thread.id, opened.model, known, resumed=True, answered=last)


async def _known(server: Server, id: str, answered: frozenset[str]) -> tuple[set[str], str]:
    """The ids of what was said last in a thread, back to an input that was answered; and its last answer."""
    known: set[str] = set()
    last = ""
    listing: dict[str, Any] = {"threadId": id, "limit": LISTED_MAX, "sortDirection": "desc"}
    for _ in range(0, KNOWN_MAX, LISTED_MAX):
        listed = await server.ask("thread/items/list", listing, p.ItemsListed)
        known |= listed.said()
        last = last or listed.answer()
        if listed.next_cursor is None or not known.isdisjoint(answered):
            break
        listing["cursor"] = listed.next_cursor
    return known, last


async def _knows_more(thread: Thread, store: Store, held: HeldSession) -> bool:
    """Whether something was said in it under the name of this session that is not in our journal."""
    ours = {client_id(held.id, entry) for entry in held.history.entries() if isinstance(entry, Said)}
    for id in thread.known - ours:
        if (seq := seq_in(id, held.id)) is None:
            continue
        inputs = [one.fact for one in await store.read(held.id, seq - 1, 1) if isinstance(one.fact, InputAdmitted)]
        if not any(id == client_id(held.id, Said(seq, input.parts)) for input in inputs):
            return True
    return False


async def _begun(server: Server, shape: Shape, items: list[dict[str, Any]]) -> Thread:
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": schema(tool)}
        for tool in shape.tools
    ]
    asked: dict[str, Any] = {"cwd": shape.folder, "dynamicTools": tools, **_policy(shape), **server.opening}
    if shape.instructions:
        asked["developerInstructions"] = shape.instructions
    opened = await server.ask("thread/start", asked, p.ThreadOpened)
    for at in range(0, len(items), INJECTED_MAX):
        injected = {"threadId": opened.thread.id, "items": items[at : at + INJECTED_MAX]}
        await server.ask("thread/inject_items", injected, dict)
    return Thread(opened.thread.id, opened.model, set(), fresh=True)


def _policy(shape: Shape) -> dict[str, Any]:
    """Codex asks about everything but what its own rules files allow, and before that the gate stands. We answer."""
    asked = {"approvalPolicy": "untrusted", "approvalsReviewer": "user", "sandbox": shape.sandbox}
    return asked | ({"model": shape.model} if shape.model else {})


# --- what it is told; pure ----------------------------------------------------------------------------------------


def client_id(session: str, said: Said) -> str:
    """The id that an input has in codex's thread. In a copy of a session, or in a store that was restored, another
    input can have the same seq: so the id also tells what was said."""
    hashes = "".join(part.hash for part in said.parts if isinstance(part, Image | File))
    digest = sha256((text_of(said.parts) + hashes).encode("utf-8", "surrogatepass")).hexdigest()
    return f"steno/{session}/{said.seq}/{digest[:12]}"


def seq_in(client_id: str, session: str) -> Seq | None:
    """Which input of this session an id means; None if none."""
    match client_id.split("/"):
        case ["steno", of, seq, _] if of == session and seq.isdecimal():
            return int(seq)
        case _:
            return None


def before(entries: Sequence[Entry], inputs: Sequence[Seq]) -> list[Entry]:
    """What was said before the inputs that are about to be sent: those stand last."""
    end = len(entries)
    while end and isinstance(last := entries[end - 1], Said) and last.seq in inputs:
        end -= 1
    return list(entries[:end])


def told(entries: Sequence[Entry], payloads: Mapping[Hash, bytes]) -> list[dict[str, Any]]:
    """Entries as items of a thread."""
    lasting = conversation(Request("", "", (), tuple(entries), ""), payloads, "", CALL_ID).lasting
    items: list[dict[str, Any]] = []
    for message in lasting:
        match message:
            case Plain(speaker="user"):
                items.append(_message("user", [{"type": "input_text", "text": message.text}]))
            case Plain():
                items.append(_message("assistant", [{"type": "output_text", "text": message.text}]))
            case FromUser():
                items.append(_message("user", [_block(block) for block in message.shown]))
            case FromModel():
                items += [_answered(block) for block in message.blocks if not isinstance(block, Thought)]
            case FromTools():
                items += [
                    {"type": "function_call_output", "call_id": one.call, "output": shown_text(one.shown)}
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
    return {"type": "input_image", "image_url": f"data:{block.media_type};base64,{block.base64}"}


def _answered(block: Any) -> dict[str, Any]:
    if isinstance(block, Words):
        return _message("assistant", [{"type": "output_text", "text": block.text}])
    return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": block.arguments}


def said_to(entry: Said, payloads: Mapping[Hash, bytes]) -> list[dict[str, Any]]:
    """An input as codex takes it."""
    [message] = conversation(Request("", "", (), (entry,), ""), payloads, "", CALL_ID).lasting
    shown = (
        message.shown if isinstance(message, FromUser) else (Words(message.text),) if isinstance(message, Plain) else ()
    )
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, Words)
        else {"type": "image", "url": f"data:{block.media_type};base64,{block.base64}"}
        for block in shown
    ]


def answered(entries: Sequence[Entry], session: str) -> frozenset[str]:
    """The ids of inputs that stand before a whole answer."""
    whole = [at for at, entry in enumerate(entries) if isinstance(entry, Answered) and entry.ended == "complete"]
    return frozenset(client_id(session, one) for one in entries[: whole[-1] if whole else 0] if isinstance(one, Said))


def unsaid(entries: Sequence[Entry], thread: Thread, session: str) -> list[Said]:
    """What was said since the last whole answer and is not in the thread: it must be sent, again if need be."""
    found: list[Said] = []
    for entry in reversed(entries):
        if isinstance(entry, Answered) and entry.ended == "complete":
            break
        if isinstance(entry, Said) and client_id(session, entry) not in thread.known:
            found.append(entry)
    return found[::-1]


def lost_note(entries: Sequence[Entry], answered: str = "") -> str:
    """What codex lost of the end of the last turn, because it keeps nothing of an item that it did not complete.
    `answered` is the last answer in its thread: it may have completed one that we were killed before the end of."""
    lines: list[str] = []
    whole = next((text_of(one.parts) for one in reversed(entries) if _is_whole(one)), "")
    kept = "" if answered == whole else answered
    for entry in reversed(entries):
        match entry:
            case Answered(ended="complete" | "length"):
                break
            case Answered() if kept and kept.startswith(text_of(entry.parts)):
                shown = len(text_of(entry.parts))
                lines.append(f"Of your last message the user was shown {shown} characters." * (shown < len(kept)))
                kept = ""
            case Answered():
                text = text_of(entry.parts)[-LOST_CHARS_MAX:]
                if text:
                    lines.append(f"You had said, and the user was shown:\n{text}\n{wording.ending(entry.ended)}")
            case Settled(outcome=Interrupted() | Unknown()):
                output = text_of(outcome_parts(entry.outcome))[-LOST_CHARS_MAX:]
                lines.append(
                    f"Call {entry.call}: {wording.verdict(entry.outcome)}\nIts output so far:\n{output}".rstrip()
                )
            case Closed():
                lines.append(wording.closing(entry))
            case _:
                pass
    return "\n\n".join(filter(None, reversed(lines)))


def _is_whole(entry: Entry) -> TypeGuard[Answered]:
    return isinstance(entry, Answered) and entry.ended in ("complete", "length")
