"""What commands print: turns as they are stored, and views of sessions; for people by default, as
JSON on request.

Of a turn, the text goes to stdout and everything else to stderr, or all of it to stdout as ndjson.
In text, stdout is the stored text of the turn, byte for byte, and one newline where it does not end
with one.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from msgspec import to_builtins

from steno.cli.keeping.tables import body, head, markdown
from steno.cli.stdio import OutputLost, fresh_line, note, show
from steno.frontend import wording
from steno.journal.facts import (
    ApprovalFact,
    ContextSet,
    EditFact,
    FileFact,
    FolderSet,
    GoalSet,
    HelperFact,
    InputFact,
    InterruptAsked,
    ItemFact,
    MemoryFact,
    OutputLate,
    OutsideFact,
    PlanUpdated,
    Record,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    ThreadBound,
    ThreadCompacted,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from steno.journal.parts import Opaque, ToolCall, text_of
from steno.journal.transcript import outcome_text
from steno.service import Approval, Loaded, Shown, Summary
from steno.service.objects import (
    Objects,
    approval_object,
    calls_in,
    ending_object,
    listed_object,
    memories_told,
    rule_line,
    to_json,
    transcript_object,
    waiting_approvals,
)
from steno.store.protocol import Event, Piece, Report

if TYPE_CHECKING:
    from steno.agents import Provider
    from steno.service.deliveries import Delivery
    from steno.store.postgres.owners import Worker

ARGUMENTS_SHOWN_MAX = 200


class Printer(Protocol):
    def begin(self) -> None: ...

    def event(self, event: Event) -> None: ...

    def ended(self, ending: TurnEnded) -> None: ...


class UntilLost:
    """A printer as long as its output is read. A reader that leaves does not stop the turn."""

    def __init__(self, printer: Printer, session: str | None) -> None:
        self.lost = False
        self._printer = printer
        self._session = session

    def begin(self) -> None:
        self._do(self._printer.begin)

    def event(self, event: Event) -> None:
        self._do(lambda: self._printer.event(event))

    def ended(self, ending: TurnEnded) -> None:
        self._do(lambda: self._printer.ended(ending))

    def _do(self, print: Callable[[], None]) -> None:
        if self.lost:
            return
        try:
            print()
        except OutputLost as error:
            self.lost = True
            see = "" if self._session is None else f", see steno show {self._session}"
            note(f"[the output is closed ({error}); the turn goes on{see}]")


class NdjsonPrinter:
    """For programs: one object a line."""

    def __init__(self, session: str, ephemeral: bool = False) -> None:
        self._session = session
        self._ephemeral = ephemeral
        self._objects = Objects()

    def begin(self) -> None:
        kept = {"ephemeral": True} if self._ephemeral else {}
        show(to_json({"type": "session", "id": self._session} | kept))

    def event(self, event: Event) -> None:
        for one in self._objects.of(event):
            show(to_json(one))

    def ended(self, ending: TurnEnded) -> None:
        show(to_json(ending_object(ending)))


class TextPrinter:
    """For people. Says on stderr what a person must know and the text does not tell. `session` is
    where it is kept."""

    def __init__(
        self, session: str | None, provider_of: "Callable[[str], Provider | None]"
    ) -> None:
        self._session = session
        self._provider_of = provider_of
        self._calls: dict[str, ToolCall] = {}
        self._model = ""
        self._broke_off = False
        self._cut_off = False
        self._line_open = False

    def begin(self) -> None:
        pass

    def event(self, event: Event) -> None:
        match event:
            case Piece():
                if event.stream.kind == "text":
                    show(event.text, end="")
                    self._line_open = not event.text.endswith("\n")
            case Record(fact=TurnEnded() as ending):
                self.ended(ending)
            case Record():
                self._record(event)

    def _record(self, record: Record) -> None:
        match record.fact:
            case StepStarted() as started:
                self._model = started.model
                if self._cut_off and started.takes:
                    self._say("cut off by the next message; what was shown is kept")
                elif self._broke_off:
                    self._say("asking the model to go on")
                elif started.attempt > 1:
                    self._say(f"asking again (attempt {started.attempt})")
                self._broke_off = self._cut_off = False
            case StepSealed() as sealed:
                self._calls.update(calls_in(sealed))
                items = [part for part in sealed.parts if isinstance(part, Opaque)]
                for one in items:
                    self._say(f"{one.runtime} item {one.kind}: {_short(one.json)}")
                self._broke_off, self._cut_off = (
                    sealed.ended == "incomplete",
                    sealed.ended == "interrupted",
                )
                if self._broke_off:
                    self._say("the answer broke off")
                elif sealed.ended == "length":
                    self._say(
                        "the answer was cut at the length limit; what there is of it is kept"
                    )
                elif not (text_of(sealed.parts) or calls_in(sealed) or items):
                    self._say("the model answered without a word")
            case StepLost(cause=cause, detail=detail):
                if cause != "stopped":
                    self._say(
                        wording.lost(cause, detail, self._provider_of(self._model))
                    )
            case ContextSet(instead_of=own, model=model):
                if own:
                    self._say(
                        f"{model} answers the rest of this turn instead of {own}"
                    )
            case PlanUpdated() as plan:
                self._say(f"plan: {_short('; '.join(plan.lines()))}")
            case ToolStarted() as started:
                self._say(f"running {_short(self.called(started.call))}")
            case ToolSettled() as settled:
                said = text_of(outcome_text(settled.outcome))
                self._say(f"{type(settled.outcome).__name__.lower()}: {_short(said)}")
            case (
                InputFact()
                | TurnStarted()
                | TurnEnded()
                | InterruptAsked()
                | UsageReported()
            ):
                pass
            case (
                OutputLate() | ApprovalFact() | GoalSet() | HelperFact() | EditFact()
            ):
                pass
            case FolderSet() | FileFact():
                pass
            case SessionStarted() | SessionRenamed() | MemoryFact() | OutsideFact():
                pass
            case ThreadBound() | ThreadCompacted() | ItemFact():
                pass
            case unreachable:
                assert_never(unreachable)

    def ended(self, ending: TurnEnded) -> None:
        if self._line_open:
            show("")
            self._line_open = False
        if ending.outcome != "done":
            self._say(
                wording.ending(
                    ending, self._session, self._model, self._provider_of(self._model)
                )
            )

    def called(self, call: str) -> str:
        """A call as a person reads it, whole."""
        found = self._calls.get(call)
        return call if found is None else f"{found.name} {found.arguments}"

    def _say(self, text: str) -> None:
        note(f"{fresh_line()}[{text}]")


def _short(text: str) -> str:
    line = " ".join(text[: ARGUMENTS_SHOWN_MAX * 10].split())
    return (
        line
        if len(line) <= ARGUMENTS_SHOWN_MAX
        else line[: ARGUMENTS_SHOWN_MAX - 1] + "…"
    )


# --- views of sessions ----------------------------------------------------------------------------


def sessions(found: list[Summary], as_json: bool, tree: bool) -> int:
    if as_json:
        show(to_json([listed_object(one) for one in found]))
        return 0
    if not found:
        show('no sessions yet; steno run "hello" makes one')
    elif sys.stdout.isatty() and not tree:
        show(
            f"{'SESSION':13}  {'LAST':16}  {'MSGS':>5}  {'TOKENS':>6}  {'STATE':11}  TITLE"
        )
    for one, depth in _as_tree(found) if tree else ((one, 0) for one in found):
        row = one.listed.row
        state = (
            "waiting"
            if one.waits
            else "running"
            if one.listed.owner
            else row.last_turn or "pending"
        )
        title = " ".join(row.title.split())
        origin = (
            ""
            if row.forked_from is None
            else f" (fork of {row.forked_from.session} at {row.forked_from.seq})"
        )
        lead = "    " * (depth - 1) + "└── " if depth else ""
        numbers = f"{row.messages:>5}  {_short_count(row.context):>6}"
        show(
            f"{lead}{one.listed.id}  {when(row.updated_ms)}  {numbers}  {state:<11}  "
            f"{title}{origin if tree else ''}"
        )
    return 0


def _as_tree(found: list[Summary]) -> list[tuple[Summary, int]]:
    """Each with its depth, forks after the session that they come from. One whose parent is not
    listed stands alone."""
    listed = {one.listed.id for one in found}
    forks: dict[str | None, list[Summary]] = {}
    for one in found:
        origin = one.listed.row.forked_from
        parent = (
            origin.session
            if origin is not None and origin.session in listed
            else None
        )
        forks.setdefault(parent, []).append(one)
    waiting = [(one, 0) for one in reversed(forks.get(None, []))]
    placed: list[tuple[Summary, int]] = []
    while waiting:
        one, depth = waiting.pop()
        placed.append((one, depth))
        waiting += [
            (fork, depth + 1) for fork in reversed(forks.get(one.listed.id, []))
        ]
    return placed


def deliveries(found: "list[Delivery]", as_json: bool) -> int:
    if as_json:
        show(to_json([to_builtins(one) for one in found]))
        return 0
    if not found:
        show(
            "nothing is owed to a channel; steno run PROMPT --deliver NAME owes it the answer"
        )
    for one in found:
        tries = "" if one.tries is None else f"  tried {one.tries} times"
        why = f"  {one.cause}" if one.cause else ""
        where = f"{one.channel} ({one.address})"
        show(
            f"{one.session} {one.input}  {when(one.at_ms)}  {one.state:<9}  {where}{tries}{why}"
        )
    return 0


def when(at_ms: int) -> str:
    return (
        datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    )


def _short_count(count: int | None) -> str:
    """A number in at most six letters; unknown is not 0."""
    if count is None:
        return "?"
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def transcript(
    loaded: Loaded, shown: Shown, context_max: int, as_json: bool, home: Path
) -> int:
    """`context_max` is what the model takes; 0 if that is not known."""
    seen, undone = shown.transcript, shown.turns.undone()
    if as_json:
        show(to_json(transcript_object(loaded, shown, context_max)))
        return 0
    show(f"{loaded.id}  {seen.title}")
    if shown.delegated_by:
        show(f"helper of session {shown.delegated_by}")
    if loaded.state.goal:
        show(f"goal: {loaded.state.goal}")
    own = "" if loaded.state.context is None else loaded.state.context.own_model
    for message in seen.messages:
        mark = "" if message.state == "complete" else f" ({message.state})"
        mark += " (hidden)" if message.hidden else ""
        mark += " (undone)" if message.turn in undone else ""
        mark += (
            f" ({model})"
            if (model := shown.asked.get(message.seq, own)) != own
            else ""
        )
        show("")
        head(f"#{message.seq} {message.role}{mark}")
        for part in message.attachments:
            show(
                f"  + {part.name or part.media_type} ({part.media_type}, {part.size} bytes)"
            )
        if message.role == "assistant":
            markdown(message.text, home)
        else:
            body(message.text)
        for call in message.tool_calls:
            show(f"  → {call.name} {call.arguments}")
    for turn in seen.turns[-1:]:
        if turn.outcome not in (None, "done"):
            why = f"{turn.cause}: {turn.detail}" if turn.detail else turn.cause
            show(
                f"\nthe last turn {'failed' if turn.outcome == 'failed' else 'was interrupted'} "
                f"({why})"
            )
    if seen.plan is not None:
        show(
            "\n".join(
                (
                    f"\n{seen.plan.title()}",
                    *(f"  {line}" for line in seen.plan.lines()),
                )
            )
        )
    if loaded.waits():
        show("\nthe last turn waits for approval")
        for one in waiting_approvals(loaded, shown):
            decided = "" if one.decision is None else f" ({one.decision})"
            show(f"  #{one.seq} {one.in_a_line()}{decided}")
    if loaded.state.rules:
        show("\nrules of this session")
        for rule, held in loaded.state.rules.items():
            show(f"  {rule_line(rule, held)}")
    if loaded.state.ended is not None:
        show(f"\nended ({loaded.state.ended.reason})")
    if (told := memories_told(loaded)) or shown.distillates:
        show(
            f"\n{len(told)} memories told, {len(shown.distillates)} distillates: steno memory "
            f"--session {loaded.id}"
        )
    if loaded.owner is not None:
        show(f"\nrunning in {loaded.owner}")
    show(f"\n{_spent(shown, context_max)}")
    return 0


def _spent(shown: Shown, context_max: int) -> str:
    """The context and what was used so far, in a line."""
    tokens = shown.context_tokens()
    context = (
        "unknown"
        if tokens is None
        else f"about {tokens}{f' of {context_max}' if context_max else ''} tokens"
    )
    usage = shown.usage
    known = [
        f"{n} {word}"
        for n, word in ((usage.input, "in"), (usage.output, "out"))
        if n is not None
    ]
    used = ", ".join(known) if known else "unknown"
    gaps = f", {usage.unreported} without a count" if usage.unreported else ""
    return (
        f"context: {context}; tokens used: {used} ({usage.calls} "
        f"call{'' if usage.calls == 1 else 's'}{gaps})"
    )


def approvals(waiting: list[Approval], as_json: bool) -> int:
    if as_json:
        show(
            to_json(
                [{"session": one.session} | approval_object(one) for one in waiting]
            )
        )
        return 0
    if not waiting:
        show("nothing waits for approval")
    for one in waiting:
        show(
            f"{one.session}  #{one.seq}  since {when(one.since_ms)}  {one.in_a_line()}"
        )
    if waiting:
        show(
            f"\nsteno approve {waiting[0].session} {waiting[0].seq} lets the first run; steno "
            "deny refuses it"
        )
    return 0


def workers(found: "Sequence[Worker]", as_json: bool) -> int:
    for one in found:
        if as_json:
            show(
                to_json({name: getattr(one, name) for name in one.__struct_fields__})
            )
            continue
        state = "dead" if one.dead else f"beat {one.beat_s:.1f} s ago"
        role = f"{one.role}, " if one.role else ""
        show(
            f"{one.owner}  {role}{state}, runs {one.sessions}, open for {one.since_s:.0f} s"
        )
    return 0


def report(found: Report, as_json: bool) -> int:
    if as_json:
        damage = [{"where": one.where, "what": one.what} for one in found.damage]
        show(
            to_json(
                {"sessions": found.sessions, "facts": found.facts, "damage": damage}
            )
        )
    else:
        show(
            f"{found.sessions} sessions, {found.facts} facts: "
            f"{'no damage' if not found.damage else 'DAMAGED'}"
        )
        for one in found.damage:
            show(f"  {one.where}: {one.what}")
        if found.damage:
            show(
                "nothing was changed; if another program wrote to the store, steno verify --adopt "
                "puts it right; else restore a backup with steno restore FILE"
            )
    return 1 if found.damage else 0
