"""What can go wrong with a store, and what the caller does about it; and what is said of it to
the person who keeps the logs.

StoreError
  UnknownSession     no session has this id; say so, with near matches
  SessionBusy        another owner runs it; follow it, or wait
  LeftOpen           a turn was left open and you do not say what closes it; look again
  LeaseLost          another owner holds the session now; stop writing, nothing was stored
  KeyReused          this key came before with other content; refuse the caller
  NotAllowed         this verb may not write this fact; mend the caller
    NotStorable        the value could not be read back; nothing was stored; mend the caller
  ShownTextDropped   a sealing fact lacks text that was already shown; mend the caller
  UnknownPayload     no payload has this hash; put it first
  UnknownMark        this store has given no such mark: it is an older copy; begin again at 0
  Stale              others have changed the items since you looked; nothing was stored; look again
  NotPending         the input was taken, or taken back, meanwhile; nothing was stored; look again
  ForksRemain        other sessions refer to this one; delete them too, or keep it
  StoreClosed        this store was closed, or the process was forked since; open it again
  StoreUnwritable    nothing was stored; tell the person why
    StoreFull          the disk is full; make room
    StoreReadOnly      the file or its folder cannot be written; mend the permissions
    StoreLocked        another process held the write lock too long; try again
  OutcomeUnknown     the disk failed while storing: it may be stored or not; the same call with the
                     same key settles it
  StoreUnopenable    the store cannot be used at all; tell the person why
    NotAStore          the file is not a steno store
    StoreTooNew        a newer steno wrote it; upgrade
  JournalCorrupt     stored bytes are damaged; nothing is skipped or stored; restore a backup

A backend may have finer ones below these, such as those of `sqlite/database.py`.
"""


class StoreError(Exception):
    """Base of everything a store raises on purpose."""


class UnknownSession(StoreError):
    def __init__(self, session: str) -> None:
        super().__init__(f"no session {session!r}")
        self.session = session


class SessionBusy(StoreError):
    def __init__(self, session: str, owner: str) -> None:
        super().__init__(f"session {session!r} is running in {owner}")
        self.session, self.owner = session, owner


class LeftOpen(StoreError):
    """`head` is where the session stands."""

    def __init__(self, session: str, head: int) -> None:
        super().__init__(
            f"a turn of session {session!r} was left open, and what closes it at fact {head} was "
            "not said; nothing was stored"
        )
        self.session, self.head = session, head


class LeaseLost(StoreError):
    def __init__(self, session: str, token: int) -> None:
        super().__init__(
            f"the lease on session {session!r} (token {token}) is no longer ours; nothing was "
            "stored"
        )
        self.session, self.token = session, token


class KeyReused(StoreError):
    pass


class NotAllowed(StoreError):
    pass


class NotStorable(NotAllowed):
    """Says which field of which fact, or which argument, has a value that no journal can hold."""


class ShownTextDropped(StoreError):
    pass


class UnknownPayload(StoreError):
    pass


class UnknownMark(StoreError):
    pass


class Stale(StoreError):
    """`items` is the last fact about items that there is."""

    def __init__(self, session: str | None, expected: int, items: int) -> None:
        super().__init__(
            f"the items of session {session!r} were changed by fact {items}, after {expected}; "
            "nothing was stored"
        )
        self.session, self.expected, self.items = session, expected, items


class NotPending(StoreError):
    pass


class ForksRemain(StoreError):
    pass


class StoreClosed(StoreError):
    pass


class StoreUnwritable(StoreError):
    """`cause` is the cause of a turn that it cut off."""

    cause = "store_unwritable"


class StoreFull(StoreUnwritable):
    cause = "store_full"


class StoreReadOnly(StoreUnwritable):
    pass


class StoreLocked(StoreUnwritable):
    cause = "store_locked"


class OutcomeUnknown(StoreError):
    cause = "store_unwritable"


class StoreUnopenable(StoreError):
    pass


class NotAStore(StoreUnopenable):
    pass


class StoreTooNew(StoreUnopenable):
    pass


class JournalCorrupt(StoreError):
    """`adoptable`: another program may have done it, and the store can be taken back from it."""

    adoptable = False


def warn(message: str, *values: object) -> None:
    """Under the name `steno.store`. Nothing that people said is in it."""
    import logging

    logging.getLogger("steno.store").warning(message, *values)


def note(message: str, *values: object) -> None:
    import logging

    logging.getLogger("steno.store").info(message, *values)
