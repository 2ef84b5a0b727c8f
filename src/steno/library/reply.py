"""One turn, written by the program itself."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, cast

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.parts import Seq, Text
from steno.library.given import a_str
from steno.library.means import Means
from steno.store.errors import (
    NotAllowed,
    NotPending,
    OutcomeUnknown,
    SessionBusy,
    StoreUnwritable,
    UnknownSession,
)

_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.1

if TYPE_CHECKING:
    from steno.journal.state import State
    from steno.journal.transcript import Message
    from steno.session.writer import Writer


class AsyncReply:
    """One turn: takes an input, stores every piece before you show it, and ends however you leave
    the block."""

    def __init__(
        self, means: Means, session: str, model: str, to: Seq | None, wait_s: float
    ) -> None:
        self._means = means
        self._store = means.store
        self._session = session
        self._model = model
        self._to = to
        self._wait_s = wait_s
        self._writer: Writer | None = None
        self._input: Message | None = None
        self._stream = Stream(0, "text")
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def input(self) -> "Message":
        """What is answered."""
        if self._input is None:
            raise NotAllowed("this reply has not begun")
        return self._input

    async def __aenter__(self) -> "AsyncReply":
        deadline_s = time.monotonic() + self._wait_s
        pause_s = _PAUSE_S
        while not await self._try(last=time.monotonic() >= deadline_s):
            await self._means.pause(
                min(pause_s, max(deadline_s - time.monotonic(), 0))
            )
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return self

    async def write(self, piece: str) -> str:
        """Store a piece of the answer; returned when it is durable and may be shown."""
        if type(piece) is not str:
            piece = a_str("piece", piece)
        await (self._writer or self._held()).draft(self._stream, piece)
        self._pieces.append(piece)
        return piece

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        writer, self._writer = self._held(), None
        try:
            match error:
                case None:
                    await self._end(writer, "complete", "done", "", "")
                case StoreUnwritable() | OutcomeUnknown():
                    await self._end(
                        writer, "interrupted", "interrupted", error.cause, ""
                    )
                case Exception():
                    cause, detail = type(error).__name__, str(error)
                    await self._end(writer, "incomplete", "failed", cause, detail)
                case _:
                    cause = "user" if isinstance(error, KeyboardInterrupt) else "left"
                    await self._end(writer, "interrupted", "interrupted", cause, "")
            await writer.close()
        except UnknownSession:
            await writer.release()  # says that the lease went with the session
            raise
        except (StoreUnwritable, OutcomeUnknown) as unwritable:
            writer.cut_off_by(unwritable.cause)
            raise
        finally:
            await writer.leave()

    async def _try(self, last: bool) -> bool:
        """Begin, if it is our turn. The last time it is, unless another reply is under way."""
        if not last and not await self._is_due():
            return False
        await self._means.need("steno.session.writer", "steno.journal.transcript")
        from steno.session.writer import Writer

        try:
            writer = await Writer.open(self._means.sessions, self._session)
        except SessionBusy:
            if last:
                raise
            return False
        try:
            await self._begin(writer)
        except BaseException:
            await writer.give_up()
            raise
        self._writer = writer
        return True

    async def _is_due(self) -> bool:
        """Whether no other reply is under way, and none to an older input may still begin."""
        glance = await self._store.glance(self._session)
        if glance.owner is not None or self._to is None:
            return glance.owner is None
        since_ms = time.time() * 1000 - self._wait_s * 1000
        for older in glance.row.pending:
            if older >= self._to:
                break
            [said] = await self._store.read(self._session, older - 1, 1)
            if said.at_ms > since_ms:
                return False
        return True

    async def _begin(self, writer: "Writer") -> None:
        from steno.journal.transcript import Message

        taken = await self._taken(writer.state)
        [said] = await self._store.read(self._session, taken - 1, 1)
        turn = await writer.append(
            [TurnStarted(Takes(taken)), StepStarted(self._model)]
        )
        parts = cast(InputAdmitted, said.fact).parts
        self._stream = Stream(turn + 1, "text")
        self._input = Message(
            taken, taken, said.at_ms, "user", parts, "complete", turn
        )

    async def _taken(self, state: "State") -> Seq:
        """The input that is to be answered."""
        if self._to in state.pending:
            return self._to
        if self._to is not None:
            raise await self._refusal(self._to)
        if not state.pending:
            raise NotAllowed(f"session {self._session!r} has no input to answer")
        return min(state.pending)

    async def _refusal(self, input: Seq) -> NotAllowed | NotPending:
        """Why an input cannot be answered."""
        from steno.journal.transcript import Transcript

        transcript = Transcript()
        await self._means.sessions.whole(self._session, transcript)
        said = next((one for one in transcript.messages if one.seq == input), None)
        of = f"input {input} of session {self._session!r}"
        if said is None or said.role != "user":
            return NotAllowed(f"session {self._session!r} has no input {input}")
        if said.state == "withdrawn":
            return NotPending(f"{of} was withdrawn; nothing was stored")
        turn = next(one for one in transcript.turns if one.seq == said.turn)
        how = (
            "was answered"
            if turn.outcome == "done"
            else f"was taken and {turn.outcome}"
        )
        return NotPending(f"{of} {how} in turn {turn.seq}; nothing was stored")

    async def _end(
        self,
        writer: "Writer",
        how: StepEnding,
        outcome: TurnOutcome,
        cause: str,
        detail: str,
    ) -> None:
        """Seal what is stored, not what we remember: a Ctrl-C may have struck between the two."""
        step = self._stream.started
        drafts = await self._store.drafts(self._session)
        text = "".join(draft.text for draft in drafts if draft.stream.started == step)
        ending = TurnEnded(step - 1, outcome, cause, detail)
        if text or how == "complete":
            await writer.append(
                [StepSealed(step, (Text(text),) if text else (), how), ending]
            )
        else:
            await writer.append([StepLost(step, cause, sent="unknown"), ending])

    def _held(self) -> "Writer":
        if self._writer is None:
            raise NotAllowed("this reply is over; begin another one")
        return self._writer
