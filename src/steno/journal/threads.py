"""Facts about external runtimes: the thread that one keeps for a session, and what it says it will
do."""

from steno.journal.fact import Fact


class ThreadBound(Fact, frozen=True, tag="thread.bound"):
    """An external runtime keeps a thread of its own for this session. It knows everything said
    before this fact."""

    runtime: str
    thread: str


class ThreadCompacted(Fact, frozen=True, tag="thread.compacted"):
    """An external runtime made its own thread shorter. What it put in the place of what was said
    only it knows; the history is as it was."""

    runtime: str
    thread: str


class PlanStep(Fact, frozen=True):
    """`status` is the runtime's own word for how far it is."""

    step: str
    status: str


class PlanUpdated(Fact, frozen=True, tag="plan.updated"):
    """What an external runtime says it will do, the whole plan each time."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""

    def title(self) -> str:
        return f"plan: {self.explanation}" if self.explanation else "plan"

    def lines(self) -> list[str]:
        """The steps as a person reads them. A status that has no sign is said in its own word."""
        return [f"{_SIGNS.get(one.status, f'{one.status}:')} {one.step}" for one in self.steps]


_SIGNS = {"completed": "✓", "inProgress": "▸", "pending": "·"}
