"""The settings of a worker. Every one has a default that works; nothing is read from the environment here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eddy.errors import TopologyError

__all__ = ["Config"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How a worker behaves.

    Args:
        state_dir: where RocksDB keeps the states, one folder an application; None keeps them in memory,
            to be restored from the changelogs at every start.
        on_error: what happens to a record that cannot be decoded, keyed or processed: `fail` stops and
            names it, `skip` counts and logs it, `dead-letter` writes it to `<application>-dead-letter`.
        max_epoch_records: records that one epoch takes at most.
        max_epoch_s: seconds after which an epoch sends what is left of its loops through their topics.
        max_loop_rows: rows of loops after which it does the same.
        max_nested_s: seconds after which a recursion by nested time, which cannot stop half way, is called endless.
        max_nested_rows: rows after which it is called endless.
        cache_bytes: memory for states, a quarter of it for RocksDB's blocks; a cell is taken to be 192 bytes. What one
            epoch touches comes on top, and so do the embedded log's 32 MiB of pages.
        purge_interval_s: seconds between two deletions of consumed loop and repartition records.
        cut_interval_s: seconds between two cuts while input keeps coming.
        restore_records: changelog records that one step of a restore reads.
        retry_s: seconds for which what may pass (a broker that is away, a rebalance, a commit of unknown end) is tried
            again before the worker gives up.
        create_topics: make internal topics that are missing; else name them, with what an administrator has to run.
        accept_plan: start even though states have come or gone since the last run. New ones start empty, so
            that what reads them may be wrong. A state that is written otherwise under its old name is refused still.
    """

    state_dir: Path | None = None
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    max_epoch_records: int = 50_000
    max_epoch_s: float = 5.0
    max_loop_rows: int = 10_000_000
    max_nested_s: float = 60.0
    max_nested_rows: int = 10_000_000
    cache_bytes: int = 512 << 20
    purge_interval_s: float = 30.0
    cut_interval_s: float = 1.0
    restore_records: int = 50_000
    retry_s: float = 300.0
    create_topics: bool = True
    accept_plan: bool = False

    def __post_init__(self) -> None:
        for name in ("max_epoch_records", "max_loop_rows", "max_nested_rows", "cache_bytes", "restore_records"):
            if getattr(self, name) < 1:
                raise TopologyError(f"config: {name}={getattr(self, name)}; 1 or more is needed")
        if self.on_error not in {"fail", "skip", "dead-letter"}:
            raise TopologyError(f"config: on_error={self.on_error!r}; 'fail', 'skip' or 'dead-letter' is needed")
