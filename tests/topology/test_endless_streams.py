"""Records of a stream whose recursion has no end: reported by the error policy, and none stays in a loop topic."""

from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec

S = eddy.String


def forwarding() -> eddy.Topology:
    """Messages go from person to person, by rules."""
    topology = eddy.Topology("forwarding")
    rules = topology.table("rules", key=S, value=S)
    mail = topology.stream("mail", key=S, value=S)
    mail.recursively(
        lambda messages: messages.join(rules, lambda text, to: (to, text)).map(lambda _, pair: pair, "forward", S, S),
        name="forwarded",
        limit=80,
    ).to("delivered", key=S, value=S)
    return topology


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_a_record_that_goes_round_is_left_out_and_the_others_are_delivered(policy: Any) -> None:
    with eddy.TopologyTestDriver(forwarding(), eddy.Config(on_error=policy)) as driver:
        driver.input("rules").pipe_all([("a", "b"), ("b", "a"), ("x", "y")])
        driver.input("mail").pipe_all([("x", "1"), ("a", "2"), ("x", "3")])
        assert sorted(driver.output("delivered").read_key_values()) == [("x", "1"), ("x", "3"), ("y", "1"), ("y", "3")]
        assert driver.worker.statistics.skipped == 1


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_what_goes_round_through_the_topic_ends_at_the_limit(policy: Any) -> None:
    """Two workers own a and b, so that neither sees the whole way."""
    log = LocalLog(None)
    log.create_topics(TopicSpec(topic, 8) for topic in ("rules", "mail", "delivered"))
    topology = forwarding()
    people = "abcdefgh"
    config = eddy.Config(on_error=policy, max_loop_rows=20)
    workers = [eddy.Worker(topology, log, config, member=f"w{i}") for i in range(2)]

    def settle() -> None:
        for _ in range(2_000):
            if not sum(worker.step() for worker in workers) and workers[0].quiescent():
                return
        raise AssertionError("something stays in the loop's topic")

    def write(topic: str, rows: list[tuple[str, str]]) -> None:
        producer = log.producer(None)
        producer.begin()
        for key, value in rows:
            data = key.encode()
            producer.send(topic, log.partitioner(data, 8), [data], [value.encode()], [0])
        producer.commit({}, None)
        producer.close()

    write("rules", [*zip(people, people[1:] + people[0], strict=True), ("x", "y")])
    settle()
    write("mail", [("a", "1")])
    settle()
    write("mail", [("x", "2")])
    settle()
    assert sum(worker.statistics.cut_rows for worker in workers) == 1
    assert (log.end_offsets(dead_letters(log)) != dict.fromkeys(dead_letters(log), 0)) == (policy == "dead-letter")
    for worker in workers:
        worker.close()
    log.close()


def dead_letters(log: LocalLog) -> list[Any]:
    from eddy.connectors.log import TopicPartition

    return [TopicPartition("forwarding-dead-letter", 0)] if "forwarding-dead-letter" in log.topics() else []
