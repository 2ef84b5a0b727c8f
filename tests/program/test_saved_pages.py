"""`export --html` on the running program: one file that reads anywhere and does nothing."""

import re

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

ANSWER = (
    "Use **this**:\n\n```python\nprint('<b>')\n```\n<script>alert(1)</script> [x](javascript:1)"
)
SECRET = "sk-" + "a1B2" * 8


def test_a_session_is_one_page_without_script_or_foreign_addresses(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply((ANSWER,))]
    world.steno("run", f"my key is {SECRET} <img src=x onerror=alert(1)>")
    id = world.only_session()
    page = world.steno("export", id, "--html")
    assert "<strong>this</strong>" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;img src=x" in page
    assert not re.search(r"<script|<img src=x|javascript:1\"|<link|@import|url\(", page)
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert SECRET in page
    shared = world.steno("export", id, "--html", "--without-secrets")
    assert SECRET not in shared
    assert "[secret]" in shared
    assert SECRET not in world.steno("export", id, "--markdown", "--without-secrets")


def test_every_session_goes_into_a_folder_with_a_list(world: World) -> None:
    for word in ("one", "two"):
        world.steno("run", word)
    folder = world.work / "pages"
    assert "2 sessions" in world.steno("export", "--all", "--html", "pages")
    ids = [row["id"] for row in world.sessions()]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["index.html", *(f"{id}.html" for id in ids)]
    )
    index = (folder / "index.html").read_text()
    assert all(f'href="{id}.html"' in index for id in ids)
    assert (folder / "index.html").stat().st_mode & 0o077 == 0
