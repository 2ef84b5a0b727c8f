"""The shell tool, with real processes."""

import asyncio
import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from steno.journal.parts import Failed, Interrupted, Returned, Text
from steno.tools.builtin import builtin
from steno.tools.groups import until
from steno.tools.protocol import BadArguments, Prepared, Workspace
from steno.tools.sandbox import Scrub
from steno.tools.shell import Pump
from tests.tools.calls import (
    Pieces,
    alive,
    call,
    call_on,
    comes_true,
    needs_proc,
    numbers_in,
    run_and_kill,
    said,
    written,
)


async def prepare(workspace: Workspace, command: str, **arguments: object) -> Prepared:
    return await builtin(workspace)["shell"].prepare(json.dumps({"command": command, **arguments}))


def test_the_text_of_a_command_that_succeeds_is_its_output(workspace: Workspace) -> None:
    assert call(workspace, "shell", command="echo out; echo err >&2") == Returned(
        (Text("out\nerr\n"),)
    )


def test_a_command_that_says_nothing_has_no_part(workspace: Workspace) -> None:
    assert call(workspace, "shell", command="true") == Returned()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo oh; exit 3", "oh\n[exit status 3]"),
        ("printf oh; exit 3", "oh\n[exit status 3]"),
        ("exit 1", "[exit status 1]"),
        ("kill -SEGV $$", "[ended by signal 11 (SIGSEGV)]"),
    ],
)
def test_a_command_that_fails_says_how(workspace: Workspace, command: str, text: str) -> None:
    assert call(workspace, "shell", command=command) == Failed((Text(text),))


def test_it_runs_in_the_workspace_with_no_input_and_no_other_handles(workspace: Workspace) -> None:
    assert said(call(workspace, "shell", command="pwd -P")) == f"{workspace.folder.resolve()}\n"
    assert call(workspace, "shell", command="cat") == Returned()
    if Path("/proc/self/fd").exists():
        handles = said(
            call(workspace, "shell", command="ls /proc/$$/fd; readlink /proc/$$/fd/0; true")
        )
        assert handles.split() == ["0", "1", "2", "/dev/null"]


@pytest.mark.parametrize("command", ["-x", "--", "-c"])
def test_a_command_is_never_taken_for_an_option(workspace: Workspace, command: str) -> None:
    assert said(call(workspace, "shell", command=command)).endswith("not found\n[exit status 127]")


def test_output_comes_while_the_command_runs(workspace: Workspace) -> None:
    go = workspace.folder / "go"

    async def lets_it_end(piece: str) -> None:
        go.touch()

    async def run() -> str:
        prepared = await prepare(
            workspace, "echo first; while [ ! -e go ]; do sleep 0.01; done; echo last", timeout_s=5
        )
        return said(await prepared.run(lets_it_end))

    assert asyncio.run(run()) == "first\nlast\n"


def test_a_slow_reader_slows_the_command(workspace: Workspace) -> None:
    command = (
        "for i in 1 2 3 4 5 6 7 8 9; do head -c 50000 /dev/zero | tr '\\0' x; echo $i >> "
        "progress; done"
    )
    progress = workspace.folder / "progress"

    async def run() -> tuple[int, str]:
        free = asyncio.Event()

        async def slow(piece: str) -> None:
            await free.wait()

        prepared = await prepare(replace(workspace, output_chars_max=1_000_000), command)
        running = asyncio.create_task(prepared.run(slow))
        await asyncio.sleep(0.5)
        written = len(progress.read_text().split()) if progress.exists() else 0
        free.set()
        return written, said(await running)

    written, text = asyncio.run(run())
    assert written <= 4
    assert text == "x" * 450_000


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("printf '\\303'; sleep 0.1; printf '\\251'", "é"),
        ("printf '\\360\\237'; sleep 0.1; printf '\\230\\200!'", "\N{GRINNING FACE}!"),
        ("printf 'a\\377b'", "a\N{REPLACEMENT CHARACTER}b"),
        ("printf 'a\\303'", "a\N{REPLACEMENT CHARACTER}"),
        ("printf 'a\\0b\\r\\n'", "a\0b\r\n"),
    ],
)
def test_bytes_become_text_wherever_they_are_split(
    workspace: Workspace, command: str, text: str
) -> None:
    outcome, pieces = asyncio.run(call_on(workspace, "shell", {"command": command}))
    assert (said(outcome), "".join(pieces)) == (text, text)


