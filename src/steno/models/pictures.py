"""Which bytes are an image that every provider takes. Decided by the bytes: a name or a server may
say anything, and a provider refuses a request for one image that is not what it is called."""

BYTES_MAX = 5 * 2**20 * 3 // 4
"""A request carries an image as base64, which is a third longer, and the strictest provider takes 5
MiB of it."""

_OPENINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def picture_type(data: bytes) -> str | None:
    """The media type of an image, however large; None if it is none."""
    for opening, media_type in _OPENINGS:
        if data.startswith(opening):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
