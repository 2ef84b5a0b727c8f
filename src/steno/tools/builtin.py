"""The tools that come with steno: what a model is told of each, and where it is.

A session is offered all of them and calls few, so a tool is loaded with its first call. The specs
stand here together: they are what is sent with every request.
"""

from collections.abc import Callable
from typing import Literal

from steno.journal.facts import ToolSpec
from steno.tools.planning.todo import TODO_SPEC, Todo
from steno.tools.protocol import Checks, Prepared, Tool, Workspace

SHELL_SPEC = ToolSpec(
    name="shell",
    description=(
        "Run a command with /bin/sh in the workspace folder and return its output (standard "
        "output and error). There is no standard input and no terminal. Each call is a fresh "
        "shell. Processes left in the background are ended when the command ends; start one with "
        "setsid, its output redirected, to leave it running."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"command":{"type":"string","description":"The command, as text for sh -c."},'
        '"timeout_s":{"type":"number","exclusiveMinimum":0,'
        '"description":"End the command after this many seconds. '
        'It can shorten the default limit, not extend it."}'
        '},"required":["command"],"additionalProperties":false}'
    ),
)

READ_SPEC = ToolSpec(
    name="read_file",
    description=(
        "Read a file in the workspace: text, or an image (PNG, JPEG, GIF, WebP), which you are "
        "shown. Long files come in part: the last line in brackets then says which lines these "
        "are and where to go on."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"offset":{"type":"integer","minimum":1,'
        '"description":"The first line to read; 1 if absent."},'
        '"limit":{"type":"integer","minimum":1,"description":"How many lines at most."}'
        '},"required":["path"],"additionalProperties":false}'
    ),
    repeat="safe",
)

LIST_SPEC = ToolSpec(
    name="list_folder",
    description=(
        "List a folder of the workspace: folders first, with a slash, then files with their size."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":'
        '"Relative to the workspace folder; the folder itself if absent."}'
        '},"required":[],"additionalProperties":false}'
    ),
    repeat="safe",
)

FIND_SPEC = ToolSpec(
    name="find_files",
    description=(
        "Find files of the workspace by a pattern of their path, such as **/*.py or src/**/test_*. "
        "The file changed last comes first. Ignored files and folders of tools are left out."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"pattern":{"type":"string","minLength":1,"description":'
        '"* stands for any text without a slash, ** for any folders, ? for one character."},'
        '"path":{"type":"string","description":'
        '"The folder to look in; the workspace if absent."}'
        '},"required":["pattern"],"additionalProperties":false}'
    ),
    repeat="safe",
)

GREP_SPEC = ToolSpec(
    name="search_files",
    description=(
        "Find lines in the files of the workspace by a regular expression. Gives PATH:LINE: TEXT. "
        "Ignored files and folders of tools are left out."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"pattern":{"type":"string","minLength":1,"description":"A regular expression."},'
        '"path":{"type":"string","description":'
        '"A file or a folder to look in; the workspace if absent."},'
        '"files":{"type":"string","description":"Only in files like this, such as *.py."},'
        '"ignore_case":{"type":"boolean","description":"false if absent."},'
        '"around":{"type":"integer","minimum":0,"maximum":20,'
        '"description":"Lines of context around each match; 0 if absent."}'
        '},"required":["pattern"],"additionalProperties":false}'
    ),
    repeat="safe",
)

WRITE_SPEC = ToolSpec(
    name="write_file",
    description=(
        "Write a text file in the workspace, whole. Replaces what was there and makes missing "
        "folders."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"content":{"type":"string","description":"All of the new content."}'
        '},"required":["path","content"],"additionalProperties":false}'
    ),
)

EDIT_SPEC = ToolSpec(
    name="edit_file",
    description=(
        "Replace text in a file of the workspace. The old text must occur exactly once, unless "
        "all is true."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"old":{"type":"string","minLength":1,'
        '"description":"The text to replace, exactly as in the file."},'
        '"new":{"type":"string","description":"What stands there afterwards."},'
        '"all":{"type":"boolean","description":"Replace every occurrence; false if absent."}'
        '},"required":["path","old","new"],"additionalProperties":false}'
    ),
)

FETCH_SPEC = ToolSpec(
    name="fetch_url",
    description=(
        "Fetch a page of the public web by its address and give its text. Addresses of this "
        "machine and of private networks are refused."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"url":{"type":"string","minLength":1,"description":"With http or https."}'
        '},"required":["url"],"additionalProperties":false}'
    ),
    repeat="safe",
)

READ_OUTPUT_SPEC = ToolSpec(
    name="read_output",
    description=(
        "Read a part of a tool's output in this session that was too long to be shown whole. The "
        "last line in "
        "brackets says which characters these are."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"output":{"type":"string",'
        '"description":"The first characters of its hash, as given where it was left out; '
        'or the number of the message that it is the outcome of."},'
        '"offset":{"type":"integer","minimum":0,'
        '"description":"The first character to read; 0 if absent."},'
        '"length":{"type":"integer","minimum":1,"description":"How many characters at most."}'
        '},"required":["output"],"additionalProperties":false}'
    ),
    repeat="safe",
)

SEARCH_SPEC = ToolSpec(
    name="search_sessions",
    description=(
        "Find what was said in earlier sessions, and in this one, by the user or by you. Words are "
        'found anywhere, in any case and script, and all have to be there; "in quotes" they stand '
        "side by side; -word excludes; OR; role:user; before:2026-01-31; after:7d; in:tools also "
        "looks at what tools gave back. The best of each session comes first. To read around a "
        "result, give its session and message; with the query, too, a long message is shown where "
        "it matches. The last line in brackets says what was left out, and the `next` to ask for "
        "what follows."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"query":{"type":"string","minLength":1,"description":"The text to look for."},'
        '"limit":{"type":"integer","minimum":1,"maximum":50,'
        '"description":"How many messages at most; 20 if absent."},'
        '"next":{"type":"string","description":"From the last line of an earlier answer to the '
        'same query."},'
        '"all":{"type":"boolean","description":"Every match, not the best one of each session."},'
        '"session":{"type":"string","description":"Read in this session."},'
        '"message":{"type":"integer","minimum":1,"description":"Read around this message of it."}'
        '},"additionalProperties":false}'
    ),
    repeat="safe",
)

DELEGATE_SPEC = ToolSpec(
    name="delegate",
    description=(
        "Give a task to a helper with a session of its own, and get its last answer. The helper "
        "knows only the prompt: put everything it needs into it. It has the same tools, except "
        "this one, and cannot ask for approval."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"prompt":{"type":"string","minLength":1,'
        '"description":"The whole task, in words that stand by themselves."}'
        '},"required":["prompt"],"additionalProperties":false}'
    ),
)


class Offered:
    """A tool as it is offered; `load` imports and makes what carries it out."""

    def __init__(
        self,
        spec: ToolSpec,
        approval: Literal["none", "ask"],
        load: Callable[[], Tool],
    ) -> None:
        self.spec = spec
        self.approval = approval
        self._load = load
        self._loaded: Tool | None = None

    @property
    def tool(self) -> Tool:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    async def check(self, arguments: str) -> None:
        if isinstance(self.tool, Checks):
            await self.tool.check(arguments)

    async def prepare(self, arguments: str) -> Prepared:
        return await self.tool.prepare(arguments)


def builtin(workspace: Workspace) -> dict[str, Offered]:
    """By name, in the order in which a model is told of them."""

    def shell() -> Tool:
        from steno.tools.shell import Shell

        return Shell(workspace)

    def read_file() -> Tool:
        from steno.tools.files.read import ReadFile

        return ReadFile(workspace)

    def list_folder() -> Tool:
        from steno.tools.looking.folders import list_folder

        return list_folder(workspace)

    def find_files() -> Tool:
        from steno.tools.looking.folders import find_files

        return find_files(workspace)

    def search_files() -> Tool:
        from steno.tools.looking.grep import SearchFiles

        return SearchFiles(workspace)

    def write_file() -> Tool:
        from steno.tools.files.change import write_file

        return write_file(workspace)

    def edit_file() -> Tool:
        from steno.tools.files.change import edit_file

        return edit_file(workspace)

    def fetch_url() -> Tool:
        from steno.tools.looking.fetch import FetchUrl

        return FetchUrl(workspace.output_chars_max)

    tools = (
        Offered(SHELL_SPEC, "ask", shell),
        Offered(READ_SPEC, "none", read_file),
        Offered(LIST_SPEC, "none", list_folder),
        Offered(FIND_SPEC, "none", find_files),
        Offered(GREP_SPEC, "none", search_files),
        Offered(WRITE_SPEC, "ask", write_file),
        Offered(EDIT_SPEC, "ask", edit_file),
        Offered(FETCH_SPEC, "ask", fetch_url),
        Offered(TODO_SPEC, "none", Todo),
    )
    return {tool.spec.name: tool for tool in tools}