def test_huge_output_is_cut_and_counted_in_little_memory(workspace: Workspace) -> None:
    tracemalloc.start()
    try:
        command = "head -c 10000000 /dev/zero | tr '\\0' x; exit 7"
        small = replace(workspace, kept_chars_max=40_000)
        outcome, pieces = asyncio.run(call_on(small, "shell", {"command": command}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "".join(pieces) == "x" * 30_000
    after = "\n[9960000 more characters of output were dropped]\n[exit status 7]"
    assert outcome == Failed((Text("x" * 40_000), Text(after)))
    assert peak < 2_000_000


def test_endless_output_does_not_hold_up_the_time_limit(workspace: Workspace) -> None:
    outcome = call(workspace, "shell", command="yes", timeout_s=0.3)
    assert isinstance(outcome, Failed)
    assert said(outcome).endswith("[ended: the time limit of 0.3 s was reached]")


@needs_proc
def test_the_time_limit_ends_grandchildren_too(workspace: Workspace) -> None:
    command = (
        "sh -c 'echo $$ >> pids; sleep 60' & sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do "
        "sleep 1; done'"
    )
    outcome = call(workspace, "shell", command=f"echo so far; {command}", timeout_s=0.5)
    assert outcome == Failed((Text("so far\n[ended: the time limit of 0.5 s was reached]"),))
    assert not [pid for pid in numbers_in(workspace.folder / "pids", 2) if alive(pid)]


def test_a_command_may_clean_up_when_its_time_is_over(workspace: Workspace) -> None:
    command = "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done"
    text = said(call(workspace, "shell", command=command, timeout_s=0.3))
    assert text.endswith("cleaned\n[ended: the time limit of 0.3 s was reached]")


@needs_proc
def test_stop_ends_the_group_at_once_and_keeps_what_was_said(workspace: Workspace) -> None:
    async def run() -> object:
        prepared = await prepare(
            workspace, "trap '' TERM; echo so far; sleep 60 & echo $! > pids; wait"
        )
        pieces = Pieces()
        running = asyncio.create_task(prepared.run(pieces))
        await until(lambda: bool(pieces) and written(workspace.folder / "pids"), 5)
        await prepared.stop()
        return await asyncio.wait_for(running, 1)

    assert asyncio.run(run()) == Interrupted((Text("so far\n"),))
    assert not [pid for pid in numbers_in(workspace.folder / "pids", 1) if alive(pid)]


def test_stop_before_run_runs_nothing(workspace: Workspace) -> None:
    async def run() -> object:
        prepared = await prepare(workspace, "touch ran")
        await prepared.stop()
        await prepared.stop()
        assert prepared.group is not None
        with pytest.raises(ProcessLookupError):
            os.killpg(prepared.group, 0)
        return await prepared.run(Pieces())

    assert asyncio.run(run()) == Interrupted()
    assert not (workspace.folder / "ran").exists()


def test_stop_after_the_end_does_nothing(workspace: Workspace) -> None:
    async def run() -> object:
        prepared = await prepare(workspace, "echo done")
        outcome = await prepared.run(Pieces())
        await prepared.stop()
        return outcome

    assert asyncio.run(run()) == Returned((Text("done\n"),))


@needs_proc
def test_a_call_that_is_cancelled_leaves_no_process(workspace: Workspace) -> None:
    async def run() -> None:
        prepared = await prepare(workspace, "sleep 60 & echo $$ $! > pids; wait")
        running = asyncio.create_task(prepared.run(Pieces()))
        await until(lambda: written(workspace.folder / "pids"), 5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert comes_true(
        lambda: not any(alive(pid) for pid in numbers_in(workspace.folder / "pids", 2)), 1
    )


@needs_proc
def test_output_that_cannot_be_stored_ends_the_command(workspace: Workspace) -> None:
    async def refuse(piece: str) -> None:
        raise ConnectionError("the lease is lost")

    async def run() -> None:
        prepared = await prepare(
            workspace, "trap '' TERM; echo $$ > pids; echo hello; while :; do sleep 1; done"
        )
        with pytest.raises(ConnectionError, match="the lease is lost"):
            await asyncio.wait_for(prepared.run(refuse), 1)

    asyncio.run(run())
    assert not alive(numbers_in(workspace.folder / "pids", 1)[0])


@needs_proc
@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1"])
def test_processes_left_in_the_background_are_ended(workspace: Workspace, redirect: str) -> None:
    began = time.monotonic()
    outcome = call(workspace, "shell", command=f"sleep 60 {redirect} & echo $! > pids; echo hello")
    assert time.monotonic() - began < 2
    assert outcome == Returned((Text("hello\n[processes left in the background were ended: 1]"),))
    assert not alive(numbers_in(workspace.folder / "pids", 1)[0])


@needs_proc
def test_processes_left_in_the_background_may_clean_up(workspace: Workspace) -> None:
    background = (
        "sh -c 'trap \"echo 1 > cleaned; exit\" TERM; echo 1 > ready; while :; do sleep 0.01; done'"
    )
    call(
        workspace,
        "shell",
        command=f"{background} >/dev/null 2>&1 & while [ ! -s ready ]; do sleep 0.01; done",
    )
    assert written(workspace.folder / "cleaned")


@needs_proc
@pytest.mark.parametrize("keeper", ["sleep 20", "yes"])
def test_one_that_left_the_group_with_the_output_open_is_not_waited_for(
    workspace: Workspace, keeper: str
) -> None:
    began = time.monotonic()
    command = (
        f"setsid sh -c 'echo $$ > pids; exec {keeper}' & while [ ! -s pids ]; do sleep 0.01; done"
    )
    outcome = call(workspace, "shell", command=command)
    pid = numbers_in(workspace.folder / "pids", 1)[0]
    if keeper != "yes":  # That one ends at its next word.
        os.kill(pid, 9)
    assert comes_true(lambda: not alive(pid))
    assert time.monotonic() - began < 3
    assert said(outcome).endswith(
        "[the output ends here, though a process that left the group still has it open]"
    )


def test_the_last_words_are_bounded_and_hold_nobody_up() -> None:
    async def run() -> tuple[int, int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        endless = os.open("/dev/zero", os.O_RDONLY)
        running = asyncio.create_task(others())
        try:
            pump = Pump(endless, Pieces(), 10, 10)
            pump.finish()
            await asyncio.wait_for(pump.drain(), 5)
        finally:
            running.cancel()
            os.close(endless)
        assert (pump.said, pump.at_end) == ("\0" * 10, False)
        return pump.dropped, turns

    dropped, turns = asyncio.run(run())
    assert dropped == 1024 * 1024 - 10
    assert turns > 10


def test_setsid_leaves_a_process_running(workspace: Workspace) -> None:
    command = (
        "setsid sh -c 'echo $$ > pids; sleep 0.3; touch after' >/dev/null 2>&1 & while [ ! -s "
        "pids ]; do :; done"
    )
    assert call(workspace, "shell", command=command) == Returned()
    assert comes_true((workspace.folder / "after").exists)


# --- between prepare and run ----------------------------------------------------------------------


def test_nothing_runs_before_run(workspace: Workspace) -> None:
    async def run() -> None:
        prepared = await prepare(workspace, "touch ran")
        assert prepared.group is not None
        assert os.getpgid(prepared.group) == prepared.group != os.getpgrp()
        assert os.getsid(prepared.group) == prepared.group
        await asyncio.sleep(0.2)
        assert not (workspace.folder / "ran").exists()
        assert await prepared.run(Pieces()) == Returned()
        assert (workspace.folder / "ran").exists()

    asyncio.run(run())


@needs_proc
def test_killed_between_prepare_and_run_the_command_never_runs(workspace: Workspace) -> None:
    """Also while another command of the same process goes on: it must not hold the gate open."""
    run_and_kill(
        """
async def main():
    before = await prepared("touch ran")
    running = await prepared("echo $$ > other; exec sleep 60 > /dev/null 2>&1")
    after = await prepared("touch ran")
    task = asyncio.create_task(running.run(ignore))
    while not (folder / "other").exists() or not (folder / "other").read_text():
        await asyncio.sleep(0.01)
    (folder / "waiting").write_text(f"{before.group} {after.group}")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
""",
        workspace.folder,
        ready=lambda: False,
    )
    waiting = numbers_in(workspace.folder / "waiting", 2)
    (other,) = numbers_in(workspace.folder / "other", 1)
    try:
        assert comes_true(lambda: not any(alive(pid) for pid in waiting), 2)
        assert alive(other)
        assert not (workspace.folder / "ran").exists()
    finally:
        os.kill(other, 9)


def test_a_gate_that_was_ended_from_outside_is_told(workspace: Workspace) -> None:
    async def run() -> object:
        prepared = await prepare(workspace, "touch ran")
        assert prepared.group is not None
        os.kill(prepared.group, 9)
        await asyncio.sleep(0.05)
        return await prepared.run(Pieces())

    assert asyncio.run(run()) == Failed((Text("[ended by signal 9 (SIGKILL)]"),))


# --- environment and arguments --------------------------------------------------------------------


def test_secrets_do_not_reach_the_command(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = [
        *(
            "MY_API_KEY",
            "GITHUB_TOKEN",
            "CLIENT_SECRET",
            "PGPASSWORD",
            "AWS_PROFILE",
            "OPENAI_ORG",
            "ANTHROPIC_BASE_URL",
        ),
        *(
            "api_key",
            "APIKEY",
            "SECRETS",
            "SIGNING_KEY_FILE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "MYSQL_PWD",
            "GITLAB_PAT",
        ),
    ]
    plain = [
        "HOME",
        "LANG",
        "KEYBOARD",
        "TOKENIZERS_PARALLELISM",
        "MY_SETTING",
        "SSH_AUTH_SOCK",
        "PWD",
    ]
    for name in [*secret, *plain]:
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("TERM", "xterm")
    found = dict(
        line.split("=", 1) for line in said(call(workspace, "shell", command="env")).splitlines()
    )
    assert not [name for name in secret if name in found]
    assert [name for name in plain if name not in found] == []
    assert (found["TERM"], found["PATH"]) == ("dumb", os.environ["PATH"])
    assert sorted(set(Scrub().clean(dict.fromkeys([*secret, *plain], "")))) == sorted(plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "the arguments cannot be used"),
        ("{", "the arguments cannot be used"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `command`"),
        ('{"command":1}', r"Expected `str`, got `int` - at `\$.command`"),
        ('{"command":"true","cmd":1}', "unknown field `cmd`"),
        ('{"command":"true","timeout_s":0}', r"> 0.0 - at `\$.timeout_s`"),
        ('{"command":"true","timeout_s":"5"}', r"at `\$.timeout_s`"),
        ('{"command":"true","timeout_s":121}', "`timeout_s` can be at most 120"),
        ('{"command":"a\\u0000b"}', "`command` contains a NUL"),
        ('{"command":"\\ud800"}', "the arguments cannot be used"),
        ('{"command":"\ud800"}', "the arguments cannot be used"),
        (json.dumps({"command": "x" * 200_000}), "`command` is longer than"),
        ("[" * 100_000, "the arguments cannot be used"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(
    workspace: Workspace, arguments: str, message: str
) -> None:
    with pytest.raises(BadArguments, match=message):
        asyncio.run(builtin(workspace)["shell"].prepare(arguments))


def test_the_longest_command_runs(workspace: Workspace) -> None:
    command = "true ".ljust(128 * 1024 - 1, "x")
    assert call(workspace, "shell", command=command) == Returned()


def test_a_workspace_that_is_gone_is_told(workspace: Workspace) -> None:
    workspace.folder.rmdir()
    with pytest.raises(BadArguments, match="the shell cannot be started"):
        asyncio.run(prepare(workspace, "true"))
