"""The files of the page, read once. Their address has a hash of all of them in it, so that a
browser may keep each for ever and scripts that belong together are loaded together."""

import hashlib
from functools import cache
from importlib.resources import files

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def contents() -> dict[str, tuple[bytes, str]]:
    """Name to bytes and media type."""
    folder = files("steno.gateway.page").joinpath("static")
    found = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
    return {
        name: (body, _TYPES[ending])
        for name, body in sorted(found.items())
        if (ending := name[name.rfind(".") :]) in _TYPES
    }


def _version() -> str:
    whole = hashlib.sha256()
    for name, (body, _) in contents().items():
        whole.update(name.encode() + b"\0" + body)
    return whole.hexdigest()[:16]


VERSION = _version()
KEEP = "public, max-age=31536000, immutable"
"""For a file under its own hash. Under another one it is not kept at all."""
