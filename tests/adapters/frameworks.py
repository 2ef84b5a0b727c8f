"""python -m tests.adapters.frameworks [NAME...]: the frameworks' own tests, at pinned releases,
with steno in the place of their stores. Each has an environment of its own, `.venv/adapters-NAME`;
their tests come out of the source distributions."""

import os
import re
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent
SUMMARY = re.compile(r"(\d+) (passed|failed|error)")


class Suite(NamedTuple):
    name: str
    installs: tuple[str, ...]
    sdist: str = ""
    plugin: str = ""
    swap: str = ""
    tests: tuple[str, ...] = ()
    only: str = ""
    holds: str = ""
    """The files that have this text."""


TOOLS = ("pytest", "pytest-asyncio", "pytest-xdist", "pytest-mock", "pytest-timeout")
OPENAI = ("openai-agents==0.24.0", "inline-snapshot", "aiosqlite", "sqlalchemy", "cryptography",
          "fastapi", "websockets", "dirty-equals", "graphviz", "numpy", "httpx",
          "greenlet")  # fmt: skip
LANGGRAPH = ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2",
             "langgraph-checkpoint-postgres", "psycopg[binary]", "redis", "syrupy", "httpx",
             "pytest-repeat", "pytest-dotenv", "pytest-cov", "pycryptodome")  # fmt: skip
SUITES = (
    Suite("langgraph", LANGGRAPH, "langgraph==1.2.22", "swap_langgraph", only="sqlite"),
    Suite("claude", ("claude-agent-sdk==0.2.183", "trio"), "claude-agent-sdk==0.2.183",
          "swap_claude_agent", holds="InMemorySessionStore"),
    Suite("openai", OPENAI, "openai-agents==0.24.0", "swap_openai_agents", "double",
          holds="SimpleListSession"),
    Suite("openai", OPENAI, "openai-agents==0.24.0", "swap_openai_agents", "sqlite",
          holds="SQLiteSession("),
    Suite("adk", ("google-adk==2.13.0",), tests=("tests/adapters/adk_contract.py",)),
)  # fmt: skip


def main(names: list[str]) -> int:
    rows: list[str] = []
    for suite in SUITES:
        if not names or suite.name in names:
            rows += run(suite)
    print("\n".join(["", *rows]))
    return 0


def run(suite: Suite) -> list[str]:
    """The line of a suite, and its failures."""
    python = installed(suite)
    folder = source(suite, python) if suite.sdist else ROOT
    files = list(suite.tests) or [
        str(file.relative_to(folder))
        for file in sorted(folder.glob("tests/**/test_*.py"))
        if suite.holds in file.read_text()
    ]
    words = [str(python), "-m", "pytest", "-q", "-n", "2", "--timeout", "120", "--tb=no", "-rfE",
             "-p", "no:cacheprovider", *files]  # fmt: skip
    if suite.plugin:
        words += ["-p", suite.plugin]
    else:
        words += ["-c", os.devnull, "--noconftest", "--rootdir", ".", "--import-mode=importlib"]
    if suite.only:
        words += ["-k", suite.only]
    environment = os.environ | {
        "PYTHONPATH": str(PLUGINS), "STENO_SWAP": suite.swap, "NO_DOCKER": "true"
    }  # fmt: skip
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    counts = {what: int(n) for n, what in SUMMARY.findall(lines[-1] if lines else "")}
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    passed, bad = counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
    of = f"{suite.name} {suite.swap}".strip()
    return [f"{of}: {passed} of {passed + bad}", *(f"    {line}" for line in failed)]


def installed(suite: Suite) -> Path:
    place = ROOT / ".venv" / f"adapters-{suite.name}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    words = ["install", "--quiet", "--disable-pip-version-check", "-e", str(ROOT)]
    subprocess.run([python, "-m", "pip", *words, *TOOLS, *suite.installs], check=True)
    return python


def source(suite: Suite, python: Path) -> Path:
    """Their tests, where the source distribution was unpacked."""
    place = ROOT / ".venv" / f"adapters-{suite.name}" / "source"
    if not place.exists():
        words = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(place)]
        subprocess.run([python, "-m", "pip", *words, suite.sdist], check=True)
        [archive] = place.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
    [folder] = (one for one in place.iterdir() if one.is_dir())
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
