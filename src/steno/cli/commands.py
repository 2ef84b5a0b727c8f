"""Each command, from parsed options to an exit status. Errors are told here, once, in words a
person can act on."""

import argparse
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec.structs import replace

from steno import config as configuration
from steno.cli import output, stdio
from steno.cli.keeping.tables import Progress, waiting
from steno.cli.stdio import complain, note, show, tell
from steno.compose import Program, Setup
from steno.config import Config, ConfigError, Place
from steno.frontend import first_frame, wording
from steno.frontend.process import LEFT, in_time
from steno.model_choice import Terms, contradiction
from steno.service import Misused, Service
from steno.service.views import Views
from steno.store.errors import StoreError, UnknownSession
from steno.store.facade import now
from steno.store.protocol import Admitted

if TYPE_CHECKING:
    from steno.agents import Agents
    from steno.cli.turns import Front
    from steno.journal.facts import DeliveryOwed
    from steno.service.attachments import Attachment

T = TypeVar("T")

DONE, FAILED, USAGE = 0, 1, 2
DEMO = (
    "[no key is set, so a tiny demo model (SmolLM2, 135 million parameters) answers, often "
    "wrongly; "
    "set ANTHROPIC_API_KEY or OPENAI_API_KEY for a real one]"
)

VISITING = (None, "run", "compact", "continue", "retry", "carry")
"""Commands that run a session: plugins hear of them. The others look at one, or change something
in passing."""
AROUND = ("backup", "vacuum", "prune", "usage")
READING = (
    "sessions",
    "show",
    "search",
    "approvals",
    "deliveries",
    "export",
    "verify",
    "backup",
    "workers",
    "usage",
)
"""Commands that write nothing to the store: a full disk is no reason not to look."""


def run(options: argparse.Namespace) -> int:
    try:
        where = configuration.place()
        _check_ephemeral(options)
        _settle_seq(options)
        looks = options.verb in ("doctor", "models") or (
            _only_reads(options) and where.store.exists()
        )
        if not looks and not options.ephemeral:
            configuration.prepare_home(where)
        config = configuration.load(where)
        options.piped = stdio.read_piped() if _reads_along(options) else b""
        if getattr(options, "prompt", None) == "-":
            options.prompt = (
                stdio.read_all()
            )  # before there is a loop, so that Ctrl-C ends the reading
        if options.verbose or configuration.log_file():
            from steno.cli.keeping import logs

            logs.begin(options.verbose, configuration.log_file())
        return _dispatch(
            options, Setup(config, where, options.ephemeral), _terms(options)
        )
    except (ConfigError, Misused) as error:
        complain(wording.problem(error))
        return USAGE
    except StoreError as error:
        complain(wording.problem(error))
        return FAILED
    except OSError as error:
        complain(f"{error.filename or 'steno'}: {error.strerror or error}")
        return FAILED
    finally:
        in_time()


