"""Prometheus metrics: requests, tokens, latencies, and how full the engines are."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trafo.serve.models import Models

_DELAYS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "trafo_requests", "requests answered", ["path", "status"], registry=self.registry
        )
        self.tokens = Counter(
            "trafo_tokens", "tokens read and written", ["kind"], registry=self.registry
        )
        self.first_token = Histogram(
            "trafo_first_token_seconds",
            "time to the first token",
            buckets=_DELAYS,
            registry=self.registry,
        )
        self.between_tokens = Histogram(
            "trafo_token_gap_seconds",
            "time between tokens",
            buckets=_DELAYS,
            registry=self.registry,
        )
        self.open = Gauge("trafo_open_requests", "requests being answered", registry=self.registry)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self.registry)


class EngineCollector(Collector):
    """The state of the engines at the time of a scrape."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One gauge of each kind for each model."""
        readers = {
            "running_sequences": lambda engine: engine.num_running,
            "waiting_sequences": lambda engine: engine.num_waiting,
            "free_cache_blocks": lambda engine: engine.pool.num_free,
            "cache_blocks": lambda engine: engine.pool.num_blocks,
        }
        for name, read in readers.items():
            family = GaugeMetricFamily(f"trafo_{name}", name.replace("_", " "), labels=["model"])
            for served in self._models.language_models:
                family.add_metric([served.name], read(served.worker.engine))  # type: ignore[no-untyped-call]
            yield family


class Watch:
    """Counts and times the tokens of one answer."""

    def __init__(self, metrics: Metrics, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._read, self._written = prompt_tokens, 0
        self._last = time.perf_counter()

    def token(self) -> None:
        """A token has arrived."""
        now = time.perf_counter()
        metrics = self._metrics
        (metrics.between_tokens if self._written else metrics.first_token).observe(now - self._last)
        self._written, self._last = self._written + 1, now

    def usage(self) -> dict[str, int]:
        """The tokens read and written, as OpenAI counts them."""
        total = self._read + self._written
        return {
            "prompt_tokens": self._read,
            "completion_tokens": self._written,
            "total_tokens": total,
        }

    def end(self) -> None:
        """The answer is finished or cancelled."""
        self._metrics.tokens.labels("prompt").inc(self._read)
        self._metrics.tokens.labels("completion").inc(self._written)
