"""A worker's figures for Prometheus, read when they are scraped; `docs/operations.md` explains each.

The names are `eddy_…` in base units. Cardinality: one time series for each figure; for the lag, one for each topic;
for rows and seconds of work, one for each step.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from eddy.errors import ConfigurationError
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.runtime.worker import Worker
from eddy.serve.state import Facts, InstanceState, readiness, state_of
from eddy.serve.worker_watch import WorkerWatch
from eddy.statistics import SECONDS, Histogram, Statistics

__all__ = [
    "CONTENT_TYPE_PLAIN_0_0_4",
    "CollectorRegistry",
    "WorkerFigures",
    "generate_latest",
    "registered",
    "registry_of",
    "samples",
]

_VERSION = version("eddy-streams")


class _Counter(NamedTuple):
    name: str
    meaning: str
    value: Callable[[Statistics], int]


class _Gauge(NamedTuple):
    """A gauge for Prometheus. `value` returns the figure, or None if it is not known."""

    name: str
    meaning: str
    value: Callable[[WorkerWatch, Facts], float | None]


class _Durations(NamedTuple):
    name: str
    meaning: str
    value: Callable[[Statistics], Histogram]


_COUNTERS = [
    _Counter("eddy_records_total", "Records processed by committed epochs.", lambda s: s.records),
    _Counter("eddy_written_records_total", "Records written to sinks.", lambda s: s.written),
    _Counter("eddy_epochs_total", "Transactions committed.", lambda s: s.epochs),
    _Counter("eddy_aborts_total", "Attempts that were undone, and retried as a whole or in parts.", lambda s: s.aborts),
    _Counter("eddy_fences_total", "Attempts undone because another worker had taken over.", lambda s: s.fences),
    _Counter("eddy_dropped_producers_total", "Producers abandoned and replaced.", lambda s: s.producers_dropped),
    _Counter("eddy_rebalances_total", "Times that partitions were assigned or revoked.", lambda s: s.rebalances),
    _Counter("eddy_waves_total", "Turns of loops.", lambda s: s.waves),
    _Counter("eddy_loop_rows_total", "Rows fed back in loops in memory, counted in each wave.", lambda s: s.loop_rows),
    _Counter("eddy_cut_rows_total", "Rows beyond the limit of their recursion, cut.", lambda s: s.cut_rows),
    _Counter("eddy_skipped_records_total", "Records rejected by the error policy.", lambda s: s.skipped),
    _Counter(
        "eddy_set_aside_rows_total", "Rows set aside, and keys withheld, after an exchange.", lambda s: s.set_aside
    ),
    _Counter("eddy_dropped_records_total", "Rows without the key or value that a step needs.", lambda s: s.dropped),
    _Counter("eddy_late_records_total", "Windows that were over when a record of them was read.", lambda s: s.late),
    _Counter("eddy_duplicate_records_total", "Records that deduplicate has left out.", lambda s: s.duplicates),
    _Counter("eddy_restored_records_total", "Changelog records read into the store.", lambda s: s.restored),
    _Counter("eddy_purges_total", "Deletions of consumed records of internal topics.", lambda s: s.purges),
    _Counter("eddy_purged_offsets_total", "Offsets deleted by these purges.", lambda s: s.purged_offsets),
]

_DURATIONS = [
    _Durations("eddy_commit_seconds", "How long the commit of a transaction took.", lambda s: s.commit_s),
    _Durations("eddy_epoch_seconds", "How long an epoch with records took, its commit included.", lambda s: s.epoch_s),
]


def _since_commit(watch: WorkerWatch, facts: Facts) -> float | None:
    last = watch.worker.statistics.last_commit if watch.worker else None
    return None if last is None else watch.age_s(last)


_GAUGES = [
    _Gauge("eddy_ready", "1 while /readyz answers 200.", lambda watch, facts: float(readiness(facts).ok)),
    _Gauge("eddy_failing_seconds", "Seconds for which every attempt failed; 0: none.", lambda _, f: f.failing_s or 0.0),
    _Gauge("eddy_last_commit_age_seconds", "Seconds since the last commit.", _since_commit),
    _Gauge("eddy_last_step_age_seconds", "Seconds since the worker's last step.", lambda _, f: f.silent_s),
    _Gauge(
        "eddy_owned_partitions", "Partitions of inputs and internal topics that the worker owns.", lambda _, f: f.owned
    ),
    _Gauge(
        "eddy_kept_aside_rows",
        "Rows that are set aside and keys that are withheld, in the partitions that the worker owns.",
        lambda watch, _: watch.worker.statistics.kept_aside if watch.worker else None,
    ),
    _Gauge("eddy_rows_in_loops", "Rows sent to internal topics and not read yet.", lambda watch, _: watch.in_loops),
    _Gauge(
        "eddy_restore_remaining_offsets",
        "Changelog offsets still to be restored.",
        lambda _, f: f.restoring.end - f.restoring.position if f.restoring else 0,
    ),
    _Gauge(
        "eddy_quiescent",
        "1 if all input was processed and no loop had rows when the lag was read.",
        lambda watch, _: None if watch.reading is None else watch.reading.quiescent,
    ),
    _Gauge(
        "eddy_lag_age_seconds",
        "Seconds since the lag was read.",
        lambda watch, _: None if watch.reading is None else watch.age_s(watch.reading.at),
    ),
    _Gauge(
        "eddy_lag_read_seconds",
        "Seconds that reading the lag took, in the worker's thread.",
        lambda watch, _: None if watch.reading is None else watch.reading.took_s,
    ),
]


class WorkerFigures(Collector):
    """Collects the figures from a `WorkerWatch`. Before a worker is attached, little more than its state is known."""

    def __init__(self, watch: WorkerWatch) -> None:
        self._watch = watch

    def describe(self) -> Iterator[Metric]:
        """Return the names of the figures, by which a registry refuses the figures of a second worker."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        facts, worker = self._watch.facts(), self._watch.worker
        yield _state(state_of(facts))
        yield _build(worker)
        for name, meaning, gauge in _GAUGES:
            value = gauge(self._watch, facts)
            if value is not None:
                yield GaugeMetricFamily(name, meaning, value=float(value))
        if self._watch.reading is not None:
            yield _lag(self._watch.reading.lags)
            yield _open_windows(self._watch.reading.open_windows)
        if worker is not None:
            yield _held(self._watch, worker)
            yield from _step_costs(worker)
            for name, meaning, count in _COUNTERS:
                yield CounterMetricFamily(name, meaning, value=count(worker.statistics))
            for name, meaning, durations in _DURATIONS:
                yield _histogram(name, meaning, durations(worker.statistics))


