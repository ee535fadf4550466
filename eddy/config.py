"""The settings of a worker. Each has a usable default; nothing is read from the environment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from eddy.errors import TopologyError
from eddy.failed_record import OnError
from eddy.operators.errors.row_sizes import OVERHEAD
from eddy.topology.arguments import check_function, folder_of

__all__ = ["Config", "config_or_default"]

_COUNTS = (
    *("max_epoch_records", "max_epoch_bytes", "max_loop_rows", "max_row_bytes", "max_nested_rows"),
    *("cache_bytes", "restore_records"),
)
_LIMITS_S = ("max_epoch_s", "max_nested_s")
_WAITS_S = ("purge_interval_s", "cut_interval_s", "retry_s", "topics_interval_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings of a worker.

    Args:
        state_dir: the folder, as text or as a path, in which RocksDB keeps the states, with a subfolder for each
            application; None keeps them in memory, so that every start restores them from the changelogs.
        on_error: the policy for a record that cannot be decoded, keyed or processed: `fail` stops and names it, `skip`
            counts and logs it, `dead-letter` writes it to `<application>-dead-letter`. Or a function that is called
            with each `FailedRecord` and returns one of these names, `retry` or a `Retry(after=seconds)`.
        max_epoch_records: the most records of one epoch. The first epochs take 50,000; while a backlog fills them, the
            number grows until an epoch takes most of `max_epoch_s`.
        max_epoch_bytes: the most bytes of an epoch's records (keys, values, headers); an epoch has at least one record.
        max_epoch_s: seconds after which an epoch sends its unfinished loops' rows through the loops' topics. Also the
            seconds after which records that are retried without the failing records are polled again.
        max_loop_rows: rows of loops after which an epoch sends its unfinished loops' rows through the loops' topics; a
            row counts once for each 64 bytes.
        max_row_bytes: the most bytes of a recursion's row, including 1,024 for the overhead of a record in the log; a
            recursion that makes larger rows is held.
        max_nested_s: seconds after which a recursion by nested time, which cannot be split, is considered endless.
        max_nested_rows: rows after which a recursion by nested time is considered endless. A reduction in it may read a
            tenth as many values of one key, plus 500 times the number of the key's values.
        cache_bytes: memory for states; a quarter of it is for RocksDB's blocks. Each cached entry of a state counts 192
            bytes. The rows of an epoch need further memory, and so does the embedded log: 32 MiB for its pages.
        purge_interval_s: seconds between two deletions of consumed loop and repartition records.
        cut_interval_s: seconds between two checks for a cut, where there are several workers. A single worker writes a
            cut with every epoch after which no loop has rows left.
        topics_interval_s: seconds between two checks for new topics that match a pattern of `Topology.stream`, and for
            deleted topics.
        restore_records: changelog records read by one step of a restore.
        retry_s: seconds for which temporary failures (an absent broker, a rebalance, an unconfirmed commit) are
            retried before the worker gives up; with 0 it gives up at the first failure.
        create_topics: whether to create missing internal topics; if not, an error lists the commands with which an
            administrator creates them.
        accept_plan: start even though states were added or removed since the last run. New states start empty, so the
            steps that read them may give wrong results. A state that has another format under its old name is still
            refused.
        on_state: called with the worker's old and new state after each change, on the worker's thread: `joining`,
            `restoring`, `processing`, `isolating`, `failed`, `closing`.
        on_restore: called after each step of a restore with three values: the store's name, the number of offsets read
            so far, and the number of all offsets of its changelog.
    """

    state_dir: str | Path | None = None
    on_error: OnError = "fail"
    max_epoch_records: int = 250_000
    max_epoch_bytes: int = 64 << 20
    max_epoch_s: float = 10.0
    max_loop_rows: int = 10_000_000
    max_row_bytes: int = 1 << 20
    max_nested_s: float = 60.0
    max_nested_rows: int = 10_000_000
    cache_bytes: int = 512 << 20
    purge_interval_s: float = 30.0
    cut_interval_s: float = 1.0
    topics_interval_s: float = 10.0
    restore_records: int = 50_000
    retry_s: float = 300.0
    create_topics: bool = True
    accept_plan: bool = False
    on_state: Callable[[str, str], object] | None = None
    on_restore: Callable[[str, int, int], object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "state_dir", folder_of("config", state_dir=self.state_dir))
        self._check_types()
        for name in _COUNTS:
            if not getattr(self, name) >= 1:  # not `< 1`, which is false for NaN
                raise TopologyError(f"config: {name}={getattr(self, name)}; 1 or more is needed")
        if self.max_row_bytes <= OVERHEAD:
            raise TopologyError(
                f"config: max_row_bytes={self.max_row_bytes}; more than the {OVERHEAD:,} of a record's overhead "
                "are needed"
            )
        for name in _LIMITS_S:
            if not getattr(self, name) > 0:
                raise TopologyError(f"config: {name}={getattr(self, name)}; more than 0 seconds are needed")
        for name in _WAITS_S:
            if not getattr(self, name) >= 0:
                raise TopologyError(f"config: {name}={getattr(self, name)}; 0 seconds or more are needed")
        for name, parameters in (("on_state", ("old", "new")), ("on_restore", ("store", "done", "total"))):
            if (listener := getattr(self, name)) is not None:
                check_function("config", listener, *parameters, what=name)
        if callable(self.on_error) and not isinstance(self.on_error, type):
            check_function("config", self.on_error, "record", what="on_error")
        elif self.on_error not in ("fail", "skip", "dead-letter"):
            raise TopologyError(
                f"config: on_error={self.on_error!r}; 'fail', 'skip' or 'dead-letter' is needed, or a function that "
                "returns one of these, 'retry' or an eddy.Retry for each eddy.FailedRecord"
            )

    def _check_types(self) -> None:
        """Refuse values of a wrong type. Raises: TopologyError."""
        kinds: dict[str, type | tuple[type, ...]] = {
            **dict.fromkeys(_COUNTS, int),
            **dict.fromkeys((*_LIMITS_S, *_WAITS_S), (int, float)),
            "create_topics": bool,
            "accept_plan": bool,
        }
        needed: dict[Any, str] = {int: "a whole number", bool: "True or False", (int, float): "a number"}
        for name, kind in kinds.items():
            given = getattr(self, name)
            if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
                raise TopologyError(f"config: {name}={given!r}; {needed[kind]} is needed")


def config_or_default(where: str, given: Any) -> Config:
    """Return the given settings, or the defaults for None. Raises: TopologyError for anything else."""
    if given is None:
        return Config()
    if not isinstance(given, Config):
        names = {field.name for field in fields(Config)}
        fits = isinstance(given, Mapping) and given and names.issuperset(given)
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items()) if fits else "on_error='skip'"
        raise TopologyError(
            f"{where}: config={given!r}; an eddy.Config is needed. Write config=eddy.Config({settings})"
        )
    return given
