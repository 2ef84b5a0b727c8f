"""Commands that change a session in passing: what a model is told of it, what is removed for good,
what is decided about its calls."""

import argparse
from typing import Literal

from steno.cli import stdio
from steno.cli.keeping.tables import waiting
from steno.cli.signals import Leaving
from steno.cli.stdio import complain, show, tell
from steno.engine.approval import Verdict
from steno.journal.parts import Seq
from steno.service import Misused, Service
from steno.service.approvals import ALWAYS_DAYS, always
from steno.service.objects import rule_line, rule_object, to_json
from steno.workspace.diffs import Diff

DONE, FAILED = 0, 1


async def edit(options: argparse.Namespace, service: Service, id: str) -> int:
    match options.verb:
        case "rename":
            await service.edits.rename(id, options.title)
            if options.json:
                tell(options, "", session=id, title=options.title)
        case "goal":
            await _goal(options, service, id)
        case "undo" | "rewind" if options.withdraw is not None:
            await service.edits.redo(id, options.withdraw)
            tell(
                options,
                f"{options.verb} {options.withdraw} is taken back",
                session=id,
                withdrawn=options.withdraw,
            )
        case "undo" if options.files or options.both or options.redo_files:
            return await _undo_files(options, service, id)
        case "diff":
            found = await service.files.of_session(id)
            if options.json:
                show(to_json([_diff_object(one) for one in found]))
            for one in () if options.json else found:
                show("\n".join(one.unified()))
        case "undo":
            turn, seq = await service.edits.undo(id)
            tell(
                options,
                f"turn {turn} is out of the model's view; steno undo {id} --withdraw {seq} takes "
                "this back",
                session=id,
                turn=turn,
                withdraw=seq,
            )
        case "rewind":
            seq = await service.edits.rewind(id, options.to)
            tell(
                options,
                f"the model's view is as it was at {options.to}; steno rewind {id} --withdraw "
                f"{seq} takes this back",
                session=id,
                to=options.to,
                withdraw=seq,
            )
        case "hide":
            await _hide(options, service, id)
        case "redact":
            return await _redact(options, service, id)
        case "fork":
            made = await service.edits.fork(id, options.at)
            tell(options, made, session=made, forked_from=id, at=options.at)
        case "compact":
            return await _compact(options, service, id)
    return DONE


def _diff_object(one: Diff) -> dict[str, object]:
    return {"path": one.path, "kind": one.kind, "diff": "\n".join(one.unified())}


async def _undo_files(options: argparse.Namespace, service: Service, id: str) -> int:
    """Put files back, or take that back. Files that hold something else by now stay."""
    turn: Seq | None = None
    talk: Seq | None = None
    if options.redo_files:
        done = await service.files.redo(id)
    else:
        turn = await service.edits.last_turn(id)
        done = await service.files.undo(id, turn)
        if options.both:
            _, talk = await service.edits.undo(id)
    if options.json:
        paths = {"files": list(done.files), "left": list(done.left)}
        tell(options, "", session=id, turn=turn, withdraw=talk, **paths)
        return FAILED if done.left else DONE
    if talk is not None:
        show(
            f"turn {turn} is out of the model's view; steno undo {id} --withdraw {talk}"
        )
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
        gone = f"session {id} has {'no goal any more' if changed else 'no goal'}"
        tell(options, gone, session=id, goal="")
    elif options.text is None:
        goal = (await service.views.state(id)).goal
        none = f"session {id} has no goal; steno goal {id} TEXT sets one"
        tell(options, goal or none, session=id, goal=goal)
    elif not options.text.strip():
        raise Misused(
            f"the goal is empty; session {id!r} keeps the one it has; --none takes it away"
        )
    else:
        await service.edits.set_goal(id, options.text)
        set = f"the goal is part of every request from now on; steno goal {id} --none takes it away"
        tell(options, set, session=id, goal=options.text)


async def _hide(options: argparse.Namespace, service: Service, id: str) -> None:
    changed = await service.edits.hide(id, options.seq, not options.show)
    already = "" if changed else "already "
    said = f"message {options.seq} is {already}in the model's view"
    if not options.show:
        said = (
            f"message {options.seq} is {already}out of the model's view; people still see it; "
            f"steno hide {id} {options.seq} --show puts it back"
        )
    tell(
        options,
        said,
        session=id,
        seq=options.seq,
        hidden=not options.show,
        changed=changed,
    )


