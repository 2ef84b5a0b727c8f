"""Deciding about a call that waits, from a process that need not run it."""

import argparse

from steno.cli.screen import complain, show
from steno.service import Service

DONE, FAILED = 0, 1


async def decide(options: argparse.Namespace, service: Service, id: str) -> int:
    one = await service.approvals.choose(id, options.seq)
    allow = options.verb == "approve"
    first = await service.approvals.decide(
        id, one.seq, "allow" if allow else "deny", "" if allow else options.reason.strip()
    )
    if not first:
        complain(f"somebody else has decided about {one.tool} at {one.seq} first; that decision stands")
        return FAILED
    view = await service.views.view(id)
    waiting = await service.approvals.pending(id)
    done = f"{'approved' if allow else 'denied'} {one.tool} at {one.seq}"
    if view.owner is not None:
        show(f"{done}; the turn goes on by itself")
    elif waiting:
        show(f"{done}; still waiting: {', '.join(f'{other.tool} at {other.seq}' for other in waiting)}")
    else:
        show(f"{done}; nobody runs the session: steno continue {id} carries on")
    return DONE
