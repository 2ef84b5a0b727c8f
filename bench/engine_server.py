"""A model server in a process of its own: `python -m bench.engine_server PIECES PER_SECOND`.

Each piece is the moment it was sent (monotonic, which all processes of a machine share). It speaks Chat Completions.
"""

import asyncio
import sys
import time

from bench import child

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,%s}]}'
PIECE = EVENT % '"delta":{"content":"%s "}'
END = EVENT % '"delta":{},"finish_reason":"stop"'


def chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


class Server:
    def __init__(self, pieces: int, per_second: float) -> None:
        self._pieces, self._per_second = pieces, per_second
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(_length(head))
                await self._answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        """At a given pace, each stream a little after the last, as requests of many people come."""
        gap_s = 1 / self._per_second if self._per_second else 0.0
        self.open += 1
        start_s = time.monotonic() + gap_s * (self.open * 0.37 % 1)
        writer.write(HEAD)
        for i in range(self._pieces):
            if gap_s:
                await asyncio.sleep(start_s + i * gap_s - time.monotonic())
            writer.write(chunk(PIECE % f"{time.monotonic():.6f}"))
            await writer.drain()
        writer.write(chunk(END) + chunk("[DONE]") + b"0\r\n\r\n")
        await writer.drain()


def _length(head: bytes) -> int:
    for line in head.decode("latin-1").lower().splitlines():
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


async def main(pieces: int, per_second: float) -> None:
    server = Server(pieces, per_second)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 26)
    child.ready()
    child.answer(listening.sockets[0].getsockname()[1])
    sys.stdout.write("\n")
    sys.stdout.flush()
    await asyncio.to_thread(child.wait_for_go)  # anything on its input, or its end, is the sign to leave


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
