"""The process that a plugin lives in: `python -m steno.plugins.process HANDLE KIND NAME TARGET`.

It is told what happens as lines of JSON on a socket, and answers each with one. Its standard
handles are not the terminal's: what the plugin prints goes into the log. When its parent dies,
however it dies, the socket ends, and so does this process at once, whatever the plugin is doing.
"""

import json
import os
import queue
import socket
import sys
import threading
from typing import Any

import pluggy

from steno.plugins import PROJECT
from steno.plugins.discovery import FoundPlugin, module_of
from steno.plugins.hooks import Specs

RESULT_CHARS_MAX = 20_000
ERROR_CHARS_MAX = 1_000


def load(kind: str, name: str, target: str) -> pluggy.PluginManager:
    """One plugin, found by its entry point or in its file, with the hooks it has."""
    plugin = module_of(
        FoundPlugin(name, "file" if kind == "file" else "entry", target)
    )
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Specs)
    manager.register(plugin, name)
    return manager


def hooks_of(manager: pluggy.PluginManager) -> list[str]:
    named = {
        name: getattr(manager.hook, name)
        for name in vars(Specs)
        if not name.startswith("_")
    }
    return [name for name, caller in named.items() if caller.get_hookimpls()]


def unknown_to(manager: pluggy.PluginManager) -> list[str]:
    """What is marked as a hook and is none, and not meant for another steno: a name that is spelt
    otherwise."""
    callers = [
        caller
        for name, caller in vars(manager.hook).items()
        if not name.startswith("_")
    ]
    impls = [
        impl
        for caller in callers
        if not caller.has_spec()
        for impl in caller.get_hookimpls()
    ]
    return sorted(impl.function.__name__ for impl in impls if not impl.optionalhook)


def answer(
    manager: pluggy.PluginManager, asked: dict[str, Any], printed: set[str]
) -> dict[str, Any]:
    """What a hook returned, or how it failed. Where it failed is printed once."""
    try:
        results = getattr(manager.hook, asked["hook"])(**asked["arguments"])
        said = [
            str(result)[:RESULT_CHARS_MAX] for result in results if result is not None
        ]
        return {"id": asked["id"], "results": said}
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, SystemExit too
        import traceback

        if (
            where := "".join(traceback.format_tb(error.__traceback__))
        ) not in printed:
            printed.add(where)
            traceback.print_exc()
        return {
            "id": asked["id"],
            "hook": asked["hook"],
            "error": f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX],
        }


def main() -> None:
    handle, kind, name, target = sys.argv[1:]
    link = socket.socket(fileno=int(handle))
    link.set_inheritable(False)
    asked: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(link, asked), daemon=True).start()
    try:
        manager = load(kind, name, target)
        _say(link, {"hooks": hooks_of(manager), "unknown": unknown_to(manager)})
    except BaseException as error:
        _say(
            link,
            {
                "error": f"cannot be loaded: {type(error).__name__}: {error}"[
                    :ERROR_CHARS_MAX
                ]
            },
        )
        raise
    printed: set[str] = set()
    while True:
        _say(link, answer(manager, asked.get(), printed))
        sys.stdout.flush()
        sys.stderr.flush()


def _listen(link: socket.socket, asked: "queue.Queue[dict[str, Any]]") -> None:
    """In a thread of its own, so that the end of our parent is noticed while the plugin hangs. A
    parent that is killed with an answer unread resets the socket instead of ending it."""
    try:
        with link.makefile("rb") as lines:
            for line in lines:
                asked.put(json.loads(line))
    finally:
        os._exit(0)


def _say(link: socket.socket, value: dict[str, Any]) -> None:
    link.sendall(json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main()
