"""The figures of a table server, for Prometheus."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eddy.program.open_tables import Tables

__all__ = ["TableFigures", "registry_of"]


class TableFigures(Collector):
    """Collects the figures of open tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        rows, done = self._tables.rows, self._tables.reader.figures
        for name, meaning, count in (
            ("records", "Records read.", done.records),
            ("bytes", "Bytes of records read.", done.bytes),
            ("left_out", "Records that were left out of their tables.", self._tables.reader.left_out),
            ("versions", "Versions shown.", done.versions),
            ("exact_versions", "Versions shown that were exact.", done.exact_versions),
            ("tables_read_anew", "Times that a table was read anew.", done.read_anew),
            ("errors", "Errors of the log after which reading was restarted.", done.errors),
        ):
            yield CounterMetricFamily(f"eddy_views_{name}_total", meaning, value=count)
        ready = not rows.hindrance and rows.failure is None
        for name, meaning, value in (
            ("ready", "1 while all tables are whole.", ready),
            ("exact", "1 if the latest version is exact.", rows.version.exact),
            ("pending_records", "Records that are read and not shown yet.", done.pending),
            ("version_age_seconds", "Seconds since the latest version was shown.", rows.version_age_s()),
        ):
            yield GaugeMetricFamily(f"eddy_views_{name}", meaning, value=float(value))
        lag = "Offsets of the table's topic that are not read yet, as of the last look, every two seconds."
        for name, meaning, numbers in (("rows", "Rows by table.", rows.counts), ("lag_offsets", lag, done.lags)):
            family = GaugeMetricFamily(f"eddy_views_{name}", meaning, labels=["table"])
            for table, number in numbers.items():
                family.add_metric([table], number)
            yield family
        held = "Partitions of the step in which the application holds rows without a finite answer."
        family = GaugeMetricFamily("eddy_views_held_partitions", held, labels=["step"])
        for step, number in Counter(name for name, _ in self._tables.reader.held).items():
            family.add_metric([step], number)
        yield family


def registry_of(tables: Tables) -> CollectorRegistry:
    """Return a new registry with the figures of a table server and of the process."""
    registry = CollectorRegistry()
    registry.register(TableFigures(tables))
    ProcessCollector(registry=registry)
    return registry
