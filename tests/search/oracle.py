"""A scan without any index, as simple as can be: what a search has to find."""

import time

from steno.journal.facts import MessageHidden
from steno.journal.parts import Seq
from steno.search.documents import SPEECH, Role, documents
from steno.search.folding import forms
from steno.search.keeper import Search
from steno.search.query import Query, literal
from steno.search.searching import Asked
from steno.store.facade import BlockingStore

Found = set[tuple[str, Seq]]


def has(text: str, piece: str) -> bool:
    first, second = forms(piece)
    if not first:
        return piece in text
    return first in forms(text)[0] or second in forms(text)[1]


def scan(store: BlockingStore, piece: str, roles: frozenset[Role] = SPEECH) -> Found:
    """The messages that have a piece of text."""
    found: Found = set()
    for listed in store.list(10_000):
        parent = listed.row.forked_from
        imported = store.glance(listed.id).imported
        base = 0 if parent is None or imported else parent.seq
        hidden: dict[Seq, bool] = {}
        matches: Found = set()
        for record in store.read_all(listed.id):
            if record.seq <= base:
                continue
            if isinstance(record.fact, MessageHidden):
                hidden[record.fact.target] = record.fact.hidden
            for document in documents(record):
                if document.role not in roles:
                    continue
                if document.role == "title" and listed.row.titled != record.seq:
                    continue
                text = document.text
                if document.payload is not None:
                    text = store.get(document.payload).decode()
                if has(text, piece):
                    matches.add((listed.id, document.address))
        found |= {(id, seq) for id, seq in matches if not hidden.get(seq)}
        for draft in store.drafts(listed.id):
            if draft.stream.kind == "text" and has(draft.text, piece) and "assistant" in roles:
                found.add((listed.id, draft.stream.started))
    return found


def ask(search: Search, query: Query, limit: int = 1_000_000) -> Found:
    asked = Asked(
        query=query,
        limit=limit,
        all=True,
        order="newest",
        now_ms=time.time_ns() // 1_000_000,
        time_limit_s=600,
    )
    hits = search.find(asked).hits
    found = {(hit.session, hit.seq) for hit in hits}
    assert len(found) == len(hits), "a message was found twice"
    return found


def find(search: Search, piece: str, roles: frozenset[Role] = SPEECH) -> Found:
    return ask(search, literal(piece, roles))
