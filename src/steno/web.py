"""What everything that speaks HTTP to the outside shares."""

import ssl
import sys

import aiohttp
import truststore
from aiohttp.http_exceptions import HttpProcessingError

LOST = (aiohttp.ClientError, HttpProcessingError)
"""Raised where a connection cannot be made, breaks, or carries what is no HTTP."""


def trusted() -> ssl.SSLContext | bool:
    """The certificates that the system trusts. On Linux OpenSSL mostly knows by itself, and has
    loaded them when this module was."""
    paths = ssl.get_default_verify_paths()
    if sys.platform == "linux" and (paths.cafile or paths.capath):
        return True
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
