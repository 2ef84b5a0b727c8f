"""Who may talk to the accounts of channels: let in, take back, list."""

import argparse
import time
from typing import Any

from steno.cli.stdio import note, show
from steno.compose import Setup
from steno.engine.people import pending
from steno.journal.facts import SenderRefused
from steno.model_choice import Terms
from steno.service import Misused
from steno.service.chats import Chats
from steno.service.objects import to_json

DONE = 0
REFUSED_SHOWN = 20
BY = "cli"


async def act(options: argparse.Namespace, setup: Setup) -> int:
    async with setup.open(visiting=False) as program:
        chats = program.service("cli", Terms()).chats
        if options.act == "people":
            return await _list(chats, options.json)
        if options.act == "unpair":
            return await _unpair(chats, options.person)
        if options.invite:
            return await _invite(options, setup, chats)
        if not options.code:
            raise Misused("steno gateway pair needs a CODE, or --invite CHANNEL")
        return await _pair(chats, options.code.strip(), options.owner)


async def _pair(chats: Chats, code: str, owner: bool) -> int:
    name, one = await chats.pair(code, owner, BY, int(time.time() * 1_000))
    show(f"{one.name or one.person} ({one.person}) may talk to {name} as {one.rank}.")
    return DONE


async def _invite(options: argparse.Namespace, setup: Setup, chats: Chats) -> int:
    from steno.gateway.channels.inbox import new_code
    from steno.gateway.channels.registry import chats_in, make

    config = chats_in(setup.config).get(options.invite)
    if config is None:
        raise Misused(f"there is no chat {options.invite!r} in {setup.where.config}")
    _, channel = make(options.invite, config, setup.where)
    session = await chats.account(channel.account)
    code, given = new_code(
        int(time.time() * 1_000), rank="owner" if options.owner else "person"
    )
    await chats.note(session, [given])
    show(code)
    note(
        "Who sends this code in a direct chat first is let in. It is good for an hour."
    )
    return DONE


async def _unpair(chats: Chats, person: str) -> int:
    removed = await chats.unpair(person, BY)
    if not removed:
        raise Misused(
            f"no person with the id {person!r} is paired; steno gateway people lists them"
        )
    show(f"{person} is let in no longer by {', '.join(removed)}.")
    return DONE


async def _list(chats: Chats, as_json: bool) -> int:
    now_ms = int(time.time() * 1_000)
    told: dict[str, list[dict[str, Any]]] = {"people": [], "codes": [], "refused": []}
    async for name, session, account in chats.every_account():
        for one in account.people.values():
            told["people"].append(
                {
                    "account": name,
                    "person": one.person,
                    "name": one.name,
                    "rank": one.rank,
                    "by": one.by,
                }
            )
        for code in pending(account, now_ms):
            left_s = (code.fact.until_ms - now_ms) // 1_000
            told["codes"].append(
                {
                    "account": name,
                    "person": code.fact.person,
                    "name": code.fact.name,
                    "left_s": left_s,
                }
            )
        for record in await chats.of_account(session, ("sender.refused",)):
            if isinstance(fact := record.fact, SenderRefused):
                told["refused"].append(
                    {
                        "account": name,
                        "person": fact.person,
                        "name": fact.name,
                        "why": fact.why,
                        "at_ms": record.at_ms,
                    }
                )
    told["refused"] = told["refused"][-REFUSED_SHOWN:]
    if as_json:
        show(to_json(told))
        return DONE
    for row in told["people"]:
        show(
            f"{row['account']:<24} {row['person']:<16} {row['rank']:<7} {row['name']}"
        )
    for row in told["codes"]:
        show(
            f"{row['account']:<24} {row['person']:<16} waits   {row['name']} (pair CODE)"
        )
    for row in told["refused"]:
        show(
            f"{row['account']:<24} {row['person']:<16} refused {row['name']} ({row['why']})"
        )
    if not any(told.values()):
        show("No person is paired, and none has asked.")
    return DONE
