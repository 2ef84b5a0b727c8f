"""Text to store: 500 characters of made-up words, the same in every run."""

from random import Random

TEXT_LEN = 500
_LETTERS = "eeeeaaaoootttiinnsshrrdlucmfpgwybvk"


def _texts(count: int) -> list[str]:
    chance = Random(1)
    words = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 10))) for _ in range(2_000)]
    return [" ".join(chance.choices(words, k=TEXT_LEN // 2))[:TEXT_LEN] for _ in range(count)]


TEXTS = _texts(500)
