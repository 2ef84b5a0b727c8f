"""An app-server as a child process of ours: started, greeted, asked with time limits, ended with
its whole group.

    CodexError        a turn that meets one fails, with the error's `cause`
      Unguarded       codex would do things unasked, and does not let us stand before them
      Unstartable     it cannot be run, or ended before it greeted
      Gone            it ended while it was needed
      Silent          it did not answer a request in time
      Unreadable      it answered in a way that we do not understand
      Stopped         it was not waited for, because a stop was asked for
      Declined        it said no to a request
        TooLong       what was to be said is longer than it takes
        InUse         another process has the thread open
      ThreadLost      it does not have the thread any more, or not all of it, or a copy of the
                      session went on in it
      ThreadBusy      another program keeps the thread open; nothing is lost
"""

import asyncio
import logging
import re
from collections import deque
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.gate import CallGate, Need, silenced
from steno.tools.child import Child, Command, Unread

INBOX_MAX = 10_000
LINE_BYTES_MAX = 128 * 1024 * 1024
"""Codex repeats what was said to it in one line, images and all, and lists several of those in
one."""
_OFF = ("multi_agent", "multi_agent_v2", "goals", "unbounded_connection_retries")
ALONE = {f"features.{one}": False for one in _OFF} | {"agents.enabled": False}
"""Codex does what it is asked to, and that is in the session. Agents that it starts would have
threads of their own, and a goal of its own would begin turns without an input. Where the provider
cannot be reached it would try again without end; without that the turn fails, and says so."""
_SILENCE_S = 1.0
_TRIED = re.compile(r"/0\.16[3-9]\.")

Message = p.ServerRequest | p.Notification
Answered = TypeVar("Answered")


class CodexError(Exception):
    """Its text goes on after "codex", that of `Unstartable` names the program."""

    cause = "codex"


class Unguarded(CodexError):
    pass


class Unstartable(CodexError):
    pass


class Gone(CodexError):
    pass


class Silent(CodexError):
    pass


class Unreadable(CodexError):
    pass


class Stopped(CodexError):
    pass


class Declined(CodexError):
    pass


class TooLong(Declined):
    cause = "input_too_long"


class InUse(Declined):
    pass


class ThreadLost(CodexError):
    cause = "thread_lost"


class ThreadBusy(CodexError):
    pass


class Patience(Struct, frozen=True):
    """Time limits, in seconds. A turn itself has none here: it has a budget."""

    start_s: float = 30.0
    answer_s: float = 30.0
    interrupt_s: float = 5.0


