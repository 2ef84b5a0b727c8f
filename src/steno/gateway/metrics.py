"""What the service counts, for Prometheus: no text of a message and no name of a session."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from steno.gateway.hub import Hub


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "steno_http_answers",
            "Answers by route and status",
            ["route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "steno_http_seconds", "Seconds to an answer, streams aside", registry=self._registry
        )
        self._refusals = Counter(
            "steno_refusals", "Requests that were refused", ["status"], registry=self._registry
        )
        self._running = Gauge(
            "steno_sessions_running", "Sessions that run here", registry=self._registry
        )
        self._runs = Gauge(
            "steno_runs", "Runs of sessions since the start", registry=self._registry
        )
        self._failures = Gauge("steno_run_failures", "Runs that failed", registry=self._registry)
        self._followers = Gauge("steno_followers", "Streams that are open", registry=self._registry)

    def answered(self, route: str, status: int, seconds: float, streams: int = 0) -> None:
        self._answers.labels(route or "none", str(status)).inc()
        self._followers.set(streams)
        if not route.endswith("_events"):
            self._seconds.observe(seconds)
        if status in (401, 403, 421, 429):
            self._refusals.labels(str(status)).inc()

    def text(self, hub: "Hub") -> bytes:
        self._running.set(hub.running())
        self._runs.set(hub.turns_run)
        self._failures.set(hub.failures)
        return generate_latest(self._registry)
