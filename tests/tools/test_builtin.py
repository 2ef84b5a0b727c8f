"""What a model is told of the tools."""

import json

from msgspec import Struct
from msgspec.structs import fields

from steno.tools.builtin import builtin
from steno.tools.files.change import EditArguments, WriteArguments
from steno.tools.files.read import ReadArguments
from steno.tools.looking.fetch import FetchArguments
from steno.tools.looking.folders import FindArguments, ListArguments
from steno.tools.looking.grep import GrepArguments
from steno.tools.planning.todo import TodoArguments
from steno.tools.protocol import Workspace
from steno.tools.shell import ShellArguments

ARGUMENTS: dict[str, type[Struct]] = {
    "shell": ShellArguments,
    "read_file": ReadArguments,
    "list_folder": ListArguments,
    "find_files": FindArguments,
    "search_files": GrepArguments,
    "write_file": WriteArguments,
    "edit_file": EditArguments,
    "fetch_url": FetchArguments,
    "todo": TodoArguments,
}


def test_tools_are_found_by_name(workspace: Workspace) -> None:
    tools = builtin(workspace)
    assert list(tools) == list(ARGUMENTS)
    assert [tool.spec.name for tool in tools.values()] == list(tools)


def test_only_reading_needs_no_approval_and_may_be_repeated(workspace: Workspace) -> None:
    tools = builtin(workspace)
    acts = ["shell", "write_file", "edit_file"]
    asks = [name for name, tool in tools.items() if tool.approval == "ask"]
    assert asks == [*acts, "fetch_url"]  # it reads, and what it reads is outside
    assert [name for name, tool in tools.items() if tool.spec.repeat == "never"] == acts


def test_schemas_are_compact_and_say_what_is_decoded(workspace: Workspace) -> None:
    for name, tool in builtin(workspace).items():
        schema = json.loads(tool.spec.schema)
        assert tool.spec.schema == json.dumps(schema, separators=(",", ":"))
        assert schema["additionalProperties"] is False
        assert list(schema["properties"]) == [field.name for field in fields(ARGUMENTS[name])]
        assert schema["required"] == [
            field.name for field in fields(ARGUMENTS[name]) if field.required
        ]


def test_what_is_offered_is_what_is_loaded(workspace: Workspace) -> None:
    for tool in builtin(workspace).values():
        assert (tool.tool.spec, tool.tool.approval) == (tool.spec, tool.approval)
