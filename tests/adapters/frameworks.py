"""python -m tests.adapters.frameworks [NAME...]: the frameworks' own tests, at pinned releases,
with steno in the place of their stores. Each has an environment of its own, `.venv/adapters-NAME`;
their tests come out of the source distributions."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.adapters.listed import LISTED

ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent
SUITE_S = 3_600
"""A suite that takes longer is ended."""
SUMMARY = re.compile(r"(\d+) (passed|failed|error)")


class Suite(NamedTuple):
    name: str
    installs: tuple[str, ...]
    sdist: str = ""
    plugin: str = ""
    swap: str = ""
    tests: tuple[str, ...] = ()
    only: str = ""
    leaves: tuple[str, ...] = ()
    """Files that fail with the framework's own store as well, where it is not its repository."""
    holds: str = ""
    """The files that have this in their text, as a pattern."""

    @property
    def title(self) -> str:
        return f"{self.name} {self.swap}".strip()


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
          holds="SimpleListSession",
          leaves=("test_error_logging_redaction.py", "test_openai_chatcompletions_stream.py")),
    Suite("openai", OPENAI, "openai-agents==0.24.0", "swap_openai_agents", "sqlite",
          holds=r"\bSQLiteSession\("),
    Suite("adk", ("google-adk==2.13.0",), tests=("tests/adapters/adk_contract.py",)),
    Suite("steps", ("pydantic-ai-harness==0.62.0",), tests=("tests/adapters/steps_contract.py",)),
)  # fmt: skip


def main(names: list[str]) -> int:
    """Tells of each suite when it is over; 1 if a test failed that is not listed."""
    bad = 0
    for suite in SUITES:
        if not names or suite.name in names or suite.title in names:
            bad += run(suite)
    return min(bad, 1)


def run(suite: Suite) -> int:
    """How many failed that are not listed."""
    python = installed(suite)
    folder = source(suite, python) if suite.sdist else ROOT
    log = ROOT / ".venv" / f"adapters-{suite.title.replace(' ', '-')}.log"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(ROOT / "src")]),
        "STENO_SWAP": suite.swap,
        "NO_DOCKER": "true",
    }
    with log.open("w") as written:
        child = subprocess.Popen(
            command(suite, python, folder), cwd=folder, env=environment, stdout=written,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            child.wait(SUITE_S)
        except subprocess.TimeoutExpired:
            written.write(f"\nnot over after {SUITE_S} s\n")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return told(suite, log)


def command(suite: Suite, python: Path, folder: Path) -> list[str]:
    files = list(suite.tests) or [
        str(file.relative_to(folder))
        for file in sorted(folder.glob("tests/**/test_*.py"))
        if re.search(suite.holds, file.read_text()) and file.name not in suite.leaves
    ]
    workers = os.environ.get("WORKERS", "2")
    words = [str(python), "-m", "pytest", "-q", "-n", workers, "--timeout", "60", "--tb=short",
             "-rfE", "-p", "no:cacheprovider", *files]  # fmt: skip
    if suite.plugin:
        words += ["-p", suite.plugin]
    else:
        words += ["-c", os.devnull, "--noconftest", "--rootdir", ".", "--import-mode=importlib"]
    return [*words, "-k", suite.only] if suite.only else words


def told(suite: Suite, log: Path) -> int:
    lines = log.read_text(errors="replace").splitlines()
    counts = {what: int(n) for n, what in SUMMARY.findall(lines[-1] if lines else "")}
    failed = [
        line.split(" ", 1)[1]
        for line in lines
        if line.startswith(("FAILED tests/", "ERROR tests/"))
    ]
    passed, bad = counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
    if not counts:
        print(f"{suite.title}: it did not come to its end; {log} has what it said", flush=True)
        return 1
    by_reason: dict[str, list[str]] = {}
    for line in failed:
        test = line.partition(" - ")[0]
        reason = next((why for name, why in LISTED.items() if test.startswith(name)), "")
        by_reason.setdefault(reason, []).append(line)
    unknown = by_reason.pop("", [])
    print(f"{suite.title}: {passed} of {passed + bad}; {len(unknown)} not listed")
    for reason, tests in by_reason.items():
        print(f"    {len(tests)}: {reason}")
    print(*(f"    NOT LISTED {line}" for line in unknown), sep="\n", flush=True)
    return len(unknown)


def installed(suite: Suite) -> Path:
    """The Python of its environment, which is made if what it needs is another list than before."""
    place = ROOT / ".venv" / f"adapters-{suite.name}"
    python, has = place / "bin" / "python", place / "has.txt"
    needs = [*TOOLS, *suite.installs]
    if not has.exists() or has.read_text().split("\n") != needs:
        venv.create(place, with_pip=True)
        words = ["install", "--quiet", "--disable-pip-version-check", "-e", str(ROOT)]
        subprocess.run([python, "-m", "pip", *words, *needs], check=True)
        has.write_text("\n".join(needs))
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
