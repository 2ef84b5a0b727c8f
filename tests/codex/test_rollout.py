"""What codex's own file says of inputs that it does not list. Lines are as the real one writes
them."""

import json
from pathlib import Path
from typing import Any

from steno.journal.history import Said
from steno.journal.parts import Text
from steno.runtimes.codex.thread import NEXT, folder_asked, told_in, unlisted


def model(*texts: str, kind: str = "user.text") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    passed = {"turn_id": "t", "content_item_kinds": [kind]}
    payload = {"type": "message", "role": "user", "content": content}
    return {
        "type": "response_item",
        "payload": payload | {"internal_chat_message_metadata_passthrough": passed},
    }


def item(id: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"type": "UserMessage", "id": "i", "client_id": id, "content": []}
    return {"type": "event_msg", "payload": {"type": "item_completed", "item": said}}


def written(folder: Path, *entries: Any) -> str:
    path = folder / "rollout.jsonl"
    path.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in entries)
    )
    return str(path)


BEGUN = {"type": "event_msg", "payload": {"type": "task_started"}}


CASES: list[tuple[list[Any], list[list[str]]]] = [
    ([], []),
    ([model("a"), item("1"), BEGUN], []),
    ([model("a"), item("1"), model("b"), BEGUN], [["b"]]),
    ([model("a"), BEGUN, model("b"), item("2"), model("c", NEXT, "d")], [["a"], ["c", NEXT, "d"]]),
    ([model("a"), model("b"), item("answered"), model("c")], [["c"]]),
    ([model("a"), model("b"), item("0+answered"), model("c")], [["c"]]),
    ([model("a"), item(None), BEGUN], []),
    (
        [
            model("told before", kind="unknown"),
            model("<env>", kind="environments.environment_context"),
        ],
        [],
    ),
    (
        [
            model("a"),
            "no json that says UserMessage",
            '{"payload": ["user."]}',
            '{"payload": {"type": "mess',
        ],
        [["a"]],
    ),
]


def test_what_the_model_is_told_and_codex_does_not_list(tmp_path: Path) -> None:
    for entries, found in CASES:
        assert unlisted(written(tmp_path, *entries), frozenset(["answered"])) == found


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert unlisted(str(tmp_path / "none"), frozenset()) == []


def called(id: str, **arguments: Any) -> dict[str, Any]:
    payload = {
        "type": "function_call",
        "name": "exec_command",
        "call_id": id,
        "arguments": json.dumps(arguments),
    }
    return {"type": "response_item", "payload": payload}


def test_the_folder_of_a_command_is_what_its_call_in_the_last_turn_asked_for(
    tmp_path: Path,
) -> None:
    last = (called("a", workdir="sub"), called("b", cmd="ls"))
    path = written(tmp_path, called("a", workdir="old"), BEGUN, *last)
    assert folder_asked(path, "a") == "sub"
    assert folder_asked(path, "b") == ""
    for unknown in (
        folder_asked(path, "c"),
        folder_asked(None, "a"),
        folder_asked(str(tmp_path / "none"), "a"),
    ):
        assert unknown is None, "nobody knows"
    assert folder_asked(written(tmp_path, BEGUN, called("a", workdir="old"), *last), "a") is None, (
        "either one"
    )
    said = written(
        tmp_path, BEGUN, called("a", workdir="old"), called("c", cmd='"task_started"'), *last
    )
    assert folder_asked(said, "a") is None, "no turn begins there"
    garbled = written(tmp_path, called("a", workdir="sub"), '{"payload": {"type": "function_call"')
    assert folder_asked(garbled, "a") is None, "the last line may be the call"


def test_inputs_are_found_alone_and_together_in_order() -> None:
    a, b, c = (Said(seq, (Text(text),)) for seq, text in enumerate("abc"))
    assert told_in([], [a, b], {}) == []
    assert told_in([["a"]], [a, b], {}) == [a]
    assert told_in([["a", NEXT, "b"]], [a, b, c], {}) == [a, b]
    assert told_in([["a"], ["b", NEXT, "c"]], [a, b, c], {}) == [a, b, c]
    assert told_in([["b"]], [a, b], {}) == [], "what was said before it would have been said, too"
    assert told_in([["x"], ["a"]], [a, b], {}) == [a]
