"""The number of records that the next epoch takes: it grows while a backlog fills epochs that end quickly.

Most of an epoch's cost is shared by its records: rows that cancel or meet inside it are made, stored and sent once, and
it has one transaction. So a backlog is read in ever larger epochs, each of at most twice the size of the last one,
until an epoch takes most of `max_epoch_s`. An epoch that took longer is followed by a smaller one.
"""

from eddy.config import Config

__all__ = ["EpochRoom"]

_FIRST = 50_000
"""The number of records of the first epochs. Slow epochs do not reduce it, because rows that wait cost more."""
_SHARE = 0.8
"""The share of `max_epoch_s` up to which epochs grow."""


class EpochRoom:
    """Adapts the size of epochs. `records` is the most records that the next epoch takes, up to `max_epoch_records`."""

    def __init__(self, config: Config) -> None:
        self._most, self._s = config.max_epoch_records, _SHARE * config.max_epoch_s
        self._least = self._learnt = self.records = min(_FIRST, self._most)

    def begin_anew(self) -> None:
        """Forget the number that `learn` has found, since other partitions are owned, or an epoch was lost."""
        self._learnt = self.records = self._least

    def narrow(self, records: int) -> None:
        """Limit the next epochs to `records` records; 0 means the number that `learn` has found."""
        self.records = records or self._learnt

    def widen(self) -> None:
        """Let the next epochs take the number of records that `learn` has found."""
        self.records = self._learnt

    def learn(self, records: int, took_s: float) -> None:
        """Adapt the number of records to an epoch of `records` records that was committed after `took_s` seconds."""
        if records >= self._learnt:
            factor = min(2.0, self._s / max(took_s, 1e-9))
            self._learnt = max(self._least, min(self._most, int(records * factor)))