class CodexServer:
    """`arrived` is set when there is something to take, or nothing more will come. `opening` is
    what each thread is opened with."""

    def __init__(
        self, child: Child, patience: Patience, gate: CallGate | None = None
    ) -> None:
        self.arrived = asyncio.Event()
        self.patience = patience
        self.group = child.group
        self.opening: dict[str, Any] = {"config": ALONE}
        self._child = child
        self._gate = gate
        self._inbox: deque[Message] = deque()
        self._room = asyncio.Event()
        self._waits: dict[int, asyncio.Future[p.RpcAnswer]] = {}
        self._asked = 0
        self._over = False
        self._lines = 0
        self._garbled = False
        self._reader = asyncio.create_task(self._read())
        self._watcher = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls, command: Command, patience: Patience, version: str, need: Need = "none"
    ) -> "CodexServer":
        """Raises `Unstartable` or `Unguarded`. `version` is steno's. `need`: how much depends on
        the gate."""
        program, gate = command.words[0], None
        try:
            gate = None if need == "none" else CallGate()
            words = () if gate is None else await gate.open()
            command = replace(
                command, words=(*command.words, *words), line_bytes_max=LINE_BYTES_MAX
            )
            server = cls(await Child.spawn(command), patience, gate)
        except OSError as error:
            if gate is not None:
                gate.close()
            raise Unstartable(
                f"{program} cannot be run: {error.strerror or error}"
            ) from error
        try:
            await server._greet(version)
            await server._guard(str(command.folder), need)
        except BaseException as error:
            await server.end()
            if not isinstance(error, CodexError) or isinstance(error, Unguarded):
                raise
            said = server._child.complaint() if isinstance(error, Silent) else ""
            raise Unstartable(
                f"{program} {error}{f': {said}' if said else ''}"
            ) from error
        server._child.forget()
        return server

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        kind: type[Answered],
        limit_s: float | None = None,
    ) -> Answered:
        """A request and its answer. Raises `Gone`, `Silent`, `Declined` or `Unreadable`."""
        if self._over:
            raise Gone(self._last_words())
        self._asked += 1
        id = self._asked
        answer = self._waits[id] = asyncio.get_running_loop().create_future()
        self._room.set()
        try:
            async with asyncio.timeout(
                self.patience.answer_s if limit_s is None else limit_s
            ):
                await self._send({"id": id, "method": method, "params": params})
                answered = await answer
        except TimeoutError as error:
            raise Silent(f"did not answer to {method} in time") from error
        finally:
            self._waits.pop(id, None)
        if answered.error is not None:
            raise _declined(answered.error)
        try:
            return msgspec.json.decode(answered.result, type=kind)
        except msgspec.ValidationError as error:
            why = f"answered to {method} in a way that steno does not understand: {error}"
            raise Unreadable(why) from error

    def reply(self, request: int | str, result: dict[str, Any]) -> None:
        """Not waited for, as nothing that we answer is: a codex that does not read can still be
        stopped."""
        self._answer({"id": request, "result": result})

    def decide(self, request: int | str, refusal: str = "") -> None:
        """Say whether a call may run; without a refusal it may."""
        if self._gate is None or not self._gate.answer(request, refusal):
            self.reply(request, {"decision": "decline" if refusal else "accept"})

    def refuse(self, request: int | str, message: str) -> None:
        self._answer({"id": request, "error": {"code": -32601, "message": message}})

    def take(self) -> list[Message]:
        """Everything that came since the last time. Raises `Gone` when nothing is left and nothing
        will come."""
        self.arrived.clear()
        taken = list(self._inbox)
        self._inbox.clear()
        self._room.set()
        if self._over:
            self.arrived.set()
            if not taken:
                raise Gone(self._last_words())
        return taken

    async def end(self) -> None:
        """End it with its whole group; what it had still to say is not waited for."""
        self._watcher.cancel()
        self._reader.cancel()
        await self._child.end()
        if self._gate is not None:
            self._gate.close()
        await asyncio.gather(self._reader, self._watcher, return_exceptions=True)
        self._leave()

    async def _greet(self, version: str) -> None:
        client = {"name": "steno", "title": "steno", "version": version}
        greeting = {"clientInfo": client, "capabilities": {"experimentalApi": True}}
        answer = await self.ask(
            "initialize", greeting, p.Initialized, self.patience.start_s
        )
        if _TRIED.search(answer.user_agent) is None:
            log().warning(
                "codex is %r; steno was tried with %s", answer.user_agent, p.VERSIONS
            )
        await self._send({"method": "initialized"})

    async def _guard(self, folder: str, need: Need) -> None:
        listed = await self.ask("hooks/list", {"cwds": [folder]}, p.HooksListed)
        trusted = None
        if self._gate is not None:
            self._gate.listen(self._deliver)
            trusted = self._gate.trust(listed)
        if trusted is None and need == "all":
            if wrong := listed.wrong():
                raise Declined(f"cannot read its configuration: {wrong}")
            raise Unguarded("does not run hooks")
        self.opening = {
            "config": ALONE | {"hooks.state": silenced(listed) | (trusted or {})}
        }

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._child.send(p.written(message))
        except ConnectionError as error:
            raise Gone(self._last_words()) from error

    def _answer(self, message: dict[str, Any]) -> None:
        """If codex is gone there is nothing to answer, and the next `take` says so."""
        try:
            self._child.put(p.written(message))
        except ConnectionError as error:
            log().info("an answer could not be sent: codex %s", self._last_words())
            if isinstance(error, Unread):
                self._leave()

    async def _read(self) -> None:
        try:
            async for line in self._child.lines():
                self._lines += 1
                self._put(line)
                while len(self._inbox) >= INBOX_MAX and not self._waits:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._leave()

    async def _watch(self) -> None:
        """A process that codex started can hold its output open. Once codex has ended, only what it
        had still said is waited for."""
        await self._child.exited()
        heard = -1
        while heard != self._lines or len(self._inbox) >= INBOX_MAX:
            heard = self._lines
            await asyncio.sleep(_SILENCE_S)
        self._reader.cancel()

    def _put(self, line: bytes) -> None:
        try:
            message = p.line(line)
        except (msgspec.DecodeError, RecursionError):
            if not self._garbled:
                log().warning(
                    "codex wrote a line that is no message, and maybe more of them: %r",
                    line[:200],
                )
            self._garbled = True
            return
        if isinstance(message, p.HookNote):
            self._hear_hook(message)
        elif not isinstance(message, p.RpcAnswer):
            self._deliver(message)
        elif (
            isinstance(message.id, int)
            and (wait := self._waits.get(message.id)) is not None
            and not wait.done()
        ):
            wait.set_result(message)

    def _hear_hook(self, note: p.HookNote) -> None:
        if self._gate is None or note.run.source != "sessionFlags":
            return
        match note:
            case p.HookStarted(run=run) if run.event_name == "preToolUse":
                self._gate.announced(run.id)
            case p.HookCompleted(run=run) if run.event_name == "postToolUse":
                for over in self._gate.over():
                    self._deliver(over)
            case p.HookStarted() | p.HookCompleted():
                pass

    def _deliver(self, message: Message) -> None:
        self._inbox.append(message)
        self.arrived.set()

    def _leave(self) -> None:
        self._over = True
        for wait in self._waits.values():
            if not wait.done():
                wait.set_exception(Gone(self._last_words()))
                wait.exception()  # a request that could not be sent does not wait for its answer
        self.arrived.set()

    def _last_words(self) -> str:
        said = self._child.complaint()
        return f"ended by itself{f': {said}' if said else ''}"


def _declined(said: p.RpcError) -> Declined:
    kind = TooLong if said.is_too_long() else InUse if said.is_in_use() else Declined
    return kind(said.message)


def log() -> logging.Logger:
    return logging.getLogger("steno.codex")
