"""Golden journals: bytes that were written once and must be read the same way for ever.

    NAME.jsonl        one body a line, the n-th at seq n, exactly as the codec wrote it
    NAME.facts.json   what each line meant when it was written, with every field spelled out
    NAME.views.json   what the views made of the whole

To add one, write NAME.jsonl and run `python -m tests.journal.goldens`: it writes what is missing
beside it. Do this for every new tag and for every field added to an old one. NEVER edit or remove a
.jsonl or a .facts.json: there are stores in the world that hold such bytes. Only a .views.json may
be written again (delete it, run the command, read the difference), and only when a view is meant to
say something else about the same facts.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from steno.journal.codec import decode
from steno.journal.facts import Record
from steno.journal.history import History
from steno.journal.listing import ListingRow
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.journal.usage import UsageTotal
from tests.journal.folding import fold, in_place

FOLDER = Path(__file__).parent / "golden"


def journals() -> list[Path]:
    return sorted(FOLDER.glob("*.jsonl"))


def bodies(journal: Path) -> list[bytes]:
    return journal.read_bytes().split(b"\n")[:-1]


def facts(journal: Path) -> list[Any]:
    return [spelled_out(decode(body)) for body in bodies(journal)]


def views(journal: Path) -> dict[str, Any]:
    records = in_place([decode(body) for body in bodies(journal)])
    return {
        "messages": spelled_out(fold(Transcript(), records).messages),
        "turns": spelled_out(fold(Transcript(), records).turns),
        "history": spelled_out(fold(History(), records).entries()),
        "listing": spelled_out(fold(ListingRow(), records)),
        "usage": spelled_out(fold(UsageTotal(), records)),
        "open": _open(records),
    }


def _open(records: list[Record]) -> dict[str, Any]:
    """What a runner would find to do."""
    state = fold(State(), records)
    return {
        "turn": None if state.turn is None else state.turn.seq,
        "pending": list(state.pending),
        "deliveries": list(state.deliveries),
        "hooks": list(state.hooks),
        "attending": list(state.attending),
        "threads": state.threads,
    }


def spelled_out(value: Any) -> Any:
    """Every field of every struct, defaults too, with its tag. JSON would join two lone surrogates,
    so text with such stands as a Python literal."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        fields = {name: spelled_out(getattr(value, name)) for name in value.__struct_fields__}
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, list | tuple):
        return [spelled_out(item) for item in value]
    if isinstance(value, dict):
        return {str(name): spelled_out(item) for name, item in value.items()}
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        return ascii(value)
    return value


def snapshot(journal: Path, kind: str) -> Path:
    return journal.with_suffix(f".{kind}.json")


def main() -> None:
    for journal in journals():
        for kind, look in (("facts", facts), ("views", views)):
            path = snapshot(journal, kind)
            if not path.exists():
                path.write_text(json.dumps(look(journal), indent=1) + "\n")


if __name__ == "__main__":
    main()