def _loop(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # loaded last: commands that only look do without it

    return asyncio.run(work)


def _only_reads(options: argparse.Namespace) -> bool:
    return options.verb in READING or (
        options.verb == "mcp" and not options.allow_write
    )


def _reads_along(options: argparse.Namespace) -> bool:
    """Whether what is piped to a command goes with its prompt."""
    return bool(options.verb == "run" and options.prompt != "-")


def _terms(options: argparse.Namespace) -> Terms:
    """How sessions are run, as far as the command says."""
    terms = Terms(
        model=getattr(options, "model", None),
        runtime=getattr(options, "runtime", None),
        new_thread=getattr(options, "new_thread", False),
        approval=_approval(options),
        allowed=_allowed(options),
        memories=getattr(options, "memory", True),
    )
    if contrary := contradiction(terms.model, terms.runtime):
        raise Misused(contrary)
    return terms


def _settle_seq(options: argparse.Namespace) -> None:
    """A message is named after the session, or by the option that each command had for it."""
    name = {"hide": "seq", "redact": "seq", "fork": "at", "rewind": "to"}.get(
        options.verb or ""
    )
    if options.resume is not None and options.latest:
        raise Misused("--continue and --resume name two sessions; leave one out")
    if options.first_shown is not None and options.resume is None:
        raise Misused(
            "--at names a message of a session; say which one with --resume"
        )
    if name is None:
        return
    by_place, by_option = options.at_seq, getattr(options, name)
    taken_back = getattr(options, "withdraw", None)
    if sum(one is not None for one in (by_place, by_option, taken_back)) != 1:
        raise Misused(
            f"which message? steno {options.verb} ID SEQ, with one number as steno show prints it; "
            "nothing was changed"
        )
    if by_place is not None:
        setattr(options, name, by_place)


def _check_ephemeral(options: argparse.Namespace) -> None:
    """Nothing but a new session, in this process, can be kept in its memory."""
    if not options.ephemeral:
        return
    if options.verb not in (None, "run"):
        raise Misused(
            f"--ephemeral goes with steno and with steno run, not with steno {options.verb}"
        )
    named = ("--resume", "--session", "--key", "--input-id")
    given = [
        option
        for option in named
        if getattr(options, option[2:].replace("-", "_"), None) is not None
    ]
    given += ["--continue"] if options.latest else []
    given += ["--detach"] if getattr(options, "detach", False) else []
    given += ["--deliver"] if getattr(options, "deliver", None) else []
    given += ["--ask wait"] if getattr(options, "ask", None) == "wait" else []
    if given:
        raise Misused(
            f"--ephemeral cannot go with {', '.join(given)}: the session is new, lives in the "
            "memory of this process "
            "and cannot be found from elsewhere or later; nothing was stored"
        )


def _approval(options: argparse.Namespace) -> Literal["allow", "refuse", "ask"]:
    """What to do with a call that needs approval. "ask" waits for a decision, here or from another
    process."""
    if getattr(options, "yes", False):
        return "allow"
    if (told := getattr(options, "ask", None)) is not None:
        return "ask" if told == "wait" else "refuse"
    return "ask" if _asks_here(options) else "refuse"


def _asks_here(options: argparse.Namespace) -> bool:
    """Whether a person is asked on this terminal."""
    elsewhere = getattr(options, "ask", None) is not None or getattr(
        options, "yes", False
    )
    return (
        not elsewhere
        and getattr(options, "output", "text") == "text"
        and stdio.person_present()
    )


def _allowed(options: argparse.Namespace) -> tuple[str, ...]:
    rules: list[str] = getattr(options, "allow", [])
    for rule in rules:
        if not rule.partition(":")[0].strip():
            raise Misused(f"--allow {rule!r} names no tool; nothing was stored")
    return tuple(rules)


def _dispatch(options: argparse.Namespace, setup: Setup, terms: Terms) -> int:
    match options.verb:
        case "doctor":
            from steno.cli.doctor import doctor

            return _loop(doctor(setup, terms, options.ask, options.json))
        case "models" | "login" | "logout":
            from steno.cli.keeping import providers

            if options.verb == "logout":
                return providers.logout(options, setup)
            does = providers.models if options.verb == "models" else providers.login
            return _loop(does(options, setup))
        case "config":
            from steno.cli.keeping import settings

            return settings.act(options, setup)
        case "verify" if options.adopt and setup.has_store():
            adopted = setup.adopt()
            show(
                "everything in the store is whole; "
                + ("its pages were written anew" if adopted else "nothing to do")
            )
            return DONE
        case "store":
            from steno.cli import transfer

            return _loop(transfer.copy_store(setup, options.source, options.target))
        case "restore":
            setup.restore(Path(options.file))
            kept = f"{setup.where.store.name}.replaced"
            said = f"restored; the store that was there before, if any, is kept as {kept}"
            tell(options, said, restored=options.file, kept=kept)
            return DONE
        case "gateway":
            from steno.cli import gateway

            if options.act == "token":
                return gateway.token(options, setup)
            if options.act in ("pair", "unpair", "people"):
                from steno.cli import people

                return _loop(people.act(options, setup))
            if options.act == "open":
                return gateway.open_page(options, setup)
            return _loop(gateway.serve(options, setup))
        case "sessions" | "show" if setup.in_file():
            with waiting("opening the store") as opened, setup.looking() as views:
                opened()
                return now(_look(options, setup.config, setup.where, views))
        case None if _is_first(options, setup, terms):
            return _first_start(options, setup, terms)
        case "acp":
            from steno.clients import serve_acp

            _loop(serve_acp(setup, terms, getattr(options, "mode", None)))
            return DONE
        case "mcp":
            from steno.clients import serve_mcp

            _loop(serve_mcp(setup, terms, options.allow_write))
            return DONE
        case "jobs":
            from steno.cli import gateway

            return _loop(gateway.jobs(options, setup))
        case _:
            return _loop(_with_service(options, setup, terms))


def _is_first(options: argparse.Namespace, setup: Setup, terms: Terms) -> bool:
    """Whether a person begins to chat in a new home, with nothing to answer but the tiny model."""
    known = (
        options.ephemeral or setup.has_store() or not setup.agents(terms).is_demo()
    )
    return not known and stdio.person_present()


def _first_start(options: argparse.Namespace, setup: Setup, terms: Terms) -> int:
    from steno.cli.keeping import providers

    first_frame.keep_typed()
    if _loop(providers.offer(setup)):
        setup = Setup(configuration.load(setup.where), setup.where)
    if _on_screen(options):
        first_frame.show("a new session", first_frame.WELCOME, "starting")
    return _loop(_with_service(options, setup, terms))


async def _look(
    options: argparse.Namespace, config: Config, where: Place, views: Views
) -> int:
    """What people wait for most often: nothing is run, so nothing that runs need be loaded."""
    try:
        if options.verb == "sessions":
            return await _sessions(options, views, str(where.folder or ""))
        loaded, shown = await views.shown(await views.resolve(options.id))
        model = "" if loaded.state.context is None else loaded.state.context.model
        return output.transcript(
            loaded, shown, config.context_max(model), options.json, where.home
        )
    except UnknownSession as error:
        return await _unknown(error, views)


async def _unknown(error: UnknownSession, views: Views) -> int:
    near = await views.like(error.session)
    hint = (
        f"did you mean {', '.join(near)}?"
        if near
        else "steno sessions lists those there are"
    )
    complain(f"{error}; {hint}")
    return USAGE


async def _verify(options: argparse.Namespace, service: Service) -> int:
    with Progress("verify") as progress:
        found = await service.verify(progress.at)
    return output.report(found, options.json)


@contextlib.asynccontextmanager
async def _opened(
    setup: Setup, heard: bool, only_reads: bool
) -> AsyncIterator[Program]:
    """An open store. A large one that was not closed in order can take a while, which is said."""
    with waiting("opening the store") as opened:
        async with setup.open(heard, only_reads=only_reads) as program:
            opened()
            yield program


async def _with_service(
    options: argparse.Namespace, setup: Setup, terms: Terms
) -> int:
    visits = options.verb in VISITING
    platform = "chat" if options.verb is None else "cli"
    heard = visits or options.verb == "delete"
    async with _opened(setup, heard, options.verb in READING) as program:
        # on the screen, model and runtime are each session's own; what the command asks for is
        # what it begins with
        own = (
            replace(terms, model=None, runtime=None) if _on_screen(options) else terms
        )
        wiring, service = program.agents(own), program.service(platform, own)
        for rule in wiring.idle_rules(terms.allowed) if terms.allowed else ():
            note(
                f"[--allow {rule}: there is no such tool, so nothing follows from it]"
            )
        try:
            if options.verb in AROUND:
                return await _around(options, setup, program, wiring, service)
            if options.verb == "workers":
                return output.workers(await program.workers(), options.json)
            if not visits:
                return await _act(options, wiring, service)
            about = options.id if options.verb in ("continue", "retry") else ""
            stays = options.verb == "carry"
            from steno.cli.signals import visiting
            from steno.frontend.worker import beside

            async with beside(wiring, service), visiting(service, about, stays):
                if _on_screen(options):
                    return await _chat(
                        options, program.agents(terms), wiring, service
                    )
                return await _act(options, wiring, service)
        except UnknownSession as error:
            return await _unknown(error, service.views)


async def _around(
    options: argparse.Namespace,
    setup: Setup,
    program: Program,
    wiring: "Agents",
    service: Service,
) -> int:
    """The store as a whole."""
    from steno.cli.keeping import upkeep

    match options.verb:
        case "backup":
            return await upkeep.backup(options, setup, program)
        case "vacuum":
            return await upkeep.vacuum(options, setup, program)
        case "prune":
            return await upkeep.prune(options, service)
        case _:
            from steno.cli.keeping import usage

            return await usage.usage(options, wiring, service)


async def _act(
    options: argparse.Namespace, wiring: "Agents", service: Service
) -> int:
    match options.verb:
        case None:
            from steno.cli import chat

            return await chat.chat(options, wiring, service)
        case "run":
            return await _run(options, wiring, service)
        case "sessions" | "show":
            return await _look(options, wiring.config, wiring.where, service.views)
        case "search":
            from steno.cli import search

            return await search.search(options, service)
        case "approvals":
            return output.approvals(await service.approvals.pending(), options.json)
        case "deliveries":
            return output.deliveries(
                await service.deliveries.listed(options.limit), options.json
            )
        case "delete":
            from steno.cli import editing

            return await editing.delete(options, service)
        case "memory":
            from steno.cli import memory

            return await memory.memory(options, service)
        case "remember":
            from steno.cli import memory

            return await memory.remember(options, wiring, service)
        case "import":
            from steno.cli import transfer

            return await transfer.bring(options, service)
        case "verify":
            return await _verify(options, service)
        case "export" if options.all:
            from steno.cli import transfer

            return await transfer.export_all(options, service)
        case "export" if options.id is None:
            raise Misused("which session? steno export ID, or --all with a folder")
    return await _act_on(
        options, wiring, service, await service.views.resolve(options.id)
    )


async def _act_on(
    options: argparse.Namespace, wiring: "Agents", service: Service, id: str
) -> int:
    """The commands that are about one session."""
    match options.verb:
        case "export":
            from steno.cli import transfer

            return await transfer.export(options, service, id)
        case "continue" | "retry":
            return await _resume(options, wiring, service, id)
        case "follow":
            return await _follow(options, wiring, service, id)
        case "carry":
            from steno.cli import background

            return await background.carry(options, wiring, service, id)
        case "distill":
            from steno.cli import memory

            return await memory.distill(options, service, id)
        case "interrupt":
            turn = await service.turns.interrupt(id)
            summary = turn is None and await service.turns.interrupt_helper(id)
            said = (
                "no turn is running" if turn is None else f"asked turn {turn} to stop"
            )
            if summary:
                said = "asked the summary that is being made to stop"
            tell(options, said, session=id, turn=turn, summary=summary)
            return DONE
    from steno.cli import editing

    match options.verb:
        case "approve" | "deny":
            return await editing.decide(options, service, id)
        case "rules":
            return await editing.rules(options, service, id)
    return await editing.edit(options, service, id)


async def _sessions(options: argparse.Namespace, views: Views, folder: str) -> int:
    folder = "" if options.all else folder
    found = await views.sessions(options.limit, folder=folder)
    if folder and not found and await views.latest() is not None:
        note(f"[no session belongs to {folder}; --all lists those of every folder]")
    return output.sessions(found, options.json, options.tree)


def _on_screen(options: argparse.Namespace) -> bool:
    """Whether the chat takes the whole screen; else it goes line by line."""
    plain = options.verb is not None or options.plain
    return not plain and first_frame.usable()


async def _chat(
    options: argparse.Namespace, asked: "Agents", wiring: "Agents", service: Service
) -> int:
    """The chat on the full screen. `asked` is on the terms that the command asks for."""
    from steno.cli import chat

    asked.check()  # a model that cannot be used is refused before anything is stored
    session = await chat.session_of(options, service)
    if session is not None and options.here:
        await mind_folder(options, service, session)
    if first_frame.before() is not None:
        first_frame.ask()
    from steno.tui.launch import (
        run as run_full_screen,
    )  # takes longer than a terminal to answer

    beginning = replace(
        asked.beginning(session),
        prompt=options.prompt or "",
        mode=options.mode,
        at=options.first_shown,
    )
    last = await run_full_screen(service, wiring, beginning)
    if not service.ephemeral:
        with contextlib.suppress(stdio.OutputLost):  # the window may have been closed
            for line in wording.left(last.session, last.unanswered, last.unsent):
                show(line)
    return last.status


async def _run(
    options: argparse.Namespace, wiring: "Agents", service: Service
) -> int:
    from steno.cli.signals import taking_in

    wiring.check()  # a model that cannot be used is refused before anything is stored
    session = (
        None
        if options.session is None
        else await service.views.resolve(options.session)
    )
    if options.steer and session is None and options.key is None:
        raise Misused(
            "--steer needs --session or --key, to say which turn; nothing was stored"
        )
    mode: Literal["queue", "steer"] = "steer" if options.steer else "queue"
    if session is not None:
        await mind_folder(options, service, session)
    with taking_in(service) as asked:
        admitted = await service.admit(
            options.prompt,
            session,
            options.key,
            options.input_id,
            wiring.model_spec(),
            mode,
            _attached(options),
            visit=not options.detach,
            owes=_debts(wiring, options.deliver),
        )
    if options.mode is not None:
        await service.edits.set_mode(admitted.session, options.mode)
    if asked.signal is not None:
        from steno.cli.turns import what_stays

        note(f"[left; {await what_stays(service, admitted.session)}]")
        return LEFT
    if service.ephemeral:
        note(f"[{wording.EPHEMERAL}]")
    if wiring.is_demo() and wiring.is_demo(
        (await service.views.load(admitted.session)).context
    ):
        note(DEMO)
    if options.detach:
        from steno.cli import background

        return background.detach(options, wiring, admitted)
    return await _answer(options, wiring, service, admitted)


def _attached(options: argparse.Namespace) -> "list[Attachment]":
    if not options.attach and not options.piped:
        return []
    from steno.service.attachments import attachment, read_attachment

    files = [read_attachment(Path(file)) for file in options.attach]
    return (
        [*files, attachment("standard input", options.piped)]
        if options.piped
        else files
    )


async def mind_folder(options: argparse.Namespace, service: Service, id: str) -> None:
    """A session is run in the folder that it belongs to. Who is elsewhere is told, or moves it."""
    folder = await service.views.folder(id)
    if not folder or folder == service.folder:
        return
    if options.here:
        await service.edits.move(id, service.folder)
        note(
            f"[the session belonged to {folder}, and belongs to {service.folder} from now on]"
        )
    else:
        note(
            f"[the session belongs to {folder}: its tools work there. --here moves it here]"
        )


def _debts(wiring: "Agents", names: list[str]) -> "tuple[DeliveryOwed, ...]":
    """What is owed to these channels with an input."""
    if not names:
        return ()
    from steno.delivery.channels import debts

    return debts(wiring.config, wiring.where, names)


async def _answer(
    options: argparse.Namespace,
    wiring: "Agents",
    service: Service,
    admitted: Admitted,
) -> int:
    if not admitted.first and not await service.turns.is_answered(admitted):
        await service.visits.attend(admitted.session)
    from steno.cli.signals import Leaving
    from steno.cli.turns import carry_out

    with Leaving(service, admitted.session, admitted.seq) as leaving:
        events = service.turns.answer(admitted, leaving.event)
        return await carry_out(
            _front(options, wiring, service), admitted.session, events, leaving
        )


async def _resume(
    options: argparse.Namespace, wiring: "Agents", service: Service, id: str
) -> int:
    wiring.check()
    await mind_folder(options, service, id)
    if options.mode is not None:
        await service.edits.set_mode(id, options.mode)
    loaded = await service.views.load(id)
    if options.verb == "continue" and loaded.owner is None:
        state = loaded.state
        if state.turn is not None:
            return await _carry_on(options, wiring, service, id, state.turn.seq)
        if state.pending and (state.cut_off is None or not state.cut_off.waits()):
            return await _answer_pending(
                options, wiring, service, id, sorted(state.pending)
            )
    from steno.cli.signals import Leaving
    from steno.cli.turns import carry_out

    turns = service.turns
    continues = options.verb == "continue"
    opening = turns.continuation(loaded) if continues else await turns.retry(loaded)
    await service.visits.attend(id)
    with Leaving(service, id) as leaving:
        events = service.turns.resume(id, opening, leaving.event)
        return await carry_out(_front(options, wiring, service), id, events, leaving)


async def _carry_on(
    options: argparse.Namespace,
    wiring: "Agents",
    service: Service,
    id: str,
    turn: int,
) -> int:
    """Go on with a turn that waits for approval, if it is decided or can be decided here."""
    if (
        _approval(options) == "refuse"
        and options.ask is None
        and (waiting := await service.approvals.pending(id))
    ):
        calls = ", ".join(f"{one.tool} at {one.seq}" for one in waiting)
        complain(
            f"a turn of session {id!r} waits for approval: {calls}; decide with steno approve "
            f"{id} SEQ or "
            f"steno deny {id} SEQ, or wait for that with --ask wait; nothing was changed"
        )
        return FAILED
    from steno.cli.signals import Leaving
    from steno.cli.turns import carry_out

    await service.visits.attend(id)
    with Leaving(service, id) as leaving:
        leaving.turn = turn
        events = service.turns.carry_on(id, turn, leaving.event)
        return await carry_out(_front(options, wiring, service), id, events, leaving)


async def _answer_pending(
    options: argparse.Namespace,
    wiring: "Agents",
    service: Service,
    id: str,
    inputs: list[int],
) -> int:
    """Run what waits, the oldest first; the status of the last one that was run."""
    status = DONE
    for input in inputs:
        status = await _answer(options, wiring, service, Admitted(id, input, False))
        if status:
            break
    return status


async def _follow(
    options: argparse.Namespace, wiring: "Agents", service: Service, id: str
) -> int:
    from steno.cli.signals import Leaving
    from steno.cli.turns import Front, carry_out

    with Leaving(service, id, watching=True) as leaving:
        events = service.turns.follow(id, options.input, leaving.event)
        return await carry_out(
            Front(service, wiring, options.output, watching=True), id, events, leaving
        )


def _front(
    options: argparse.Namespace, wiring: "Agents", service: Service
) -> "Front":
    from steno.cli.turns import Front

    return Front(service, wiring, options.output, asks=_asks_here(options))
