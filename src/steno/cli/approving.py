"""Deciding about calls, from a process that need not run them: about one that waits, and by the
rules of a session."""

import argparse

from steno.cli.printers import to_json
from steno.cli.stdio import complain, show
from steno.engine.approval import Verdict
from steno.service import Misused, Service
from steno.service.approvals import always

DONE, FAILED = 0, 1


async def decide(options: argparse.Namespace, service: Service, id: str) -> int:
    if (options.always or "").isdecimal():
        raise Misused(
            f"--always {options.always}: a rule names a tool; SEQ stands before --always; nothing "
            "was decided"
        )
    one = await service.approvals.choose(id, options.seq)
    allow = options.verb == "approve"
    asked = () if options.always is None else (options.always,)
    rules = always(one) if asked == ("",) else asked
    first = await service.approvals.decide(
        id, one.seq, "allow" if allow else "deny", "" if allow else options.reason.strip(), rules
    )
    if not first:
        complain(
            f"somebody else has decided about {one.tool} at {one.seq} first; that decision stands"
        )
        return FAILED
    owner = await service.views.owner(id)
    waiting = await service.approvals.pending(id)
    done = f"{'approved' if allow else 'denied'} {one.tool} at {one.seq}"
    done += f", and always {', '.join(map(repr, rules))} in this session" if rules else ""
    if owner is not None:
        show(f"{done}; the turn goes on by itself")
    elif waiting:
        show(
            f"{done}; still waiting: "
            f"{', '.join(f'{other.tool} at {other.seq}' for other in waiting)}"
        )
    else:
        show(f"{done}; nobody runs the session: steno continue {id} carries on")
    return DONE


async def rules(options: argparse.Namespace, service: Service, id: str) -> int:
    """Set rules of a session or take them back, then list those it has."""
    said: tuple[tuple[list[str], Verdict | None], ...] = (
        (options.remove, None),
        (options.allow, "allow"),
        (options.ask, "ask"),
        (options.deny, "deny"),
    )
    await service.approvals.set_rules(
        id, {rule: verdict for rules, verdict in said for rule in rules}
    )
    found = await service.approvals.rules(id)
    if options.json:
        show(to_json([{"rule": rule, "verdict": verdict} for rule, verdict in found.items()]))
    elif not found:
        show(f"session {id} has no rules of its own; those of the configuration hold")
    else:
        for rule, verdict in found.items():
            show(f"{verdict:<5}  {rule}")
    return DONE
