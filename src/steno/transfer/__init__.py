"""Moving a session: from one store into a file, and from a file into another store.

TransferError
  NotAnExport        the file is something else; name the right one
  FileTooNew         a newer steno wrote it; upgrade
  FileDamaged        it is not as it was written; nothing was stored; export the session again
  Permits            it lets calls run unasked; nothing was stored; import it as one you trust
  OtherContent       the store has another session of that id; nothing was stored
  ChangedMeanwhile   text was removed from the session while it was exported; do it again
  FileExists         there is something of that name; nothing was written
"""

from collections.abc import Sequence
from pathlib import Path


class TransferError(Exception):
    """Base of everything that goes wrong with a file, and not with a store."""


class NotAnExport(TransferError):
    pass


class FileTooNew(TransferError):
    pass


class FileDamaged(TransferError):
    pass


class Permits(TransferError):
    """`calls` are the rules and the calls that would let something run."""

    def __init__(self, calls: Sequence[str]) -> None:
        self.calls = tuple(calls)
        named = ", ".join(calls)
        super().__init__(
            f"the session lets calls run unasked: {named}; nothing was stored"
        )


class OtherContent(TransferError):
    pass


class FileExists(TransferError):
    """`is_file`: it can be written over."""

    def __init__(self, path: Path) -> None:
        self.is_file = path.is_file()
        what = "exists already" if self.is_file else "is not a file"
        super().__init__(f"{path} {what}; nothing was written")


class ChangedMeanwhile(TransferError):
    pass