def _state(now: InstanceState) -> Metric:
    family = GaugeMetricFamily("eddy_state", "1 for the state of the worker.", labels=["state"])
    for state in InstanceState:
        family.add_metric([state], state is now)
    return family


def _build(worker: Worker | None) -> Metric:
    family = GaugeMetricFamily(
        "eddy_build_info",
        "1; its labels are the versions and names.",
        labels=["version", "python", "application", "member"],
    )
    names = (worker.group, worker.member) if worker else ("", "")
    family.add_metric([_VERSION, platform.python_version(), *names], 1)
    return family


def _lag(lags: dict[str, int]) -> Metric:
    meaning = "Offsets between the application's positions and the ends of its inputs."
    family = GaugeMetricFamily("eddy_lag_offsets", meaning, labels=["topic"])
    for topic, lag in lags.items():
        family.add_metric([topic], lag)
    return family


def _open_windows(windows: Sequence[OpenWindow]) -> Metric:
    meaning = "Event time since the end of the first open window of a step, which waits for this partition of a source."
    family = GaugeMetricFamily("eddy_open_windows_seconds", meaning, labels=["step", "source", "partition"])
    for window in windows:
        family.add_metric([window.step, window.source, str(window.partition)], window.behind_ms / 1000)
    return family


def _step_costs(worker: Worker) -> Iterator[Metric]:
    rows = CounterMetricFamily("eddy_step_rows_total", "Rows that a step has taken.", labels=["step"])
    seconds = CounterMetricFamily("eddy_step_seconds_total", "Seconds of a step's work.", labels=["step"])
    for step, cost in worker.circuit.costs().items():
        rows.add_metric([step], cost.rows)
        seconds.add_metric([step], cost.seconds)
    yield from (rows, seconds)


def _held(watch: WorkerWatch, worker: Worker) -> Metric:
    meaning = "Partitions of the worker in which a recursion has no finite answer."
    family = GaugeMetricFamily("eddy_held_partitions", meaning, labels=["step"])
    counts = Counter(name for name, _ in watch.held)
    for name in worker.circuit.recursions | worker.circuit.holding:
        family.add_metric([name], counts[name])
    return family


def _histogram(name: str, meaning: str, durations: Histogram) -> Metric:
    bounds = [*map(floatToGoString, SECONDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(list(durations.counts)), strict=True))
    return HistogramMetricFamily(name, meaning, buckets=buckets, sum_value=durations.sum_s)


def registry_of(watch: WorkerWatch) -> CollectorRegistry:
    """Return a new registry with the figures of the worker and of the process."""
    registry = CollectorRegistry()
    registry.register(WorkerFigures(watch))
    ProcessCollector(registry=registry)
    return registry


@contextmanager
def registered(watch: WorkerWatch, registry: CollectorRegistry | None = None) -> Iterator[None]:
    """Add the worker's figures to `registry` within the block; by default to the process's registry.

    Raises: ConfigurationError if the registry has a worker's figures already.
    """
    registry = REGISTRY if registry is None else registry
    figures = WorkerFigures(watch)
    try:
        registry.register(figures)
    except ValueError as error:
        raise ConfigurationError(
            f"metrics: the registry has figures of these names already ({error}); it can hold the figures of one "
            "worker. Give each a registry of its own: registry=prometheus_client.CollectorRegistry()"
        ) from error
    try:
        yield
    finally:
        registry.unregister(figures)


def samples(watch: WorkerWatch) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the figures as (name, labels, value), for systems without a registry; without the buckets of histograms."""
    for family in WorkerFigures(watch).collect():
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                yield sample.name, dict(sample.labels), float(sample.value)
