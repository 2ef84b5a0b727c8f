"""The commands of the gateway: serve, open its page, manage tokens, and the jobs that it runs."""

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from msgspec import to_builtins

from steno.cli.stdio import note, show
from steno.compose import Setup
from steno.gateway.tokens import ADDRESS_FILE, TokenError, Tokens, without_secret
from steno.model_choice import Terms
from steno.service import Misused
from steno.service.objects import to_json
from steno.session.job_words import detail, line
from steno.session.jobs import JobBook, JobShown, NewJob

DONE = 0
BY = "cli"
CONNECT_S = 2.0


async def serve(options: argparse.Namespace, setup: Setup) -> int:
    from steno.gateway.serve import serve  # it loads the server

    return await serve(setup, options.listen or "", options.port_file, show)


def token(options: argparse.Namespace, setup: Setup) -> int:
    tokens = Tokens(setup.where.home / "tokens.json")
    if options.what == "list":
        return _list(tokens, options.json)
    if not options.name:
        raise Misused(f"steno gateway token {options.what} needs the NAME of a token")
    try:
        if options.what == "revoke":
            tokens.revoke(options.name)
            show(
                f"Token {options.name} is revoked. Its open streams end within a second."
            )
        else:
            show(
                tokens.add(
                    options.name, options.scope, options.session, options.expires
                )
            )
    except TokenError as error:
        raise Misused(str(error)) from error
    return DONE


def open_page(options: argparse.Namespace, setup: Setup) -> int:
    """Print a link that logs a browser in once, and open it where there is a screen."""
    written = setup.where.home / ADDRESS_FILE
    address = written.read_text().strip() if written.exists() else ""
    if not _answers(address):
        raise Misused("no gateway is running here; start one with: steno gateway")
    code = Tokens(setup.where.home / "tokens.json").link()
    show(f"{address}/login#{code}")
    note("The link works once, for a minute.")
    if not options.no_browser and sys.stdout.isatty() and _has_screen():
        import webbrowser

        webbrowser.open(f"{address}/login#{code}")
    return DONE


def _answers(address: str) -> bool:
    found = urlsplit(address)
    if not found.hostname or not found.port:
        return False
    try:
        with socket.create_connection(
            (found.hostname, found.port), timeout=CONNECT_S
        ):
            return True
    except OSError:
        return False


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _list(tokens: Tokens, as_json: bool) -> int:
    found = tokens.all()
    if as_json:
        show(to_json([to_builtins(without_secret(one)) for one in found]))
        return DONE
    if not found:
        show("No tokens. Add one with: steno gateway token add NAME --scope write")
    for one in found:
        only = f"  session {one.session}" if one.session else ""
        ends = (
            ""
            if one.expires_ms is None
            else f"  until {_time(one.expires_ms):%Y-%m-%d %H:%M}"
        )
        over = "  EXPIRED" if tokens.is_over(one) else ""
        made = f"{_time(one.created_ms):%Y-%m-%d %H:%M}"
        show(f"{one.name:<20}  {one.scope:<8}  {made}{only}{ends}{over}")
    return DONE


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000).astimezone()


# --- jobs


async def jobs(options: argparse.Namespace, setup: Setup) -> int:
    async with setup.open(visiting=False) as program:
        book = program.service("cli", Terms()).jobs.book
        if options.act == "list":
            return _list_jobs(await book.listed(), options.json)
        shown = await _changed_job(options, book)
    if options.json:
        show(to_json(to_builtins(shown)))
    elif options.act == "show":
        show(detail(shown))
    else:
        show(line(shown))
        _job_hint(options.act)
    return DONE


def _list_jobs(found: Sequence[JobShown], as_json: bool) -> int:
    for one in found:
        show(to_json(to_builtins(one)) if as_json else line(one))
    if not found and not as_json:
        show("There are no jobs. steno jobs add PROMPT --every 1d makes one.")
    return DONE


async def _changed_job(options: argparse.Namespace, book: JobBook) -> JobShown:
    match options.act:
        case "add":
            return await book.add(_new_job(options), BY)
        case "run":
            return await book.ask_to_run(options.job, BY)
        case "pause":
            return await book.pause(options.job, BY)
        case "resume":
            return await book.resume(options.job, BY)
        case "remove":
            return await book.remove(options.job, BY)
        case _:
            return await book.show(options.job)


def _new_job(options: argparse.Namespace) -> NewJob:
    return NewJob(
        options.prompt,
        options.cron or "",
        options.at or "",
        options.every or "",
        options.zone or "",
        options.name or "",
        options.to or "",
        "chat" if options.in_chat else "own",
        options.missed,
        options.overlap,
    )


def _job_hint(act: str) -> None:
    match act:
        case "add" | "run" | "resume":
            note("Jobs run while steno gateway runs.")
        case "remove":
            note("Removed. What it did is kept.")
