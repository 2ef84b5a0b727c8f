"""Hosts on one switch, as network namespaces: each has its address, and can be unplugged."""

import os
import shutil
import subprocess

from tests.debian_parts import SYSTEM_PATH

_IP = shutil.which("ip", path=SYSTEM_PATH)


def there() -> bool:
    """Whether there can be such hosts here."""
    if _IP is None or os.geteuid() != 0:
        return False
    name = f"stn{os.getpid()}"
    made = subprocess.run([_IP, "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        _ip("netns", "del", name)
    return made.returncode == 0


def _ip(*words: str) -> None:
    assert _IP is not None
    done = subprocess.run([_IP, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")


class Host:
    def __init__(self, network: "Network", n: int) -> None:
        self.address = f"{network.prefix}.{n}"
        self.name, self._switch, self._port = f"{network.name}-{n}", network.switch, f"port{n}"
        _ip("netns", "add", self.name)
        self.within = (_IP or "ip", "netns", "exec", self.name)
        ends = ("type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "add", self._port, "netns", self._switch, *ends)
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", self.name, "link", "set", device, "up")
        _ip("-n", self._switch, "link", "set", self._port, "up")
        self.plug_in()

    def plug_in(self) -> None:
        _ip("-n", self._switch, "link", "set", self._port, "master", "switch")

    def unplug(self) -> None:
        """Nobody is told: what is sent is swallowed."""
        _ip("-n", self._switch, "link", "set", self._port, "nomaster")


class Network:
    """We are plugged in, too, at `.1`."""

    def __init__(self) -> None:
        number = os.getpid()
        self.name, self.prefix = f"st{number}", f"10.213.{number % 250}"
        self.switch = f"{self.name}-switch"
        self.address = f"{self.prefix}.1"
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "switch", "up")
        ours = ("type", "veth", "peer", "name", self.name)
        _ip("link", "add", "port1", "netns", self.switch, *ours)
        _ip("-n", self.switch, "link", "set", "port1", "master", "switch", "up")
        _ip("addr", "add", f"{self.address}/24", "dev", self.name)
        _ip("link", "set", self.name, "up")
        self._hosts: list[Host] = []

    def host(self) -> Host:
        self._hosts.append(Host(self, len(self._hosts) + 10))
        return self._hosts[-1]

    def close(self) -> None:
        _ip("link", "del", self.name)  # what goes with a namespace goes some time later
        for name in (self.switch, *(one.name for one in self._hosts)):
            _ip("netns", "del", name)
