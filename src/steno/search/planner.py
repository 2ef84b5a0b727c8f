"""Which texts of a part may match a query: the newest first, and never one too few.

A query is cut into grams. The rarest are asked for, by how common they were when that was last
counted: as few as tell enough. A word of one or two letters is asked for by all that begin with it;
where those are too many, or nothing can be asked for, all texts are gone through, the newest first,
which then finds enough soon.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from steno.search import grams
from steno.search.documents import LETTER, Role
from steno.search.index_file import IndexFile
from steno.search.query import Query, Term

_GRAMS_MIN = 2
_GRAMS_MAX = 24
_ENOUGH = 1e-8
_UNCOMMON = 0.002
"""The share of grams that are in no table of common ones."""
_BEGINNINGS_MAX = 300
_SPOKEN: frozenset[Role] = frozenset(("user", "assistant", "call", "tool"))
"""Most texts are of these: whether a row is one that is asked for, its own table tells cheaper than
a list of half of all rows."""


class Plan:
    """What to ask each part. `shares` says how common grams are."""

    def __init__(self, query: Query, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._clauses = [plan for clause in query.clauses if (plan := self._clause(clause))]
        self._roles: list[Role] = [] if query.roles & _SPOKEN else sorted(query.roles)

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
        narrow: list[str] = []
        sets: list[set[int]] = []
        if self._roles:
            said = [grams.quoted(grams.role_gram(LETTER[role])) for role in self._roles]
            narrow.append(" OR ".join(said))
        for clause in self._clauses:
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

    def _matching(self, file: IndexFile, n: int, narrow: list[str], below: int) -> Iterator[int]:
        asked = " AND ".join(f"({one})" for one in narrow)
        rows = file.connection.execute(
            f"select rowid from g{n} where g{n} match ? and rowid < ? order by rowid desc",
            (asked, below),
        )
        return (id for (id,) in rows)

    def _narrow(self, file: IndexFile, n: int, clause: list[grams.Needed]) -> str | None:
        """The clause in narrow grams; "" if no text of the part can have it, None if it cannot be
        said so."""
        asked: list[str] = []
        for needed in clause:
            if needed.narrow:
                asked.append(grams.all_of(self._rarest(needed.narrow)))
            elif needed.short and not needed.wide:
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

    def _wide(self, file: IndexFile, n: int, clause: list[grams.Needed]) -> set[int] | None:
        """The rows that may have one of the clause; None if it says nothing."""
        found: set[int] = set()
        for needed in clause:
            if not needed.wide and not needed.narrow:
                return None
            found |= self._rows(file, n, needed)
        return found

    def _rows(self, file: IndexFile, n: int, needed: grams.Needed) -> set[int]:
        asked = [
            (f"{table}{n}", grams.all_of(self._rarest(some)))
            for table, some in (("w", needed.wide), ("g", needed.narrow))
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
        """As few as tell enough."""
        shares = self._shares
        ordered = sorted(found, key=lambda gram: shares.get(gram, _UNCOMMON))
        told, taken = 1.0, list[str]()
        for gram in ordered[:_GRAMS_MAX]:
            if told <= _ENOUGH and len(taken) >= _GRAMS_MIN:
                break
            told *= shares.get(gram, _UNCOMMON)
            taken.append(gram)
        return taken


def pieces(term: Term) -> list[str]:
    """Folded texts of which a text that has the term has one in its forms. A regular expression
    has all of its pieces: the longest stands for them."""
    if term.kind == "regex":
        known = () if term.pattern is None else term.pattern.pieces
        return [max(known, key=len)] if known else []
    return list(dict.fromkeys(filter(None, (term.first, term.second))))


def all_terms(query: Query) -> list[Term]:
    return list(chain.from_iterable(query.clauses))
