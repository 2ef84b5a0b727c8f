"""The words of the command line. Nothing heavy is loaded here, so that --help stays quick."""

import argparse
from collections.abc import Collection, Sequence
from typing import Any, cast

from steno.cli.keeping.words import Parser, add_around, count, number, with_json

EXPIRES_S_MAX = 10 * 366 * 86_400
LIMIT_MAX = 100_000
MODES = ("ask", "edits", "plan", "everything")
_WITH_VALUE = frozenset(
    ("--resume", "--at", "--model", "--runtime", "--allow", "--mode", "--prompt")
)

Verbs = argparse._SubParsersAction  # the only name argparse has for it


class _Unsaid:
    """Stands for a verb that was not given: known by its name and its help, and never asked for
    more."""

    def take(self, *_: object, **__: object) -> "_Unsaid":
        return self

    add_argument = add_mutually_exclusive_group = add_subparsers = add_parser = take


def parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """For any words; or for these, which takes a fifth of the time: what a verb takes is made only
    if it is said."""

    def verb(prog: str, **more: Any) -> argparse.ArgumentParser | _Unsaid:
        said = words is None or prog.rpartition(" ")[2] in words
        return Parser(prog=prog, **more) if said else _Unsaid()

    root = Parser(
        prog="steno",
        description="An agent whose transcript never lies: written before shown.",
    )
    verbs = root.add_subparsers(
        dest="verb",
        metavar="COMMAND",
        parser_class=cast("type[argparse.ArgumentParser]", verb),
    )
    root.add_argument("--resume", metavar="ID", help="go on with this session")
    root.add_argument(
        "--at",
        dest="first_shown",
        type=number,
        metavar="SEQ",
        help="with --resume: show this message at first",
    )
    root.add_argument(
        "--continue",
        dest="latest",
        action="store_true",
        help="go on with the latest session of this folder",
    )
    root.add_argument(
        "--all",
        action="store_true",
        help="with --continue: the latest session of any folder",
    )
    root.add_argument(
        "--prompt", metavar="TEXT", help="begin with this; steno TEXT does the same"
    )
    root.add_argument(
        "--ephemeral",
        action="store_true",
        help="a new session that leaves nothing on disk",
    )
    root.add_argument(
        "--plain",
        action="store_true",
        help="the chat line by line, without a full screen",
    )
    _with_memory(root)
    root.add_argument(
        "--version", action="store_true", help="say which steno this is"
    )
    root.add_argument(
        "--verbose",
        action="store_true",
        help="say on stderr what is done; see also STENO_LOG_FILE",
    )
    _with_agent(root, None)
    _add_turns(verbs)
    _add_looks(verbs)
    _add_approvals(verbs)
    _add_edits(verbs)
    _add_edits_of_text(verbs)
    _add_memory(verbs)
    _add_moving(verbs)
    _add_keeping(verbs)
    add_around(verbs)
    _add_gateway(verbs)
    _add_clients(verbs)
    _add_jobs(verbs)
    return root


def prompted(words: Sequence[str]) -> list[str]:
    """The words, with a first one that is a sentence marked as what the chat begins with."""
    found = list(words)
    at = 0
    while at < len(found) and found[at].startswith("-") and found[at] != "--":
        at += 2 if found[at] in _WITH_VALUE else 1
    if at < len(found) and len(found[at].split()) > 1:
        found[at] = f"--prompt={found[at]}"
    return found


