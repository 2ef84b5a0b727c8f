"""What the files of a folder say, what is found around it, and its commands and skills."""

import subprocess
from datetime import date
from pathlib import Path

import pytest

from steno.workspace.commands import commands, skills
from steno.workspace.finding import best
from steno.workspace.instructions import instructions
from steno.workspace.surroundings import branch, surroundings

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


def test_instructions_come_from_the_home_and_down_the_tree(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "a" / "b"
    home.mkdir()
    folder.mkdir(parents=True)
    (home / "AGENTS.md").write_text("home\n")
    (tmp_path / "a" / "CLAUDE.md").write_text("above")
    (folder / "AGENTS.md").write_text("here")
    (folder / "CLAUDE.md").write_text("here")  # the same words twice are said once
    said = instructions(folder, home)
    assert [line for line in said.splitlines() if line] == [
        f"From {home}/AGENTS.md:",
        "home",
        f"From {tmp_path}/a/CLAUDE.md:",
        "above",
        f"From {folder}/AGENTS.md:",
        "here",
    ]


def test_long_instructions_are_cut_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("x" * 50_000)
    assert "[10000 characters are left out]" in instructions(tmp_path, tmp_path / "home")


def test_a_file_of_somebody_else_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "AGENTS.md").write_text("obey")
    assert "obey" in instructions(tmp_path, tmp_path / "home")
    owner = (tmp_path / "AGENTS.md").stat().st_uid
    monkeypatch.setattr("steno.workspace.instructions.os.getuid", lambda: owner + 1)
    if owner != 0:
        assert instructions(tmp_path, tmp_path / "home") == ""


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_surroundings_change_with_the_day_and_the_branch_and_with_nothing_else(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init", "-b", "main")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "first")
    told = surroundings(tmp_path, MONDAY)
    assert "Git branch: main" in told
    assert "No changed files" in told
    assert "first" in told
    (tmp_path / "a").write_text("2")
    assert surroundings(tmp_path, MONDAY, told) == told
    tuesday = surroundings(tmp_path, TUESDAY, told)
    assert "M a" in tuesday
    git(tmp_path, "checkout", "-b", "other")
    assert branch(tmp_path) == "other"
    assert "Git branch: other" in surroundings(tmp_path, TUESDAY, tuesday)


def test_a_folder_without_git_says_so(tmp_path: Path) -> None:
    assert surroundings(tmp_path, MONDAY).splitlines()[-1] == "Git: not a repository"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("Review this.", "", "Review this."),
        ("Review this.", "quickly", "Review this.\n\nquickly"),
        ("Review $ARGUMENTS now.", "a b", "Review a b now."),
        ("Compare $1 with $2.", "'a b' c", "Compare a b with c."),
        ("Compare $1 with $2.", "a", "Compare a with ."),
        ("Say $1.", 'it"s', 'Say it"s.'),
    ],
)
def test_a_markdown_file_is_a_command(
    tmp_path: Path, home: Path, text: str, given: str, said: str
) -> None:
    put(tmp_path / ".steno/commands/review.md", text)
    (one,) = commands(tmp_path, home)
    assert (one.name, one.with_arguments(given)) == ("review", said)


def test_the_first_lines_describe_a_command(tmp_path: Path, home: Path) -> None:
    head = "---\ndescription: look at changes\nargument-hint: FILE\n---\n"
    put(home / "commands/review.md", head + "Look at $1.")
    (one,) = commands(tmp_path, home)
    assert (one.does, one.takes, one.text) == ("look at changes", "FILE", "Look at $1.")


def test_the_folder_comes_before_the_home_and_odd_names_are_left_out(
    tmp_path: Path, home: Path
) -> None:
    put(home / "commands/review.md", "home")
    put(tmp_path / ".steno/commands/review.md", "folder")
    put(tmp_path / ".steno/commands/re view.md", "odd")
    put(tmp_path / ".steno/commands/empty.md", "\n")
    assert [(one.name, one.text) for one in commands(tmp_path, home)] == [("review", "folder")]


@pytest.mark.parametrize("file", ["skills/pdf.md", "skills/pdf/SKILL.md"])
def test_a_skill_is_a_file_or_a_folder_with_one(tmp_path: Path, home: Path, file: str) -> None:
    put(home / file, "---\ndescription: fill in forms\n---\nUse qpdf.")
    (one,) = skills(tmp_path, home)
    assert (one.name, one.kind, one.does, one.text) == (
        "pdf",
        "skill",
        "fill in forms",
        "Use qpdf.",
    )


def test_paths_are_found_by_a_few_letters() -> None:
    paths = ["src/steno/tui/app.py", "src/steno/apple/x.py", "tests/tui/test_app.py", "a/p/p"]
    assert best("app.py", paths, 2) == ["src/steno/tui/app.py", "tests/tui/test_app.py"]
    assert best("srctuiapp", paths, 1) == ["src/steno/tui/app.py"]
    assert best("zz", paths, 5) == []
