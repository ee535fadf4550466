"""Messages of Kafka's client become columns; an event among them takes no record away."""

from confluent_kafka import KafkaError, Message

from eddy.connectors.kafka.record_columns import Columns, take


def record(topic: str, offset: int) -> Message:
    return Message(topic=topic, partition=0, offset=offset, key=b"k", value=b"v", timestamp=(1, 0))


def test_records_after_an_event_are_taken_before_it_is_handled() -> None:
    """An event may raise. What was taken from the client is given back only for partitions that have columns."""
    columns: dict[tuple[str, int], Columns] = {}
    failed = Message(error=KafkaError(KafkaError.REQUEST_TIMED_OUT))
    assert take([record("a", 0), failed, record("b", 0), record("a", 1)], columns) == [failed]
    assert {where: column.offsets for where, column in columns.items()} == {("a", 0): [0, 1], ("b", 0): [0]}
    assert take([record("a", 2), record("a", 3)], columns) == []
    assert columns["a", 0].offsets == [0, 1, 2, 3]
