"""The observer: asks all the time whether the application is quiescent, and holds it to what it hears.

A yes has to be right: every record that was acknowledged before the question is taken in, and if nothing
has come since, then outputs, changelogs and counters are the oracle's answer. Half of its questions it asks
while no input can come. Whatever it hears, no position lies before its partition's first record.
"""

import contextlib
import random
import threading

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import ConnectorError
from eddy.runtime.quiescence import quiescent_at
from tests.simulation.witness import Witness
from tests.torture.feed import Feed

__all__ = ["Observer"]

PAUSE_S = 0.03


class Observer:
    """Observes by a log of its own, until it is closed or has found something wrong.

    `declared` counts how often it heard yes, `checked` how often everything could be checked then, and `lasting` how
    often in a row at the same positions, up to now.
    """

    def __init__(self, log: Log, witness: Witness, feed: Feed, seed: int) -> None:
        self._log, self._witness, self._feed, self._rng = log, witness, feed, random.Random(seed)
        self.asked = self.declared = self.checked = self.lasting = self.unanswered = 0
        self.positions: dict[TopicPartition, int] = {}
        self.early: str | None = None
        self.trouble: BaseException | None = None
        self._checked_at: object = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                self._look()
            except AssertionError as error:
                self.early = str(error)
                return
            except ConnectorError as error:
                self.unanswered += 1
                if not error.retriable:
                    self.trouble = error
                    return
            except BaseException as trouble:
                self.trouble = trouble
                return

    def _look(self) -> None:
        self._check_purges()
        with self._feed.gate if self._rng.random() < 0.5 else contextlib.nullcontext():
            acknowledged = dict(self._feed.acknowledged)
            self.asked += 1
            witness = self._witness
            positions = quiescent_at(self._log, witness.group, witness.inputs, witness.exchanges)
        if positions is None:
            self.lasting = 0
            return
        self.declared += 1
        with self._feed.gate:
            self._check({tp: position.offset for tp, position in positions.items()}, acknowledged)

    def _check(self, positions: dict[TopicPartition, int], acknowledged: dict[TopicPartition, int]) -> None:
        for tp, end in acknowledged.items():
            assert positions[tp] >= end, f"quiescent at {positions[tp]} of {tp}, acknowledged up to {end}"
        inputs = {tp: positions[tp] for tp in self._witness.inputs}
        if self._log.end_offsets(inputs) != inputs:
            return  # more has come: what has been made of it by now cannot be told
        if positions != self._checked_at:
            self._witness.check_exact()
            self._checked_at = positions
            self.lasting = 0
        self.checked += 1
        self.lasting += 1

    def _check_purges(self) -> None:
        """First records are read before positions: both only rise, so that the check is sound."""
        begins = self._log.begin_offsets(self._witness.exchanges)
        committed = self._log.committed(self._witness.group, [*self._witness.inputs, *self._witness.exchanges])
        for tp, begin in begins.items():
            at = committed[tp].offset if tp in committed else 0
            assert begin <= at, f"{tp}: purged up to {begin}, committed {at}"
        self.positions = {tp: position.offset for tp, position in committed.items()}

    def close(self) -> None:
        """Stop asking."""
        self._ended.set()
        self._thread.join()
