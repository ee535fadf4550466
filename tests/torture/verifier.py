"""The verifier: what a torture has left behind, held to the oracle when everything has come to rest.

1. Outputs are the oracle's answer, facts as a multiset, tables by the last value of each key.
2. Changelogs fold to the oracle's answer, at the end and at every cut.
3. A store is its changelogs, folded up to the offset that it says it has: all of them for what was owned last.
4. Rows sent and taken are as many in every loop, by what the commits have booked.
5. Nothing is left to do, and `quiescent` says so.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eddy.connectors.log import TopicPartition
from eddy.errors import StateError
from eddy.runtime.quiescence import lags, quiescent, tally
from eddy.state.offsets import read_offsets
from eddy.state.rocksdb import RocksDBStore
from tests.simulation.witness import Witness, agree, latest
from tests.torture.rig import Rig

__all__ = ["Difference", "difference", "verify"]


@dataclass
class Difference:
    """How far outputs are from the oracle's answer: facts lost and doubled, keys of tables that are wrong."""

    lost: int = 0
    doubled: int = 0
    wrong: int = 0


def verify(rig: Rig, owned: Mapping[str, set[TopicPartition]]) -> None:
    """Raises: AssertionError naming what does not hold. `owned` is what each worker has owned last."""
    witness = rig.witness
    if not quiescent(rig.log, witness.group, witness.inputs, witness.exchanges):
        lag = lags(rig.log, witness.group, [*witness.inputs, *witness.exchanges])
        raise AssertionError(f"it was at rest, and is not any more: offsets left {lag}, fed {rig.feed.acknowledged}")
    assert not (left := witness.pending()), f"quiescent, and {left} left"
    witness.check_exact()
    witness.check_counters(seen=None)
    check_loops(rig)
    witness.check_cuts()
    for folder in sorted(rig.state.iterdir()):
        try:
            check_store(witness, folder, owned.get(folder.name, set()))
        except StateError:
            if folder.name not in rig.damaged:
                raise


def check_loops(rig: Rig) -> None:
    """In each internal topic as many rows were taken as were sent."""
    committed = rig.log.committed(rig.application, [*rig.witness.inputs, *rig.witness.exchanges])
    for topic, counters in tally(committed).items():
        assert counters.emitted == counters.consumed, f"{topic}: {counters}"


def check_store(witness: Witness, folder: Path, owned: set[TopicPartition]) -> None:
    """The rows of each partition are those of its changelog, up to the store's offset in it."""
    store = RocksDBStore(folder, witness.group, 1 << 20)
    try:
        offsets = read_offsets(store)
        mine = {partition for _, partition in owned}
        for name, state in witness.states.items():
            topic = state.spec.changelog
            assert topic is not None, f"state '{name}' has no changelog"
            for tp in witness.partitions[topic]:
                prefix = state.spec.prefix(tp.partition)
                held = {key[len(prefix) :]: value for key, value in store.scan(prefix)}
                end = witness.log.end_offsets([tp])[tp] if tp.partition in mine else offsets.get(tp, 0)
                records = witness.log.read(tp, 0, end, 1 << 30)
                told = latest(zip(records.keys, records.values, strict=True))
                agree(f"store {folder.name}: '{name}' {tp.partition} at {end}", held, told)
    finally:
        store.close()


def difference(witness: Witness) -> Difference:
    """Compare outputs with the oracle's answer."""
    found = Difference()
    for topic, answer in witness.expected().sinks.items():
        rows = witness.sink(topic)
        if isinstance(rows, Counter):
            found.lost += (answer - rows).total()
            found.doubled += (rows - answer).total()
        else:
            found.wrong += sum(rows.get(key) != answer.get(key) for key in {**rows, **answer})
    return found
