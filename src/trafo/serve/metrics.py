"""Prometheus metrics: requests, tokens, latencies, and how full the engines are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trafo.serve.models import Models

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=self.registry)
        self.requests = counter("trafo_requests", "requests answered", ["path", "status"])
        self.tokens = counter("trafo_tokens", "tokens read and written", ["kind"])
        self.first_token = histogram("trafo_first_token_seconds", "time to the first token")
        self.between_tokens = histogram("trafo_token_gap_seconds", "time between tokens")
        self.open = Gauge("trafo_open_requests", "requests being answered", registry=self.registry)

    def text(self) -> bytes:
        """Return all of them in Prometheus' own format."""
        return generate_latest(self.registry)


class EngineCollector(Collector):
    """The state of the engines at the time of a scrape."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield one gauge of each kind for each model."""
        readers = {
            "running_sequences": lambda engine: engine.num_running,
            "waiting_sequences": lambda engine: engine.num_waiting,
            "free_cache_blocks": lambda engine: engine.pool.num_free,
            "cache_blocks": lambda engine: engine.pool.num_blocks,
        }
        for name, read in readers.items():
            family = GaugeMetricFamily(f"trafo_{name}", name.replace("_", " "), labels=["model"])
            for served in self._models:
                if served.workers:
                    family.add_metric([served.name], read(served.worker.engine))  # type: ignore[no-untyped-call]
            yield family


class AnswerMetrics:
    """Counts and times the tokens of one answer."""

    def __init__(self, metrics: Metrics, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._num_read, self._num_written = prompt_tokens, 0
        self._last = time.perf_counter()

    def count_token(self) -> None:
        """Count a token that has arrived."""
        now, metrics = time.perf_counter(), self._metrics
        delays = metrics.between_tokens if self._num_written else metrics.first_token
        delays.observe(now - self._last)
        self._num_written, self._last = self._num_written + 1, now

    def usage(self) -> dict[str, int]:
        """Return the tokens read and written, as OpenAI counts them."""
        return {
            "prompt_tokens": self._num_read,
            "completion_tokens": self._num_written,
            "total_tokens": self._num_read + self._num_written,
        }

    def end(self) -> None:
        """Count an answer that is finished or cancelled."""
        self._metrics.tokens.labels("prompt").inc(self._num_read)
        self._metrics.tokens.labels("completion").inc(self._num_written)
