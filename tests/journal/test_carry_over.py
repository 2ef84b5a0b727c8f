"""A runner that reads what is carried over a summary, and then what follows, has what reading
everything gives."""

from hypothesis import given
from hypothesis import strategies as st

from steno.journal import facts as f
from steno.journal.carry_over import Carry, needs_everything
from steno.journal.history import History
from steno.journal.state import State
from tests.journal.author import Journal, journals
from tests.journal.folding import fold


@given(journals(tidy=False), journals(tidy=False), st.data())
def test_carried_facts_and_those_after_make_the_same_state_and_history(
    first: Journal, second: Journal, data: st.DataObject
) -> None:
    upto = data.draw(st.integers(0, len(first.records)))
    place = len(first.records) + 1
    compacted = f.Record(place, 0, f.Compacted(upto, "so far"))
    later = [
        f.Record(place + record.seq, 0, moved(record.fact, place)) for record in second.records
    ]
    after = [*first.records[upto:], compacted, *later]
    carry = Carry()
    for record in first.records[:upto]:
        carry.apply(record)
    seqs = carry.seqs()
    if seqs is None or any(
        needs_everything(record, upto, frozenset(seqs), place) for record in after
    ):
        return
    carried = [first.records[seq - 1] for seq in seqs]
    everything = [*first.records, compacted, *later]
    whole, part = fold(State(), everything), fold(State(), [*carried, *after])
    assert part == whole
    assert fold(History(), [*carried, *after]).entries() == fold(History(), everything).entries()


def moved(fact: f.AnyFact, by: int) -> f.AnyFact:
    """A fact of a journal of its own, as it would be after another one."""
    names = {
        "target",
        "to",
        "rewind",
        "turn",
        "step",
        "started",
        "asked",
        "owed",
        "upto",
        "input",
        "attended",
    }
    changes = {
        name: getattr(fact, name) + by
        for name in fact.__struct_fields__
        if name in names and isinstance(getattr(fact, name), int)
    }
    if isinstance(fact, f.TurnStarted):
        origin = fact.origin
        changed = (
            f.Takes(origin.input + by)
            if isinstance(origin, f.Takes)
            else f.Continues(origin.turn + by)
        )
        return f.TurnStarted(changed)
    if isinstance(fact, f.StepStarted):
        changes["takes"] = tuple(seq + by for seq in fact.takes)
    return type(fact)(
        **{name: changes.get(name, getattr(fact, name)) for name in fact.__struct_fields__}
    )
