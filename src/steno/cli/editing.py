"""Commands that change a session in passing: what a model is told of it, what is removed for good,
what is decided about its calls."""

import argparse
from typing import Literal

from steno.cli import stdio
from steno.cli.keeping.tables import waiting
from steno.cli.signals import Leaving
from steno.cli.stdio import complain, show
from steno.engine.approval import Verdict
from steno.service import Misused, Service
from steno.service.approvals import ALWAYS_DAYS, always
from steno.service.objects import rule_line, rule_object, to_json

DONE, FAILED = 0, 1


async def edit(options: argparse.Namespace, service: Service, id: str) -> int:
    match options.verb:
        case "rename":
            await service.edits.rename(id, options.title)
        case "goal":
            await _goal(options, service, id)
        case "undo" | "rewind" if options.withdraw is not None:
            await service.edits.redo(id, options.withdraw)
            show(f"{options.verb} {options.withdraw} is taken back")
        case "undo" if options.files or options.both or options.redo_files:
            return await _undo_files(options, service, id)
        case "diff":
            for one in await service.files.of_session(id):
                show("\n".join(one.unified()))
        case "undo":
            turn, seq = await service.edits.undo(id)
            show(
                f"turn {turn} is out of the model's view; steno undo {id} --withdraw {seq} takes "
                "this back"
            )
        case "rewind":
            seq = await service.edits.rewind(id, options.to)
            show(
                f"the model's view is as it was at {options.to}; steno rewind {id} --withdraw "
                f"{seq} takes this back"
            )
        case "hide":
            await _hide(options, service, id)
        case "redact":
            return await _redact(options, service, id)
        case "fork":
            show(await service.edits.fork(id, options.at))
        case "compact":
            return await _compact(service, id)
    return DONE


async def _undo_files(options: argparse.Namespace, service: Service, id: str) -> int:
    """Put files back, or take that back. Files that hold something else by now stay."""
    if options.redo_files:
        done = await service.files.redo(id)
    else:
        turn = await service.edits.last_turn(id)
        done = await service.files.undo(id, turn)
        if options.both:
            _, seq = await service.edits.undo(id)
            show(f"turn {turn} is out of the model's view; steno undo {id} --withdraw {seq}")
    for path in done.files:
        show(f"put back {path}")
    for path in done.left:
        complain(f"{path} was changed by something else since, and stays as it is")
    if not done.files and not done.left:
        show("no file was changed by an edit since; nothing was done")
    elif done.files and not options.redo_files:
        show(f"steno undo {id} --redo-files takes this back")
    return FAILED if done.left else DONE


async def _goal(options: argparse.Namespace, service: Service, id: str) -> None:
    """Set it, take it away, or say what it is."""
    if options.none:
        changed = await service.edits.set_goal(id, "")
        show(f"session {id} has {'no goal any more' if changed else 'no goal'}")
    elif options.text is None:
        show(
            (await service.views.state(id)).goal
            or f"session {id} has no goal; steno goal {id} TEXT sets one"
        )
    elif not options.text.strip():
        raise Misused(
            f"the goal is empty; session {id!r} keeps the one it has; --none takes it away"
        )
    else:
        await service.edits.set_goal(id, options.text)
        show(f"the goal is part of every request from now on; steno goal {id} --none takes it away")


async def _hide(options: argparse.Namespace, service: Service, id: str) -> None:
    changed = await service.edits.hide(id, options.seq, not options.show)
    already = "" if changed else "already "
    if options.show:
        show(f"message {options.seq} is {already}in the model's view")
    else:
        back = f"steno hide {id} --seq {options.seq} --show puts it back"
        show(
            f"message {options.seq} is {already}out of the model's view; people still see it; "
            f"{back}"
        )


async def _redact(options: argparse.Namespace, service: Service, id: str) -> int:
    what = await service.edits.redactable(id, options.seq)
    if not options.yes and not await _sure(
        f"remove {what} of session {id} for good?", "nothing was removed"
    ):
        return FAILED
    redaction = await service.edits.redact(id, options.seq)
    show(f"removed {what}; its place is kept. Backups that were made before still have it")
    for copy in redaction.copies:
        how = f"steno redact {copy.session} --seq {copy.seq} removes that"
        complain(f"what is stored at {copy.seq} of session {copy.session} may repeat it: {how}")
    for helper in redaction.helpers:
        complain(f"the helper in session {helper} was given it, or gave it: steno show {helper}")
    for runtime, thread in redaction.threads:
        complain(
            f"{runtime} may have it in files of its own: {runtime} delete {thread} removes that "
            "thread"
        )
    return DONE


async def _compact(service: Service, id: str) -> int:
    with Leaving(service, id) as leaving, waiting("summarising"):
        came = await service.edits.compact(id, leaving.event)
    tokens = came.tokens
    about = "" if tokens is None else f"about {tokens[0]} tokens"
    match came.outcome:
        case "done":
            stands = "a summary stands for the older part"
            show(came.detail if tokens is None else f"{stands}: {about} before, {tokens[1]} after")
        case "nothing":
            show("; ".join(filter(None, (came.detail, about, "nothing was changed"))))
        case "failed" | "stopped":
            kept = "the session is as it was" + (f", with {about}" if about else "")
            complain(f"no summary was made: {came.detail or 'no reason was given'}; {kept}")
            return FAILED
    return DONE


async def delete(options: argparse.Namespace, service: Service) -> int:
    if not options.yes:
        id = await service.views.resolve(options.id)
        if not await _sure(f"delete session {id} for good?", "nothing was deleted"):
            return FAILED
    count = await service.delete(options.id, options.with_forks)
    show(f"deleted {count} session{'s' if count > 1 else ''}")
    return DONE


async def _sure(question: str, otherwise: str) -> bool:
    if not stdio.person_present():
        raise Misused(
            f"{question.removesuffix('?')}: this cannot be taken back, so it needs --yes; "
            f"{otherwise}"
        )
    stdio.note(f"{question} [y/N] ", end="")
    if (await stdio.Lines().next() or "").strip().lower() == "y":
        return True
    stdio.note(otherwise)
    return False


# --- approvals and rules --------------------------------------------------------------------------


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
    usual = ALWAYS_DAYS if allow else 0
    days = usual if options.days is None else options.days
    said: Literal["allow", "deny"] = "allow" if allow else "deny"
    reason = "" if allow else options.reason.strip()
    first = await service.approvals.decide(id, one.seq, said, reason, rules, days=days)
    if not first:
        complain(f"{one.tool} at {one.seq} was decided already; that decision stands")
        return FAILED
    owner = await service.views.owner(id)
    waiting = await service.approvals.pending(id)
    done = f"{'approved' if allow else 'denied'} {one.tool} at {one.seq}"
    if rules:
        for_long = f" for {days} days" if days else ""
        done += f", and always {', '.join(map(repr, rules))} in this session{for_long}"
    if owner is not None:
        show(f"{done}; the turn goes on by itself")
    elif waiting:
        show(
            f"{done}; still waiting: "
            f"{', '.join(f'{other.tool} at {other.seq}' for other in waiting)}"
        )
    else:
        show(f"{done}; no process runs the session: steno continue {id} carries on")
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
        id, {rule: verdict for rules, verdict in said for rule in rules}, options.days or 0
    )
    found = await service.approvals.rules(id)
    if options.json:
        show(to_json([rule_object(rule, one) for rule, one in found.items()]))
    elif not found:
        show(f"session {id} has no rules of its own; those of the configuration hold")
    else:
        for rule, one in found.items():
            show(rule_line(rule, one))
    return DONE
