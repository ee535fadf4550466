"""A worker's figures in the sensors of a Faust app, by the names of `/metrics`.

PrometheusMonitor    part of the registry that Faust's page serves
DatadogMonitor       sent as gauges every ten seconds
another monitor      does not show the figures; a warning is logged
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from faust.sensors.datadog import DatadogMonitor
from faust.sensors.monitor import Monitor
from faust.sensors.prometheus import PrometheusMonitor
from faust.types import AppT

from eddy.serve.metrics import registered, samples
from eddy.serve.worker_watch import WorkerWatch

__all__ = ["reports"]

_log = logging.getLogger("eddy.faust")


@contextlib.contextmanager
def reports(app: AppT, watch: WorkerWatch, registry: Any = None) -> Iterator[Callable[[], None] | None]:
    """Add the worker's figures to the app's sensors within the block.

    Yields a function that has to be called regularly; None if the sensors need no call.

    `registry` is the Prometheus registry that was passed to `setup_prometheus_sensors`, if any.
    Raises: ConfigurationError if the registry has a worker's figures already.
    """
    monitor = app.monitor
    if isinstance(monitor, PrometheusMonitor):
        with registered(watch, registry):
            yield None
        return
    if isinstance(monitor, DatadogMonitor):
        client = monitor.client

        def push() -> None:
            for name, labels, value in samples(watch):
                client.gauge(name, value, labels=labels)

        yield push
        return
    if type(monitor) is not Monitor:
        _log.warning(
            "the app's %s does not show eddy's figures; the monitors for Prometheus and Datadog do. Read the "
            "figures at /eddy/metrics",
            type(monitor).__name__,
        )
    yield None
