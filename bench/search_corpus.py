"""A store to search in: what people write in eight languages, with words as rare and as common as
in real text, code, paths, hashes and the output of tools. The same in every run."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

from bench.building import DIGEST, MODEL
from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Returned, Seq, Text, ToolCall
from steno.store import verbs
from steno.store.protocol import Admission, Lease
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore
from steno.store.transaction import Transaction, written
from steno.store.verbs import Moment

CHARS = 500
TURNS_PER_SESSION = 30
_TURNS_PER_COMMIT = 300
_START_MS = 1_700_000_000_000
_YEARS_MS = 3 * 365 * 86_400_000
ENDS_MS = _START_MS + _YEARS_MS
_WORDS = 30_000
_SYLLABLES = 1_500

COMMON = "the and to of that is in it you for with this have not but are".split()  # noqa: SIM905
_GERMAN = "der die und ist das nicht ein mit für auf über größe müssen schön".split()  # noqa: SIM905
_RUSSIAN = "и в не на что это как по для ещё если можно".split()  # noqa: SIM905
_SHARES = {
    "english": 42,
    "chinese": 13,
    "german": 12,
    "code": 10,
    "japanese": 8,
    "russian": 6,
    "korean": 5,
    "arabic": 4,
}


class Words:
    """Words of one language, by Zipf's law, of syllables that are common or rare themselves."""

    def __init__(
        self, chance: Random, first: list[str], letters: str, glue: str, syllables: int
    ) -> None:
        pool = ["".join(chance.choices(letters, k=3 if glue else 1)) for _ in range(_SYLLABLES)]
        weights = list(accumulate(1 / (rank + 3) for rank in range(len(pool))))
        made: dict[str, None] = {}
        for _ in range(_WORDS):
            count = chance.randint(1, syllables)
            made["".join(chance.choices(pool, cum_weights=weights, k=count))] = None
        self.words = list(dict.fromkeys([*first, *made]))
        self.weights = list(accumulate(1 / (rank + 2) for rank in range(len(self.words))))
        self.glue = glue

    def text(self, chance: Random, chars: int) -> str:
        mean = 6 if self.glue else 2
        words = chance.choices(self.words, cum_weights=self.weights, k=max(chars // mean, 1))
        return self.glue.join(words)[:chars]


def _letters(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


class Speech:
    def __init__(self, chance: Random) -> None:
        latin = "eeeeaaaoootttiinnsshrrdlucmfpgwybvk"
        self._chance = chance
        self._of = {
            "english": Words(chance, COMMON, latin, " ", 4),
            "german": Words(chance, _GERMAN, latin + "äöüß", " ", 5),
            "code": Words(chance, ["self", "return", "import"], latin + "__.", " ", 5),
            "russian": Words(chance, _RUSSIAN, _letters(0x430, 0x44F), " ", 4),
            "arabic": Words(chance, ["من", "في"], _letters(0x627, 0x63A), " ", 3),
            "korean": Words(chance, ["그리고", "이"], _letters(0xAC00, 0xAE00), " ", 2),
            "chinese": Words(chance, ["的", "是", "我们"], _letters(0x4E00, 0x5A00), "", 3),
            "japanese": Words(
                chance,
                ["の", "は", "です"],
                _letters(0x3041, 0x3093) + _letters(0x4E00, 0x5200),
                "",
                4,
            ),
        }
        self._names = list(_SHARES)
        self._weights = list(accumulate(_SHARES.values()))

    def said(self) -> str:
        chance = self._chance
        [name] = chance.choices(self._names, cum_weights=self._weights)
        chars = int(chance.expovariate(1 / CHARS)) + 20
        text = self._of[name].text(chance, chars)
        extra = chance.random()
        if extra < 0.1:
            text += f" https://example.org/{chance.getrandbits(40):x}?q={chance.randrange(999)} 🎉"
        elif extra < 0.2:
            text += f" /srv/app/mod_{chance.randrange(9_999)}.py:{chance.randrange(500)}"
        return text

    def output(self) -> str:
        """What a tool gives back: source and logs, at times long."""
        chance = self._chance
        lines = 120 if chance.random() < 0.05 else 6
        return "\n".join(
            f"{n:04} {chance.getrandbits(48):012x} {self._of['code'].text(chance, 70)}"
            for n in range(lines)
        )


def build(path: Path, messages: int) -> None:
    """Five messages in two turns: two inputs, two answers and an outcome of a tool."""
    chance = Random(7)
    speech = Speech(chance)
    turns = messages * 2 // 5
    clock = _Clock(turns)
    with BlockingStore(path, SqliteSettings(durability="process", now_ms=clock)) as store:
        done = 0
        while done < turns:
            leases = [store.acquire(store.create(SessionStarted("cli", MODEL))) for _ in range(8)]
            heads = [1] * len(leases)
            for _ in range(TURNS_PER_SESSION * len(leases) // _TURNS_PER_COMMIT + 1):
                count = min(_TURNS_PER_COMMIT, turns - done)
                heads = store.core.queue.run(
                    _turns(leases, heads, range(done, done + count), speech, clock, store)
                )
                done += count
            for lease, head in zip(leases, heads, strict=True):
                store.release(lease, head)


class _Clock:
    def __init__(self, turns: int) -> None:
        self.step_ms = _YEARS_MS // max(turns, 1)
        self.turn = 0

    def __call__(self) -> int:
        return _START_MS + self.turn * self.step_ms


def _turns(
    leases: list[Lease],
    heads: list[Seq],
    turns: range,
    speech: Speech,
    clock: _Clock,
    store: BlockingStore,
) -> Callable[[Transaction], list[Seq]]:
    def verb(tx: Transaction) -> list[Seq]:
        ends = list(heads)
        for turn in turns:
            clock.turn = turn
            which = turn % len(leases)
            ends[which] = _turn(tx, leases[which], speech, store.core.moment(), bool(turn % 2))
        return ends

    return verb


def _turn(tx: Transaction, lease: Lease, speech: Speech, moment: Moment, tool: bool) -> Seq:
    said = InputAdmitted((Text(speech.said()),), "bench")
    admission = Admission(input=said, session=lease.session)
    input = verbs.admit(tx, admission, written((said,)), moment).seq
    begun = written((TurnStarted(Takes(input)), StepStarted(MODEL, DIGEST)))
    step = verbs.append(tx, lease, begun, input, moment).last
    answer = Text(speech.said())
    ended = TurnEnded(input + 1, "done")
    if not tool:
        return verbs.append(
            tx, lease, written((StepSealed(step, (answer,)), ended)), step, moment
        ).last
    call = ToolCall("c", "shell", '{"command":"run"}')
    facts = written((StepSealed(step, (answer, call)), ToolStarted(step, "c")))
    started = verbs.append(tx, lease, facts, step, moment).last
    settled = ToolSettled(step, "c", Returned((Text(speech.output()),)), started)
    return verbs.append(tx, lease, written((settled, ended)), started, moment).last


def texts(store: BlockingStore, many: int, seed: int) -> Iterator[str]:
    """Texts of stored messages, spread over the whole store."""
    from steno.search.documents import documents
    from steno.store.protocol import FactAdded

    chance, top = Random(seed), store.changes(None).mark
    while many:
        for change in store.changes(chance.randrange(top), 12).changes:
            if isinstance(change, FactAdded):
                for one in documents(change.record):
                    if many and one.role in ("user", "assistant") and len(one.text) > 10:
                        many -= 1
                        yield one.text
                        break
