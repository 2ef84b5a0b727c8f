"""The ids that our inputs have in a thread of codex. Pure."""

from collections.abc import Sequence
from hashlib import sha256

from steno.journal.history import Said
from steno.journal.parts import File, Image, Seq, text_of

_TOGETHER = "+"


def client_id(session: str, said: Said) -> str:
    """The id that an input has in codex's thread. In a copy of a session, or in a store that was
    restored, another input can have the same seq: so the id also tells what was said."""
    hashes = "".join(part.hash for part in said.parts if isinstance(part, Image | File))
    digest = sha256((text_of(said.parts) + hashes).encode("utf-8", "surrogatepass")).hexdigest()
    return f"steno/{session}/{said.seq}/{digest[:12]}"


def message_id(session: str, inputs: Sequence[Said]) -> str:
    """The id of one message that says these inputs."""
    return _TOGETHER.join(client_id(session, said) for said in inputs)


def client_ids(message: str) -> list[str]:
    """The inputs that a message with this id says."""
    return message.split(_TOGETHER)


def seq_in(client_id: str, session: str) -> Seq | None:
    """Which input of this session an id means; None if none."""
    match client_id.split("/"):
        case ["steno", of, seq, _] if of == session and seq.isdecimal():
            return int(seq)
        case _:
            return None
