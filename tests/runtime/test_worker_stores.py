"""`Worker.store` among several workers: each shows the rows of its partitions, whatever is still on its disk."""

import random
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.state.memory import MemoryStore
from tests.runtime.logs import log_of
from tests.seeds import of_today
from tests.waiting import PATIENCE_S, step_to_rest, wait_for

S = eddy.String


class Disk(MemoryStore):
    """A store whose rows survive its worker."""

    def close(self) -> None:
        """Keep the rows."""


class Kept:
    """Keeps each record in a store of its own."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.rows = context.store("kept")

    def process(self, record: eddy.Record[str, Any]) -> None:
        self.rows.put(record.key, record.value)


def keeping() -> eddy.Topology:
    topology = eddy.Topology("stores")
    topology.store("kept", S, S)
    words = topology.table("words", key=S, value=S)
    words.process_values(Kept, ["kept"], "keeping")
    words.group_by(lambda key, value: (value, key), key=S).count("counts")
    return topology


def shown(workers: list[eddy.Worker], name: str) -> dict[str, Any]:
    """All rows that workers show of a store; no key is shown by two of them."""
    found: dict[str, Any] = {}
    for worker in workers:
        rows = worker.store(name).all()
        assert not found.keys() & rows.keys()
        assert all(worker.store(name).get(key) == value for key, value in rows.items())
        assert [key for key in "abcdefghxyz" if worker.store(name).get(key) is not None] == sorted(rows)
        found |= rows
    return found


def step_until_shown(workers: list[eddy.Worker], expected: dict[str, dict[str, Any]]) -> None:
    """Step workers until their stores have these rows: one may still restore rows while all input is processed."""

    def are_shown() -> bool:
        for worker in workers:
            worker.step()
        found: dict[str, dict[str, Any]] = {name: {} for name in expected}
        for name, rows in found.items():
            for worker in workers:
                rows.update(worker.store(name).all())
        return found == expected and all(worker.state != "restoring" for worker in workers)

    wait_for(are_shown, PATIENCE_S)


@pytest.mark.parametrize("seed", of_today(3))
def test_each_row_is_shown_by_its_owner_alone(seed: int) -> None:
    dice, log, words = random.Random(seed), log_of({"words": 3}), dict[str, str]()
    workers: list[eddy.Worker] = []
    disks: list[Disk] = []
    for _ in range(12):
        if len(workers) == 4 or (len(workers) > 1 and dice.random() < 0.3):
            worker = workers.pop(dice.randrange(len(workers)))
            worker.close()
            disks.append(worker.local_store)  # type: ignore[arg-type]
        else:
            disk = disks.pop() if disks and dice.random() < 0.7 else Disk()
            workers.append(started(log, disk, f"w{dice.random()}"))
        rows = {dice.choice("abcdefgh"): dice.choice("xyz") for _ in range(3)}
        words |= rows
        log.write("words", rows)
        step_to_rest(workers)
        counts = {value: [*words.values()].count(value) for value in words.values()}
        step_until_shown(workers, {"words": words, "kept": words, "counts": counts})
        assert shown(workers, "words") == shown(workers, "kept") == words
        assert shown(workers, "counts") == counts


def test_a_worker_without_partitions_shows_nothing_of_its_disk() -> None:
    log, disk = log_of({"words": 1}), Disk()
    first = started(log, disk, "first")
    log.write("words", {"a": "x"})
    step_to_rest([first])
    first.close()
    second, idle = started(log, Disk(), "second"), started(log, disk, "third")
    log.write("words", {"a": "y"})
    step_to_rest([second, idle])
    assert (second.store("kept").all(), second.store("words").get("a")) == ({"a": "y"}, "y")
    assert (idle.store("kept").all(), idle.store("words").get("a"), len(idle.store("words"))) == ({}, None, 0)


def started(log: LocalLog, disk: Disk, member: str) -> eddy.Worker:
    return eddy.Worker(keeping(), log, member=member, store=disk)
