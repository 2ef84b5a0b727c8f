"""The sequences that comments in the code show: each follows as the comment says."""

from steno.engine.recover import recover
from steno.journal import facts as f
from steno.journal.carry_over import Carry
from steno.journal.drafts import Draft, Stream
from steno.journal.facts import Continues, Takes
from steno.journal.history import Answered, Entry, History, Said, Summarised, restored
from steno.journal.parts import (
    Content,
    Redacted,
    Refused,
    Returned,
    Text,
    ToolCall,
    Unknown,
    text_of,
)
from steno.journal.redaction import redact
from steno.journal.state import State
from tests.journal.folding import fold, in_place, said, state

STARTED = f.SessionStarted("test")


def answered(text: str, step: int) -> f.StepSealed:
    return f.StepSealed(step, (Text(text),))


A_AND_B: list[f.AnyFact] = [
    said("a"),
    f.TurnStarted(Takes(1)),
    f.StepStarted("m"),
    answered("A", 3),
    f.TurnEnded(2, "done"),
    said("b"),
    f.TurnStarted(Takes(6)),
    f.StepStarted("m"),
    answered("B", 8),
    f.TurnEnded(7, "done"),
]


def told(history: History) -> str:
    return " ".join(map(_word, history.entries()))


def _word(entry: Entry) -> str:
    return entry.summary if isinstance(entry, Summarised) else text_of(_parts(entry))


def _parts(entry: Entry) -> tuple[Content, ...]:
    return entry.parts if isinstance(entry, Said | Answered) else ()


def step_by_step(*facts: f.AnyFact) -> list[str]:
    history = fold(History(), in_place(A_AND_B))
    seen = [told(history)]
    for record in in_place(facts, first=11):
        history.apply(record)
        seen.append(told(history))
    return seen


def test_rewinds_that_overlap_are_withdrawn_one_by_one() -> None:
    seen = step_by_step(f.Rewound(7), f.Rewound(1), f.RewindWithdrawn(12))
    assert seen == ["a A b B", "a A", "a", "a A"]


def test_the_summary_stands_that_tells_what_may_be_told() -> None:
    facts = (
        f.Compacted(5, "S"),
        f.MessageHidden(3),
        f.Compacted(5, "T"),
        f.MessageHidden(3, hidden=False),
    )
    assert step_by_step(*facts) == ["a A b B", "S b B", "a b B", "T b B", "S b B"]


def test_text_is_let_go_and_comes_back_from_its_fact() -> None:
    sequence: list[f.AnyFact] = []
    for first, letter in zip((1, 6, 11), "abc", strict=True):
        sequence += [
            said(letter * 100),
            f.TurnStarted(Takes(first)),
            f.StepStarted("m"),
            answered(letter.upper() * 100, first + 2),
            f.TurnEnded(first + 1, "done"),
        ]
    records, history = in_place(sequence), History()
    missing = []
    for record in records:
        history.apply(record)
        if record.seq in (5, 15):
            history.let_go(150, lambda entry: (1, 1))
            missing.append([one.fact for one in history.missing()])
    assert missing == [[], [1, 4, 6, 9, 11]]
    history.restore(
        {one.fact: restored(one, records[one.fact - 1].fact) for one in history.missing()}
    )
    assert told(history) == " ".join(letter * 100 for letter in "aAbBcC")


def test_a_turn_that_was_cut_off_is_taken_up_once() -> None:
    before: list[f.AnyFact] = [
        STARTED,
        f.ContextSet("m"),
        said("hello"),
        f.TurnStarted(Takes(3)),
        f.StepStarted("m"),
    ]
    killed = recover(state(*before), [Draft(Stream(5, "text"), "Hel")])
    assert killed == (
        f.StepSealed(5, (Text("Hel"),), "interrupted"),
        f.TurnEnded(4, "interrupted", "killed"),
    )
    later: list[f.AnyFact] = [
        *killed,
        f.TurnStarted(Continues(4)),
        f.StepStarted("m", acknowledges="4"),
        f.StepLost(9, "server_error", "yes"),
        f.StepStarted("m", acknowledges="4"),
        answered("Hello", 11),
        f.TurnEnded(8, "done"),
    ]
    seen = []
    now = state(*before)
    for record in in_place(later, first=6):
        now.apply(record)
        cut = now.cut_off
        seen.append(None if cut is None else (cut.key, cut.waits(), sorted(cut.withdrawn)))
    assert seen == [
        None,
        ("4", True, []),
        ("4", True, []),
        ("4", False, []),
        ("4", True, [8]),
        ("4", False, [8]),
        ("4", False, [8]),
        None,
    ]
    shown = recover(state(*before, *later[:6]), [Draft(Stream(11, "text"), "He")])
    cut = state(*before, *later[:6], *shown).cut_off
    assert cut is not None
    assert (cut.ended.turn.seq, cut.killed) == (8, 1)
    undone = state(*before, *killed, f.Rewound(3)).cut_off
    assert undone is not None
    assert not undone.waits()


def test_what_a_kill_leaves_open_is_closed() -> None:
    asked = [STARTED, f.ContextSet("m"), said("x"), f.TurnStarted(Takes(3)), f.StepStarted("m")]
    ended = f.TurnEnded(4, "interrupted", "killed")
    assert recover(state(*asked), []) == (f.StepLost(5, "killed", "unknown"), ended)
    calls = f.StepSealed(5, (ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}")))
    running = state(*asked, calls, f.ToolStarted(5, "a"))
    first, second, last = recover(running, [Draft(Stream(7, "output"), "out")])
    assert first == f.ToolSettled(5, "a", Unknown((Text("out"),)), 7)
    assert isinstance(second, f.ToolSettled)
    assert isinstance(second.outcome, Refused)
    assert last == ended
    waiting = state(*asked, calls, f.ApprovalAsked(5, "a"), f.ToolStarted(5, "b"))
    assert recover(waiting, []) == (f.ToolSettled(5, "b", Unknown(), 8),)


def test_a_redacted_answer_keeps_its_place_and_its_call() -> None:
    call = ToolCall("c1", "shell", '{"command": "echo 1234"}')
    sealed = f.StepSealed(5, (Text("It is 1234"), call))
    assert redact(sealed) == f.StepSealed(5, (Redacted(10), ToolCall("c1", "shell", "{}")))
    settled = f.ToolSettled(5, "c1", Returned((Text("1234"),)), 7)
    assert redact(settled) == f.ToolSettled(5, "c1", Returned((Redacted(4),)), 7)


def test_a_summary_carries_what_still_holds() -> None:
    facts: list[f.AnyFact] = [
        STARTED,
        f.GoalSet("a"),
        said("one"),
        f.TurnStarted(Takes(3)),
        f.TurnEnded(4, "done"),
        f.GoalSet("b"),
        said("two"),
        f.TurnStarted(Takes(7)),
        f.TurnEnded(8, "done"),
    ]
    carry = Carry()
    for record in in_place(facts):
        carry.apply(record)
    assert carry.seqs() == (1, 6, 7, 8, 9)
    carried = [record for record in in_place(facts) if record.seq in (1, 6, 7, 8, 9)]
    assert fold(State(), carried) == fold(State(), in_place(facts))
