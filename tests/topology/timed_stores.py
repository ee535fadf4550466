"""Operations on a store whose rows are kept for a time, in records: beside a model in plain Python, which has the same
methods, and `rows()`, the rows of the store's state.
"""

from collections.abc import Callable
from typing import Any, Protocol

from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.state.memory import MemoryStore
from tests.waiting import step_to_rest

__all__ = ["Model", "applied", "applying", "check_answers", "check_workers", "kept_in", "plain"]

S, Native = eddy.String, eddy.Native
Operation = tuple[Any, ...]
"""The name of a method, or `put and raise`, and its arguments."""


class Model(Protocol):
    def rows(self) -> dict[Any, Any]: ...


def applying(method: str) -> type[Any]:
    """A processor that applies the operation in each record's value to the store `w`, and forwards its result."""

    class Applies:
        def init(self, context: eddy.ProcessorContext) -> None:
            self.context = context
            self.store = getattr(context, method)("w")

        def process(self, record: eddy.Record[str, Any]) -> None:
            name, *arguments = record.value
            if name == "put and raise":
                self.store.put(*arguments)
                raise ValueError("planned")
            result = getattr(self.store, name)(*arguments)
            self.context.forward(record.replace(value=plain(result)))

    return Applies


def kept_in(method: str, key: eddy.Serde[Any], value: eddy.Serde[Any], **declared: Any) -> eddy.Topology:
    """A topology with the store `w`, to which the operations in the topic `in` are applied."""
    topology = eddy.Topology("app")
    topology.store("w", key, value, **declared)
    topology.stream("in", key=S, value=Native).process(applying(method), ["w"], "step", S, Native).to("out")
    return topology


def plain(result: Any) -> Any:
    """A result with tuples for rows, windows and versions, as the serde `Native` has them."""
    if result is None or isinstance(result, int):
        return result
    return tuple(plain(part) if not isinstance(part, str) else part for part in result)


def applied(model: Model, operation: Operation) -> Any:
    name, *arguments = operation
    return plain(getattr(model, name)(*arguments))


def check_answers(topology: eddy.Topology, model: Model, epochs: list[list[Operation]], data: st.DataObject) -> None:
    """The store answers as the model, and has its rows after each epoch, whatever fails and is lost."""
    wanted = []
    with eddy.TopologyTestDriver(topology, config=eddy.Config(on_error="skip")) as driver:
        for epoch in epochs:
            if data.draw(st.booleans()):
                driver.restart(lose_state=data.draw(st.booleans()))
            driver.input("in").pipe_all([("k", operation) for operation in epoch])
            wanted += [applied(model, operation) for operation in epoch if operation[0] != "put and raise"]
            assert driver.store("w").all() == model.rows()
        assert [value for _, value in driver.output("out").read_key_values()] == wanted


def check_workers(
    build: Callable[[], eddy.Topology], model: Callable[[], Model], epochs: list[list[Operation]], data: st.DataObject
) -> None:
    """The stores of three partitions answer as three models, while two workers come and go, with nothing on disk."""
    log, partitions = LocalLog(None), 3
    log.create_topics(TopicSpec(topic, partitions) for topic in ("in", "out"))
    config = eddy.Config(on_error="skip")

    def worker(member: str) -> eddy.Worker:
        return eddy.Worker(build(), log, config, member=member, store=MemoryStore(), clock=lambda: 0.0)

    workers = [worker("0"), worker("1")]
    models, wanted = [model() for _ in range(partitions)], []
    for epoch in epochs:
        producer = log.producer(None)
        producer.begin()
        for number, operation in enumerate(epoch):
            partition = number % partitions
            producer.send("in", partition, [b"k"], [Native.encode(operation)], [0])
            if operation[0] != "put and raise":
                wanted.append(applied(models[partition], operation))
        producer.commit({}, None)
        for one in workers:
            one.step()
        if data.draw(st.booleans()):
            number = data.draw(st.integers(0, 1))
            workers[number].close()
            workers[number] = worker(str(number))
    step_to_rest(workers)
    for one in workers:
        one.close()
    found: list[Any] = []
    for partition in range(partitions):
        at = TopicPartition("out", partition)
        read = log.read(at, 0, log.end_offsets([at])[at], 100_000)
        found += [None if value is None else Native.decode(value) for value in read.values]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
