"""Changes of files as they stand at the gate, read as codex reads them."""

import json

import pytest
from msgspec import Raw

from steno.engine.approval import edits_in
from steno.runtimes.codex.items import Change, ChangeKind, FileChange
from steno.runtimes.codex.policy import as_changes, is_patch, may_be_patch
from steno.runtimes.codex.protocol import WaitingCall
from steno.runtimes.codex.translate import call_of, same_call

ADD = "*** Begin Patch\n*** Add File: new\n+one\n+*** Add File: none\n*** End Patch"
ALL = """\
*** Begin Patch
*** Add File: a
+one
 *** Delete File: sub/../b
*** Update File: /c
*** Move to: d
@@
-old
 *** Add File: none
+new
*** End Patch
"""


def tool(patch: str) -> WaitingCall:
    return WaitingCall(
        "1", "t", "apply_patch", Raw(json.dumps({"command": patch}).encode()), "/folder"
    )


def command(text: str) -> WaitingCall:
    return WaitingCall("1", "t", "Bash", Raw(json.dumps({"command": text}).encode()), "/folder")


def given(patch: str, before: str = "", opens: str = "<<'END'", after: str = "\nEND\n") -> str:
    return f"{before}apply_patch {opens}\n{patch}{after}"


def read(held: WaitingCall, within: str | None = None) -> list[tuple[str, str, str]] | None:
    call = as_changes(held, within)
    changes = None if call is None else json.loads(call.arguments)["changes"]
    return changes and [(one["kind"], one["path"], one["diff"]) for one in changes]


def test_each_file_of_a_patch_is_a_change() -> None:
    assert read(tool(ADD)) == [("add", "/folder/new", "one\n*** Add File: none\n")]
    assert read(tool(ALL)) == [
        ("add", "/folder/a", "one\n"),
        ("delete", "/folder/b", ""),
        ("move", "/folder/d", ""),
        ("update", "/c", "@@\n-old\n *** Add File: none\n+new\n"),
    ]


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "words",
        ADD.replace("*** End Patch", ""),
        "*** Begin Patch\n*** End Patch",
        ADD.replace("new", "new\x1c"),
        ALL.replace("Move to: d", "Move to: d\x1f"),
    ],
)
def test_what_is_no_patch_is_not_read(patch: str) -> None:
    assert read(tool(patch)) is None
    assert is_patch(tool(patch)), "codex may still take it for one"


@pytest.mark.parametrize(
    ("text", "within", "path"),
    [
        (given(ADD), "", "/folder/new"),
        (given(ADD), "sub", "/folder/sub/new"),
        (given(ADD), "/else", "/else/new"),
        (given(ADD, "cd sub && "), "x", "/folder/x/sub/new"),
        (given(ADD, "cd 'a b' && ", '<<"END"'), "", "/folder/a b/new"),
        (given(ADD, opens="<<END", after="\nEND"), "", "/folder/new"),
        (given(ADD, "cd a@b && ", "<<'END' "), "", "/folder/a@b/new"),
    ],
)
def test_a_command_changes_files_where_it_runs(text: str, within: str, path: str) -> None:
    assert [one[1] for one in read(command(text), within) or ()] == [path]
    assert is_patch(command(text))
    assert read(command(text), None) is None, "nobody knows where"


@pytest.mark.parametrize(
    "text",
    [
        given(ADD, "touch x; "),
        given(ADD, after="\nEND\ntouch x\n"),
        given(ADD, after="\nEND\ntouch x\nEND\n"),
        given(ADD, after="\n"),
        "ls",
    ],
)
def test_a_command_that_does_more_is_no_patch(text: str) -> None:
    assert not is_patch(command(text))
    assert read(command(text), "") is None


@pytest.mark.parametrize(
    "text",
    [
        given(ADD, "X=1 "),
        given(ADD, "cd a\\ b && "),
        given(ADD, "cd a && \\\n"),
        given(ADD, opens="\\\n<<'END'"),
        given(ADD, opens="<<-'END'"),
        given(ADD, opens="<<'END-IT'", after="\nEND-IT\n"),
        given(ADD.replace("\n", "\r\n"), opens="<<'END'\r", after="\r\nEND\r\n"),
        given(ADD.replace("one", "$(touch x)"), opens="<<END"),
        given(ALL.replace("@@", "@@\n END of it")),
        given(f"<<EOF\n{ADD}\nEOF"),
        given(ADD.replace("*** Add", "*** Environment ID: local\n*** Add", 1)),
    ],
)
def test_a_command_that_codex_may_take_for_a_patch_and_that_is_not_plain_is_known_for_that(
    text: str,
) -> None:
    assert may_be_patch(command(text))
    assert not is_patch(command(text))
    assert read(command(text), "") is None


@pytest.mark.parametrize(
    "text", ["ls", "rg 'apply_patch <<'", "cd a && rg 'apply_patch <<' b", "apply_patch x"]
)
def test_a_command_that_only_speaks_of_patches_is_none(text: str) -> None:
    assert not may_be_patch(command(text))


def test_what_codex_tells_of_a_patch_is_the_same_call_if_it_is_about_the_same_files() -> None:
    held = as_changes(tool(ALL), None)
    assert held is not None
    changes = [
        Change("/c", ChangeKind("update", "/folder/d"), "@@ -1 +1 @@\n-old\n+new\n"),
        Change("/folder/b", ChangeKind("delete"), "b"),
        Change("/folder/a", ChangeKind("add"), "one\n"),
    ]
    assert same_call(held, call_of(FileChange("1", tuple(changes), "inProgress")))
    assert not same_call(held, call_of(FileChange("1", tuple(changes[1:]), "inProgress")))
    assert [json.loads(edit)["path"] for _, edit in edits_in(held.name, held.arguments)] == [
        "/folder/a",
        "/folder/b",
        "/folder/d",
        "/c",
    ]
