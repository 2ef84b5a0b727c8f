"""The tools that come with steno."""

from steno.tools.files.change import edit_file, write_file
from steno.tools.files.read import ReadFile
from steno.tools.looking.fetch import FetchUrl
from steno.tools.looking.folders import find_files, list_folder
from steno.tools.looking.grep import SearchFiles
from steno.tools.planning.todo import Todo
from steno.tools.protocol import Tool, Workspace
from steno.tools.shell import Shell


def builtin(workspace: Workspace) -> dict[str, Tool]:
    """By name, in the order in which a model is told of them."""
    tools: tuple[Tool, ...] = (
        Shell(workspace),
        ReadFile(workspace),
        list_folder(workspace),
        find_files(workspace),
        SearchFiles(workspace),
        write_file(workspace),
        edit_file(workspace),
        FetchUrl(workspace.output_chars_max),
        Todo(),
    )
    return {tool.spec.name: tool for tool in tools}
