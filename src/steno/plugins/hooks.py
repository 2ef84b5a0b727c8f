"""The hook points. A plugin has those that it wants, with those of their arguments that it wants.

Arguments are plain values, and more may be added: an older plugin works on. Only `on_session_end`
is owed: it comes at least once for each end, whatever is killed when. The others are called as
things happen, once, by the process in which they happen.
"""

from pluggy import HookspecMarker

from steno.plugins import PROJECT

hookspec = HookspecMarker(PROJECT)


class Specs:
    @hookspec
    def on_session_start(self, session_id: str, platform: str) -> None:
        """A front end opened a session: a new one with its first input, or one that is resumed."""

    @hookspec
    def on_session_end(
        self,
        session_id: str,
        completed: bool,
        interrupted: bool,
        model: str,
        platform: str,
        reason: str,
        key: str,
    ) -> None:
        """The last visitor left. `completed`: the last turn was done and nothing waits.
        `interrupted`: it was cut off, an input waits, or the process was killed. `reason`: left,
        closed_terminal, signal, idle, replaced or killed. `key` is the same if it comes twice."""

    @hookspec
    def turn_started(self, session_id: str, turn: int) -> None:
        """A turn began. Turns are named by their seq."""

    @hookspec
    def turn_ended(
        self, session_id: str, turn: int, outcome: str, cause: str
    ) -> None:
        """`outcome`: done, interrupted or failed; `cause` is a short word for the latter two."""

    @hookspec
    def before_request(
        self, session_id: str, turn: int, model: str, attempt: int
    ) -> str | None:
        """A model is about to be asked. What is returned is added as a note at the end of this
        request, and is stored nowhere."""

    @hookspec
    def after_request(
        self,
        session_id: str,
        turn: int,
        model: str,
        ended: str,
        input_tokens: int | None,
        output_tokens: int | None,
    ) -> None:
        """`ended`: complete, length, incomplete, interrupted or lost. Tokens that were not counted
        are None."""

    @hookspec
    def before_tool(
        self, session_id: str, turn: int, tool: str, arguments: str, call: str
    ) -> str | None:
        """A tool is about to run. What is returned denies it: the reason, told to the model and the
        person. `arguments` is JSON text as the model wrote it."""

    @hookspec
    def after_tool(
        self, session_id: str, turn: int, tool: str, call: str, outcome: str
    ) -> None:
        """`outcome`: returned, failed, refused, interrupted or unknown."""

    @hookspec
    def compaction(self, session_id: str, upto: int, summary: str) -> None:
        """For the model, a summary stands for everything up to a seq."""

    @hookspec
    def delivery(
        self, session_id: str, channel: str, address: str, outcome: str
    ) -> None:
        """An answer that was owed to a channel was delivered, was refused or expired; or it is
        unknown whether it arrived, and it is tried again. `address` is the host of the channel."""
