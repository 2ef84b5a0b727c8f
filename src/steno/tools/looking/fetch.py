"""The tool `fetch_url`: a page of the web as text.

What must be true:

- A name is resolved once, and the connection goes to an address that was looked at: never to one of
  this machine, of a private network, or one that is no host's. Each redirect is looked at again.
- Nothing of ours is sent along: no cookie, no key, no name of a user.
- Time, redirects and bytes are bounded.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.builtin import FETCH_SPEC
from steno.tools.protocol import (
    BadArguments,
    Prepared,
    Reading,
    Unusable,
    decode_arguments,
)

if TYPE_CHECKING:
    import aiohttp

BYTES_MAX = 5_000_000
REDIRECTS_MAX = 5
TIME_LIMIT_S = 30.0


class FetchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=4_000)]


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet; also where an IPv4 address hides in it."""
    import ipaddress

    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = (
            ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        )
        if inner is not None:
            return is_public(str(inner))
        if ip in ipaddress.ip_network("64:ff9b::/96"):
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)))
    return ip.is_global and not ip.is_multicast


class FetchUrl:
    """`may_reach` says which addresses a connection may go to."""

    spec: ToolSpec = FETCH_SPEC
    approval: Literal["none", "ask"] = "ask"

    def __init__(
        self, chars_max: int, may_reach: Callable[[str], bool] = is_public
    ) -> None:
        self._chars_max = chars_max
        self._may_reach = may_reach

    async def check(self, arguments: str) -> None:
        _checked(decode_arguments(arguments, FetchArguments).url)

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, FetchArguments)
        _checked(asked.url)
        return Reading(lambda: self._fetched(asked.url))

    async def _fetched(self, url: str) -> str:
        import aiohttp

        from steno.web import LOST

        try:
            async with asyncio.timeout(TIME_LIMIT_S):
                return await self._followed(url)
        except TimeoutError as error:
            raise Unusable(
                f"{url} did not answer within {TIME_LIMIT_S:.0f} s"
            ) from error
        except aiohttp.InvalidURL as error:
            raise Unusable(f"{url} is no address that can be fetched") from error
        except LOST as error:
            raise Unusable(f"{url} cannot be reached: {error}") from error

    async def _followed(self, url: str) -> str:
        from urllib.parse import urljoin

        import aiohttp

        from steno.web import trusted

        connector = aiohttp.TCPConnector(resolver=self._resolver(), ssl=trusted())
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        ) as session:
            for _ in range(REDIRECTS_MAX + 1):
                self._check_host(_checked(url))
                headers = {
                    "User-Agent": "steno",
                    "Accept": "text/*, application/json, */*;q=0.5",
                }
                async with session.get(
                    url, allow_redirects=False, headers=headers
                ) as answer:
                    if (
                        answer.status in (301, 302, 303, 307, 308)
                        and "Location" in answer.headers
                    ):
                        url = urljoin(url, answer.headers["Location"])
                        continue
                    return await self._text(url, answer)
        raise Unusable(f"{url} redirects too often")

    def _check_host(self, host: str) -> None:
        """An address that stands in the URL is not resolved."""
        import ipaddress

        try:
            ipaddress.ip_address(host)
        except ValueError:
            return
        if not self._may_reach(host):
            raise Unusable(_refusal(host, host))

    def _resolver(self) -> "aiohttp.abc.AbstractResolver":
        from aiohttp.abc import AbstractResolver, ResolveResult

        may_reach = self._may_reach

        class Guarded(AbstractResolver):
            async def resolve(
                self,
                host: str,
                port: int = 0,
                family: socket.AddressFamily = socket.AF_INET,
            ) -> list[ResolveResult]:
                loop = asyncio.get_running_loop()
                try:
                    found = await loop.getaddrinfo(
                        host, port, type=socket.SOCK_STREAM
                    )
                except OSError as error:
                    raise Unusable(
                        f"there is no host {host}: {error.strerror}"
                    ) from error
                for *_, address in found:
                    if not may_reach(str(address[0])):
                        raise Unusable(_refusal(host, str(address[0])))
                return [
                    ResolveResult(
                        hostname=host,
                        host=str(address[0]),
                        port=port,
                        family=kind,
                        proto=protocol,
                        flags=socket.AI_NUMERICHOST,
                    )
                    for kind, _, protocol, _, address in found
                ]

            async def close(self) -> None:
                pass

        return Guarded()

    async def _text(self, url: str, answer: "aiohttp.ClientResponse") -> str:
        data = await answer.content.read(BYTES_MAX + 1)
        while len(data) <= BYTES_MAX and (
            chunk := await answer.content.read(BYTES_MAX)
        ):
            data += chunk
        cut = len(data) > BYTES_MAX
        kind = answer.content_type
        if b"\0" in data[:8_000]:
            raise Unusable(f"{url} is no text: {kind}, {len(data)} bytes")
        text = data[:BYTES_MAX].decode(answer.charset or "utf-8", "replace")
        if kind in ("text/html", "application/xhtml+xml"):
            from steno.tools.looking.page import as_text

            text = as_text(text)
        if len(text) > self._chars_max:
            cut, text = True, text[: self._chars_max]
        head = f"{url} ({answer.status}, {kind})\n\n"
        return head + text + ("\n[the rest is left out]" if cut else "")


def _checked(url: str) -> str:
    """The host of an address that can be fetched."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise BadArguments(f"`url` cannot be used: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadArguments(
            "`url` must begin with http:// or https:// and name a host"
        )
    if "@" in parts.netloc:
        raise BadArguments("`url` must name no user and no password")
    return host


def _refusal(host: str, address: str) -> str:
    where = host if host == address else f"{host} ({address})"
    return f"{where} is on this machine or in a private network; nothing was fetched"
