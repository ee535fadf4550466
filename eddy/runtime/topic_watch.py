"""While a worker runs, looks for new topics that match patterns, and for topics that were deleted or created again."""

import logging
from collections.abc import Callable, Mapping

from eddy.connectors.log import Log
from eddy.errors import ConnectorError
from eddy.runtime.matching_topics import MatchingTopics
from eddy.topology.topology import Topology

__all__ = ["TopicWatch"]

_log = logging.getLogger("eddy.worker")


class TopicWatch:
    """The topics that match, as of the last look; at least `interval_s` seconds of `clock` lie between two looks."""

    def __init__(self, topology: Topology, log: Log, interval_s: float, clock: Callable[[], float]) -> None:
        self._topology, self._log, self._interval_s, self._clock = topology, log, interval_s, clock
        self._due = self._ids_due = clock()
        self._told: dict[str, str] = {}
        self.matching = MatchingTopics()

    def adopt(self, matching: MatchingTopics) -> None:
        """Note that the worker reads these topics from now on."""
        before, now = self.matching.names, matching.names
        for what, topics in (("joins", now - before), ("was deleted", before - now)) if before else ():
            for topic in sorted(topics):
                _log.info("application '%s': topic '%s' %s", self._topology.name, topic, what)
        self.matching = matching
        self._due = self._clock() + self._interval_s
        self._log_refused(matching)

    def changed(self, now: bool = False) -> bool:
        """Return whether the matching topics differ from the topics that the worker reads; False if no look is due.

        With `now`, the time of the last look does not matter. If the log does not answer, the next call looks again.
        """
        if not self.matching.topics or not (now or self._clock() >= self._due):
            return False
        try:
            found = self.look()
        except ConnectorError as error:
            if not error.retriable:
                raise
            return False
        self._log_refused(found)
        if found.names != self.matching.names:
            self._due = self._clock()  # until the worker has adopted them
            return True
        self._due = self._clock() + self._interval_s
        return False

    def made_anew(self, known: Mapping[str, int], now: bool = False) -> bool:
        """Return whether one of the sources `known` has another id: it was deleted and created again.

        False if no look is due and `now` is False, or if the log does not answer.
        """
        if not known or not (now or self._clock() >= self._ids_due):
            return False
        self._ids_due = self._clock() + self._interval_s
        try:
            found = self._log.topic_ids(known)()
        except ConnectorError as error:
            if not error.retriable:
                raise
            return False
        return any(found.get(topic, id_) != id_ for topic, id_ in known.items())

    def look(self) -> MatchingTopics:
        """Return the topics that match patterns now. Raises: ConnectorError."""
        return MatchingTopics.of(self._topology, self._log, self.matching.names)

    def complete(self) -> bool:
        """Whether the worker reads all topics that match now. Raises: ConnectorError."""
        return not self.matching.topics or self.look().names == self.matching.names

    def _log_refused(self, found: MatchingTopics) -> None:
        for topic, why in found.refused.items():
            if self._told.get(topic) != why:
                _log.error("application '%s': topic '%s' is not read: %s", self._topology.name, topic, why)
        self._told = dict(found.refused)
