"""Commands that change something say what they did as an object, too."""

import json
from pathlib import Path
from typing import Any

from tests.program.model_server import ModelServer
from tests.program.world import World


def test_what_was_done_to_a_session_is_said_as_an_object(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    def done(*words: str) -> Any:
        return json.loads(world.steno(*words, "--json"))

    world.steno("run", "one")
    id = world.only_session()
    world.steno("run", "two", "--session", id)
    first, second = (message["seq"] for message in world.messages(id, "user"))

    assert done("rename", id, "A name") == {"session": id, "title": "A name"}
    assert done("goal", id, "be brief") == {"session": id, "goal": "be brief"}
    assert done("goal", id) == {"session": id, "goal": "be brief"}
    assert done("goal", id, "--none") == {"session": id, "goal": ""}
    undone = done("undo", id)
    assert undone == {"session": id, "turn": undone["turn"], "withdraw": undone["withdraw"]}
    taken_back = done("undo", id, "--withdraw", str(undone["withdraw"]))
    assert taken_back == {"session": id, "withdrawn": undone["withdraw"]}
    hidden = {"session": id, "seq": first, "hidden": True, "changed": True}
    assert done("hide", id, str(first)) == hidden
    forked = done("fork", id, str(second))
    assert forked == {"session": forked["session"], "forked_from": id, "at": second}
    rewound = done("rewind", id, str(second))
    assert (rewound["session"], rewound["to"]) == (id, second)
    assert done("diff", id) == []
    assert done("interrupt", id) == {"session": id, "turn": None, "summary": False}
    redacted = done("redact", id, str(first), "--yes")
    assert (redacted["seq"], redacted["helpers"], redacted["threads"]) == (first, [], [])
    assert done("undo", id, "--files")["files"] == []
    assert done("delete", id, "--with-forks", "--yes") == {"deleted": 2}

    copy = tmp_path / "copy.db"
    assert done("backup", str(copy)) == {"file": str(copy), "removed": []}
    room = done("vacuum")
    assert set(room) == {"bytes_before", "bytes_after"}
    assert done("restore", str(copy)) == {"restored": str(copy), "kept": "store.db.replaced"}
    assert done("config", "set", "model.max_tokens", "99")["value"] == 99
    assert done("config", "path") == {"config": str(world.home / "config.toml")}
