"""What is found around a session: its folder, the day, the system, the state of git.

A model is told it with every request, as a part of the context. It is looked at anew when a turn
begins with an input, and only a change of the folder, the day or the branch makes it another one:
what a turn itself does to the files leaves the requests as they were.
"""

import contextlib
import os
import platform
import subprocess
from datetime import date
from pathlib import Path

GIT_LIMIT_S = 2.0
CHANGED_SHOWN_MAX = 20
HEAD_BYTES_MAX = 4_096


def surroundings(folder: Path, today: date, before: str = "") -> str:
    """What to tell of a folder today; the same as before if the first lines of it still hold."""
    head = _head(folder, today)
    if before == head or before.startswith(f"{head}\n"):
        return before
    return "\n".join((head, *_git(folder)))


def _head(folder: Path, today: date) -> str:
    on = branch(folder)
    git = f"Git branch: {on}" if on else "Git: not a repository"
    return "\n".join(
        (
            f"Working folder: {folder}",
            f"Date: {today.isoformat()}",
            f"System: {platform.system()} {platform.release()} ({platform.machine()})",
            git,
        )
    )


def branch(folder: Path) -> str:
    """The branch that is checked out, by the files of git alone; "" where there is none."""
    top = next(
        (one for one in (folder, *folder.parents) if (one / ".git").exists()), None
    )
    if top is None:
        return ""
    place = top / ".git"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if place.is_file():  # a worktree or a submodule
            place = top / _start(place).removeprefix("gitdir:").strip()
        head = _start(place / "HEAD")
        if head.startswith("ref: refs/heads/"):
            return head.removeprefix("ref: refs/heads/")
        return f"(detached at {head[:12]})" if head else ""
    return ""


def _start(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(HEAD_BYTES_MAX).decode().strip()


def _git(folder: Path) -> list[str]:
    """What had changed, and the last commits, when it was looked at."""
    if not branch(folder):
        return []
    changed = _said(folder, "status", "--short").splitlines()
    commits = _said(folder, "log", "-3", "--format=%h %s").splitlines()
    told = []
    if changed:
        more = len(changed) - CHANGED_SHOWN_MAX
        told += [
            "Changed files when this was looked at:",
            *changed[:CHANGED_SHOWN_MAX],
        ]
        told += [f"… and {more} more"] if more > 0 else []
    else:
        told.append("No changed files when this was looked at.")
    return [*told, *(["Last commits:", *commits] if commits else [])]


def _said(folder: Path, *words: str) -> str:
    """What git says; "" if it is not there, fails or takes long. It writes nothing."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_")
    } | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],  # noqa: S607
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=GIT_LIMIT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
