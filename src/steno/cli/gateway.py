"""The commands of the gateway: serve, open its page, and manage tokens."""

import argparse
import os
import socket
import sys
from datetime import datetime
from urllib.parse import urlsplit

from msgspec import to_builtins

from steno.cli.stdio import note, show
from steno.compose import Setup
from steno.gateway.tokens import ADDRESS_FILE, TokenError, Tokens, without_secret
from steno.service import Misused
from steno.service.objects import to_json

DONE = 0
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
            show(f"Token {options.name} is revoked. Its open streams end within a second.")
        else:
            show(tokens.add(options.name, options.scope, options.session, options.expires))
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
        with socket.create_connection((found.hostname, found.port), timeout=CONNECT_S):
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
        ends = "" if one.expires_ms is None else f"  until {_time(one.expires_ms):%Y-%m-%d %H:%M}"
        over = "  EXPIRED" if tokens.is_over(one) else ""
        made = f"{_time(one.created_ms):%Y-%m-%d %H:%M}"
        show(f"{one.name:<20}  {one.scope:<8}  {made}{only}{ends}{over}")
    return DONE


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000).astimezone()
