"""The figures of live queries over HTTP, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eddy.live.streams.publisher import StreamFigures
from eddy.serve.live_pages import LivePages

__all__ = ["LiveFigures"]


class LiveFigures(Collector):
    """Collects the figures from the pages of live queries. All are 0 before the first request."""

    def __init__(self, pages: LivePages) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        """Yield the present figures."""
        publisher = self._pages.publisher
        done = StreamFigures() if publisher is None else publisher.figures
        restarts = 0 if publisher is None else publisher.server.restarts.count
        for name, meaning, count in (
            ("patches", "Patches of queries.", done.patches),
            ("events", "Events sent.", done.events),
            ("snapshots", "Queries whose rows were sent whole.", done.snapshots),
            ("resumed", "Queries that clients continued by patches.", done.resumed),
            ("summed", "Events that were the sum of many, for clients that were late.", done.summed),
            ("refused", "Requests refused because of a limit.", done.refused),
            ("restarts", "Times that all queries were opened anew after an error.", restarts),
            ("slow", "Streams ended because their client was too slow.", done.slow),
        ):
            yield CounterMetricFamily(f"eddy_live_{name}_total", meaning, value=count)
        for name, meaning, value in (
            ("streams", "Streams that are open.", self._pages.quota.streams),
            ("queries", "Queries that are kept up to date.", 0 if publisher is None else publisher.queries),
            (
                "idle_queries",
                "Queries that are kept up to date without a client.",
                0 if publisher is None else publisher.idle,
            ),
            (
                "idle_bytes",
                "Approximate memory of queries without a client.",
                0 if publisher is None else publisher.idle_bytes,
            ),
            ("retained_bytes", "Patches that are kept.", 0 if publisher is None else publisher.retained_bytes),
            ("ended", "1 once an error has ended all queries.", publisher is not None and publisher.has_ended),
        ):
            yield GaugeMetricFamily(f"eddy_live_{name}", meaning, value=float(value))
