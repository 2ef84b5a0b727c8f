"""Server-sent events, out of bytes that may be cut anywhere. Pure."""

from steno.models.protocol import ModelError

EVENT_BYTES_MAX = 32 * 1024 * 1024


class Events:
    """A line ends with a line feed, a carriage return or both; an empty line ends an event. Only
    data lines count. An event that has not ended when the stream is over is none."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._pending_bytes = 0
        self._returned = False

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that ends in this piece."""
        if not piece:
            return []
        if self._returned:
            piece = piece.removeprefix(b"\n")
        self._returned = piece.endswith(b"\r")
        *lines, rest = (piece + b".").splitlines()
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        self._line.append(rest[:-1])
        self._pending_bytes += len(piece)
        ended: list[str] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                ended += self._end()
                self._pending_bytes = len(rest)
        if self._pending_bytes > EVENT_BYTES_MAX:
            raise ModelError(
                "dropped", f"an event has more than {EVENT_BYTES_MAX >> 20} MiB", "yes"
            )
        return ended

    def _end(self) -> list[str]:
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        return [data] if data else []
