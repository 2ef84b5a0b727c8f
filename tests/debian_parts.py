"""The Debian packages that the tests use, by the program each is looked for by.

`python -m tests.debian_parts` installs what is missing where it may (root, apt-get) and says so;
elsewhere it says which tests will be skipped. A service that a package brings is not started:
the tests start their own, in folders of their own."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {
    "bwrap": "bubblewrap",
    "chromium-headless-shell": "chromium-headless-shell",
    "nginx": "nginx-light",
    "dovecot": "dovecot-imapd",
    "prosody": "prosody",
    "/usr/lib/postgresql/15/bin/postgres": "postgresql-15",
    "pgbouncer": "pgbouncer",
}
"""Program (a name on the path, or a path) to package."""

INSTEAD = {"chromium-headless-shell": "chromium"}
"""What will do where it is there already. The browser without its windows takes half of the time of
the one with them."""

DO_NOT_START = Path("/usr/sbin/policy-rc.d")
"""What Debian asks whether a service that was just installed may start; 101 is no."""

SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def there(program: str) -> bool:
    return shutil.which(program, path=SYSTEM_PATH) is not None


def found(program: str) -> str | None:
    """Where a program is, or what does instead."""
    names = (program, INSTEAD.get(program, ""))
    return next((path for name in names if (path := shutil.which(name, path=SYSTEM_PATH))), None)


def missing() -> list[str]:
    return sorted(package for program, package in PACKAGES.items() if found(program) is None)


def _apt(*words: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *words], env=environment, stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


def install(packages: list[str]) -> bool:
    ours = not DO_NOT_START.exists()
    if ours:
        DO_NOT_START.write_text("#!/bin/sh\nexit 101\n")
        DO_NOT_START.chmod(0o755)
    try:
        _apt("update")
        return _apt("install", "-y", "--no-install-recommends", *packages)
    finally:
        if ours:
            DO_NOT_START.unlink()


def main() -> None:
    packages = missing()
    if not packages:
        return
    names = ", ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"not installed here: {names} (Debian). Tests that need them are skipped.")
        return
    print(f"installing Debian packages for the tests: {names}", flush=True)
    if not install(packages):
        print(f"apt-get could not install {names}. Tests that need them are skipped.")


if __name__ == "__main__":
    main()
