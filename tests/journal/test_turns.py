"""The turns of a session: what is undone, what can be taken back, where an answer is."""

from hypothesis import given

from steno.journal import facts as f
from steno.journal.history import History, Said
from steno.journal.parts import Text
from steno.journal.turns import Turns
from tests.journal.author import Journal, journals
from tests.journal.folding import fold, in_place


def said(text: str) -> f.InputAdmitted:
    return f.InputAdmitted((Text(text),), "test")


def three_turns() -> list[f.Record]:
    """Inputs at 1, 4 and 7; turns at 2, 5 and 8."""
    facts: list[f.AnyFact] = []
    for input in (1, 4, 7):
        facts += [said(str(input)), f.TurnStarted(f.Takes(input)), f.TurnEnded(input + 1, "done")]
    return in_place(facts)


def after(records: list[f.Record], *facts: f.AnyFact) -> Turns:
    turns = Turns()
    for record in records + in_place(facts, first=len(records) + 1):
        turns.apply(record)
    return turns


def test_a_rewind_to_a_turn_undoes_it_and_all_after_it() -> None:
    turns = after(three_turns(), f.Rewound(5))
    assert turns.undone() == {5, 8}
    assert turns.last_standing() == 2
    assert set(turns.rewinds) == {10}


def test_a_turn_that_comes_after_a_rewind_stands() -> None:
    turns = after(three_turns(), f.Rewound(5), said("more"), f.TurnStarted(f.Takes(11)))
    assert turns.undone() == {5, 8}
    assert turns.last_standing() == 12


def test_a_rewind_to_a_message_leaves_the_turn_that_took_it() -> None:
    assert after(three_turns(), f.Rewound(4)).undone() == {8}


def test_a_turn_is_undone_as_long_as_one_rewind_leaves_it_out() -> None:
    assert after(three_turns(), f.Rewound(8), f.Rewound(5), f.RewindWithdrawn(10)).undone() == {
        5,
        8,
    }
    assert after(three_turns(), f.Rewound(8), f.Rewound(5), f.RewindWithdrawn(11)).undone() == {8}
    assert after(three_turns(), f.Rewound(8), f.RewindWithdrawn(10)).undone() == set()


def test_nothing_stands_in_an_empty_session_or_when_all_is_undone() -> None:
    assert Turns().last_standing() is None
    assert after(three_turns(), f.Rewound(2)).last_standing() is None


def test_the_prompt_of_a_turn_is_found_through_what_it_took_up() -> None:
    turns = after(
        three_turns(),
        f.TurnStarted(f.Continues(8)),
        f.TurnEnded(10, "failed"),
        f.TurnStarted(f.Continues(10)),
    )
    assert [turns.prompt(turn) for turn in (8, 10, 12, 99)] == [7, 7, 7, None]


def test_an_answer_is_where_its_input_was_last_taken_and_what_took_that_up() -> None:
    records = three_turns()
    assert after(records).answer_to(7) == (8,)
    assert after(records, f.TurnStarted(f.Takes(7))).answer_to(7) == (10,)
    assert after(records, f.TurnStarted(f.Takes(7)), f.TurnStarted(f.Continues(10))).answer_to(
        7
    ) == (10, 11)
    assert after(records, f.StepStarted("m", takes=(3,))).answer_to(3) == (10,)
    assert after(records).answer_to(99) == ()


@given(journals(tidy=True))
def test_the_prompt_of_an_undone_turn_is_out_of_the_models_view(journal: Journal) -> None:
    """The same rewinds, seen by the fold for turns and by the fold for models."""
    turns, history = after(journal.records), fold(History(), journal.records)
    seen = [entry.seq for entry in history.entries() if isinstance(entry, Said)]
    for turn, origin in turns.origins.items():
        retaken = (
            sum(isinstance(other, f.Takes) and other == origin for other in turns.origins.values())
            > 1
        )
        if isinstance(origin, f.Takes) and turn in turns.undone() and not retaken:
            assert origin.input not in seen


def test_a_rewind_to_an_input_that_waited_leaves_the_turn_before_it() -> None:
    """Inputs at 1 and 2; the turn at 3 takes the first, the turn at 5 the second."""
    both: list[f.AnyFact] = [said("1"), said("2")]
    for input, turn in ((1, 3), (2, 5)):
        both += [f.TurnStarted(f.Takes(input)), f.TurnEnded(turn, "done")]
    assert after(in_place(both), f.Rewound(2)).undone() == set()
    assert after(in_place(both), f.Rewound(1)).undone() == {5}


def test_a_rewind_to_an_input_that_was_run_again_means_the_last_run_that_stands() -> None:
    twice: list[f.AnyFact] = [said("1")]
    for turn in (2, 4):
        twice += [f.TurnStarted(f.Takes(1)), f.TurnEnded(turn, "failed")]
    assert after(in_place(twice), f.Rewound(1)).undone() == set()
    assert after(in_place(twice), f.Rewound(4), f.Rewound(1)).undone() == {4}
