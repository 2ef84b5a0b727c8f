"""What AGENTS.md and CLAUDE.md say, from the home and from the top of the tree down to the folder.

A file that others could have put there is not read: in a folder that others can write to,
it would be their word and not the owner's.
"""

import os
import stat
from pathlib import Path

NAMES = ("AGENTS.md", "CLAUDE.md")
FILE_CHARS_MAX = 40_000
ALL_CHARS_MAX = 100_000


def instructions(folder: Path, home: Path) -> str:
    """The texts, each under the path of its file; the nearest to the folder comes last and counts
    most."""
    found: list[str] = []
    seen: set[str] = set()
    room = ALL_CHARS_MAX
    for place in (home, *reversed((folder, *folder.parents))):
        for name in NAMES:
            text = _text(place / name)
            if not text or text in seen or room <= 0:
                continue
            seen.add(text)
            shown = text[: min(FILE_CHARS_MAX, room)]
            cut = f"\n[{len(text) - len(shown)} characters are left out]" * (
                shown != text
            )
            room -= len(shown)
            found.append(f"From {place / name}:\n\n{shown}{cut}")
    return "\n\n".join(found)


def _text(file: Path) -> str:
    """What a file says; "" if there is none, or if it is not for us."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as opened:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.getuid()):
            return ""
        try:
            data = opened.read(4 * (FILE_CHARS_MAX + 1))
        except OSError:
            return ""
    return data.decode("utf-8", "replace").strip()


def begin_with(folder: Path) -> str:
    """A prompt that has an AGENTS.md written for a folder."""
    there = next((name for name in NAMES if (folder / name).exists()), "")
    task = f"Look at {there} and improve it" if there else "Write the file AGENTS.md"
    return (
        f"{task}, for agents that will work in this folder. Look around first: the README, the "
        "build files, the tests, a few sources. Say in at most 60 lines: what this is, how to "
        "build and test it (exact commands, one for a single test), how the code is laid out, the "
        "style that it keeps to, and what somebody would get wrong. Only what you have seen in "
        "the files; nothing that is true of every project."
    )
