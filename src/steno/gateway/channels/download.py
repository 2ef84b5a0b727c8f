"""A file from a platform, as far as it may be large."""

import asyncio
from collections.abc import Mapping

import aiohttp

from steno.gateway.channels.protocol import ChannelLost, ChannelRefused
from steno.web import LOST

DOWNLOAD_S = 90.0


async def download(
    http: aiohttp.ClientSession,
    address: str,
    bytes_max: int,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes at an address that the platform named. No redirect is followed: it could lead our
    token elsewhere. Raises `ChannelError`."""
    body = bytearray()
    try:
        async with (
            asyncio.timeout(DOWNLOAD_S),
            http.get(address, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ChannelLost(f"the file was not given: status {response.status}")
            async for piece in response.content.iter_chunked(65_536):
                body += piece
                if len(body) > bytes_max:
                    raise ChannelRefused("the file is too large")
    except (*LOST, TimeoutError) as error:
        raise ChannelLost(
            f"the file did not arrive: {type(error).__name__}"
        ) from None
    return bytes(body)
