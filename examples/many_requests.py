"""Answers many requests to one chat at once, as a web server does. Each gets its own answer.

    .venv/bin/python examples/many_requests.py

Every request stores what was said, waits for its turn, and streams its answer. A message that is
delivered twice is stored once, and the second delivery finds the answer of the first.
"""

import asyncio
import tempfile
from pathlib import Path

import steno
from steno.store.errors import NotPending

REQUESTS = 5


async def answer(chat: steno.AsyncSession, number: int) -> str:
    """One request: its message has an id of its own, which is the key."""
    said = await chat.say(f"question {number}", key=f"message-{number}")
    try:
        async with chat.reply(model="example", to=said, wait=30) as reply:
            for piece in ("answer ", "to ", reply.input.text):
                await reply.write(piece)
            return reply.text
    except NotPending:
        turn = next(m.turn for m in await chat.messages() if m.seq == said.seq)
        return next(m.text for m in await chat.messages() if m.turn == turn and m.seq != said.seq)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with steno.aopen(Path(folder) / "chats.db") as chats:
            chat = await chats.session("alice")
            twice = [*range(REQUESTS), *range(REQUESTS)]
            for number, text in zip(
                twice, await asyncio.gather(*(answer(chat, n) for n in twice)), strict=True
            ):
                print(f"question {number}: {text}")


if __name__ == "__main__":
    asyncio.run(main())
