"""Writes the messages about data without a finite answer to the metadata topic; the rows themselves are in operators.

    circuit.held()   the messages of this worker's operators; only the states determine them
    noted            the messages in the topic for this worker's partitions, as of the last commit

These two sets of messages differ only within an epoch, because its transaction writes the difference. So the committed
records up to some positions determine the parts that are held at these positions, on any worker. A worker starts with
the topic's messages for its newly assigned partitions.

A part that is held now may have a finite answer when more input is read, so this is not yet an error of the data.
"""

import logging
from collections.abc import Callable, Mapping, Set

from eddy.connectors.log import Producer
from eddy.errors import NoFiniteAnswerError
from eddy.operators.circuit import Circuit
from eddy.operators.waves.held_errors import shortened
from eddy.runtime.metadata import write_held

__all__ = ["Holding", "told"]

_log = logging.getLogger("eddy.worker")

Place = tuple[str, int]
"""The name of a recursion, and a partition of its keys."""


class Holding:
    """The messages about the parts of recursions that one worker holds, and their changes in each epoch.

    Args:
        circuit: its `held` is read after each epoch.
        topic: the application's metadata topic.
        stops: the recursions that end the worker if they hold rows at quiescence.
        leads: whether this worker removes messages of recursions that the topology does not have.
    """

    def __init__(self, circuit: Circuit, topic: str, stops: Set[str], leads: Callable[[], bool]) -> None:
        self._circuit, self._topic, self._stops, self._leads = circuit, topic, stops, leads
        self.noted: Mapping[Place, str] = {}

    def begin(self, noted: Mapping[Place, str]) -> None:
        """Adopt the noted messages of the partitions that are owned now, after some were assigned or revoked.

        `noted` has the messages of all partitions in the metadata topic, whichever worker owns them.
        """
        ours = {place: why for place, why in noted.items() if self._is_ours(*place)}
        known = self._circuit.holding
        _warn({place: why for place, why in ours.items() if place[0] in known and place not in self.noted})
        self.noted = ours

    def changes(self) -> dict[Place, str | None]:
        """Return the messages that the next transaction writes, by recursion and partition; None deletes a message.

        A message is deleted when its part has a finite answer again.

        Cost: constant if nothing is held and nothing was held.
        """
        if not (self._circuit.holding or self.noted):
            return {}
        held = {place: shortened(why) for place, why in self._circuit.held().items()}
        undecided = self._circuit.undecided()
        held |= {place: why for place, why in self.noted.items() if place[0] in undecided}
        if held == self.noted:
            return {}
        changed: dict[Place, str | None] = {place: None for place in self.noted if place not in held}
        return changed | {place: why for place, why in held.items() if self.noted.get(place) != why}

    def write(self, producer: Producer, changes: Mapping[Place, str | None]) -> None:
        """Send `changes` in the open transaction."""
        write_held(producer, self._topic, changes)

    def commit(self, changes: Mapping[Place, str | None]) -> None:
        """Note that the transaction with `changes` has committed."""
        if not changes:
            return
        before, held = self.noted, {place: why for place, why in changes.items() if why is not None}
        self.noted = {place: why for place, why in before.items() if place not in changes} | held
        _warn({place: why for place, why in held.items() if place not in before})
        for name, partition in sorted(changes.keys() - held.keys()):
            _log.info("'%s' has a finite answer again, partition %d", name, partition, extra=_fields(name, partition))

    def check_stop(self, quiescent: Callable[[], bool]) -> None:
        """End the worker if a recursion of `stops` holds rows, and no input is left that could release them.

        Raises: NoFiniteAnswerError.
        """
        if not self._stops:
            return
        found = {place: why for place, why in self._circuit.held().items() if place[0] in self._stops}
        if found and quiescent():
            whys = "\n  ".join(told(found))
            raise NoFiniteAnswerError(f"all input is processed, and there is no finite answer: {whys}")

    def _is_ours(self, name: str, partition: int) -> bool:
        count = self._circuit.holding.get(name)
        return self._leads() if count is None else self._circuit.ownership.owns(partition, count)


def told(held: Mapping[Place, str]) -> list[str]:
    """Return the distinct messages, in the order of recursions and partitions."""
    return list(dict.fromkeys(why for _, why in sorted(held.items())))


def _warn(held: Mapping[Place, str]) -> None:
    for (name, partition), why in sorted(held.items()):
        _log.warning("no finite answer: %s", why, extra=_fields(name, partition))


def _fields(name: str, partition: int) -> dict[str, object]:
    return {"fields": {"step": name, "partition": partition}}
