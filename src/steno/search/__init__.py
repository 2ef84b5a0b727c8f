"""Finds what was said, in any session, by any piece of its text.

    folding      text as it is compared: one function for what is stored and what is asked
    grams        the pieces of folded text that the index knows a message by
    documents    which texts of a fact are searched, and where they are shown
    query        what a person types, as a value
    matching     a query against one text: whether, where, how well
    index_file   the file beside the journal: its tables, its parts
    feed, batch  what a range of the feed of changes tells, on its way into the file
    indexer      fills the file, and empties it of what was removed
    planner      which rows of a part may match
    scope        who may see which sessions
    searching    one search: the index, verified on the journal, and a scan of the rest
    keeper       all of it for one open store: `Search`

The journal is the truth. The index only says where to look: each hit is read from the journal and
matched again, and what the index does not have is scanned. So its lag, its damage and its absence
cost time, and never a hit.
"""

from hashlib import sha256
from pathlib import Path


def beside(store: Path) -> Path:
    """The index of a store that is a file."""
    return store.with_name(store.name + "-search")


def within(home: Path, identity: str) -> Path:
    """The index of a store that is no file here, by what names the store."""
    return home / f"search-{sha256(identity.encode()).hexdigest()[:16]}"
