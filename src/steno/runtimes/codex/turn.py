"""One turn of codex under way: what it tells becomes facts and drafts, in order, each before it is
seen.

Only this loop changes what is open. Whoever else has something to say about the turn (a person's
decision, the outcome of one of our own tools) puts it into the same queue.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.history import Said
from steno.journal.parts import Outcome, Refused, Seq
from steno.models import wording
from steno.runtimes.codex import effects as e
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex import rights, standing
from steno.runtimes.codex import wording as w
from steno.runtimes.codex.hooks import Held
from steno.runtimes.codex.items import UserMessage
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.means import Means
from steno.runtimes.codex.naming import client_id, client_ids
from steno.runtimes.codex.patches import changes_held, is_patch, may_be_patch
from steno.runtimes.codex.process import CodexError, Gone, Message, log
from steno.runtimes.codex.recording import Recording
from steno.runtimes.codex.rollout import arguments_of, folder_asked
from steno.runtimes.codex.thread import context, cut_note
from steno.runtimes.tool_calls import Permission
from steno.session.lease import HeldSession

LATE_S = 0.3
"""How long we listen for the output of commands that were interrupted."""

UNKNOWN_CALL = Refused("not run: nobody knows of this call")
TWIN = Refused(
    "not run: another call with the same id is under way, and codex could not tell them apart"
)
UNREADABLE = Refused(
    "not run: steno cannot read this patch, so no rule for files can be applied to it"
)

Ending = e.EndTurn | Literal["left"]
"""How a turn ended; "left": we let go of a session whose turn waits for a person."""


class _Decided(Struct, frozen=True):
    request: int | str
    call: str
    permission: Permission


class _Ran(Struct, frozen=True):
    request: int | str
    call: str
    outcome: Outcome | None


class _SignedOut(Struct, frozen=True):
    reason: str


_Word = _Decided | _Ran | _SignedOut


class RunningTurn:
    """`step` is open when it begins. `_doubted`: codex was asked whether somebody is signed in."""

    def __init__(self, held: HeldSession, means: Means, map: TurnMap, step: Seq) -> None:
        self._held = held
        self._means = means
        self._map = map
        self._recording = Recording(held, means, step)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: list[_Word] = []
        self._interrupted_s: float | None = None
        self._broken: BaseException | None = None
        self._doubted = False
        self._spent = ""

    async def run(self) -> Ending:
        """To its end, or until we leave while it waits for a person."""
        server = self._means.server
        self._spawn(self._rouse())
        self._spawn(self._steer())
        try:
            while True:
                ending = await self._go_on()
                if ending is not None:
                    return self._with_budget(ending)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await server.arrived.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _go_on(self) -> Ending | None:
        """Everything that can be done now."""
        if self._broken is not None:
            raise self._broken
        try:
            messages = self._means.server.take()
        except Gone as error:
            if standing.only_waits(self._held.state.turn):
                log().info("codex %s; the question that it asked stands", error)
                return "left"
            return await self._do(self._map.close("failed", "codex", f"codex {error}"))
        told, self._told = self._told, []
        acts: list[e.Effect] = []
        for message in messages:
            if isinstance(message, p.ServerRequest):
                if (ending := await self._do(acts)) is not None:
                    return ending
                acts = []
                with contextlib.suppress(
                    Gone
                ):  # there is nobody left to answer, and the next look says so
                    await self._serve(message)
            else:
                self._hear_echo(message)
                acts += self._map.apply(message)
        if (ending := await self._do(acts)) is not None:
            return ending
        for word in told:
            if (ending := await self._heed(word)) is not None:
                return ending
        self._doubt_login(messages)
        self._spent = self._spent or standing.budget_reached(
            self._held.state, self._means.limits, self._held.spent
        )
        if self._held.asked_to_stop() or self._spent:
            return await self._stop()
        return None

    def _hear_echo(self, note: p.Notification) -> None:
        """What codex says back to us is in its thread. What it only took may be lost."""
        if (
            isinstance(note, p.ItemStarted)
            and isinstance(note.item, UserMessage)
            and note.item.client_id
        ):
            self._means.thread.known.update(client_ids(note.item.client_id))

    def _with_budget(self, ending: Ending) -> Ending:
        """A turn that we stopped for its budget failed of that, unless a person stopped it
        first."""
        turn = self._held.state.turn
        stopped = (
            ending != "left" and ending.status == "interrupted" and not self._held.letting_go()
        )
        if not self._spent or not stopped or turn is None or turn.interrupted is not None:
            return ending
        return e.EndTurn("failed", "budget", self._spent)

    def _doubt_login(self, messages: list[Message]) -> None:
        """Codex tries again for long, or without end, also where nobody signed in."""
        again = next(
            (one.error for one in messages if isinstance(one, p.ErrorNote) and one.will_retry), None
        )
        if again is not None and not self._doubted:
            self._doubted = True
            self._spawn(self._check_login(again))

    async def _check_login(self, again: p.Failure) -> None:
        """Beside the turn: a codex that does not answer can still be stopped."""
        try:
            account = await self._means.server.ask("account/read", {}, p.AccountRead)
        except CodexError as error:
            log().info("codex %s", error)
            self._doubted = False
            return
        if account.missing():
            self._tell(_SignedOut(again.reason()))

    async def _rouse(self) -> None:
        await self._held.stopped.wait()
        self._means.server.arrived.set()

    def _tell(self, word: _Word) -> None:
        self._told.append(word)
        self._means.server.arrived.set()

    # --- stopping and steering

    def _patience(self) -> float | None:
        if self._interrupted_s is None:
            return None
        return max(
            self._interrupted_s + self._means.server.patience.interrupt_s - time.monotonic(), 0.01
        )

    async def _stop(self) -> Ending | None:
        """Ask codex to stop; if it does not in time, the turn ends all the same."""
        held, server = self._held, self._means.server
        if held.letting_go() and standing.waits(held.state.turn):
            return "left"
        if self._interrupted_s is None:
            self._interrupted_s = time.monotonic()
            asked = {"threadId": self._means.thread.id, "turnId": self._map.turn}
            try:
                await server.ask("turn/interrupt", asked, dict, server.patience.interrupt_s)
            except CodexError as error:
                log().info("codex %s", error)
                return await self._do(self._map.close("interrupted"))
            server.arrived.set()
            return None
        if time.monotonic() - self._interrupted_s >= server.patience.interrupt_s:
            return await self._do(self._map.close("interrupted"))
        return None

    async def _steer(self) -> None:
        """Send inputs that steer, one by one. They are facts already; they are taken when codex has
        them. The turn does not wait for that: a codex that does not answer can still be stopped."""
        while self._interrupted_s is None:
            self._held.said.clear()
            await self._held.catch_up()
            if (said := self._unsent()) is None:
                await self._held.said.wait()
            else:
                await self._send(said, client_id(self._held.id, said))

    def _unsent(self) -> Said | None:
        inputs = (
            Said(seq, one.parts)
            for seq, one in self._held.state.pending.items()
            if one.mode == "steer"
        )
        sent = self._map.steers | self._means.thread.known
        return next((said for said in inputs if client_id(self._held.id, said) not in sent), None)

    async def _send(self, said: Said, id: str) -> None:
        """Say more in the turn that runs."""
        self._map.steers.add(id)
        asked = {
            "threadId": self._means.thread.id,
            "expectedTurnId": self._map.turn,
            "clientUserMessageId": id,
            "input": await self._means.input([said]),
            **context(cut_note(self._map.saying())),
        }
        try:
            await self._means.server.ask("turn/steer", asked, dict)
        except CodexError as error:
            log().info("an input could not be sent and waits for the next turn: codex %s", error)

    # --- what codex asks of us

    async def _serve(self, request: p.ServerRequest) -> None:
        server = self._means.server
        match request.asked:
            case Held() as held:
                await self._hold(request.id, held)
            case p.CommandApproval() as typing if typing.types():
                await self._ask_typing(request.id, typing)
            case p.Elicited() as elicited if elicited.approves():
                through = self._map.let_through_for(elicited.server_name)
                server.reply(
                    request.id, {"action": "accept" if through else "decline", "content": {}}
                )
            case p.CommandApproval() | p.FileApproval():
                await self._ask_again(request.id, request.asked)
            case p.ToolCallAsked():
                self._spawn(self._called(request.id, self._map.call_of(request.asked.call_id)))
            case p.Elicited(server_name=server_name):
                log().warning(
                    "the MCP server %s of codex asks for something, which steno does not do",
                    server_name,
                )
                server.reply(request.id, {"action": "decline"})
            case p.Unserved():
                log().warning("codex asks for %s, which steno does not do", request.asked.method)
                server.refuse(request.id, "steno does not do this")

    async def _ask_again(
        self, request: int | str, asked: p.CommandApproval | p.FileApproval
    ) -> None:
        """The yes at the gate is also the answer to codex's own question, unless that says more."""
        item, confined, leaves = asked.item_id, self._means.confined, None
        if isinstance(asked, p.CommandApproval) and self._map.let_through(item):
            leaves = rights.leaves(
                await asyncio.to_thread(arguments_of, self._means.thread.path, item)
            )
        if self._map.answered(item, asked.reason is not None, confined and leaves is not False):
            self._means.server.decide(request)
            return
        await self._do(self._map.asked(item, rights.unrun(asked, leaves)))
        self._spawn(
            self._permitted(
                request,
                self._map.call_of(item),
                rights.why(asked, leaves, confined),
                rights.covers_leaving(asked, leaves, confined),
            )
        )

    async def _hold(self, request: int | str, held: Held) -> None:
        """A call at the gate. Without a sandbox codex asks by itself about a change of files."""
        patch, call = is_patch(held), w.held_call(held)
        if patch and not self._means.confined:
            self._means.server.decide(request)
            return
        if patch:
            within = await asyncio.to_thread(folder_asked, held.path, held.call)
            call = changes_held(held, within) or call
        twin = self._map.is_open(call.id)
        call = replace(call, id=f"{call.id}/{request}") if twin else call
        await self._do(self._map.held(call) if held.turn == self._map.turn else [])
        if twin or (self._means.confined and may_be_patch(held) and not w.edits_in(call)):
            self._tell(_Decided(request, self._map.call_of(call.id), TWIN if twin else UNREADABLE))
        else:
            self._spawn(self._permitted(request, self._map.call_of(call.id)))

    async def _ask_typing(self, request: int | str, asked: p.CommandApproval) -> None:
        """Codex would type into a command that runs outside its sandbox. That one runs on, whatever
        is decided."""
        text = w.typed_in(asked)
        if text is None or not asked.approval_id:
            log().warning("codex asks to type something that steno cannot read: %s", asked.command)
            self._means.server.decide(request, UNKNOWN_CALL.reason)
            return
        call = w.typing_call(asked.approval_id, self._map.call_of(asked.item_id), text)
        await self._do(self._map.held(call))
        why = (asked.reason or "")[: rights.REASON_CHARS_MAX]
        self._spawn(self._permitted(request, self._map.call_of(call.id), why, self._means.confined))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        """What could not be stored ends the turn as it would have in the loop: codex would wait for
        its answer."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._means.server.arrived.set()

    async def _permitted(
        self, request: int | str, call: str, why: str = "", leaves: bool = False
    ) -> None:
        turn = self._held.state.turn
        open_call = None if turn is None else turn.calls.get(call)
        if open_call is None:
            self._tell(_Decided(request, call, UNKNOWN_CALL))
            return
        permission = await self._means.calls.permission(
            open_call, "ask", w.edits_in(open_call.call), why, leaves
        )
        self._tell(_Decided(request, call, permission))

    async def _called(self, request: int | str, call: str) -> None:
        """However often codex asks for a call, it is run once, and each gets its outcome."""
        async with self._running[call]:
            turn = self._held.state.turn
            open_call = None if turn is None else turn.calls.get(call)
            if open_call is not None:
                await self._means.calls.run((open_call,))
        settled = () if self._held.state.turn is None else self._held.state.turn.settled
        outcome = next((fact.outcome for fact in reversed(settled) if fact.call == call), None)
        self._tell(_Ran(request, call, outcome))

    async def _heed(self, word: _Word) -> Ending | None:
        server = self._means.server
        match word:
            case _Ran(outcome=None) if self._held.letting_go():
                return "left"
            case _Ran():
                outcome = word.outcome or UNKNOWN_CALL
                self._map.settled(word.call)
                text = w.told_of(await self._means.excerpts.of_outcome(outcome))
                success = not isinstance(outcome, Refused) and not wording.verdict(outcome)
                content = [{"type": "inputText", "text": text}]
                self._answer(word.request, {"success": success, "contentItems": content})
            case _SignedOut():
                return await self._do(
                    self._map.close("failed", "no_key", f"codex is not signed in: {word.reason}")
                )
            case _Decided(permission="left"):
                return "left"
            case _Decided(permission="given"):
                await self._do(self._map.begin(word.call))
                self._decide(word.request)
            case _Decided(permission=Refused() as refused):
                await self._do(self._map.refuse(word.call, refused.reason))
                self._decide(word.request, refused.reason)
        server.arrived.set()
        return None

    def _answer(self, request: int | str, result: dict[str, Any]) -> None:
        try:
            self._means.server.reply(request, result)
        except Gone as error:
            log().info("codex %s", error)

    def _decide(self, request: int | str, refusal: str = "") -> None:
        try:
            self._means.server.decide(request, refusal)
        except Gone as error:
            log().info("codex %s", error)

    # --- what is stored

    async def _do(self, acts: list[e.Effect]) -> Ending | None:
        end = await self._recording.do(acts)
        if end is not None:
            await self._listen_on(end)
        return end

    async def _listen_on(self, end: e.EndTurn) -> None:
        """Codex lets commands run on when their turn was interrupted. They are ended; what they
        still say is kept, as late. Whoever lets go ends codex, and they end with it."""
        turn, ran = self._held.state.turn, self._means.thread.ran
        started = turn is not None and any(seq > turn.seq for seq in ran.values())
        if end.status != "interrupted" or not started or self._held.letting_go():
            return
        try:
            await self._means.server.ask(
                "thread/backgroundTerminals/clean",
                {"threadId": self._means.thread.id},
                dict,
                LATE_S,
            )
        except CodexError as error:
            log().info("codex %s", error)
        await asyncio.sleep(LATE_S)
        try:
            messages = self._means.server.take()
        except Gone:
            return
        late = [note for note in messages if isinstance(note, p.OutputDelta)]
        await self._recording.keep_late(
            [e.KeepLate(self._map.call_of(note.item_id), note.delta) for note in late]
        )
