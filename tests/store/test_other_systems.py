"""Nothing in the core rules Windows out: it loads and works with what only Unix has taken away.

This is no Windows: what is shown is that no module, function or constant of Unix alone is needed.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

WITHOUT_UNIX = """
import os, sys, types

for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("fork", "geteuid", "getuid", "killpg", "register_at_fork", "setsid", "uname"):
    delattr(os, name)
del os.O_CLOEXEC
held = set()

def locking(handle, mode, count):
    file = os.fstat(handle).st_ino
    if file in held:
        raise OSError("locked")
    held.add(file)

sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
sys.platform = "win32"
"""

TALK = """
import steno, steno.engine.action, steno.engine.recover, steno.journal.history

with steno.open(sys.argv[1]) as chats:
    chat = chats.session("alice")
    chat.say("hello")
    with chat.reply(model="none") as reply:
        reply.write("good day")
    print([message.text for message in chat.messages()])
    assert chats.store.verify().damage == ()
"""


def test_the_core_needs_nothing_that_only_unix_has(tmp_path: Path) -> None:
    code = textwrap.dedent(WITHOUT_UNIX + TALK)
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.db")], capture_output=True, text=True
    )
    assert ran.stdout == "['hello', 'good day']\n", ran.stderr


def test_the_locks_of_windows_keep_a_second_opener_out(tmp_path: Path) -> None:
    code = textwrap.dedent(WITHOUT_UNIX) + textwrap.dedent("""
        import steno
        from steno.store.sqlite.database import StoreInUse

        with steno.open(sys.argv[1]):
            try:
                steno.open(sys.argv[1])
            except StoreInUse as error:
                print(error)
    """)
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.db")], capture_output=True, text=True
    )
    assert "try again" in ran.stdout, ran.stderr
