"""A stand-in for codex's app-server that says what a file tells it to: for what the real one cannot
be made to say.

    scripted_server.py SCRIPT

SCRIPT is a JSON object: `agent` is what it calls itself, `opened` what it answers when a thread is
opened, `turn` are the notifications of a turn as [method, params]; "TURN" in them is the turn's id.
[method, params, id] is a request of its own: it goes on when that is answered. With several ids it
asks as often, at once; the texts of the answers are "ANSWERS" from then on. "dies" in place of a
notification ends it; from "deaf" on it reads nothing; "steered" waits for an input that steers,
whose id is "STEERED" from then on. As with the real one, a turn that did not end takes what another
one is begun with. `then` is said in the turns after the first, if it is there. A request named by
`silent` gets no answer. What it is told it keeps in a file beside SCRIPT, and lists the ids of
that.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

TOLD = Path(sys.argv[1]).with_name("told")


def main() -> None:
    script = json.loads(Path(sys.argv[1]).read_text())
    turns, running = 0, False
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == script.get("silent"):
            continue
        match asked.get("method"):
            case "initialize":
                write(
                    {
                        "id": asked["id"],
                        "result": {"userAgent": script.get("agent", "codex/0.163.0 (test)")},
                    }
                )
            case "thread/start" | "thread/resume":
                opened = {"thread": {"id": "thread"}, "model": "scripted"}
                write({"id": asked["id"], "result": script.get("opened", opened)})
            case "thread/items/list":
                items = [
                    {"item": {"type": "userMessage", "id": "u", "clientId": id}}
                    for id in told()[::-1]
                ]
                write({"id": asked["id"], "result": {"data": items}})
            case "turn/start":
                keep(asked)
                goes_on, turns = running, turns + (not running)
                write(
                    {
                        "id": asked["id"],
                        "result": {"turn": {"id": f"turn{turns}", "status": "inProgress"}},
                    }
                )
                if not goes_on:
                    said = script["turn"] if turns == 1 else script.get("then", script["turn"])
                    running = "turn/completed" not in [note[0] for note in said]
                    say(said, f"turn{turns}")
            case "turn/interrupt":
                write({"id": asked["id"], "result": {}})
                running = running and not script["stopped"]
                say(script["stopped"], f"turn{turns}")
            case _ if "id" in asked and "method" in asked:
                write({"id": asked["id"], "result": {}})


def say(notes: list[Any], turn: str) -> None:
    steered, deaf, answers = "", False, ""
    for note, then in zip(notes, [*notes[1:], None], strict=False):
        if note == "dies":
            os._exit(0)
        if note in ("steered", "deaf"):
            steered, deaf = hear_steer() if note == "steered" else steered, deaf or note == "deaf"
            continue
        method, params, *ids = note
        text = json.dumps({"threadId": "thread", "turnId": turn, **params}).replace("TURN", turn)
        text = text.replace("STEERED", steered).replace("ANSWERS", answers)
        for id in ids or [None]:
            write(
                {"method": method, "params": json.loads(text)} | ({} if id is None else {"id": id})
            )
        if ids and not deaf and then != "dies":
            answers = ", ".join(hear_answers(ids))
    if deaf:
        signal.pause()


def hear_answers(ids: list[Any]) -> list[str]:
    texts: dict[Any, str] = {}
    while len(texts) < len(ids):
        answer = json.loads(sys.stdin.readline())
        if answer.get("id") in ids and "method" not in answer:
            said = answer.get("result", {}).get("contentItems", [])
            texts[answer["id"]] = "".join(one["text"] for one in said)
    return list(texts.values())


def hear_steer() -> str:
    while (asked := json.loads(sys.stdin.readline())).get("method") != "turn/steer":
        pass
    write({"id": asked["id"], "result": {}})
    return keep(asked)


def keep(asked: dict[str, Any]) -> str:
    id = str(asked["params"].get("clientUserMessageId", ""))
    with TOLD.open("a") as file:
        file.write(f"{id}\n")
    return id


def told() -> list[str]:
    return TOLD.read_text().splitlines() if TOLD.exists() else []


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
