"""Kills a process with SIGKILL while it streams an answer, then reads the session from another
process.

    .venv/bin/python examples/killed_midstream.py

The first process prints each piece after the store has it. Whatever it printed before it died is in
the store.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import steno

QUESTION = "What is a journal?"
ANSWER = (
    "A journal keeps what happened. Each piece is stored before it is shown, so a kill takes "
    "nothing back."
)
KILL_AFTER_CHARS = 60
PIECE_CHARS = 4


def stream(path: str) -> None:
    with steno.open(path) as chats:
        chat = chats.session("alice")
        chat.say(QUESTION)
        with chat.reply(model="example") as reply:
            for start in range(0, len(ANSWER), PIECE_CHARS):
                print(reply.write(ANSWER[start : start + PIECE_CHARS]), end="", flush=True)
                time.sleep(0.02)


def show(path: str) -> None:
    with steno.open(path) as chats:
        transcript = chats.session("alice").transcript()
        for message in transcript.messages:
            print(f"  {message.role:<10} {message.state:<12} {message.text}")
        for turn in transcript.turns:
            print(f"  turn {turn.seq}: {turn.outcome}, {turn.cause}")


def stored_answer(path: str) -> str:
    with steno.open(path) as chats:
        return chats.session("alice").messages()[-1].text


def run(act: str, path: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - our own file and interpreter
        [sys.executable, __file__, act, path], stdout=subprocess.PIPE, text=True
    )


def everything_printed(process: "subprocess.Popen[str]", kill_after: int | None = None) -> str:
    """Pass on what a process prints, as it prints it; kill the process when it has printed
    enough."""
    printed = ""
    if process.stdout is None:
        return printed
    while char := process.stdout.read(1):
        printed += char
        print(char, end="", flush=True)
        if len(printed) == kill_after:
            process.kill()
    process.wait()
    return printed


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "chats.db")
        writer = run("stream", path)
        print(f"process {writer.pid} streams an answer:\n  ", end="")
        shown = everything_printed(writer, KILL_AFTER_CHARS)
        print(
            f"\nprocess {writer.pid} is dead: signal {-writer.returncode}, {len(shown)} "
            "characters shown"
        )
        reader = run("show", path)
        print(f"process {reader.pid} opens the same store:")
        everything_printed(reader)
        stored = stored_answer(path)
        if not stored.startswith(shown):
            sys.exit("text that was shown is missing")
        print(f"{len(stored)} characters stored; every one of the {len(shown)} shown is among them")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stream", path]:
            stream(path)
        case ["show", path]:
            show(path)
        case _:
            main()
