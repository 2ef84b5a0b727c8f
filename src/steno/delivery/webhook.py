"""A channel that is one address: what is told goes there as JSON, by POST.

The key of a delivery is its header `Idempotency-Key`, the same at every try. Nothing here tries
again, follows a redirect or reads more of the answer than its head.

A name that leads to an address inside a private network is refused, unless the channel says
`inside`: whoever answers for the name could otherwise have us write to what only we can reach. What
is connected to is the address that was looked at. An address that the configuration itself spells
out is meant.
"""

import asyncio
import io
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from steno.config import LOOPBACK
from steno.delivery.outbox import Answer, Replied, Unanswered, Unreached
from steno.web import LOST, trusted

CONNECT_S = 5.0
TOTAL_S = 10.0


_MAPPING = (
    ip_network("64:ff9b::/96"),
    ip_network("::ffff:0:0/96"),
    ip_network("::/96"),
)
"""What stands for an address of the older protocol: its last four bytes are that."""


class Inside(OSError):
    """The name leads to an address that only machines of this network reach."""


class _OutsideOnly(AbstractResolver):
    def __init__(self) -> None:
        self._names = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, *where: Any, **how: Any
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, *where, **how)
        if host not in LOOPBACK and not all(is_outside(one["host"]) for one in found):
            raise Inside
        return found

    async def close(self) -> None:
        await self._names.close()


def is_outside(address: str) -> bool:
    """Whether everybody could reach an address."""
    try:
        read: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(read, IPv6Address):
        if any(read in one for one in _MAPPING):
            read = IPv4Address(read.packed[-4:])
        elif read.sixtofour is not None:
            read = read.sixtofour
    return read.is_global and not read.is_multicast


class Webhook:
    """`inside`: its name may lead to an address of a private network."""

    def __init__(self, url: str, token: str = "", inside: bool = False) -> None:
        self._url = url
        self._token = token
        self._inside = inside

    def __repr__(self) -> str:
        return "Webhook()"  # its address may be a secret

    async def send(self, body: bytes, key: str) -> Answer:
        try:
            async with asyncio.timeout(TOTAL_S), self._client() as client:
                posting = client.post(
                    self._url,
                    data=io.BytesIO(body),
                    headers=self._headers(key),
                    allow_redirects=False,
                )
                async with posting as response:
                    return Replied(response.status)
        except aiohttp.ClientConnectorCertificateError:
            return Unreached("its certificate is not trusted")
        except aiohttp.ClientConnectorDNSError as error:
            inside = isinstance(error.os_error, Inside)
            return Unreached("its name leads inside" if inside else "unreachable")
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.InvalidURL,
        ):
            return Unreached("unreachable")
        except TimeoutError:
            return Unanswered("timeout")
        except LOST:
            return Unanswered("dropped")

    def _headers(self, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "user-agent": "steno",
            "idempotency-key": key,
        }
        return headers | (
            {"authorization": f"Bearer {self._token}"} if self._token else {}
        )

    def _client(self) -> aiohttp.ClientSession:
        resolver = aiohttp.ThreadedResolver() if self._inside else _OutsideOnly()
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted(), resolver=resolver),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
