"""The identity of a plan: what may change without a word, and what may not."""

from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from eddy.topology.plan.identity import identity
from tests.topology.programs import S, family


def lines(topology: eddy.Topology) -> list[str]:
    counts = {node.topic: 1 for node in topology.plan.sources()}
    return identity(topology.plan, compile_plan(topology.plan, Environment(counts)))


def program(step: bool, name: str = "app") -> eddy.Topology:
    """With or without a stateless step in the middle."""
    topology = eddy.Topology(name)
    words, known = topology.stream("words", key=S, value=S), topology.table("known", key=S, value=S)
    if step:
        words = words.filter(lambda key, value: bool(value))
    words.to_table()
    words.join(known, lambda word, meaning: meaning, value=S).group_by_key().count("counts").to("out")
    words.group_by(lambda key, value: value, key=S).reduce(lambda old, new: new, "latest")
    words.recursively(lambda rows: rows.filter(lambda key, value: False), include_seeds=False).to("never")
    return topology


def test_identity_names_sources_topics_and_states() -> None:
    assert lines(family()) == [
        "source nodes as table",
        "state ancestors arrangement partitions=1 key=string value=native",
        "state ancestors-held arrangement partitions=1 key=string value=native",
        "state ancestors-reached arrangement partitions=1 key=string value=native",
        "state descendants table partitions=1 key=string value=int64",
        "state nodes table partitions=1 key=string value=string",
        "topic family-ancestors-loop partitions=1 key=string value=native",
    ]


def test_a_stateless_step_moves_no_state_and_no_topic() -> None:
    assert lines(program(step=True)) == lines(program(step=False))
    assert lines(family(filtered=True)) == lines(family())


def test_a_lambda_may_change() -> None:
    def counted(function: Any) -> eddy.Topology:
        topology = eddy.Topology("app")
        topology.stream("in", key=S, value=S).filter(function).group_by_key().count("counts")
        return topology

    assert lines(counted(lambda k, v: True)) == lines(counted(lambda k, v: False))


def test_steps_without_state_are_numbered_and_steps_with_state_are_not() -> None:
    states = {line.split()[1] for line in lines(program(step=True)) if line.startswith("state ")}
    assert states == {"known", "counts", "latest", "words-table"}


class TestChangedPlan:
    """A second worker on the log of the first, with another topology of the same name."""

    @pytest.fixture
    def log(self) -> LocalLog:
        log = LocalLog(None)
        log.create_topics([TopicSpec(name, 1) for name in ("in", "words", "known", "out", "never")])
        first = eddy.Worker(self.counted("counts"), log)
        producer = log.producer(None)
        producer.begin()
        producer.send("in", 0, [b"a"], [b"1"], [0])
        producer.commit({}, None)
        first.run_until_idle()
        first.close()
        return log

    def counted(self, *names: str, value: eddy.Serde[Any] = S) -> eddy.Topology:
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=value)
        for name in names:
            stream.group_by_key().count(name)
        return topology

    def test_the_same_plan_starts_again(self, log: LocalLog) -> None:
        worker = eddy.Worker(self.counted("counts"), log)
        worker.run_until_idle()
        worker.close()

    def test_a_new_state_is_refused_with_the_difference(self, log: LocalLog) -> None:
        with pytest.raises(eddy.PlanChangedError) as caught:
            eddy.Worker(self.counted("counts", "more"), log)
        assert "application 'app': the topology is not the one that wrote its state" in str(caught.value)
        assert "    + state more table partitions=1 key=string value=int64" in str(caught.value)
        assert "--accept-plan" in str(caught.value)
        assert "- state" not in str(caught.value)

    def test_a_renamed_state_is_refused(self, log: LocalLog) -> None:
        with pytest.raises(eddy.PlanChangedError, match=r"(?s)- state counts .*\+ state other "):
            eddy.Worker(self.counted("other"), log)

    def test_a_changed_plan_starts_where_it_is_accepted_and_is_then_the_known_one(self, log: LocalLog) -> None:
        accepted = eddy.Worker(self.counted("counts", "more"), log, eddy.Config(accept_plan=True))
        producer = log.producer(None)
        producer.begin()
        producer.send("in", 0, [b"a"], [b"2"], [0])
        producer.commit({}, None)
        accepted.run_until_idle()
        assert dict(accepted.circuit.states["counts"].items()) == {"a": 2}  # type: ignore[attr-defined]
        assert dict(accepted.circuit.states["more"].items()) == {"a": 1}  # type: ignore[attr-defined]
        accepted.close()
        eddy.Worker(self.counted("counts", "more"), log).close()
        with pytest.raises(eddy.PlanChangedError):
            eddy.Worker(self.counted("counts"), log)

    def test_what_would_be_misread_cannot_be_accepted(self, log: LocalLog) -> None:
        topology = eddy.Topology("app")
        topology.stream("in", key=S, value=S).group_by_key().reduce(lambda first, _: first, "counts")
        with pytest.raises(eddy.PlanChangedError, match=r"misread, which cannot be accepted"):
            eddy.Worker(topology, log, eddy.Config(accept_plan=True))

    def test_an_accepted_plan_is_remembered_though_nothing_comes_in(self, log: LocalLog) -> None:
        for accept in (True, False):
            worker = eddy.Worker(self.counted("counts", "more"), log, eddy.Config(accept_plan=accept))
            worker.run_until_idle()
            worker.close()
