"""A file is there whole, for its owner alone, or not at all."""

import os
from pathlib import Path

import pytest

from steno.transfer import FileExists
from steno.transfer.export import written_whole


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    to = tmp_path / "out"
    with written_whole(to, overwrite=False) as file:
        file.write(b"all of it")
        assert not to.exists()
    assert (to.read_bytes(), to.stat().st_mode & 0o777) == (b"all of it", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_breaks_off_leaves_what_was_there(tmp_path: Path, overwrite: bool) -> None:
    to = tmp_path / "out"
    if overwrite:
        to.write_bytes(b"mine")
    with pytest.raises(ZeroDivisionError), written_whole(to, overwrite) as file:
        file.write(b"half of it")
        raise ZeroDivisionError
    assert [one.read_bytes() for one in tmp_path.iterdir()] == ([b"mine"] if overwrite else [])


def test_a_name_that_is_taken_meanwhile_stays_with_who_took_it(tmp_path: Path) -> None:
    to = tmp_path / "out"
    with pytest.raises(FileExists), written_whole(to, overwrite=False) as file:
        file.write(b"all of it")
        to.write_bytes(b"mine")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"mine"]


def test_where_there_are_no_hard_links_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    with written_whole(tmp_path / "out", overwrite=False) as file:
        file.write(b"all of it")
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_only_a_file_is_written_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(FileExists), written_whole(tmp_path / name, overwrite=True):
            pass
