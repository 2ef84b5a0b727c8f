"""What is built installs into an empty environment and runs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def done(*words: str, **more: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout  # type: ignore[call-overload,no-any-return]


@pytest.mark.torture
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_built_installs_into_an_empty_environment_and_runs(
    tmp_path: Path, kind: str
) -> None:
    source: Path = ROOT
    if kind == "sdist":
        done(sys.executable, "-m", "venv", str(tmp_path / "tools"))
        tools = tmp_path / "tools" / "bin" / "python"
        done(str(tools), "-m", "pip", "install", "-q", "hatchling", "build")
        done(str(tools), "-m", "build", "-s", "-n", "-o", str(tmp_path / "dist"), str(ROOT))
        (source,) = (tmp_path / "dist").glob("steno_agent-*.tar.gz")
    done(sys.executable, "-m", "venv", str(tmp_path / "empty"))
    python = str(tmp_path / "empty" / "bin" / "python")
    done(python, "-m", "pip", "install", "-q", str(source))
    steno = str(tmp_path / "empty" / "bin" / "steno")
    environment = {"STENO_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [steno, "run", "hello", "--model", "scripted:echo"],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert "hello" in ran.stdout
    listed = subprocess.run(
        [steno, "models"], check=True, capture_output=True, env=environment, cwd=tmp_path
    )
    assert listed.returncode == 0, "the table of models is part of what is installed"
