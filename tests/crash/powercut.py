"""A disk whose power can be cut: ext4 in a file, on a loop device.

The cut is the ioctl that ext4 has for this, asked not to write its journal: from then on nothing
reaches the device, and what no sync covered is gone when the file system is mounted again. Needs
Linux, root, losetup and mkfs.ext4.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
IMAGE_BYTES = 96 << 20
TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


class NoDisk(Exception):
    """There can be no such disk here; the text says why."""


class PowerDisk:
    """A mounted disk. `folder` is where programs write."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.folder = folder

    def cut(self) -> float:
        return cut(self.folder)

    def restart(self) -> None:
        """Mount what the cut left, as a machine does when it starts again."""
        run("umount", str(self.folder))
        run("mount", self.device, str(self.folder))


def cut(folder: Path) -> float:
    """Cut the power; the moment, on the monotonic clock, before which everything counts."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        began_s = time.monotonic()
        fcntl.ioctl(handle, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
    finally:
        os.close(handle)
    return began_s


@contextmanager
def power_disk(under: Path) -> Iterator[PowerDisk]:
    """A fresh disk below a folder. It is gone afterwards, whatever happens."""
    _require_tools()
    place = Path(tempfile.mkdtemp(dir=under))
    image, folder = place / "disk.img", place / "disk"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    folder.mkdir()
    device = _attach(image)
    try:
        run("mkfs.ext4", "-q", "-F", device)
        run("mount", device, str(folder))
        yield PowerDisk(device, folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
        subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)
        image.unlink()


def _require_tools() -> None:
    if sys.platform != "linux":
        raise NoDisk("cutting the power needs Linux")
    if os.geteuid() != 0:
        raise NoDisk("cutting the power needs root, for a loop device and a mount")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoDisk(f"cutting the power needs {', '.join(missing)}")


def _attach(image: Path) -> str:
    try:
        return run("losetup", "--find", "--show", str(image))
    except subprocess.CalledProcessError as error:
        raise NoDisk(f"there is no loop device to be had: {error.stderr.strip()}") from error


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
