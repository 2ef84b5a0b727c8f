"""Facts about what shapes a request: model, system prompt, tools, memories, goal."""

from typing import Literal

from steno.journal.distillates import ItemAt
from steno.journal.fact import Fact


class ToolSpec(Fact, frozen=True):
    """`schema` is JSON text, kept as written so that the request's bytes can be rebuilt."""

    name: str
    description: str
    schema: str
    repeat: Literal["never", "safe"] = "never"


class ContextSet(Fact, frozen=True, tag="context.set"):
    """Holds for every later request until the next one: the whole context, not a difference.
    `recalled` says where each of the memories came from. `instead_of` is the session's own model
    where a fallback answers in its place, for the rest of one turn."""

    model: str
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    memories: tuple[str, ...] = ()
    recalled: tuple[ItemAt, ...] = ()
    goal: str = ""
    instead_of: str = ""

    @property
    def own_model(self) -> str:
        """The model that was chosen for the session."""
        return self.instead_of or self.model


class GoalSet(Fact, frozen=True, tag="goal.set"):
    """What this session is for, in a person's words, until the next one; "" is no goal. The next
    request's context tells a model."""

    goal: str
    by: str = "user"
