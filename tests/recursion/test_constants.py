"""Constants: rows that are there from the first epoch on, once, whoever runs, and however often it starts."""

import pytest

import eddy
from eddy import TopologyTestDriver
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.state.memory import MemoryStore
from tests.simulation.witness import KeptStore

N = eddy.Native


def pages(rows: list[tuple[str, int]]) -> eddy.Topology:
    """What is reached from constant pages by links, and how often."""
    topology = eddy.Topology("pages")
    links = topology.table("links", N, N).to_relation().map(lambda _, link: link)
    start = topology.constant(rows, "start")
    reach = start.recursively(lambda x: x.join(links, lambda a, n, b: (b, n), "step").distinct("once"), "reach")
    reach.group_by_key().count("reached").to("reached", N, eddy.Int64)
    return topology


def test_they_are_there_without_any_input() -> None:
    with TopologyTestDriver(pages([("a", 1), ("b", 2), ("a", 1)])) as driver:
        assert driver.store("reached").all() == {"a": 2, "b": 1}


@pytest.mark.parametrize("lose_state", [False, True])
def test_they_are_there_once_after_a_restart(lose_state: bool) -> None:
    with TopologyTestDriver(pages([("a", 1)]), partitions=3) as driver:
        driver.input("links").pipe(1, ("a", "c"))
        for _ in range(3):
            driver.restart(lose_state=lose_state)
        driver.input("links").pipe(2, ("c", "a"))
        assert driver.store("reached").all() == {"a": 2, "c": 1}
        driver.input("links").pipe(1, None)
        assert driver.store("reached").all() == {"a": 1}


def test_other_rows_are_another_plan_and_take_their_place_where_it_is_accepted() -> None:
    log, store = LocalLog(None), KeptStore()
    log.create_topics([TopicSpec("links", 2), TopicSpec("reached", 1)])
    for rows, reached in [([("a", 1), ("b", 1)], {"a": 1, "b": 1}), ([("b", 1), ("c", 1)], {"b": 1, "c": 1})]:
        if reached.keys() == {"b", "c"}:
            with pytest.raises(eddy.PlanChangedError, match=r"\+ constant start:"):
                eddy.Worker(pages(rows), log, store=KeptStore())
        worker = eddy.Worker(pages(rows), log, eddy.Config(accept_plan=True), store=store)
        worker.run_until_idle()
        assert dict(worker.circuit.states["reached"].items()) == reached  # type: ignore[attr-defined]
        worker.close()


def test_nothing_is_called_done_before_they_have_gone_out() -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("links", 2), TopicSpec("reached", 1)])
    workers = [eddy.Worker(pages([("a", 1)]), log, member=member, store=MemoryStore()) for member in "01"]
    for worker in workers:
        worker.step()  # both are members, and neither has had an epoch
    producer = log.producer(None)
    producer.begin()
    producer.send("links", 1, [N.encode(1)], [None], [0])  # of which nothing comes
    producer.commit({}, None)
    end = TopicPartition("reached", 0)
    try:
        for worker in [workers[1]] * 5 + [workers[0]] * 5 + workers * 5:
            worker.step()
            if worker.quiescent():
                assert log.end_offsets([end])[end], "quiescent, and nothing has been reached"
    finally:
        for worker in workers:
            worker.close()
