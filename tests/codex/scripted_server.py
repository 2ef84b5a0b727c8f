"""A stand-in for codex's app-server that says what a file tells it to: for what the real one cannot be made to say.

    scripted_server.py SCRIPT

SCRIPT is a JSON object: `agent` is what it calls itself, `opened` what it answers when a thread is opened, `turn` are
the notifications of a turn as [method, params]; "TURN" in them is the turn's id. [method, params, id] is a request of
its own: it goes on when that is answered. "dies" in place of a notification ends it. As with the real one, a turn that
did not end takes what another one is begun with. A request named by `silent` gets no answer.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    turns, running = 0, False
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == script.get("silent"):
            continue
        match asked.get("method"):
            case "initialize":
                write({"id": asked["id"], "result": {"userAgent": script.get("agent", "codex/0.163.0 (test)")}})
            case "thread/start" | "thread/resume":
                opened = {"thread": {"id": "thread"}, "model": "scripted"}
                write({"id": asked["id"], "result": script.get("opened", opened)})
            case "turn/start":
                goes_on, turns = running, turns + (not running)
                write({"id": asked["id"], "result": {"turn": {"id": f"turn{turns}", "status": "inProgress"}}})
                if not goes_on:
                    running = "turn/completed" not in [note[0] for note in script["turn"]]
                    say(script["turn"], f"turn{turns}")
            case "turn/interrupt":
                write({"id": asked["id"], "result": {}})
                running = running and not script["stopped"]
                say(script["stopped"], f"turn{turns}")
            case _ if "id" in asked and "method" in asked:
                write({"id": asked["id"], "result": {}})


def say(notes: list[Any], turn: str) -> None:
    for note, then in zip(notes, [*notes[1:], None], strict=False):
        if note == "dies":
            os._exit(0)
        method, params, *id = note
        text = json.dumps({"threadId": "thread", "turnId": turn, **params}).replace("TURN", turn)
        write({"method": method, "params": json.loads(text)} | ({"id": id[0]} if id else {}))
        while id and then != "dies" and json.loads(sys.stdin.readline()).get("id") != id[0]:
            pass


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
