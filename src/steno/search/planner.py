"""Which texts of a part may match a query: the newest first, and never one too few.

A query is cut into grams. The rarest are asked for, by how common they were when that was last
counted, over all words: each as long as to go along its list costs less than to read the texts that
it rules out. A word of one or two letters is asked for by all that begin with it;
where those are too many, or nothing can be asked for, all texts are gone through, the newest first,
which then finds enough soon.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from steno.search import grams
from steno.search.documents import LETTER, Role
from steno.search.index_file import IndexFile
from steno.search.query import Query, Term

_GRAMS_MAX = 24
_UNCOMMON = 0.0003
"""The share of grams that are in no table of common ones."""
_READ_TO_STEP = 400.0
"""To read a text and match it costs so many steps along the list of a gram."""
_BESIDE = 0.25
"""A gram that overlaps one that is asked for already tells little: this power of its share."""
_TOGETHER = 0.75
"""Grams stand together more often than chance would have it: to this power of their product."""
_BEGINNINGS_MAX = 300
_FEW = 0.02
_SPOKEN: frozenset[Role] = frozenset(("user", "assistant", "call", "tool"))
"""Most texts are of these: whether a row is one that is asked for, its own table tells cheaper than
a list of half of all rows."""


class Plan:
    """What to ask each part. `shares` says of grams how common they are; rare ones it leaves
    out."""

    def __init__(
        self, query: Query, shares: Callable[[list[str]], Mapping[str, float]]
    ) -> None:
        self._clauses = [
            plan for clause in query.clauses if (plan := self._clause(clause))
        ]
        self._roles: list[Role] = [] if query.roles & _SPOKEN else sorted(query.roles)
        every = [
            gram for one in chain(*self._clauses) for gram in (*one.wide, *one.narrow)
        ]
        self._shares = shares(list(dict.fromkeys(every)))
        plain = [clause[0] for clause in self._clauses if len(clause) == 1]
        narrow = [gram for one in plain if not one.wide for gram in one.narrow]
        self._telling = self._rarest(list(dict.fromkeys(narrow)))
        """What all texts must have that match, of the clauses that are one piece."""
        self._few = min(map(self._share, self._telling), default=1.0) < _FEW

    def _clause(self, clause: tuple[Term, ...]) -> list[grams.Needed] | None:
        """One of these has to be there; None if a term can be found by no gram."""
        found: list[grams.Needed] = []
        for term in clause:
            needed = [grams.Needed(piece) for piece in pieces(term)]
            if not needed or not all(needed):
                return None
            found += needed
        return found

    def candidates(self, file: IndexFile, n: int, below: int) -> Iterator[int]:
        """Rows of a part that may match, the newest first, those under `below`."""
        narrow = [grams.all_of(self._telling)] if self._telling else []
        sets: list[set[int]] = []
        if self._roles:
            said = [
                grams.quoted(grams.role_gram(LETTER[role])) for role in self._roles
            ]
            narrow.append(" OR ".join(said))
        for clause in self._clauses:
            if len(clause) == 1 and clause[0].narrow and not clause[0].wide:
                continue
            if self._few and any(one.short for one in clause):
                continue  # to look up how words begin costs more than to read what is left
            asked = self._narrow(file, n, clause)
            if asked is not None:
                if not asked:
                    return
                narrow.append(asked)
            elif (wide := self._wide(file, n, clause)) is not None:
                sets.append(wide)
        if sets and not set.intersection(*sets):
            return
        if narrow:
            rows = self._matching(file, n, narrow, below)
        elif sets:
            rows = iter(sorted((id for id in sets[0] if id < below), reverse=True))
        else:
            found = file.connection.execute(
                f"select id from d{n} where id < ? order by id desc", (below,)
            )
            rows = (id for (id,) in found)
        for id in rows:
            if all(id in one for one in sets):
                yield id

    def _matching(
        self, file: IndexFile, n: int, narrow: list[str], below: int
    ) -> Iterator[int]:
        asked = " AND ".join(f"({one})" for one in narrow)
        rows = file.connection.execute(
            f"select rowid from g{n} where g{n} match ? and rowid < ? order by rowid desc",
            (asked, below),
        )
        return (id for (id,) in rows)

    def _narrow(
        self, file: IndexFile, n: int, clause: list[grams.Needed]
    ) -> str | None:
        """The clause in narrow grams; "" if no text of the part can have it, None if it cannot be
        said so."""
        asked: list[str] = []
        for needed in clause:
            if needed.wide:
                return None
            if needed.narrow:
                asked.append(grams.all_of(self._rarest(needed.narrow)))
            elif needed.short:
                begun = self._begun(file, n, needed.short)
                if begun is None:
                    return None
                if begun:
                    asked.append(" OR ".join(map(grams.quoted, begun)))
            else:
                return None
        return " OR ".join(f"({one})" for one in asked)

    def _begun(self, file: IndexFile, n: int, short: str) -> list[str] | None:
        """The grams of a part that begin with a short word; None if they are too many."""
        rows = file.rows(
            f"select term from {file.vocabulary(n)} where term >= ? and term < ? limit ?",
            short,
            short + "\U0010ffff",
            _BEGINNINGS_MAX + 1,
        )
        return None if len(rows) > _BEGINNINGS_MAX else [term for (term,) in rows]

    def _wide(
        self, file: IndexFile, n: int, clause: list[grams.Needed]
    ) -> set[int] | None:
        """The rows that may have one of the clause; None if it says nothing."""
        found: set[int] = set()
        for needed in clause:
            if not needed.wide and not needed.narrow:
                return None
            found |= self._rows(file, n, needed)
        return found

    def _rows(self, file: IndexFile, n: int, needed: grams.Needed) -> set[int]:
        rarest = self._rarest([*needed.wide, *needed.narrow])
        wide = [gram for gram in rarest if gram in needed.wide]
        narrow = [gram for gram in rarest if gram not in needed.wide]
        asked = [
            (f"{table}{n}", grams.all_of(some))
            for table, some in (("w", wide), ("g", narrow))
            if some
        ]
        sets = [
            {
                id
                for (id,) in file.connection.execute(
                    f"select rowid from {t} where {t} match ?", (m,)
                )
            }
            for t, m in asked
        ]
        return set.intersection(*sets)

    def _rarest(self, found: list[str]) -> list[str]:
        """Those that are worth to be asked for."""
        ordered = sorted(found, key=self._share)
        left, taken = 1.0, list[str]()
        for gram in ordered[:_GRAMS_MAX]:
            share = self._share(gram)
            if taken and share >= (1 - share) * _READ_TO_STEP * left**_TOGETHER:
                break
            beside = any(
                one[1:] == gram[:-1] or one[:-1] == gram[1:] for one in taken
            )
            left *= share**_BESIDE if beside else share
            taken.append(gram)
        return taken

    def _share(self, gram: str) -> float:
        return self._shares.get(gram, _UNCOMMON)


def pieces(term: Term) -> list[str]:
    """Folded texts of which a text that has the term has one in its forms. A regular expression
    has all of its pieces: the longest stands for them."""
    if term.kind == "regex":
        known = () if term.pattern is None else term.pattern.pieces
        return [max(known, key=len)] if known else []
    return list(dict.fromkeys(filter(None, (term.first, term.second))))


def all_terms(query: Query) -> list[Term]:
    return list(chain.from_iterable(query.clauses))
