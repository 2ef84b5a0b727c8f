"""Deciding about calls, from any process: about one that waits, or by a rule about all that are
like it. What is asked, what is decided and what rules a session has are facts, so all of it
outlives every process."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from steno.engine.approval import Verdict, rules_for
from steno.journal.facts import ApprovalDecided, FreeFact, RuleSet
from steno.journal.parts import Seq
from steno.journal.state import HeldRule
from steno.service.views import Approval, Views
from steno.session.errors import Misused, Refusal
from steno.store.errors import KeyReused, NotAllowed, UnknownSession
from steno.store.protocol import Store, list_all

ALWAYS_DAYS = 30
"""For so long "always" is meant; then a call like it is asked about again."""
DAY_MS = 86_400_000


class Approvals:
    def __init__(self, store: Store, views: Views) -> None:
        self._store = store
        self._views = views

    async def pending(self, session: str | None = None) -> list[Approval]:
        """What waits for a person: in one session, or in all, the one that waits longest first."""
        if session is not None:
            return [
                one
                for one in await self._views.approvals(session)
                if one.decision is None
            ]
        found: list[Approval] = []
        async for listed in list_all(self._store):
            if listed.row.asked:
                with contextlib.suppress(UnknownSession):  # deleted since
                    found += await self.pending(listed.id)
        return sorted(found, key=lambda one: (one.since_ms, one.session, one.seq))

    async def choose(self, session: str, seq: Seq | None) -> Approval:
        """The one that is meant: the one at `seq`, or the only one."""
        waiting = await self.pending(session)
        if seq is None and len(waiting) == 1:
            return waiting[0]
        if (
            meant := next((one for one in waiting if one.seq == seq), None)
        ) is not None:
            return meant
        if not waiting:
            raise Refusal("nothing_asked", session)
        there = ", ".join(f"{one.seq} ({one.tool})" for one in waiting)
        raise Refusal(
            "several_asked" if seq is None else "not_asked", session, seq, there=there
        )

    async def decided(self, session: str, asked: Seq) -> ApprovalDecided | None:
        """What was decided about a call, if anything was."""
        for record in await self._store.read(
            session, asked, kinds=("approval.decided",)
        ):
            if (
                isinstance(record.fact, ApprovalDecided)
                and record.fact.asked == asked
            ):
                return record.fact
        return None

    async def decide(
        self,
        session: str,
        asked: Seq,
        decision: Literal["allow", "deny"],
        reason: str = "",
        rules: Sequence[str] = (),
        by: str = "user",
        days: int | None = None,
    ) -> bool:
        """Say whether a call may run, and with `rules` the same of all later calls of this session
        that they meet, in one commit. They end after `days`; 0: they do not; None: what they allow
        does after `ALWAYS_DAYS`. The first word counts: False if another decided otherwise before;
        then no rule is set."""
        facts: list[FreeFact] = [
            ApprovalDecided(asked, decision, by=by, reason=reason)
        ]
        usual = ALWAYS_DAYS if decision == "allow" else 0
        until_ms = ends_ms(usual if days is None else days)
        facts += [
            RuleSet(_checked(rule), decision, until_ms=until_ms) for rule in rules
        ]
        try:
            await self._store.add(session, facts, key=f"decided:{asked}")
        except KeyReused:
            return False
        return True

    async def rules(self, session: str) -> dict[str, HeldRule]:
        """The rules of a session, in the order in which they were set."""
        return (await self._views.state(session)).rules

    async def set_rules(
        self, session: str, rules: Mapping[str, Verdict | None], days: int = 0
    ) -> None:
        """Set rules for one session, or take them back (None), all in one commit. They end after
        `days`; 0: they do not. A call that waits and that one of them meets is decided by it."""
        there = await self.rules(session)
        for rule, verdict in rules.items():
            if verdict is None and rule not in there:
                raise NotAllowed(
                    f"session {session!r} has no rule {rule!r}; nothing was changed"
                )
        until_ms = ends_ms(days)
        changes = [
            RuleSet(_checked(rule), said, until_ms=0 if said is None else until_ms)
            for rule, said in rules.items()
            if said is None or there.get(rule) != HeldRule(said, until_ms)
        ]
        if changes:
            await self._store.add(session, changes)


def ends_ms(days: int) -> int:
    """When a rule ends that is set now for so many days; 0 for one that does not."""
    return time.time_ns() // 1_000_000 + days * DAY_MS if days else 0


def always(one: Approval) -> tuple[str, ...]:
    """The rules for this call and all that are like it: what "always" means by itself."""
    return rules_for(one.tool, one.arguments)


def _checked(rule: str) -> str:
    if not rule.partition(":")[0].strip():
        raise Misused(f"the rule {rule!r} names no tool; nothing was stored")
    return rule
