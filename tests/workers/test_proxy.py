"""The proxy of the example in front of two workers that share a home."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debian_parts import SYSTEM_PATH
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.workers.test_takeover import answers

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workers" / "nginx.conf"


@contextmanager
def proxy(*workers: str, host: str = "127.0.0.1", within: tuple[str, ...] = ()) -> Iterator[int]:
    """The example's configuration, with our addresses in the place of its names."""
    program = shutil.which("nginx", path=SYSTEM_PATH)
    if program is None:
        pytest.skip("nginx is not installed: python -m tests.debian_parts")
    with socket.socket() as free:
        free.bind(("", 0))
        port = int(free.getsockname()[1])
    text = EXAMPLE.read_text().replace("listen 8765", f"listen {host}:{port}")
    for n, worker in enumerate(workers, 1):
        text = text.replace(f"worker-{n}:8765", worker)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        places = "".join(
            f"{kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        text = text.replace("http {", f"http {{ access_log off; {places}")
        conf = Path(folder) / "nginx.conf"
        conf.write_text(f"daemon off; pid {folder}/pid; error_log stderr;\n{text}")
        running = subprocess.Popen(
            [*within, program, "-p", folder, "-c", str(conf), "-e", "stderr"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield port
        finally:
            running.terminate()
            running.wait(20)


@pytest.mark.promise(36, 63, 72)
def test_behind_the_proxy_of_the_example_two_workers_are_one_service(
    start: Callable[..., list[Gateway]], server: ModelServer, tmp_path: Path
) -> None:
    server.replies = [Reply(("an answer",))]
    workers = start(2, home=tmp_path / "home")
    front = workers[0]
    with proxy(*(f"127.0.0.1:{one.port}" for one in workers)) as port:
        front.port = port
        wait_until(lambda: ready(front), "the proxy")
        session = front.make()
        assert front.say(session, "one", "key-1").status in (200, 202)
        wait_until(lambda: answers(front, session) == ["an answer"], "an answer")
        workers[1].kill()
        for n in range(4):
            assert front.say(session, f"more {n}", f"more-{n}").status in (200, 202)
        wait_until(lambda: len(answers(front, session)) == 5, "the other's answers")


def ready(gateway: Gateway) -> bool:
    try:
        return gateway.ask("GET", "/ready").status == 200
    except OSError:
        return False
