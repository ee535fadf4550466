"""The reader of tables: follows their topics, and moves the rows from cut to cut.

    begin       compare the stored rows with the log; tables that do not fit it are read anew
    read        `Reading`, until an error, a reset of the application or a long pause of this process; then begin again

It joins no group and writes nothing to the log.
"""

import time
from collections.abc import Callable, Mapping

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConnectorError
from eddy.runtime.quiescence import last_cut_at
from eddy.tables.catalog import Catalog
from eddy.tables.intake import Intake
from eddy.tables.left_out import LeftOut
from eddy.tables.reading import BeginAgainError, ReaderFigures, ReaderParts, Reading
from eddy.tables.served_rows import NOT_RUN, ServedRows
from eddy.tables.stored import Stored
from eddy.tables.version import Offsets

__all__ = ["TableReader"]

_TAIL = 1_000
"""The number of offsets at the end of the cuts' topic that are read at the start: only the latest cut is needed."""


class TableReader:
    """Reads the tables of a catalog into `rows`. Not for several threads.

    Committed records wait `max_wait_s` for a cut; `clock` never decreases, `wall` returns the seconds since 1970.
    """

    def __init__(
        self,
        catalog: Catalog,
        log: Log,
        rows: ServedRows,
        *,
        max_wait_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._parts = ReaderParts(
            catalog,
            log,
            rows,
            Stored(catalog, log, rows, wall),
            LeftOut(log, catalog.internal.plan),
            {name: Intake(table) for name, table in catalog.tables.items()},
            ReaderFigures(),
            max_wait_s,
            clock,
        )
        self._inputs: Offsets = {}
        self.reading: Reading | None = None

    @property
    def figures(self) -> ReaderFigures:
        """Its figures, for any thread."""
        return self._parts.figures

    @property
    def following(self) -> bool:
        """Whether the reader follows the topics; if not, the next step tries to begin."""
        return self.reading is not None

    @property
    def held(self) -> Mapping[tuple[str, int], str]:
        """The messages about results that the application holds without a finite answer, by recursion and partition."""
        return self._parts.left_out.held

    @property
    def left_out(self) -> int:
        """The number of records that were not applied: they do not decode, or the application has rejected them."""
        return sum(intake.left_out for intake in self._parts.intakes.values())

    def step(self, timeout_s: float) -> bool:
        """Read on, and wait up to `timeout_s` seconds for a record. Returns whether there is a new version.

        Raises: ConnectorError, after which the next step begins again; StateError.
        """
        if self.reading is not None and self.reading.is_stale:
            self.close()
        before = self._parts.rows.version.number
        try:
            self.reading = self.reading or self._begin()
            if self.reading is None:
                return False
            self.reading.step(timeout_s)
        except ConnectorError:
            self.figures.errors += 1
            self.close()
            raise
        except BeginAgainError:
            self.close()
            return False
        return self._parts.rows.version.number != before

    def close(self) -> None:
        """Stop following; the next step begins again from the stored rows."""
        reading, self.reading = self.reading, None
        if reading is not None:
            self._inputs = reading.inputs
            reading.follower.close()

    def _begin(self) -> Reading | None:
        """Compare the stored rows with the log, and begin to follow it. Returns None if topics are missing."""
        catalog, log, rows = self._parts.catalog, self._parts.log, self._parts.rows
        found = log.topics(catalog.topics())
        if missing := sorted(set(catalog.topics()) - found.keys()):
            rows.say(f"topic '{missing[0]}' does not exist: {NOT_RUN}")
            return None
        metadata = self._parts.left_out.read()
        if not metadata.incarnations:
            rows.say(NOT_RUN)
            return None
        incarnation = min(metadata.incarnations)
        start = self._parts.stored.begin(found, incarnation, metadata.left_out)
        self.figures.read_anew += len(start.anew)
        cuts = TopicPartition(catalog.internal.cuts, 0)
        follower = log.follower(start.positions | {cuts: self._first_cut(cuts)})
        if rows.hindrance:
            rows.say("catching up")
        return Reading(self._parts, start, follower, incarnation, self._inputs)

    def _first_cut(self, cuts: TopicPartition) -> int:
        """Return the offset from which cuts are read."""
        log = self._parts.log
        begin, end = log.begin_offsets([cuts])[cuts], log.end_offsets([cuts])[cuts]
        latest = last_cut_at(log, cuts.topic)
        return max(begin, end - _TAIL if latest is None else min(latest[0], end - _TAIL))
