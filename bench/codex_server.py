"""Stands in for codex's app-server: says as many pieces as it is told, at an even pace, each with
its moment.

python codex_server.py PIECES PER_SECOND
"""

import json
import sys
import time
from typing import Any

THREAD, TURN = "bench-thread", "bench-turn"


def main() -> None:
    pieces, per_second = int(sys.argv[1]), int(sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        match asked.get("method"):
            case "initialize":
                answer(asked, {"userAgent": "bench/0.163.0"})
            case "thread/start" | "thread/resume":
                answer(asked, {"thread": {"id": THREAD}, "model": "bench"})
            case "thread/items/list":
                answer(asked, {"data": []})
            case "turn/start":
                answer(asked, {"turn": {"id": TURN, "status": "inProgress"}})
                speak(pieces, per_second)
            case _:
                if "id" in asked:
                    answer(asked, {})


def speak(pieces: int, per_second: int) -> None:
    """The text of each piece is the moment at which it is written, by the clock that all processes
    share."""
    tell("turn/started", turn={"id": TURN, "status": "inProgress"})
    tell("item/started", turnId=TURN, item={"type": "agentMessage", "id": "m", "text": ""})
    began_s, said = time.monotonic(), []
    for n in range(pieces):
        time.sleep(max(began_s + n / per_second - time.monotonic(), 0))
        said.append(f"{time.monotonic():.6f} ")
        tell("item/agentMessage/delta", turnId=TURN, itemId="m", delta=said[-1])
    tell(
        "item/completed",
        turnId=TURN,
        item={"type": "agentMessage", "id": "m", "text": "".join(said)},
    )
    tell("turn/completed", turn={"id": TURN, "status": "completed"})


def answer(asked: dict[str, Any], result: dict[str, Any]) -> None:
    write({"id": asked["id"], "result": result})


def tell(method: str, **params: Any) -> None:
    write({"method": method, "params": {"threadId": THREAD, **params}})


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


main()
