"""What the HTTP library answers by itself: a server that reads a body and says a constant."""

import asyncio
import sys

from aiohttp import web

ANSWER = b'{"session":"aaaaaaaaaaaaa","seq":1,"first":true}'


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    return web.Response(body=ANSWER, status=202, content_type="application/json")


async def main() -> None:
    runner = web.ServerRunner(web.Server(_answer, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sys.stdout.write(f"ready\n{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