def _with_agent(verb: argparse.ArgumentParser, default: object) -> None:
    """Who answers, and what it may do without being asked."""
    absent = default is argparse.SUPPRESS
    verb.add_argument(
        "--model",
        metavar="SPEC",
        default=default,
        help="e.g. openai-chat:NAME, anthropic:NAME, local:smollm2",
    )
    verb.add_argument(
        "--runtime",
        choices=("native", "codex"),
        default=default,
        help="who runs the session's turns",
    )
    verb.add_argument(
        "--new-thread",
        action="store_true",
        default=default if absent else False,
        help="if codex has lost the session's thread, begin a new one with what the session says",
    )
    verb.add_argument(
        "--yes",
        action="store_true",
        default=default if absent else False,
        help="approve every tool call",
    )
    verb.add_argument(
        "--mode",
        choices=MODES,
        default=default,
        help="what runs without asking: ask (what reads), edits (changes of files, too), plan "
        "(only what reads runs), everything",
    )
    verb.add_argument(
        "--here",
        action="store_true",
        default=default if absent else False,
        help="have a session of another folder belong to this one",
    )
    verb.add_argument(
        "--allow",
        metavar="RULE",
        action="append",
        default=default if absent else [],
        help='approve these calls: TOOL or "TOOL:PATTERN"; may be repeated',
    )


