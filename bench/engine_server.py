"""A model server in a process of its own: `python -m bench.engine_server PIECES PER_SECOND`.

Each piece is the moment it was sent (monotonic, which all processes of a machine share). It speaks
Chat Completions.
"""

import asyncio
import sys
import time

from bench import child

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,%s}]}'
)
PIECE = EVENT % '"delta":{"content":"%s "}'
TICK_S = 0.001
END = EVENT % '"delta":{},"finish_reason":"stop"'


def chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


class _Stream:
    """One answer under way. Each begins a little after the last, as requests of many people
    come."""

    def __init__(self, writer: asyncio.StreamWriter, start_s: float) -> None:
        self.writer, self.start_s, self.sent = writer, start_s, 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Server:
    """One clock paces all streams, so that the server leaves the cores to the program it serves."""

    def __init__(self, pieces: int, per_second: float) -> None:
        self._pieces, self._per_second = pieces, per_second
        self._streams: list[_Stream] = []
        self._opened = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(_length(head))
                writer.write(HEAD)
                self._opened += 1
                gap_s = 1 / self._per_second if self._per_second else 0.0
                stream = _Stream(writer, time.monotonic() + gap_s * (self._opened * 0.37 % 1))
                self._streams.append(stream)
                await stream.over
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def pace(self) -> None:
        while True:
            for stream in self._streams:
                self._send(stream, time.monotonic())
            self._streams = [stream for stream in self._streams if not stream.over.done()]
            await asyncio.sleep(TICK_S)

    def _send(self, stream: _Stream, now_s: float) -> None:
        while stream.sent < self._pieces:
            if self._per_second and stream.start_s + stream.sent / self._per_second > now_s:
                return
            stream.writer.write(chunk(PIECE % f"{time.monotonic():.6f}"))
            stream.sent += 1
        stream.writer.write(chunk(END) + chunk("[DONE]") + b"0\r\n\r\n")
        stream.over.set_result(None)


def _length(head: bytes) -> int:
    for line in head.decode("latin-1").lower().splitlines():
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


async def main(pieces: int, per_second: float) -> None:
    server = Server(pieces, per_second)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 26)
    pacing = asyncio.create_task(server.pace())
    child.ready()
    child.answer(listening.sockets[0].getsockname()[1])
    sys.stdout.write("\n")
    sys.stdout.flush()
    await asyncio.to_thread(
        child.wait_for_go
    )  # anything on its input, or its end, is the sign to leave
    pacing.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