async def _redact(options: argparse.Namespace, service: Service, id: str) -> int:
    what = await service.edits.redactable(id, options.seq)
    if not options.yes and not await _sure(
        f"remove {what} of session {id} for good?", "nothing was removed"
    ):
        return FAILED
    redaction = await service.edits.redact(id, options.seq)
    tell(
        options,
        f"removed {what}; its place is kept. Backups that were made before still have it",
        session=id,
        seq=options.seq,
        removed=what,
        copies=[
            {"session": copy.session, "seq": copy.seq} for copy in redaction.copies
        ],
        helpers=list(redaction.helpers),
        threads=[
            {"runtime": runtime, "thread": thread}
            for runtime, thread in redaction.threads
        ],
    )
    for copy in redaction.copies:
        how = f"steno redact {copy.session} {copy.seq} removes that"
        complain(
            f"what is stored at {copy.seq} of session {copy.session} may repeat it: {how}"
        )
    for helper in redaction.helpers:
        complain(
            f"the helper in session {helper} was given it, or gave it: steno show {helper}"
        )
    for runtime, thread in redaction.threads:
        complain(
            f"{runtime} may have it in files of its own: {runtime} delete {thread} removes that "
            "thread"
        )
    return DONE


async def _compact(options: argparse.Namespace, service: Service, id: str) -> int:
    with Leaving(service, id) as leaving, waiting("summarising"):
        came = await service.edits.compact(id, leaving.event)
    tokens = came.tokens
    about = "" if tokens is None else f"about {tokens[0]} tokens"
    if options.json:
        before, after = (None, None) if tokens is None else tokens
        outcome = {"outcome": came.outcome, "detail": came.detail}
        tell(
            options,
            "",
            session=id,
            **outcome,
            tokens_before=before,
            tokens_after=after,
        )
        return FAILED if came.outcome in ("failed", "stopped") else DONE
    match came.outcome:
        case "done":
            stands = "a summary stands for the older part"
            show(
                came.detail
                if tokens is None
                else f"{stands}: {about} before, {tokens[1]} after"
            )
        case "nothing":
            show("; ".join(filter(None, (came.detail, about, "nothing was changed"))))
        case "failed" | "stopped":
            kept = "the session is as it was" + (f", with {about}" if about else "")
            complain(
                f"no summary was made: {came.detail or 'no reason was given'}; {kept}"
            )
            return FAILED
    return DONE


async def delete(options: argparse.Namespace, service: Service) -> int:
    if not options.yes:
        id = await service.views.resolve(options.id)
        if not await _sure(f"delete session {id} for good?", "nothing was deleted"):
            return FAILED
    count = await service.delete(options.id, options.with_forks)
    tell(options, f"deleted {count} session{'s' if count > 1 else ''}", deleted=count)
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
    first = await service.approvals.decide(
        id, one.seq, said, reason, rules, days=days
    )
    if not first:
        complain(f"{one.tool} at {one.seq} was decided already; that decision stands")
        return FAILED
    owner = await service.views.owner(id)
    waiting = await service.approvals.pending(id)
    done = f"{'approved' if allow else 'denied'} {one.tool} at {one.seq}"
    if rules:
        for_long = f" for {days} days" if days else ""
        done += (
            f", and always {', '.join(map(repr, rules))} in this session{for_long}"
        )
    if owner is not None:
        done += "; the turn goes on by itself"
    elif waiting:
        done += f"; still waiting: {', '.join(f'{other.tool} at {other.seq}' for other in waiting)}"
    else:
        done += f"; no process runs the session: steno continue {id} carries on"
    tell(
        options,
        done,
        session=id,
        seq=one.seq,
        tool=one.tool,
        decision=said,
        rules=list(rules),
        running=owner is not None,
        waiting=[other.seq for other in waiting],
    )
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
        id,
        {rule: verdict for rules, verdict in said for rule in rules},
        options.days or 0,
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