def _add_turns(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    run = verbs.add_parser("run", help="one turn; text streams to stdout")
    run.add_argument("prompt", help="what to say; - reads it from standard input")
    run.add_argument("--session", metavar="ID", help="in this session")
    run.add_argument(
        "--key", metavar="NAME", help="in the session bound to NAME, made if absent"
    )
    run.add_argument(
        "--steer",
        action="store_true",
        help="into the running turn, at its next step, if there is one",
    )
    run.add_argument(
        "--input-id",
        metavar="ID",
        help="the same id again gives the first answer, not a second turn",
    )
    run.add_argument(
        "--attach",
        metavar="FILE",
        action="append",
        default=[],
        help="send an image or a text file along; repeatable",
    )
    run.add_argument(
        "--ephemeral",
        action="store_true",
        default=argparse.SUPPRESS,
        help="in a new session that leaves nothing on disk",
    )
    _with_memory(run)
    run.add_argument(
        "--detach",
        action="store_true",
        help="return once the input is stored; the turn goes on alone",
    )
    run.add_argument(
        "--deliver",
        metavar="NAME",
        action="append",
        default=[],
        help="tell this channel of the configuration how the turn ended; repeatable",
    )
    for verb, text in (
        ("continue", "take up what was cut off or waits"),
        ("retry", "run a failed prompt again"),
    ):
        with_id(verbs.add_parser(verb, help=text))
    carry = with_id(
        verbs.add_parser("carry")
    )  # what a detached process runs; not for people
    carry.add_argument("input", type=number)
    for turn in (run, verbs.choices["continue"], verbs.choices["retry"], carry):
        _with_agent(turn, argparse.SUPPRESS)
        turn.add_argument(
            "--ask",
            choices=("refuse", "wait"),
            help="what to do with a call that needs approval where no one can be asked: refuse "
            "it, or wait for steno approve (default: refuse; with --detach: wait)",
        )
    follow = with_id(
        verbs.add_parser(
            "follow",
            help="watch a turn that runs elsewhere; leaving does not stop it",
        )
    )
    follow.add_argument(
        "--input",
        type=number,
        metavar="SEQ",
        help="the turn of this input; else the one that runs",
    )
    for turn in (run, verbs.choices["continue"], verbs.choices["retry"], follow):
        turn.add_argument("--output", choices=("text", "ndjson"), default="text")


def _add_looks(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    sessions = verbs.add_parser(
        "sessions", help="list the sessions of this folder, latest first"
    )
    sessions.add_argument(
        "--all", action="store_true", help="the sessions of every folder"
    )
    sessions.add_argument("--limit", type=_limit, default=50, metavar="N")
    sessions.add_argument(
        "--tree",
        action="store_true",
        help="forks under the session that they come from",
    )
    show = with_id(verbs.add_parser("show", help="one session, every message"))
    _add_search(verbs)
    deliveries = verbs.add_parser(
        "deliveries", help="list what is owed to channels, and what became of it"
    )
    deliveries.add_argument("--limit", type=_limit, default=50, metavar="N")
    diff = with_id(
        verbs.add_parser("diff", help="how a session's edits changed the files")
    )
    for look in (sessions, show, deliveries, diff):
        look.add_argument("--json", action="store_true")


def query_last(words: Sequence[str]) -> list[str]:
    """The words of a search with its query at the end: there `-word` is no option, and what is
    asked may stand before and after options. So may the id and the file of an export, whose options
    have no values."""
    if words and words[0] == "export":
        named = [
            word
            for word in words[1:]
            if word in ("-", "--") or not word.startswith("-")
        ]
        return ["export", *(word for word in words[1:] if word not in named), *named]
    if not words or words[0] != "search":
        return list(words)
    options, query, at = list[str](), list[str](), 1
    while at < len(words):
        word = words[at]
        if word == "--":
            query += words[at + 1 :]
            break
        width = 2 if word in ("--limit", "--before") else 1
        known = word.startswith("--") or word == "-h"
        (options if known else query).extend(
            words[at : at + width] if known else [word]
        )
        at += width if known else 1
    return ["search", *options, *(["--", *query] if query else [])]


def _add_search(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    search = verbs.add_parser("search", help="find what was said, in any session")
    search.add_argument(
        "query",
        nargs="*",
        metavar="QUERY",
        help='words, "phrases", -without, OR, role:user, ...',
    )
    search.add_argument(
        "--all", action="store_true", help="every match, not one a session"
    )
    search.add_argument(
        "--newest", action="store_true", help="the newest first, not the best"
    )
    search.add_argument(
        "--literal", action="store_true", help="search for the text as it is"
    )
    search.add_argument("--limit", type=_limit, default=20, metavar="N")
    search.add_argument(
        "--before", metavar="PLACE", help="go on from an earlier answer"
    )
    search.add_argument(
        "--build", action="store_true", help="fill the index now, at full speed"
    )
    search.add_argument("--json", action="store_true")


def _add_approvals(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    approvals = verbs.add_parser(
        "approvals", help="list the calls that wait for approval"
    )
    approvals.add_argument("--json", action="store_true")
    for verb, text in (
        ("approve", "let a call run that waits"),
        ("deny", "refuse a call that waits"),
    ):
        decide = with_id(verbs.add_parser(verb, help=text))
        decide.add_argument(
            "seq",
            type=number,
            nargs="?",
            metavar="SEQ",
            help="which, if more than one waits",
        )
        decide.add_argument(
            "--always",
            nargs="?",
            const="",
            metavar="RULE",
            help="and from now on in this session: the same command or path, or what RULE says",
        )
        decide.add_argument(
            "--days",
            type=number,
            metavar="N",
            help="how long --always holds (approve: 30); 0: until you remove the rule",
        )
        with_json(decide)
    verbs.choices["deny"].add_argument(
        "--reason", default="", metavar="TEXT", help="what to tell the model"
    )
    rules = with_id(
        verbs.add_parser(
            "rules", help="rules about tool calls that hold for one session"
        )
    )
    for verdict in ("allow", "ask", "deny", "remove"):
        rules.add_argument(
            f"--{verdict}",
            metavar="RULE",
            action="append",
            default=[],
            help='TOOL or "TOOL:PATTERN"',
        )
    rules.add_argument(
        "--days",
        type=number,
        metavar="N",
        help="how long; without it, until you remove them",
    )
    rules.add_argument("--json", action="store_true")


def _add_edits(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    rename = with_id(verbs.add_parser("rename", help="give a session a title"))
    rename.add_argument("title")
    goal = with_id(
        verbs.add_parser(
            "goal",
            help="say what a session is for; the model is told with every request",
        )
    )
    goal.add_argument(
        "text", nargs="?", metavar="TEXT", help="without it, the goal is printed"
    )
    goal.add_argument("--none", action="store_true", help="take the goal away")
    interrupt = with_id(
        verbs.add_parser("interrupt", help="stop the running turn, from any process")
    )
    undo = with_id(
        verbs.add_parser("undo", help="take the last turn out of the model's view")
    )
    which = undo.add_mutually_exclusive_group()
    which.add_argument(
        "--withdraw", type=number, metavar="SEQ", help="take an undo back"
    )
    which.add_argument(
        "--files",
        action="store_true",
        help="put the files back that it edited, and only that",
    )
    which.add_argument("--both", action="store_true", help="the talk and the files")
    which.add_argument(
        "--redo-files", action="store_true", help="take the last undo of files back"
    )
    rewind = with_id(
        verbs.add_parser(
            "rewind", help="take everything after a message out of the model's view"
        )
    )
    rewind.add_argument(
        "at_seq", type=number, nargs="?", metavar="SEQ", help="the same as --to"
    )
    where = rewind.add_mutually_exclusive_group()
    where.add_argument(
        "--to",
        type=number,
        metavar="SEQ",
        help="the last message to stay, or the first turn to go",
    )
    where.add_argument(
        "--withdraw", type=number, metavar="SEQ", help="take a rewind back"
    )
    for done in (rename, goal, interrupt, undo, rewind):
        with_json(done)


def _add_edits_of_text(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """Which text there is, here and in another session."""
    hide = with_id(
        verbs.add_parser("hide", help="take one message out of the model's view")
    )
    hide.add_argument("--show", action="store_true", help="put it back")
    redact = with_id(
        verbs.add_parser("redact", help="remove the text of one message for good")
    )
    redact.add_argument("--yes", action="store_true", help="without asking")
    for one in (hide, redact):
        one.add_argument(
            "at_seq", type=number, nargs="?", metavar="SEQ", help="the same as --seq"
        )
        one.add_argument(
            "--seq",
            type=number,
            metavar="SEQ",
            help="the message, as show numbers it",
        )
    fork = with_id(
        verbs.add_parser("fork", help="a new session with everything up to a message")
    )
    fork.add_argument(
        "at_seq", type=number, nargs="?", metavar="SEQ", help="the same as --at"
    )
    fork.add_argument(
        "--at", type=number, metavar="SEQ", help="the message, or the turn"
    )
    compact = with_id(
        verbs.add_parser(
            "compact",
            help="put a summary in the place of the older part, for the model",
        )
    )
    compact.add_argument("--model", metavar="SPEC", default=argparse.SUPPRESS)
    delete = with_id(verbs.add_parser("delete", help="remove a session for good"))
    delete.add_argument(
        "--with-forks", action="store_true", help="and every fork of it"
    )
    delete.add_argument("--yes", action="store_true", help="without asking")
    for done in (hide, redact, fork, compact, delete):
        with_json(done)


def _with_memory(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--no-memory",
        dest="memory",
        action="store_false",
        default=argparse.SUPPRESS,
        help="a new session is told nothing of earlier ones",
    )


def _add_memory(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    distill = with_id(
        verbs.add_parser(
            "distill", help="write down what is worth keeping of a session"
        )
    )
    distill.add_argument("--model", metavar="SPEC", default=argparse.SUPPRESS)
    memory = verbs.add_parser("memory", help="what is remembered of sessions")
    memory.add_argument(
        "--session",
        metavar="ID",
        help="of this session, and what it was told of others",
    )
    memory.add_argument("--limit", type=_limit, default=200, metavar="N")
    acts = memory.add_subparsers(dest="act", metavar="remove")
    remove = acts.add_parser("remove", help="have something forgotten")
    remove.add_argument(
        "names", nargs="+", metavar="NAME", help="as steno memory prints it: ID:SEQ.N"
    )
    for look in (distill, memory):
        look.add_argument("--json", action="store_true")
    remember = verbs.add_parser(
        "remember"
    )  # what a detached process runs; not for people
    remember.add_argument("lock", type=number, nargs="?")


def _add_moving(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    export = verbs.add_parser(
        "export",
        help="write a session to a file, to be imported elsewhere or to be read",
    )
    export.add_argument(
        "id", nargs="?", help="a session's id, or the beginning of it"
    )
    export.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="a new file; - or none: standard output",
    )
    export.add_argument(
        "--markdown",
        action="store_true",
        help="for people to read; it cannot be imported",
    )
    export.add_argument(
        "--html",
        action="store_true",
        help="one page that can be read anywhere; likewise",
    )
    export.add_argument(
        "--without-secrets",
        action="store_true",
        help="with --html or --markdown: leave out what looks like a key or a password",
    )
    export.add_argument(
        "--all",
        action="store_true",
        help="every session, each a file in the folder FILE",
    )
    export.add_argument(
        "--force", action="store_true", help="write over a file that exists"
    )
    bring = verbs.add_parser(
        "import",
        help="bring sessions from files, of steno or of other agents, into this store",
    )
    bring.add_argument(
        "file",
        metavar="PATH",
        nargs="+",
        help="what steno export wrote (- reads standard input); a file or folder of another agent; "
        "or its name, for all it keeps in your home folder: claude-code, codex, hermes, opencode, "
        "pi, llm",
    )
    bring.add_argument(
        "--trust",
        action="store_true",
        help="also if the session lets calls run unasked",
    )
    bring.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be brought; store nothing",
    )
    bring.add_argument(
        "--watch",
        action="store_true",
        help="stay, and bring what is new every few seconds",
    )
    bring.add_argument(
        "--json", action="store_true", help="one object a line, a line a session"
    )


def _add_keeping(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    verify = verbs.add_parser("verify", help="check every byte of the store")
    verify.add_argument("--json", action="store_true")
    verify.add_argument(
        "--adopt",
        action="store_true",
        help="if another program wrote to the store: check everything, mend its pages",
    )
    backup = verbs.add_parser("backup", help="copy the store while it is in use")
    backup.add_argument("file", nargs="?", metavar="FILE", help="a new file")
    backup.add_argument(
        "--into", metavar="FOLDER", help="a new file there, named by the time"
    )
    backup.add_argument(
        "--keep",
        type=count,
        metavar="N",
        help="with --into: then remove all but the newest N",
    )
    restore = verbs.add_parser("restore", help="put a backup in its place")
    restore.add_argument("file")
    for done in (backup, restore):
        with_json(done)
    doctor = verbs.add_parser("doctor", help="say what is set up and what is not")
    doctor.add_argument(
        "--ask", action="store_true", help="ask each provider whether it answers"
    )
    doctor.add_argument("--json", action="store_true", help="one object")
    workers = verbs.add_parser(
        "workers", help="list the processes that share a PostgreSQL store"
    )
    workers.add_argument(
        "--json", action="store_true", help="one object a line, a line a worker"
    )
    store = verbs.add_parser("store", help="copy a whole store").add_subparsers(
        dest="act", required=True, metavar="copy"
    )
    copy = store.add_parser(
        "copy", help="copy all sessions of a store into another one"
    )
    copy.add_argument("source", metavar="FROM", help="a file, or postgresql://…")
    copy.add_argument(
        "target", metavar="TO", help="a file, or postgresql://…; made if absent"
    )


def _add_gateway(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    gateway = verbs.add_parser(
        "gateway", help="serve sessions over HTTP, and manage its tokens"
    )
    gateway.add_argument(
        "--listen", metavar="ADDRESS:PORT", help="default: 127.0.0.1:8765"
    )
    gateway.add_argument(
        "--port-file", metavar="FILE", help="write the port to this file"
    )
    acts = gateway.add_subparsers(dest="act", metavar="ACT")
    page = acts.add_parser(
        "open", help="open the page of the running gateway, logged in"
    )
    page.add_argument(
        "--no-browser", action="store_true", help="print the link, open nothing"
    )
    pair = acts.add_parser(
        "pair", help="let a person in who got a code, or make an invitation"
    )
    pair.add_argument("code", nargs="?", help="what the person was told")
    pair.add_argument(
        "--invite", metavar="CHANNEL", help="make a code that lets a person in"
    )
    pair.add_argument(
        "--owner", action="store_true", help="who may also decide, link and pair"
    )
    unpair = acts.add_parser("unpair", help="let a person in no longer")
    unpair.add_argument("person", help="the platform's id, as people lists it")
    people = acts.add_parser(
        "people", help="who may talk, who asks, and who was refused"
    )
    people.add_argument("--json", action="store_true")
    token = acts.add_parser("token", help="add, list or revoke tokens")
    token.add_argument("what", choices=("add", "list", "revoke"))
    token.add_argument("name", nargs="?", help="a name of yours for the token")
    token.add_argument(
        "--scope",
        choices=("read", "write", "approve", "admin"),
        default="write",
        help="what it allows; each holds those before it",
    )
    token.add_argument("--session", metavar="ID", help="for this session alone")
    token.add_argument(
        "--expires",
        metavar="TIME",
        type=_seconds,
        help="valid for so long: 90s, 30m, 12h or 30d",
    )
    token.add_argument("--json", action="store_true")


def _add_clients(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    acp = verbs.add_parser(
        "acp", help="serve an editor: the Agent Client Protocol over stdio"
    )
    _with_agent(acp, argparse.SUPPRESS)
    mcp = verbs.add_parser(
        "mcp", help="serve sessions as MCP tools over stdio, to read"
    )
    mcp.add_argument(
        "--allow-write", action="store_true", help="inputs can be sent, too"
    )


def _add_jobs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    jobs = verbs.add_parser(
        "jobs", help="have prompts run at their times, while a gateway runs"
    )
    acts = jobs.add_subparsers(dest="act", required=True, metavar="ACT")
    add = acts.add_parser("add", help="make a job")
    add.add_argument("prompt", help="what it is asked each time")
    times = add.add_mutually_exclusive_group(required=True)
    times.add_argument("--cron", metavar="EXPRESSION", help='such as "0 9 * * 1-5"')
    times.add_argument(
        "--at", metavar="TIME", help="once, at a time such as 2026-11-19T09:00"
    )
    times.add_argument("--every", metavar="TIME", help="such as 90s, 30m, 12h or 1d")
    add.add_argument(
        "--zone", help="a time zone such as Europe/Berlin; default: this machine's"
    )
    add.add_argument("--name", help="a name of yours for it")
    add.add_argument(
        "--to", metavar="CHANNEL:CHAT", help="post what it says in this chat"
    )
    add.add_argument(
        "--in-chat",
        action="store_true",
        help="run in the session of that chat, not in its own",
    )
    add.add_argument(
        "--missed",
        choices=("skip", "once", "all"),
        default="once",
        help="times at which no gateway ran: skip them, run the last one, or all",
    )
    add.add_argument(
        "--overlap",
        choices=("queue", "skip"),
        default="queue",
        help="a time that comes while an earlier one runs: wait, or skip it",
    )
    add.add_argument("--json", action="store_true")
    listed = acts.add_parser("list", help="list jobs")
    listed.add_argument(
        "--json", action="store_true", help="one object a line, a line a job"
    )
    for act, text in (
        ("show", "show a job and what came of its last times"),
        ("run", "run a job now; without a gateway, when the next one starts"),
        ("pause", "let a job rest"),
        ("resume", "turn a job on again"),
        ("remove", "remove a job; what it did is kept"),
    ):
        one = acts.add_parser(act, help=text)
        one.add_argument("job", help="its id, the beginning of it, or its name")
        one.add_argument("--json", action="store_true")


def with_id(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
    verb.add_argument("id", help="a session's id, or the beginning of it")
    return verb


def _seconds(text: str) -> float:
    """A time such as 12h, in seconds."""
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    number, unit = text[:-1], units.get(text[-1:])
    if (
        unit is None
        or not number.isdecimal()
        or not 0 < int(number) * unit <= EXPIRES_S_MAX
    ):
        raise argparse.ArgumentTypeError(
            "a time such as 90s, 30m, 12h or 30d, ten years at most"
        )
    return float(int(number) * unit)


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"it must be a number from 1 to {LIMIT_MAX}")
    return int(text)
