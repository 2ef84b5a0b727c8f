"""Moving a session: from one store into a file, and from a file into another store.

TransferError
  NotAnExport        the file is something else; name the right one
  FileTooNew         a newer steno wrote it; upgrade
  FileDamaged        it is not as it was written; nothing was stored; export the session again
  Permits            it lets calls run unasked; nothing was stored; import it again as one that you trust
  OtherContent       the session is there and is another than in the file; nothing was stored; keep it, or delete it
  ChangedMeanwhile   text was removed from the session while it was exported; do it again
  FileExists         there is something of that name; nothing was written; choose another, or write over it
"""


class TransferError(Exception):
    """Base of everything that goes wrong with a file, and not with a store."""


class NotAnExport(TransferError):
    pass


class FileTooNew(TransferError):
    pass


class FileDamaged(TransferError):
    pass


class Permits(TransferError):
    pass


class OtherContent(TransferError):
    pass


class FileExists(TransferError):
    pass


class ChangedMeanwhile(TransferError):
    pass
