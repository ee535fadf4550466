"""From where on a backfill is faster than a worker that replays; see `benchmarks.spark`."""

from benchmarks.spark import crossing as run

__all__ = ["run"]
