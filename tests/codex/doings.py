"""What codex's model does where aimock cannot say it, and a codex whose model does it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.codex.responses_server import Answer, Item, Responses, call, message, responses
from tests.codex.world import CONFIG, CodexWorld
from tests.tools.mcp_servers import odd

COUNTED: tuple[Answer, ...] = (
    [message("I look."), call("count", "m1", "mcp__odd")],
    [message("Done.")],
)
_SHEEP = {"type": "search", "query": "sheep"}
_SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed", "action": _SHEEP}
SEARCHED: tuple[Answer, ...] = ([message("I look."), _SEARCH, message("Found.")],)


PLAN = [{"step": "look", "status": "in_progress"}, {"step": "tell", "status": "pending"}]
PLANNED: tuple[Answer, ...] = (
    [message("I plan."), call("update_plan", "p1", plan=PLAN, explanation="two things")],
    [message("Done.")],
)
WITH_PLANS = "[tools.update_plan]\nenabled = true\n"


def _types(returned: str) -> list[Item]:
    [session] = re.findall(r"session ID (\d+)", returned)
    return [
        call("write_stdin", "c2", session_id=int(session), chars="hi\x04\x04", yield_time_ms=2000)
    ]


TYPED: tuple[Answer, ...] = (
    [call("exec_command", "c1", cmd="cat; echo over", tty=True, yield_time_ms=300)],
    _types,
    [message("Done.")],
)


@contextmanager
def told(
    world: CodexWorld, *answers: Answer, more: str = "", first: str = "", model: str = "fake-model"
) -> Iterator[Responses]:
    """Codex's model does this; `first` and `more` are added to codex's configuration."""
    with responses(*answers) as provider:
        config = CONFIG.format(url=provider.url).replace("fake-model", model)
        world.codex_home.joinpath("config.toml").write_text(first + config + more)
        yield provider


def own_server() -> str:
    program, *words = (str(word) for word in odd())
    return f"[mcp_servers.odd]\ncommand = {json.dumps(program)}\nargs = {json.dumps(words)}\n"
