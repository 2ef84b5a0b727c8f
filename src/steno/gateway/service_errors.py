"""Errors of the store and the service, as statuses and sentences for a client."""

from steno.config import ConfigError
from steno.gateway.routes import Problem
from steno.service import Misused
from steno.store import errors


def problem(error: Exception) -> Problem | None:
    """What a client is told; None if it is not its business."""
    match error:
        case errors.UnknownSession():
            return Problem(404, "unknown_session", f"There is no session {error.session!r}.")
        case errors.KeyReused():
            return Problem(409, "key_reused", str(error))
        case errors.NotPending():
            return Problem(409, "not_pending", str(error))
        case errors.SessionBusy():
            return Problem(409, "busy", "The session is running; stop the turn first.")
        case errors.ForksRemain():
            return Problem(409, "forks_remain", str(error))
        case errors.NotAllowed():
            return Problem(409, "not_allowed", str(error))
        case errors.StoreUnwritable():
            return Problem(503, "unwritable", f"Nothing was stored: {error}", {"Retry-After": "5"})
        case errors.OutcomeUnknown():
            return Problem(503, "outcome_unknown", f"{error}", {"Retry-After": "1"})
        case errors.JournalCorrupt():
            return Problem(500, "damaged", f"{error}")
        case errors.StoreError():
            return Problem(503, "store", f"{error}")
        case ConfigError() | Misused():
            return Problem(422, "unusable", f"{error}")
        case _:
            return None
