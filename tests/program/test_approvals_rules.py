"""Rules that allow, ask or deny, from the configuration and for one run."""

import json

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World


def configure(world: World, text: str) -> None:
    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text(text)


def calls(*commands: str) -> Reply:
    return Reply(tools=tuple(("shell", json.dumps({"command": command})) for command in commands))


def test_the_configuration_allows_and_denies(world: World, server: ModelServer) -> None:
    configure(
        world,
        '[approvals]\nshell = "ask"\n"shell:touch *" = "allow"\n"shell:touch bad*" = "deny"\n',
    )
    server.replies = [
        calls("touch good", "touch bad", "mkdir other", "touch a; mkdir b"),
        Reply(("done",)),
    ]
    world.steno("run", "do it")
    assert [path.name for path in world.work.iterdir()] == ["good"]
    told = {
        message["tool_call_id"]: message["content"]
        for message in server.requests[1]["messages"][3:]
    }
    assert "the rule 'shell:touch bad*' denies it" in told["call_1"]
    assert "nobody to ask" in told["call_2"]
    assert "nobody to ask" in told["call_3"]


def test_a_rule_that_denies_wins_over_yes(world: World, server: ModelServer) -> None:
    configure(world, '[approvals]\n"shell:touch bad" = "deny"\n')
    server.replies = [calls("touch good", "touch bad"), Reply(("done",))]
    world.steno("run", "do it", "--yes", "--allow", "shell")
    assert [path.name for path in world.work.iterdir()] == ["good"]


def test_a_run_can_allow_some_calls(world: World, server: ModelServer) -> None:
    server.replies = [
        calls("touch one", "touch two", "touch three"),
        Reply(("done",)),
        calls("touch four"),
    ]
    world.steno("run", "do it", "--key", "k", "--allow", "shell:touch one", "--allow", "shell:*two")
    assert sorted(path.name for path in world.work.iterdir()) == ["one", "two"]
    server.replies = [*server.replies[:2], calls("touch one more"), Reply(("done",))]
    world.steno("run", "again", "--key", "k")
    assert sorted(path.name for path in world.work.iterdir()) == ["one", "two"]


def test_a_tool_that_needs_no_approval_can_be_asked_about(
    world: World, server: ModelServer
) -> None:
    world.environment |= {"STENO_APPROVALS_READ_FILE": "deny"}
    (world.work / "a").write_text("secret words")
    server.replies = [Reply(tools=(("read_file", '{"path": "a"}'),)), Reply(("done",))]
    world.steno("run", "read it")
    assert "secret words" not in json.dumps(server.requests[1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[approvals]\nshell = "maybe"\n', "maybe"),
        ('[approvals]\n":x" = "allow"\n', "names no tool"),
        ("[approvals]\nshell = true\n", "approvals"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(world: World, text: str, said: str) -> None:
    configure(world, text)
    assert said in complaint(world, "run", "hi", expect=2)


def test_an_empty_rule_for_a_run_is_refused(world: World, server: ModelServer) -> None:
    assert "names no tool" in complaint(world, "run", "hi", "--allow", "", expect=2)
    assert server.requests == []
