"""The commands of the gateway: serve, and manage tokens."""

import argparse
from datetime import datetime

from msgspec import to_builtins

from steno.cli.stdio import show
from steno.compose import Setup
from steno.gateway.tokens import TokenError, Tokens, without_secret
from steno.service import Misused
from steno.service.objects import to_json

DONE = 0


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
            show(tokens.add(options.name, options.scope, options.session, options.expires_s))
    except TokenError as error:
        raise Misused(str(error)) from error
    return DONE


def _list(tokens: Tokens, as_json: bool) -> int:
    found = tokens.all()
    if as_json:
        show(to_json([to_builtins(without_secret(one)) for one in found]))
        return DONE
    if not found:
        show("No tokens. Add one with: steno gateway token add NAME --scope write")
    for one in found:
        made = datetime.fromtimestamp(one.created_ms / 1000).astimezone()
        only = f"  session {one.session}" if one.session else ""
        show(f"{one.name:<20}  {one.scope:<8}  {made:%Y-%m-%d %H:%M}{only}")
    return DONE
