"""What the service counts, for Prometheus: no text of a message and no name of a session."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from steno.journal.facts import DeliverySettled, Record, TurnEnded, TurnStarted
from steno.store.protocol import Event

if TYPE_CHECKING:
    from steno.gateway.hub import Hub

COMMIT_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)
REFUSED = (401, 403, 408, 413, 415, 421, 429, 431)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = self._counter("http_answers", "Answers", "route", "status")
        self._seconds = Histogram(
            "steno_http_seconds",
            "Seconds to an answer, streams aside",
            registry=self._registry,
        )
        self._refusals = self._counter(
            "refusals", "Requests that were refused", "status"
        )
        self._began = self._counter("turns_started", "Turns that began here")
        self._turns = self._counter(
            "turns", "Turns that ended here", "outcome", "cause"
        )
        self._pieces = self._counter("pieces", "Pieces of text that were stored here")
        self._facts = self._counter("facts", "Facts that were stored here")
        self._commits = Histogram(
            "steno_commit_seconds",
            "Seconds of a commit",
            registry=self._registry,
            buckets=COMMIT_S,
        )
        self._kinds: dict[tuple[str, int], Counter] = {}
        self._deliveries = self._counter(
            "deliveries", "Deliveries that were settled", "outcome"
        )
        self._running = self._gauge("sessions_running", "Sessions that run here")
        self._failures = self._gauge("run_failures", "Runs of sessions that failed")
        self._followers = self._gauge("followers", "Streams that are open")

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"steno_{name}", says, labels, registry=self._registry)

    def _gauge(self, name: str, says: str) -> Gauge:
        return Gauge(f"steno_{name}", says, registry=self._registry)

    def count_streams(self, streams: Callable[[], int]) -> None:
        self._followers.set_function(streams)

    def answered(self, route: str, status: int, seconds: float) -> None:
        kind = self._kinds.get((route, status))
        if kind is None:
            kind = self._kinds[route, status] = self._answers.labels(
                route or "none", str(status)
            )
        kind.inc()
        if not route.endswith("_events"):
            self._seconds.observe(seconds)
        if status in REFUSED:
            self._refusals.labels(str(status)).inc()

    def committed(
        self, changes: dict[str, list[Event] | None], took_s: float
    ) -> None:
        """From the thread that commits."""
        self._commits.observe(took_s)
        pieces = facts = 0
        for events in changes.values():
            for event in events or ():
                if isinstance(event, Record):
                    facts += 1
                    self._fact(event)
                else:
                    pieces += 1
        if pieces:
            self._pieces.inc(pieces)
        if facts:
            self._facts.inc(facts)

    def _fact(self, record: Record) -> None:
        fact = record.fact
        if isinstance(fact, TurnStarted):
            self._began.inc()
        elif isinstance(fact, TurnEnded):
            self._turns.labels(fact.outcome, fact.cause).inc()
        elif isinstance(fact, DeliverySettled):
            outcome = type(fact.outcome).__name__.removeprefix("Delivery").lower()
            self._deliveries.labels(outcome).inc()

    def text(self, hub: "Hub") -> bytes:
        self._running.set(hub.running())
        self._failures.set(hub.failures)
        return generate_latest(self._registry)
