"""The files of deploy/, tried: a real nginx in front of the service, and systemd's socket."""

import http.client
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.debian_parts import SYSTEM_PATH, there
from tests.gateway.client import WAIT_S, Event, Gateway, parse, text_of, wait_until
from tests.ports import free_port
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "steno.example.org"


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[int]:
    """Our own nginx with the server of deploy/nginx.conf, without its certificate; the port."""
    port = free_port()
    server = (DEPLOY / "nginx.conf").read_text()
    server = re.sub(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", server)
    server = re.sub(r" *ssl_certificate.*\n", "", server)
    server = server.replace("127.0.0.1:8765", f"127.0.0.1:{upstream}")
    places = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{server}\n}}\n"
    )
    process = subprocess.Popen(
        ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")],
        env=os.environ | {"PATH": SYSTEM_PATH},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _answers(port), "nginx")
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def read(port: int, path: str, token: str) -> Iterator[Event]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as wire:
        wire.request("GET", path, headers={"Host": NAME, "Authorization": f"Bearer {token}"})
        answer = wire.getresponse()
        assert answer.status == 200, answer.read()
        yield from parse(answer)


@pytest.mark.skipif(not there("nginx"), reason="no nginx")
@pytest.mark.promise(62)
def test_a_stream_through_nginx_is_not_held_up_and_resumes_after_kills_of_both(
    gateway: Gateway, server: ModelServer, world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    (world.home / "config.toml").write_text(
        f'[gateway]\nnames = ["{NAME}"]\nproxies = ["127.0.0.1"]\n'
    )
    gateway.stop()
    gateway.start()
    server.replies = [Reply(("Hel", "lo ", "wor", "ld"), held=True)]
    session = gateway.make()
    gateway.say(session, "hi")
    seen: list[Event] = []
    path = f"/api/sessions/{session}/events?after="
    with nginx(folder, gateway.port) as port:
        for event in read(port, f"{path}0", gateway.token):
            seen.append(event)
            if text_of(seen) == "Hello wor":
                break  # it came though the answer is not over: nothing is held up
    gateway.kill()
    gateway.start()
    with nginx(folder, gateway.port) as port:
        for event in read(port, path + seen[-1].id, gateway.token):
            seen.append(event)
            if event.name == "turn_ended":
                break
        assert text_of(seen) == world.messages(session, "assistant")[0]["text"] == "Hello wor"
        assert seen[-1].data["cause"] == "killed"
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as wire:
            wire.request("GET", "/api/sessions", headers={"Host": NAME})
            assert wire.getresponse().status == 401


def test_a_proxy_that_is_not_listed_is_refused(gateway: Gateway) -> None:
    forwarded = {"X-Forwarded-For": "10.0.0.1"}
    assert gateway.ask("GET", "/api/sessions", headers=forwarded).status == 403


def test_systemd_is_told_when_the_service_is_ready_and_when_it_stops(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.stop()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(WAIT_S)
        gateway.world.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        gateway.start()
        assert notified.recv(100) == b"READY=1"
        gateway.program.signal(signal.SIGTERM)
        assert notified.recv(100) == b"STOPPING=1"
        assert gateway.program.process.wait(WAIT_S) == 0


def test_the_unit_gives_a_stop_more_time_than_turns_get_and_few_rights(tmp_path: Path) -> None:
    unit = (DEPLOY / "steno-gateway.service").read_text()
    if there("systemd-analyze"):
        read = tmp_path / "steno-gateway.service"
        read.write_text(unit.replace("/usr/local/bin/steno", "/bin/true"))
        verify = ["systemd-analyze", "verify", "--man=no", str(read)]
        assert subprocess.run(verify, capture_output=True, check=False).stderr == b""
    drain_s = int(re.findall(r"STENO_GATEWAY_DRAIN_S=(\d+)", unit)[0])
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) == drain_s + 10
    for line in ("Type=notify", "KillMode=mixed", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert line in unit.splitlines()


def test_metrics_count_what_happened_and_the_log_says_no_text(
    gateway: Gateway, server: ModelServer
) -> None:
    secret = "swordfish and marzipan"
    server.replies = [Reply(("an ", secret))]
    session = gateway.make()
    gateway.say(session, f"tell me of {secret}", wait=10)
    gateway.ask("GET", "/api/sessions", token="st_wrong")
    gateway.ask("POST", f"/api/sessions/{session}/inputs", f"no {secret}".encode())
    stream = gateway.events(session)
    assert next(stream).name == "hello"
    found = gateway.ask("GET", "/metrics").body.decode()
    figures = dict(line.rsplit(" ", 1) for line in found.splitlines() if not line.startswith("#"))
    assert float(figures['steno_turns_total{cause="",outcome="done"}']) == 1
    assert float(figures["steno_pieces_total"]) >= 1
    assert float(figures["steno_commit_seconds_count"]) >= 3
    assert float(figures["steno_followers"]) == 1
    assert float(figures['steno_refusals_total{status="401"}']) == 1
    assert secret not in found
    assert session not in found
    gateway.stop()
    log = gateway.program.errors()
    assert "swordfish" not in log
    assert all(line.startswith("{") for line in log.splitlines())
