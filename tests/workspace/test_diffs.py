"""How two versions of a file differ."""

from hypothesis import given
from hypothesis import strategies as st

from steno.workspace.diffs import diff

OLD = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


def test_a_change_has_context_numbers_and_marked_words() -> None:
    found = diff("a.py", OLD, OLD.replace(b"five", b"fife and"))
    (hunk,) = found.hunks
    assert [(line.sign, line.old, line.new, line.text) for line in hunk.lines] == [
        (" ", 2, 2, "two"),
        (" ", 3, 3, "three"),
        (" ", 4, 4, "four"),
        ("-", 5, None, "five"),
        ("+", None, 5, "fife and"),
        (" ", 6, 6, "six"),
        (" ", 7, 7, "seven"),
        (" ", 8, 8, "eight"),
    ]
    assert (found.kind, found.added, found.removed) == ("changed", 1, 1)


def test_the_words_that_differ_are_marked() -> None:
    found = diff("a", b"return total + one\n", b"return total - one\n")
    gone, come = found.hunks[0].lines
    assert [gone.text[a:b] for a, b in gone.marked] == ["+"]
    assert [come.text[a:b] for a, b in come.marked] == ["-"]


def test_changes_far_apart_are_hunks_of_their_own() -> None:
    text = "".join(f"{n}\n" for n in range(40)).encode()
    found = diff("a", text, text.replace(b"\n3\n", b"\nthree\n").replace(b"\n30\n", b"\n!\n"))
    assert [hunk.head() for hunk in found.hunks] == ["@@ -1,7 +1,7 @@", "@@ -28,7 +28,7 @@"]


def test_a_file_that_is_made_or_goes_says_so() -> None:
    assert diff("a", None, b"x\n").kind == "made"
    assert diff("a", b"x\n", None).kind == "removed"
    assert list(diff("a", None, b"x\n").unified()) == [
        "--- /dev/null",
        "+++ b/a",
        "@@ -0,0 +1 @@",
        "+x",
    ]


def test_bytes_that_are_no_text_are_not_shown() -> None:
    assert diff("a", b"\0", b"x").binary


lines = st.lists(st.sampled_from(["a", "b", "c", "", "a b", "b a"]), max_size=12)


@given(lines, lines)
def test_a_diff_turns_one_version_into_the_other(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in some).encode() for some in (old, new))
    left, done = list(old), []
    at = 0
    for hunk in diff("a", before, after).hunks:
        for line in hunk.lines:
            if line.old is not None:
                done += left[at : line.old - 1]
                at = line.old
                assert left[at - 1] == line.text
            if line.new is not None:
                done.append(line.text)
                assert len(done) == line.new
    assert done + left[at:] == new
