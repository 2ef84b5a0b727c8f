"""A channel that is one address: what is told goes there as JSON, by POST.

The key of a delivery is its header `Idempotency-Key`, the same at every try. Nothing here tries
again, follows a redirect or reads more of the answer than its head.
"""

import asyncio
import io

import aiohttp

from steno.delivery.outbox import Answer, Replied, Unanswered, Unreached
from steno.web import LOST, trusted

CONNECT_S = 5.0
TOTAL_S = 10.0


class Webhook:
    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._token = token

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
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL):
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
        return headers | ({"authorization": f"Bearer {self._token}"} if self._token else {})

    def _client(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted()),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
