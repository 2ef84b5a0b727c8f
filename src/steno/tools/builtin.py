"""The tools that come with steno."""

from steno.tools.files import edit_file, read_file, write_file
from steno.tools.protocol import Tool, Workspace
from steno.tools.shell import Shell


def builtin(workspace: Workspace) -> dict[str, Tool]:
    """By name, in the order in which a model is told of them."""
    tools: tuple[Tool, ...] = (
        Shell(workspace),
        read_file(workspace),
        write_file(workspace),
        edit_file(workspace),
    )
    return {tool.spec.name: tool for tool in tools}
