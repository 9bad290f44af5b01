"""Figures for Prometheus, under vLLM's names (with our prefix) where it has one.

Histograms are ours, not the library's: the gaps between a reply's tokens are added in one go when the request ends,
which costs the token path nothing. The registry is our own, so that nothing else in the process leaks into it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from localllm.core.control import InstanceState, RequestRecord
from localllm.core.machine import DeviceSample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "localllm_"

# Upper bounds in seconds. The ranges are wide because the same build runs on a GPU server and on a single-board computer.
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5)
_TOKENS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

_HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("Request received to first non-empty token", _LATENCY),
    "inter_token_latency_seconds": ("Time between two tokens of a reply", _PER_TOKEN),
    "request_time_per_output_token_seconds": ("Mean time per token after the first", _PER_TOKEN),
    "e2e_request_latency_seconds": ("Request received to its end", _LATENCY),
    "request_queue_time_seconds": ("Time until the request was admitted, loading included", _LATENCY),
    "request_prompt_tokens": ("Prompt tokens of a request", _TOKENS),
    "request_generation_tokens": ("Generated tokens of a request", _TOKENS),
}

_COUNTERS: dict[str, str] = {
    "prompt_tokens": "Prompt tokens processed, cached ones included",
    "generation_tokens": "Tokens generated",
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache",
}


@dataclass(slots=True)
class Distribution:
    """Counts by bucket; the last one is everything above the highest bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, values: Iterable[float]) -> None:
        bounds, counts = self.bounds, self.counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the exposition format wants them."""
        running, found = 0, []
        for bound, count in zip((*map(_bound, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


_ENGINE_COUNTERS = {
    "steps": "Steps of the engine's scheduler; tokens per step are the next two over this one",
    "prefilled_tokens": "Prompt tokens computed",
    "decoded_rows": "Positions whose logits were computed: tokens, and drafts that were checked",
    "preemptions": "Times a flex request was parked for another",
    "step_seconds": "Wall time of the steps",
    "model_seconds": "Wall time of the steps inside the model",
    "sampling_seconds": "Wall time of the steps spent choosing tokens",
}
"""What an engine with a scheduler of its own counts inside, as ``InstanceState.engine_counters`` names it."""


class Metrics:
    """An observer of the pipeline; ``instances`` and ``devices`` are asked at each scrape."""

    def __init__(
        self,
        instances: Callable[[], Sequence[InstanceState]] = lambda: (),
        devices: Callable[[], Sequence[DeviceSample]] = lambda: (),
    ) -> None:
        self._instances = instances
        self._devices = devices
        self._histograms: dict[tuple[str, str], Distribution] = {}
        self._counters: dict[tuple[str, str], float] = {}
        self._requests: dict[tuple[str, str, str, str], int] = {}
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(self._collect))

    def finished(self, record: RequestRecord, gaps_ms: Sequence[float]) -> None:
        """Count one request that ended."""
        model = record.model
        for name, value_ms in (
            ("time_to_first_token_seconds", record.ttft_ms),
            ("request_time_per_output_token_seconds", record.tpot_ms),
            ("e2e_request_latency_seconds", record.total_ms),
            ("request_queue_time_seconds", record.queue_ms),
        ):
            if value_ms is not None:
                self._distribution(name, model).add((value_ms / 1000,))
        self._distribution("inter_token_latency_seconds", model).add(gap / 1000 for gap in gaps_ms)
        for name, counter, tokens in (
            ("request_prompt_tokens", "prompt_tokens", record.prompt_tokens),
            ("request_generation_tokens", "generation_tokens", record.completion_tokens),
        ):
            if tokens is not None:
                self._distribution(name, model).add((tokens,))
                self._count(counter, model, tokens)
        if record.cached_tokens is not None and record.prompt_tokens is not None:
            self._count("prefix_cache_queries", model, record.prompt_tokens)
            self._count("prefix_cache_hits", model, record.cached_tokens)
        key = (model, record.endpoint, str(record.status), record.finish_reason or record.error_code or "")
        self._requests[key] = self._requests.get(key, 0) + 1

    def render(self) -> bytes:
        """The exposition text, of type ``CONTENT_TYPE``."""
        return generate_latest(self._registry)

    def _distribution(self, name: str, model: str) -> Distribution:
        key = (name, model)
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms[key] = Distribution(_HISTOGRAMS[name][1])
        return found

    def _count(self, name: str, model: str, amount: float) -> None:
        self._counters[name, model] = self._counters.get((name, model), 0) + amount

    def _collect(self) -> Iterator[Metric]:
        yield from self._of_requests()
        yield from self._of_instances()
        yield from self._of_devices()

    def _of_requests(self) -> Iterator[Metric]:
        for name, (help_text, _) in _HISTOGRAMS.items():
            histogram = HistogramMetricFamily(_PREFIX + name, help_text, labels=["model_name"])
            for (known, model), found in self._histograms.items():
                if known == name:
                    histogram.add_metric([model], found.buckets(), found.total)
            yield histogram
        for name, help_text in _COUNTERS.items():
            counter = CounterMetricFamily(_PREFIX + name, help_text, labels=["model_name"])
            for (known, model), amount in self._counters.items():
                if known == name:
                    counter.add_metric([model], amount)
            yield counter
        outcomes = ["model_name", "endpoint", "status", "finished_reason"]
        requests = CounterMetricFamily(
            _PREFIX + "requests", "Requests that ended, by outcome", labels=outcomes
        )
        for labels, times in self._requests.items():
            requests.add_metric(labels, times)
        yield requests

    def _of_instances(self) -> Iterator[Metric]:
        states = self._instances()
        for name, help_text, value in _INSTANCE_GAUGES:
            gauge = GaugeMetricFamily(_PREFIX + name, help_text, labels=["model_name", "engine"])
            for state in states:
                amount = value(state)
                if amount is not None:
                    gauge.add_metric([state.model, state.engine], amount)
            yield gauge

        tiers = GaugeMetricFamily(
            _PREFIX + "engine_requests_waiting",
            "Requests waiting inside the engine, by service tier",
            labels=["model_name", "engine", "tier"],
        )
        for state in states:
            for tier, waiting in state.waiting_by_tier.items():
                tiers.add_metric([state.model, state.engine, tier], waiting)
        yield tiers
        for name, help_text in _ENGINE_COUNTERS.items():
            counter = CounterMetricFamily(
                _PREFIX + "engine_" + name, help_text, labels=["model_name", "engine"]
            )
            for state in states:
                if (counted := state.engine_counters.get(f"{name}_total")) is not None:
                    counter.add_metric([state.model, state.engine], counted)
            yield counter

    def _of_devices(self) -> Iterator[Metric]:
        samples = self._devices()
        for name, help_text, read in _DEVICE_GAUGES:
            gauge = GaugeMetricFamily(_PREFIX + name, help_text, labels=["device", "name"])
            for sample in samples:
                amount = read(sample)
                if amount is not None:
                    gauge.add_metric([sample.id, sample.name], amount)
            yield gauge


@dataclass(frozen=True)
class _Collector:
    """What prometheus-client asks at a scrape."""

    collect: Callable[[], Iterable[Metric]]


def _kv_use(state: InstanceState) -> float | None:
    if state.kv_used_tokens is None or not state.kv_total_tokens:
        return None
    return state.kv_used_tokens / state.kv_total_tokens


_INSTANCE_GAUGES: tuple[tuple[str, str, Callable[[InstanceState], float | None]], ...] = (
    ("num_requests_running", "Requests that run on the model", lambda s: s.running),
    ("num_requests_waiting", "Requests that wait for the model", lambda s: s.waiting),
    ("kv_cache_usage_perc", "Part of the KV cache in use, 0 to 1", _kv_use),
    ("model_planned_bytes", "Memory that the planner expected the model to take", lambda s: s.planned_bytes),
    ("model_measured_bytes", "Memory that the model was found to take", lambda s: s.measured_bytes),
)

_DEVICE_GAUGES: tuple[tuple[str, str, Callable[[DeviceSample], float | None]], ...] = (
    ("device_memory_used_bytes", "Memory in use on the device", lambda s: s.memory_used_bytes),
    ("device_memory_total_bytes", "Memory of the device", lambda s: s.memory_total_bytes),
    ("device_utilisation_percent", "How busy the device is", lambda s: s.utilisation_percent),
    ("device_temperature_celsius", "Temperature of the device", lambda s: s.temperature_celsius),
    ("device_power_watts", "Power the device draws", lambda s: s.power_watts),
)


def _bound(value: float) -> str:
    return str(float(value))
