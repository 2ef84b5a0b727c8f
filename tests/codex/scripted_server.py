"""A stand-in for codex's app-server that says what a file tells it to: for what the real one cannot be made to say.

    scripted_server.py SCRIPT

SCRIPT is a JSON object: `agent` is what it calls itself, `opened` what it answers when a thread is opened, `turn` are
the notifications of a turn as [method, params]; "TURN" in them is the turn's id. [method, params, id] is a request of
its own: it goes on when that is answered.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    turns = 0
    for line in sys.stdin:
        asked = json.loads(line)
        match asked.get("method"):
            case "initialize":
                write({"id": asked["id"], "result": {"userAgent": script.get("agent", "codex/0.163.0 (test)")}})
            case "thread/start" | "thread/resume":
                opened = {"thread": {"id": "thread"}, "model": "scripted"}
                write({"id": asked["id"], "result": script.get("opened", opened)})
            case "turn/start":
                turns += 1
                write({"id": asked["id"], "result": {"turn": {"id": f"turn{turns}", "status": "inProgress"}}})
                say(script["turn"], f"turn{turns}")
            case "turn/interrupt":
                write({"id": asked["id"], "result": {}})
                say(script["stopped"], f"turn{turns}")
            case _ if "id" in asked and "method" in asked:
                write({"id": asked["id"], "result": {}})


def say(notes: list[Any], turn: str) -> None:
    for method, params, *id in notes:
        text = json.dumps({"threadId": "thread", "turnId": turn, **params}).replace("TURN", turn)
        write({"method": method, "params": json.loads(text)} | ({"id": id[0]} if id else {}))
        while id and json.loads(sys.stdin.readline()).get("id") != id[0]:
            pass


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
