"""Editing commands: what a model is told of a session, and what is removed for good."""

import argparse

from steno.cli import stdio
from steno.cli.signals import Leaving
from steno.cli.stdio import complain, show
from steno.service import Misused, Service

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
    with Leaving(service, id) as leaving:
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
            complain(f"no summary was made: {came.detail or 'nobody said why'}; {kept}")
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
