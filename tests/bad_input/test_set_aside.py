"""Rows that cannot be processed after an exchange, on Kafka, where another worker has made them."""

import pytest

import eddy
from eddy.errors import DataError
from eddy.partitioner import partition_of
from tests.bad_input.rig import Rig

LARGEST = 2**63 - 1
Amounts = dict[str, tuple[str, int]]


def totals(rig: Rig) -> eddy.Topology:
    """Amounts of table `in`, added up by group in `totals`; both the state and the sink take 64 bits."""
    topology = eddy.Topology(rig.name)
    orders = topology.table(rig.topic("in"), eddy.String, eddy.Json(), name="orders")
    groups = orders.group_by(lambda _, order: tuple(order), key=eddy.String, value=eddy.Int64)
    groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "sums").to(rig.topic("totals"), value=eddy.Int64)
    return topology


def added_up(amounts: Amounts) -> dict[str, int]:
    """The oracle of `totals`."""
    sums: dict[str, int] = {}
    for group, amount in amounts.values():
        sums[group] = sums.get(group, 0) + amount
    return {group: total for group, total in sums.items() if total <= LARGEST}


def write(rig: Rig, amounts: Amounts) -> None:
    rig.write("in", [(key, eddy.Json().encode(list(row))) for key, row in amounts.items()])


def orders(first: int) -> Amounts:
    return {f"k{n}": (f"g{n % 5}", LARGEST if n == 7 else n) for n in range(first, first + 40)}


def test_a_group_without_room_has_no_row_until_it_has_room_again(rig: Rig) -> None:
    rig.create("in", "totals", partitions=4)
    config = eddy.Config(on_error="dead-letter", max_epoch_records=10)
    workers = [rig.worker(totals(rig), config, member=str(number)) for number in range(2)]
    rig.share(*workers)
    amounts = orders(0)
    write(rig, amounts)
    rig.settle(*workers)
    assert rig.table("totals", eddy.Int64) == added_up(amounts)
    assert "g2" not in added_up(amounts)
    ((key, _, told),) = rig.letters()
    assert (key, told["eddy.step"], told["eddy.weight"]) == (b"g2", "sums", "1")
    assert f"'{rig.topic('in')}' partition" in told["eddy.sources"]
    workers.pop().close()
    write(rig, orders(100))
    rig.settle(*workers)
    assert rig.table("totals", eddy.Int64) == added_up(amounts | orders(100))
    rig.write("in", [("k7", None)])
    rig.settle(*workers)
    del amounts["k7"]
    assert rig.table("totals", eddy.Int64) == added_up(amounts | orders(100))
    assert sum(worker.statistics.kept_aside for worker in workers) == 0
    assert len(rig.letters()) == 1


def test_fail_names_the_row_and_the_records_that_its_sender_had(rig: Rig) -> None:
    rig.create("in", "totals", partitions=4)
    workers = [rig.worker(totals(rig), eddy.Config(), member=str(number)) for number in range(2)]
    rig.share(*workers)
    mine, other = keys_of(workers[0], "k"), keys_of(workers[1], "g")
    write(rig, {mine[0]: (other[0], LARGEST)})
    rig.settle(*workers)
    write(rig, {mine[1]: (other[0], 1)})
    with pytest.raises(DataError, match=r"sums-repartition.*state 'sums'") as refused:
        rig.settle(*workers)
    assert f"(row '{other[0]}': 1 of weight 1, of '{rig.topic('in')}' partition" in str(refused.value)


def keys_of(worker: eddy.Worker, letter: str) -> list[str]:
    """Keys of partitions that a worker owns."""
    owned = worker.circuit.ownership.partitions[4]
    return [key for n in range(99) if partition_of((key := f"{letter}{n}").encode(), 4) in owned]
