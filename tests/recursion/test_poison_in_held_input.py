"""Records on which the author's function fails while what they belong to has no finite answer."""

from typing import Any

import pytest

import eddy
from eddy import TopologyTestDriver
from eddy.operators.batch import Batch
from eddy.operators.exchange import Received, by_iteration

N, S = eddy.Int64, eddy.String
UNLUCKY = 13


def growing(start: int, distinct: bool) -> eddy.Topology:
    """Each row of 100 or more leads to ever greater ones; the function fails on 13."""
    topology = eddy.Topology("app")

    def more(key: str, n: int) -> tuple[str, int]:
        if n == UNLUCKY:
            raise ValueError("unlucky")
        return key, n + 1_000

    def op(x: eddy.Relation[str, int]) -> eddy.Relation[str, int]:
        made = x.filter(lambda _, n: n >= 100 or n == UNLUCKY, "alive").map(more, name="more", key=S, value=N)
        return made.distinct("once") if distinct else made

    rows = topology.table("in", key=S, value=N, name="rows").to_relation()
    many = rows.flat_map(lambda key, n: [(f"{key}{i}", n) for i in range(start if n >= 100 else 1)], "many", S, N)
    loop = many.recursively(op, "loop", limit=1_000 if distinct else 100)
    loop.group_by_key(key=S).count("counts").to("out", key=S, value=N)
    loop.errors.group_by_key(key=S).count("errors").to("errors", key=S, value=N)
    return topology


def test_a_poisonous_record_in_waves_that_are_held_as_a_whole_never_stops_the_worker(on_error: Any) -> None:
    with TopologyTestDriver(growing(1, distinct=False), eddy.Config(on_error=on_error)) as driver:
        driver.input("in").pipe("z", 100)
        driver.input("in").pipe("a", UNLUCKY)
        driver.restart()
        driver.input("in").pipe("b", 1)
        driver.restart()
        driver.input("in").pipe("z", None)
        assert driver.output("out").read_map() == {"a0": 1, "b0": 1}  # what op makes of 13 is set aside


def test_the_message_names_a_row_that_has_no_end_also_after_a_restart() -> None:
    with TopologyTestDriver(growing(1, distinct=False)) as driver:
        driver.input("in").pipe("z", 100)
        driver.input("in").pipe("a", 1)
        before = driver.held()
        driver.restart()
        assert driver.held() == before
        assert all("key 'z0'" in why for why in before.values()), before


def test_a_poisonous_row_in_a_queue_is_set_aside_when_its_turn_comes(on_error: Any) -> None:
    with TopologyTestDriver(growing(50, distinct=True), eddy.Config(on_error=on_error)) as driver:
        driver.input("in").pipe("z", 100)
        driver.input("in").pipe("a", UNLUCKY)  # after so dear a try the next one waits; no function is called
        driver.input("in").pipe("b", 1)
        driver.restart()
        driver.input("in").pipe("c", 1)
        assert driver.held()
        driver.input("in").pipe("z", None)
        assert not driver.held()
        assert driver.output("out").read_map() == {"a0": 1, "b0": 1, "c0": 1}
        assert driver.worker.statistics.kept_aside == 1
        driver.input("in").pipe("a", None)
        assert driver.output("out").read_key_values() == [("a0", None)]
        assert driver.worker.statistics.kept_aside == 0


def test_a_poisonous_row_in_a_queue_holds_the_recursion_if_every_error_stops_the_worker() -> None:
    """Its record was committed earlier, so it is not the record at hand that ends the worker."""
    with TopologyTestDriver(growing(50, distinct=True), eddy.Config(on_error="fail")) as driver:
        driver.input("in").pipe("z", 100)
        driver.input("in").pipe("a", UNLUCKY)
        driver.input("in").pipe("b", 1)
        driver.input("in").pipe("z", None)
        assert any("the function raised ValueError: unlucky" in why for why in driver.held().values())
        driver.input("in").pipe("a", None)
        assert driver.output("out").read_map() == {"b0": 1}
        assert not driver.held()


@pytest.fixture(params=["skip", "dead-letter"])
def on_error(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_received_rows_are_divided_by_iteration_with_all_that_they_have() -> None:
    rows = [(f"k{i}", i) for i in range(6)]
    received = Received(Batch(rows, [1, -1, 2, 1, 1, 1], 7, [1, 2, 3, 4, 5, 6]), [3, 0, 3, 1, 0, 3])
    parts = by_iteration(received)
    assert {at: (part.rows, part.weights, part.times) for at, part in parts.items()} == {
        0: ([rows[1], rows[4]], [-1, 1], [2, 5]),
        1: ([rows[3]], [1], [4]),
        3: ([rows[0], rows[2], rows[5]], [1, 2, 1], [1, 3, 6]),
    }


def test_many_iterations_among_received_rows_cost_one_pass() -> None:
    looks = 0

    class Read(list[Any]):
        """Counts how often a row is looked at."""

        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)

        def __iter__(self) -> Any:
            nonlocal looks
            looks += len(self)
            return super().__iter__()

    rows = Read((i, i) for i in range(1_000))
    parts = by_iteration(Received(Batch(rows, [1] * 1_000), list(range(1_000))))
    assert len(parts) == 1_000
    assert looks <= 3_000
