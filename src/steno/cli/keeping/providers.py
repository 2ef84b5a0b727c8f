"""steno models, login, logout; and what a first start without a key offers."""

import argparse
import asyncio
import getpass
import sys
from typing import Any

from steno.agents import model_settings
from steno.cli.keeping.tables import table
from steno.cli.stdio import complain, note, person_present, show, tell
from steno.compose import Setup
from steno.config import ConfigError
from steno.frontend import login as logins
from steno.models.providers import KNOWN
from steno.providers import catalogue
from steno.providers.catalogue import NotAnswered, Offer
from steno.service.objects import to_json

DONE, FAILED = 0, 1
SHOWN_OF_EACH = 20
STDIN_CHARS_MAX = 20_000


async def models(options: argparse.Namespace, setup: Setup) -> int:
    """What each provider has, favourites first. A provider that does not answer is told of, and is
    no reason not to list the others."""
    config, settings = setup.config, model_settings(setup.config, setup.where)
    try:
        known = catalogue.table(setup.where.home)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    here = {} if options.provider else await catalogue.found_here(settings)
    names = (
        [options.provider]
        if options.provider
        else catalogue.askable(settings, config.keyed)
    )
    names += [name for name in here if name not in names]

    async def ask(name: str) -> list[Offer] | NotAnswered:
        try:
            return await catalogue.offers(name, settings, known)
        except NotAnswered as error:
            return error

    answers = await asyncio.gather(*map(ask, names))
    found = [one for answer in answers if isinstance(answer, list) for one in answer]
    favourites = tuple(
        dict.fromkeys((*config.model.favourites, config.model.default))
    )
    listed = {one.spec for one in found}
    found += [
        Offer(spec, catalogue.told(spec, catalogue.About(), known, config.models))
        for spec in filter(None, favourites)
        if spec not in listed and not options.provider
    ]
    found = catalogue.favourites_first(found, favourites)
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, NotAnswered):
            note(f"[{name}: {answer.why}]")
    if options.json:
        for one in found:
            show(to_json(_object(one)))
        return DONE if found or not names else FAILED
    if not found and not names:
        show(
            "no provider is set up: steno login takes a key; Ollama, llama.cpp and LM Studio are"
        )
        show(
            "found on this machine by themselves. Without one, local:smollm2 answers"
        )
        return DONE
    _show_offers(found, options.all or bool(options.provider))
    return DONE if found else FAILED


def _object(one: Offer) -> dict[str, Any]:
    return {
        "model": one.spec,
        "context_tokens": one.about.context,
        "price_in": one.about.price_in,
        "price_out": one.about.price_out,
        "favourite": one.favourite,
    }


def _show_offers(found: list[Offer], whole: bool) -> None:
    rows, of_each, left = [], dict[str, int](), 0
    for one in found:
        provider = one.spec.partition(":")[0]
        of_each[provider] = of_each.get(provider, 0) + 1
        if not whole and not one.favourite and of_each[provider] > SHOWN_OF_EACH:
            left += 1
            continue
        about = one.about
        context = "" if about.context is None else f"{about.context:,}"
        prices = [
            ("" if p is None else f"{p:g}") for p in (about.price_in, about.price_out)
        ]
        rows.append(["*" if one.favourite else "", one.spec, context, *prices])
    table(["", "MODEL", "CONTEXT", "$/M IN", "$/M OUT"], rows, right=(2, 3, 4))
    if left:
        note(f"[{left} more; --all shows them]")


async def login(options: argparse.Namespace, setup: Setup) -> int:
    name = options.provider
    if name is None:
        if not person_present():
            complain("say whose key it is: steno login NAME < FILE; nothing was kept")
            return 2
        return DONE if await offer(setup, chosen=True) else FAILED
    key = await asyncio.to_thread(_key, name)
    done = await logins.log_in(setup.config, setup.where, name, key, options.untested)
    said = logins.outcome(setup.config, name, done)
    if done.outcome != "kept":
        complain(said)
        return FAILED
    tell(options, said, provider=name, outcome=done.outcome)
    return DONE


def _key(name: str) -> str:
    """What a person types, unseen; or what is piped in."""
    if not sys.stdin.isatty():
        return sys.stdin.read(STDIN_CHARS_MAX)
    title = KNOWN[name].title if name in KNOWN else name
    try:
        return getpass.getpass(f"Key for {title} (it is not shown): ")
    except EOFError:
        return ""


def logout(options: argparse.Namespace, setup: Setup) -> int:
    if logins.log_out(setup.where, options.provider):
        said = f"{options.provider}: the key is gone from here; the provider may still take it"
        tell(options, said, provider=options.provider, outcome="forgotten")
        return DONE
    complain(
        f"{options.provider}: no key was kept by steno login; nothing was changed"
    )
    return FAILED


async def offer(setup: Setup, chosen: bool = False) -> bool:
    """Offer a person what can answer: a key of theirs, a server on this machine, or the tiny model.
    Whether something was chosen. `chosen`: they asked for it."""
    here = await logins.servers_here(setup.config, setup.where)
    ways: list[tuple[str, str, str]] = [
        ("key", name, f"a key for {KNOWN[name].title}")
        for name in ("anthropic", "openai", "openrouter", "gemini")
    ]
    ways += [
        (
            "server",
            specs[0],
            f"{KNOWN[name].title} on this machine: {specs[0].partition(':')[2]}",
        )
        for name, specs in here.items()
    ]
    note("Who is to answer?" if chosen else "No key is set. Who is to answer?")
    for number, (_, _, text) in enumerate(ways, 1):
        note(f"  {number}  {text}")
    if not chosen:
        note(
            "  Enter  the tiny model on this machine, to try things out; steno login comes back"
        )
    try:
        said = (await asyncio.to_thread(input, "> ")).strip()
    except EOFError:
        said = ""
    if not said.isdecimal() or not 1 <= int(said) <= len(ways):
        return False
    kind, what, _ = ways[int(said) - 1]
    if kind == "server":
        logins.choose(setup.where, what)
        note(f"[new sessions are answered by {what}]")
        return True
    done = await logins.log_in(
        setup.config, setup.where, what, await asyncio.to_thread(_key, what)
    )
    note(f"[{logins.outcome(setup.config, what, done)}]")
    return done.outcome == "kept"
