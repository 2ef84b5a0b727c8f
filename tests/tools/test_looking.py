"""The tools that only look: folders, files by pattern, text in files, images, pages of the web."""

import asyncio
import ipaddress
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from steno.journal.facts import FileVersions
from steno.journal.parts import Failed, Image, Returned
from steno.tools.builtin import builtin
from steno.tools.looking import grep
from steno.tools.looking.fetch import FetchUrl, is_public
from steno.tools.looking.page import as_text
from steno.tools.protocol import BadArguments, Journaled, Workspace
from steno.tools.sandbox import Sandbox
from tests.tools.calls import Pieces, call, said

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(40)


@pytest.fixture
def tree(workspace: Workspace) -> Workspace:
    root = workspace.folder
    for name, text in {
        "a.py": "import os\nprint('one')\n",
        "src/b.py": "def two():\n    return 2\n",
        "src/deep/c.txt": "two and Two\n",
        "node_modules/x.py": "two\n",
        "built/out.py": "two\n",
        ".gitignore": "built/\n*.log\n!kept.log\n",
        "gone.log": "two\n",
        "kept.log": "two\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return workspace


def test_a_folder_is_listed_folders_first(tree: Workspace) -> None:
    lines = said(call(tree, "list_folder")).splitlines()
    assert lines[:3] == ["built/", "node_modules/", "src/"]
    assert "a.py  23 bytes" in lines
    assert said(call(tree, "list_folder", path="src")).splitlines() == ["deep/", "b.py  24 bytes"]


def test_files_are_found_by_pattern_without_what_git_ignores(tree: Workspace) -> None:
    assert set(said(call(tree, "find_files", pattern="*.py")).split()) == {"a.py", "src/b.py"}
    assert said(call(tree, "find_files", pattern="src/**/*.txt")) == "src/deep/c.txt"
    assert said(call(tree, "find_files", pattern="*.log")) == "kept.log"
    assert said(call(tree, "find_files", pattern="*.rs")) == "[no file matches]"


@pytest.mark.parametrize("by", ["python", "ripgrep"])
def test_lines_are_found_by_an_expression(
    tree: Workspace, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in prints what ripgrep prints, where that is not installed."""
    program = shutil.which("rg") or _stand_in(tree.folder.parent, tree.folder)
    monkeypatch.setattr("shutil.which", lambda _: program if by == "ripgrep" else None)
    found = said(call(tree, "search_files", pattern="t[w]o")).splitlines()
    assert found == ["kept.log:1: two", "src/b.py:1: def two():", "src/deep/c.txt:1: two and Two"]
    only = said(call(tree, "search_files", pattern="TWO", files="*.py", ignore_case=True))
    assert only == "src/b.py:1: def two():"
    assert said(call(tree, "search_files", pattern="nowhere")) == "[nothing matches]"


def _stand_in(folder: Path, root: Path) -> str:
    program = folder / "rg"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import sys\n"
        "words = sys.argv[1:]\n"
        "assert '--no-config' in words and words[-2] == '--'\n"
        "pattern = words[words.index('--regexp') + 1]\n"
        "if pattern == 't[w]o':\n"
        "    print('./kept.log:1:two\\n./src/b.py:1:def two():\\n./src/deep/c.txt:1:two and Two')\n"
        "elif pattern == 'TWO':\n"
        "    assert '--ignore-case' in words and '--glob=*.py' in words\n"
        "    print('./src/b.py:1:def two():')\n"
    )
    program.chmod(0o755)
    return str(program)


def test_an_expression_that_takes_for_ever_is_ended(
    tree: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.folder / "long.txt").write_text("a" * 60 + "!\n")
    monkeypatch.setattr(grep, "TIME_LIMIT_S", 0.8)
    monkeypatch.setattr("shutil.which", lambda _: None)
    found = said(call(tree, "search_files", pattern="^(a+)+$", path="long.txt"))
    assert "it took too long" in found


@pytest.mark.parametrize("tool", ["list_folder", "find_files", "search_files"])
@pytest.mark.parametrize("path", ["..", "/etc", "out"])
def test_nothing_outside_the_workspace_is_looked_at(tree: Workspace, tool: str, path: str) -> None:
    (tree.folder / "out").symlink_to(tree.folder.parent)
    rest = {} if tool == "list_folder" else {"pattern": "a"}
    with pytest.raises(BadArguments, match="outside the workspace"):
        call(tree, tool, path=path, **rest)


def test_the_folder_of_steno_is_not_looked_at(tree: Workspace) -> None:
    home = tree.folder / "home"
    home.mkdir()
    (home / "config.toml").write_text("key = 'two'\n")
    hidden = replace(tree, sandbox=Sandbox(hidden=(home,)))
    assert "home/" not in said(call(hidden, "list_folder"))
    assert "config" not in said(call(hidden, "find_files", pattern="*.toml"))
    assert "config" not in said(call(hidden, "search_files", pattern="key"))


def test_an_image_is_read_as_one(workspace: Workspace) -> None:
    (workspace.folder / "x.png").write_bytes(PNG)
    kept: list[bytes] = []

    async def put(data: bytes) -> str:
        kept.append(data)
        return "h" * 64

    async def keep(file: FileVersions) -> None:
        raise AssertionError(file)

    async def reading() -> None:
        prepared = await builtin(workspace)["read_file"].prepare(json.dumps({"path": "x.png"}))
        outcome = await prepared.run(Journaled(Pieces(), put, keep))
        assert outcome == Returned((Image("h" * 64, "image/png", len(PNG), "x.png"),))

    asyncio.run(reading())
    assert kept == [PNG]


# --- pages of the web -----------------------------------------------------------------------------


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/secret")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write("<h1>Über</h1><script>x</script><p>a <b>word</b></p>".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def fetched(url: str, tool: FetchUrl) -> object:
    async def fetching() -> object:
        prepared = await tool.prepare(json.dumps({"url": url}))
        return await prepared.run(Pieces())

    return asyncio.run(fetching())


def test_a_page_is_fetched_as_text(site: str) -> None:
    outcome = fetched(f"{site}/", FetchUrl(10_000, lambda _: True))
    assert isinstance(outcome, Returned)
    assert said(outcome).endswith("# Über\n\na word")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
def test_an_address_of_this_machine_is_refused_after_it_was_resolved(site: str, host: str) -> None:
    url = site.replace("127.0.0.1", host)
    outcome = fetched(f"{url}/", FetchUrl(10_000))
    assert isinstance(outcome, Failed)
    assert "this machine or in a private network" in said(outcome)


def test_a_redirect_is_looked_at_like_any_address(site: str) -> None:
    only_here = FetchUrl(10_000, lambda address: address == "127.0.0.1")
    outcome = fetched(f"{site}/away", only_here)
    assert isinstance(outcome, Failed)
    assert "169.254.169.254 is on this machine or in a private network" in said(outcome)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("10.1.2.3", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fd00::1", False),
        ("2606:4700::1", True),
        ("224.0.0.1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public
    assert ipaddress.ip_address(address)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://", "http://a:b@c/", "ftp://x/"])
def test_what_is_no_page_is_refused_before_anybody_is_asked(url: str) -> None:
    with pytest.raises(BadArguments):
        asyncio.run(FetchUrl(100).check(json.dumps({"url": url})))


def test_a_page_keeps_its_headings_items_and_links() -> None:
    html = "<h2>T</h2><ul><li>one<li><a href='https://x.org/'>two</a></ul><style>p{}</style>"
    assert as_text(html) == "## T\n\n- one\n- two (https://x.org/)"


def test_steps_are_noted(workspace: Workspace) -> None:
    steps = [{"text": "look", "status": "done"}, {"text": "mend", "status": "doing"}]
    assert said(call(workspace, "todo", steps=steps)) == "noted: 1 of 2 done"
