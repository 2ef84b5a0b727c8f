"""The file tools, on a real disk."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from steno.journal.parts import Failed, Interrupted, Returned, Text
from steno.tools.builtin import builtin
from steno.tools.files import handles as files
from steno.tools.protocol import BadArguments, Workspace
from steno.tools.sandbox import Sandbox
from tests.tools.calls import Pieces, call, said

SECRET = "not for the model\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


def arguments_for(tool: str, path: str) -> dict[str, object]:
    rest: dict[str, dict[str, object]] = {
        "read_file": {},
        "write_file": {"content": "overwritten"},
        "edit_file": {"old": "not", "new": "yes"},
    }
    return {"path": path, **rest[tool]}


every_tool = pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file"])


# --- inside the workspace only --------------------------------------------------------------------


@every_tool
@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "sub/../../outside/secret",
        "./sub/./../../outside/secret",
        "missing/../../outside/secret",
        "{outside}/secret",
        "{workspace}/../outside/secret",
        "{workspace}-beside",
        "link",
        "link to link",
        "relative link",
        "folder/secret",
        "folder/../secret",
        "sub/folder/secret",
        "sub/up/../outside/secret",
        "dangling",
        "..",
        "/",
        "../outside/secret/",
    ],
)
def test_no_path_leads_out_of_the_workspace(
    workspace: Workspace, outside: Path, tool: str, path: str
) -> None:
    root = workspace.folder
    (root / "sub").mkdir()
    (root / "link").symlink_to(outside / "secret")
    (root / "link to link").symlink_to("link")
    (root / "relative link").symlink_to("../outside/secret")
    (root / "folder").symlink_to(outside)
    (root / "sub" / "folder").symlink_to("../folder")
    (root / "sub" / "up").symlink_to("..")
    (root / "dangling").symlink_to(outside / "not there")
    Path(f"{root}-beside").write_text(SECRET)
    path = path.format(outside=outside, workspace=root)
    with pytest.raises(BadArguments, match="`path` is outside the workspace"):
        call(workspace, tool, **arguments_for(tool, path))
    assert (outside / "secret").read_text() == SECRET
    assert sorted(entry.name for entry in outside.iterdir()) == ["secret"]


@pytest.mark.promise(60)
@every_tool
@pytest.mark.parametrize(
    "path", [".steno/config.toml", "sub/../.steno/config.toml", "link/config.toml", "file link"]
)
def test_the_folder_of_steno_is_not_touched_also_in_the_workspace(
    workspace: Workspace, tool: str, path: str
) -> None:
    home = workspace.folder / ".steno"
    (workspace.folder / "sub").mkdir()
    home.mkdir()
    (home / "config.toml").write_text(SECRET)
    (workspace.folder / "link").symlink_to(".steno")
    (workspace.folder / "file link").symlink_to(".steno/config.toml")
    outcome = call(
        replace(workspace, sandbox=Sandbox(hidden=(home,))), tool, **arguments_for(tool, path)
    )
    assert isinstance(outcome, Failed)
    assert "the folder of steno itself" in said(outcome)
    assert {entry.name: entry.read_text() for entry in home.iterdir()} == {"config.toml": SECRET}


def test_a_workspace_in_the_folder_of_steno_can_be_used(workspace: Workspace) -> None:
    inside = replace(workspace, sandbox=Sandbox(hidden=(workspace.folder.parent,)))
    assert isinstance(call(inside, "write_file", path="a", content="text"), Returned)
    assert said(call(inside, "read_file", path="a")) == "text"


@every_tool
@pytest.mark.parametrize("path", ["", ".", "sub/..", "{workspace}"])
def test_the_workspace_itself_is_no_file(workspace: Workspace, tool: str, path: str) -> None:
    (workspace.folder / "sub").mkdir()
    with pytest.raises(BadArguments, match="the workspace folder itself"):
        call(workspace, tool, **arguments_for(tool, path.format(workspace=workspace.folder)))


def swap_file(root: Path, outside: Path) -> None:
    (root / "sub" / "secret").unlink()
    (root / "sub" / "secret").symlink_to(outside / "secret")


def swap_folder(root: Path, outside: Path) -> None:
    (root / "sub").rename(root / "moved")
    (root / "sub").symlink_to(outside)


@every_tool
@pytest.mark.parametrize("swap", [swap_file, swap_folder])
@pytest.mark.parametrize("moment", ["before run", "after the check"])
def test_a_symlink_swapped_in_is_not_followed(
    workspace: Workspace,
    outside: Path,
    tool: str,
    swap: Callable[[Path, Path], None],
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (workspace.folder / "sub").mkdir()
    (workspace.folder / "sub" / "secret").write_text("not secret")
    locate = files.locate

    def swapping(folder: Path, path: str) -> tuple[Path, tuple[str, ...]]:
        found = locate(folder, path)
        swap(workspace.folder, outside)
        return found

    async def run() -> object:
        prepared = await builtin(workspace)[tool].prepare(
            json.dumps(arguments_for(tool, "sub/secret"))
        )
        if moment == "before run":
            swap(workspace.folder, outside)
        else:
            monkeypatch.setattr(files, "locate", swapping)
        return await prepared.run(Pieces())

    outcome = asyncio.run(run())
    assert isinstance(outcome, Failed)
    assert SECRET.strip() not in said(outcome)
    assert (outside / "secret").read_text() == SECRET
    assert sorted(entry.name for entry in outside.iterdir()) == ["secret"]


def test_links_inside_the_workspace_are_followed(workspace: Workspace) -> None:
    (workspace.folder / "real").mkdir()
    (workspace.folder / "alias").symlink_to("real")
    (workspace.folder / "real" / "file").write_text("one")
    (workspace.folder / "link").symlink_to("alias/file")
    assert said(call(workspace, "read_file", path="link")) == "one"
    assert (
        said(call(workspace, "read_file", path=str(workspace.folder / "alias" / "file"))) == "one"
    )
    call(workspace, "write_file", path="link", content="two")
    assert (workspace.folder / "link").is_symlink()
    assert (workspace.folder / "real" / "file").read_text() == "two"


def test_the_workspace_may_itself_be_a_symlink(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(workspace.folder)
    assert isinstance(
        call(Workspace(tmp_path / "alias"), "write_file", path="file", content="x"), Returned
    )
    assert (workspace.folder / "file").read_text() == "x"


@every_tool
def test_only_regular_files_are_touched(workspace: Workspace, tool: str) -> None:
    os.mkfifo(workspace.folder / "pipe")
    (workspace.folder / "sub").mkdir()
    (workspace.folder / "loop").symlink_to("loop")
    (workspace.folder / "file").write_text("x")
    for path in ["pipe", "sub", "loop", "file/below", "n" * 300]:
        outcome = call(workspace, tool, **arguments_for(tool, path))
        assert isinstance(outcome, Failed), path
    assert (workspace.folder / "pipe").is_fifo()


# --- read_file ------------------------------------------------------------------------------------


def lines(first: int, last: int) -> str:
    return "".join(f"line {n}\n" for n in range(first, last + 1))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({}, lines(1, 10)),
        ({"limit": 10}, lines(1, 10)),
        ({"limit": 3}, lines(1, 3) + "[lines 1 to 3 of 10; go on with offset 4]"),
        ({"offset": 4, "limit": 2}, lines(4, 5) + "[lines 4 to 5 of 10; go on with offset 6]"),
        ({"offset": 9, "limit": 5}, lines(9, 10) + "[lines 9 to 10 of 10]"),
    ],
)
def test_lines_are_read_as_asked(workspace: Workspace, asked: dict[str, object], text: str) -> None:
    (workspace.folder / "file").write_text(lines(1, 10))
    assert call(workspace, "read_file", path="file", **asked) == Returned((Text(text),))


def test_reading_on_from_where_it_says_gives_the_whole_file(workspace: Workspace) -> None:
    small = replace(workspace, output_chars_max=20)
    (workspace.folder / "file").write_text(lines(1, 7))
    text = said(call(small, "read_file", path="file"))
    assert text == lines(1, 2) + "[lines 1 to 2 of 7; go on with offset 3]"
    text = said(call(small, "read_file", path="file", offset=7))
    assert text == lines(7, 7) + "[lines 7 to 7 of 7]"


def test_text_is_shown_exactly(workspace: Workspace) -> None:
    text = "\N{ZERO WIDTH NO-BREAK SPACE}a\r\nb\rc\x0cd\u2028e\n\n no newline at the end"
    (workspace.folder / "file").write_bytes(text.encode())
    assert said(call(workspace, "read_file", path="file")) == text
    assert said(call(workspace, "read_file", path="file", offset=2, limit=1)).startswith(
        "b\rc\x0cd\u2028e\n[lines 2 "
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "[the file is empty]"),
        (b"caf\xe9\n", "caf\ufffd\n[bytes of the file that are not UTF-8 are shown as \ufffd]"),
        (b"x" * 50, "x" * 20 + "\n[line 1 of 1 has 50 characters; the first 20 are shown]"),
    ],
)
def test_what_is_not_plain_is_said(workspace: Workspace, content: bytes, text: str) -> None:
    (workspace.folder / "file").write_bytes(content)
    assert call(replace(workspace, output_chars_max=20), "read_file", path="file") == Returned(
        (Text(text),)
    )


@pytest.mark.parametrize(
    ("content", "asked", "message"),
    [
        (b"\x7fELF\0", {}, "file is not a text file: it contains NUL bytes"),
        (b"x" * (files.FILE_BYTES_MAX + 1), {}, "file has more than 10485760 bytes"),
        (b"a\nb", {"offset": 3}, "`offset` is 3, but the file has 2 lines"),
        (None, {}, "file: No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_refused(
    workspace: Workspace, content: bytes | None, asked: dict[str, object], message: str
) -> None:
    if content is not None:
        (workspace.folder / "file").write_bytes(content)
    outcome = call(workspace, "read_file", path="file", **asked)
    assert isinstance(outcome, Failed)
    assert said(outcome).startswith(message)


# --- write_file -----------------------------------------------------------------------------------


def test_a_file_is_written_exactly(workspace: Workspace) -> None:
    text = "a\r\nb\n\N{GRINNING FACE}\0"
    assert (
        said(call(workspace, "write_file", path="new/deep/file", content=text))
        == "made new/deep/file: 10 bytes"
    )
    assert (workspace.folder / "new" / "deep" / "file").read_bytes() == text.encode()
    assert (
        said(call(workspace, "write_file", path="new/deep/file", content=""))
        == "replaced new/deep/file: 0 bytes"
    )
    assert (workspace.folder / "new" / "deep" / "file").read_bytes() == b""


def test_a_file_keeps_its_mode_and_a_fresh_one_obeys_the_umask(workspace: Workspace) -> None:
    script = workspace.folder / "script"
    script.write_text("old")
    script.chmod(0o750)
    call(workspace, "write_file", path="script", content="new")
    assert script.stat().st_mode & 0o7777 == 0o750
    before = os.umask(0o027)
    try:
        call(workspace, "write_file", path="fresh", content="new")
    finally:
        os.umask(before)
    assert (workspace.folder / "fresh").stat().st_mode & 0o7777 == 0o640


def test_a_reader_sees_the_old_file_or_the_new_one(workspace: Workspace) -> None:
    contents = ["a" * 300_000, "b" * 300_000]
    (workspace.folder / "file").write_text(contents[0])
    seen: set[str] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add((workspace.folder / "file").read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(100):
        call(workspace, "write_file", path="file", content=contents[n % 2])
    over.set()
    reader.join()
    assert seen <= set(contents)
    assert [entry.name for entry in workspace.folder.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.folder / "file").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert call(workspace, "write_file", path="file", content="new") == Failed(
        (Text("file: No space left on device"),)
    )
    monkeypatch.undo()
    assert (workspace.folder / "file").read_text() == "old"
    assert [entry.name for entry in workspace.folder.iterdir()] == ["file"]


def test_stop_before_run_writes_nothing(workspace: Workspace) -> None:
    async def run() -> object:
        prepared = await builtin(workspace)["write_file"].prepare('{"path":"file","content":"x"}')
        assert prepared.group is None
        assert list(workspace.folder.iterdir()) == []
        await prepared.stop()
        return await prepared.run(Pieces())

    assert asyncio.run(run()) == Interrupted()
    assert list(workspace.folder.iterdir()) == []


# --- edit_file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "every", "after"),
    [
        (b"one two three", "two", "2", False, b"one 2 three"),
        (b"one two three", " two", "", False, b"one three"),
        (b"a a a", "a", "aa", True, b"aa aa aa"),
        (b"a\r\nb\r\n", "a\r\n", "x\r\n", False, b"x\r\nb\r\n"),
        (b"caf\xe9 = 1", "= 1", "= 2", False, b"caf\xe9 = 2"),
        ("é è".encode(), "è", "\\1\n", False, "é \\1\n".encode()),
    ],
)
def test_an_edit_changes_that_text_and_no_other_byte(
    workspace: Workspace, before: bytes, old: str, new: str, every: bool, after: bytes
) -> None:
    (workspace.folder / "file").write_bytes(before)
    outcome = call(workspace, "edit_file", path="file", old=old, new=new, all=every)
    assert isinstance(outcome, Returned)
    assert (workspace.folder / "file").read_bytes() == after


@pytest.mark.parametrize(
    ("before", "old", "message"),
    [
        (b"one two", "three", "`old` does not occur in file. Nothing was changed."),
        (b"one two", "One", "`old` does not occur in file."),
        (b"one one", "one", "`old` occurs more than once in file;"),
        (b"aaa", "aa", "`old` occurs more than once in file;"),
        (b"a\r\nb\r\n", "a\nb", "`old` does not occur in file; its lines end in CR LF."),
        (b"a\0b", "a", "file is not a text file"),
        (None, "a", "file: No such file or directory"),
    ],
)
def test_an_edit_that_is_not_clear_changes_nothing(
    workspace: Workspace, before: bytes | None, old: str, message: str
) -> None:
    file = workspace.folder / "file"
    if before is not None:
        file.write_bytes(before)
    outcome = call(workspace, "edit_file", path="file", old=old, new="x")
    assert isinstance(outcome, Failed)
    assert said(outcome).startswith(message)
    assert (file.read_bytes() if file.exists() else None) == before


# --- arguments and specs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("read_file", "{}", "missing required field `path`"),
        ("read_file", '{"path":"a","offset":0}', r">= 1 - at `\$.offset`"),
        ("read_file", '{"path":"a","limit":1.5}', r"at `\$.limit`"),
        ("read_file", '{"path":"a\\u0000b"}', "`path` contains a NUL"),
        ("write_file", '{"path":"a"}', "missing required field `content`"),
        ("write_file", '{"path":"a","content":null}', r"at `\$.content`"),
        ("edit_file", '{"path":"a","old":"","new":"b"}', r"length >= 1 - at `\$.old`"),
        ("edit_file", '{"path":"a","old":"a","new":"b","all":"yes"}', r"at `\$.all`"),
        ("edit_file", '{"path":"a","old":"a","new":"b","more":1}', "unknown field `more`"),
        ("edit_file", '{"path":"a","old":"a","new":"a"}', "`old` and `new` are the same"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(
    workspace: Workspace, tool: str, arguments: str, message: str
) -> None:
    with pytest.raises(BadArguments, match=message):
        asyncio.run(builtin(workspace)[tool].prepare(arguments))
