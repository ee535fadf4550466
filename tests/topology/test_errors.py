"""Error policies: which record was to blame, what becomes of it, and that nothing else is touched."""

import json
import logging
import math
import re
from decimal import Decimal
from typing import Any

import pytest

import eddy
from eddy import Config, DataError, TopologyTestDriver
from eddy.connectors.log import Headers
from tests.topology.programs import S

N = eddy.Int64
KEY, VALUE = "a".encode, N.encode


def program() -> eddy.Topology:
    """Sums of numbers by key; 13 cannot be processed. Every record that got through is written to "seen"."""
    topology = eddy.Topology("app")
    numbers = topology.stream("numbers", key=S, value=N).map_values(lambda n: 1 // 0 if n == 13 else n, "check")
    numbers.group_by_key().reduce(lambda total, n: total + n, "sums")
    numbers.to("seen", value=N)
    topology.table("names", key=S, value=S)
    return topology


Raw = tuple[bytes | None, bytes | None]
BAD: dict[str, tuple[str, Raw, str]] = {
    "undecodable key": ("numbers", (b"\xff", N.encode(1)), r"the key b'\\xff' is not a valid string: .*can't decode"),
    "undecodable value": ("numbers", (b"a", b"short"), r"the value b'short' is not a valid int64: .*8 bytes"),
    "undecodable value in a table": (
        "names",
        (b"a", b"\xff"),
        r"the value b'\\xff' is not a valid string: .*can't decode",
    ),
    "raising function": ("numbers", (b"a", N.encode(13)), r"step 'check': the function raised ZeroDivisionError"),
}
GOOD = [(b"a", N.encode(n)) for n in (1, 2, 4)]
MORE = [(b"b", N.encode(n)) for n in (8, 16)]


def send(driver: TopologyTestDriver, topic: str, records: list[Raw], headers: Headers | None = None) -> None:
    """One transaction of raw records."""
    producer = driver.log.producer(None)
    producer.begin()
    columns = [key for key, _ in records], [value for _, value in records], [5] * len(records)
    producer.send(topic, 0, *columns, None if headers is None else [headers] * len(records))
    producer.commit({}, None)
    producer.close()


@pytest.mark.parametrize("name", BAD)
def test_fail_names_the_record_and_undoes_its_epoch(name: str) -> None:
    topic, bad, message = BAD[name]
    with TopologyTestDriver(program()) as driver:
        send(driver, "numbers", GOOD)
        driver.run()
        send(driver, topic, [bad])
        with pytest.raises(DataError, match=rf"topic '{topic}' partition 0 offset \d+ key .*: {message}"):
            driver.run()
        assert driver.store("sums").all() == {"a": 7}
        assert driver.worker.statistics.aborts >= 1


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_one_bad_record_among_many_is_left_out_and_the_others_count_once(
    name: str, policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic, bad, message = BAD[name]
    with TopologyTestDriver(program(), Config(on_error=policy)) as driver, caplog.at_level(logging.WARNING, "eddy"):
        send(driver, "numbers", GOOD)
        send(driver, topic, [bad], (("trace", b"7"),))
        send(driver, "numbers", MORE)
        driver.run()
        assert driver.store("sums").all() == {"a": 7, "b": 24}
        assert [value for _, value in driver.output("seen").read_key_values()] == [1, 2, 4, 8, 16]
        assert driver.worker.statistics.skipped == 1
        assert sum("record rejected" in record.message for record in caplog.records) == 1
        letters = driver.output("app-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
        if policy == "skip":
            assert letters == []
            return
        (letter,) = letters
        assert (letter.key, letter.value, letter.timestamp_ms) == (*bad, 5)
        assert letter.headers[:4] == (
            ("trace", b"7"),
            ("eddy.topic", topic.encode()),
            ("eddy.partition", b"0"),
            ("eddy.offset", b"0" if topic == "names" else b"4"),
        )
        ((what, reason),) = letter.headers[4:]
        assert what == "eddy.error"
        assert re.search(message, reason.decode())


def parsed(text: str) -> int:
    """A function of the author's, whose fault lies in a function of the library."""
    return int(json.loads(text)["n"])


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_the_line_that_raised_is_in_logs_and_letters(policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).map_values(parsed, "parse").to("out", value=N)
    line = parsed.__code__.co_firstlineno + 2
    said = (
        rf"step 'parse': the function raised JSONDecodeError: Expecting value.* \(\S*test_errors\.py:{line} in parsed\)"
    )
    with TopologyTestDriver(topology, Config(on_error=policy)) as driver, caplog.at_level(logging.WARNING, "eddy"):
        driver.input("in").pipe("a", "no json")
        (logged,) = [record.message for record in caplog.records if "record rejected" in record.message]
        assert re.search(said, logged)
        letters = driver.output("app-dead-letter", key=eddy.Bytes, value=eddy.Bytes).read_records()
        assert len(letters) == (policy == "dead-letter")
        for letter in letters:
            assert re.search(said, dict(letter.headers)["eddy.error"].decode())


def test_the_line_of_a_serde_that_raised_is_told() -> None:
    def decode(data: bytes) -> int:
        return 100 // len(data)

    line = decode.__code__.co_firstlineno + 1
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=eddy.Serde("shares", str.encode, decode)).to("out")  # type: ignore[arg-type]
    said = rf"the value b'' is not a valid shares: .*by zero \(\S*test_errors\.py:{line} in decode\)"
    with TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=said):
        driver.input("in").pipe_raw(b"a", b"")


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_several_bad_records_of_every_kind_are_all_left_out(policy: Any) -> None:
    with TopologyTestDriver(program(), Config(on_error=policy)) as driver:
        for topic, bad, _ in BAD.values():
            send(driver, topic, [bad, *([] if topic == "names" else GOOD), bad])
        driver.run()
        assert driver.store("sums").all() == {"a": 21}
        assert driver.worker.statistics.skipped == 8
        assert driver.worker.lag() == 0


def test_processing_goes_on_in_whole_epochs_after_a_bad_record() -> None:
    with TopologyTestDriver(program(), Config(on_error="skip")) as driver:
        send(driver, "numbers", [*GOOD, BAD["raising function"][1]])
        driver.run()
        send(driver, "numbers", MORE * 50)
        assert driver.worker.step() == 100


def test_a_row_that_cannot_be_hashed_is_a_records_fault() -> None:
    topology = eddy.Topology("app")
    documents = topology.table("documents", key=S, value=eddy.Json())
    documents.to_relation().map(lambda key, value: ("all", value), "rows").distinct("kinds").group_by_key().count("n")
    with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
        driver.input("documents").pipe_all([("a", "word"), ("b", {"no": "hash"}), ("c", "word"), ("d", 7)])
        assert driver.store("n").all() == {"all": 2}
        assert driver.store("documents").all() == {"a": "word", "b": {"no": "hash"}, "c": "word", "d": 7}
    fault = r"key b'b': kinds: row \('all', \{'no': 'hash'\}\) cannot be hashed; .*frozen"
    with TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=fault):
        driver.input("documents").pipe("b", {"no": "hash"})


def test_a_value_that_does_not_fit_its_sink_is_a_records_fault() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).map_values(str).to("out", value=N)  # type: ignore[arg-type]
    fault = r"offset 0 key b'a': sink 'out': value 'x' is not a valid int64: "
    with TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=fault):
        driver.input("in").pipe("a", "x")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            ("a", ("b", 4)),
            r"value \('b', 4\) is not a valid plain: tuple has no plain form; .* to\(..., value=eddy.Json\(\)\)",
        ),
        (
            (("a", 4), "b"),
            r"key \('a', 4\) is not a valid plain: tuple has no plain form; .* to\(..., key=eddy.Json\(\)\)",
        ),
        (("a", Decimal(1)), r"value Decimal\('1'\) is not a valid plain: .* to\(..., value=eddy.Json\(Decimal\)\)"),
    ],
)
def test_the_advice_is_about_what_does_not_fit_and_given_once(row: Any, said: str) -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).map(lambda key, value: row).to("out")
    with TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=said) as caught:
        driver.input("in").pipe("a", "x")
    assert str(caught.value).count("eddy.Json") == str(caught.value).count("Name") == 1


def test_a_record_without_a_key_cannot_be_counted() -> None:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).group_by_key().count("counts")
    with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("a", "1"), (None, "2"), ("a", "3")])
        assert driver.store("counts").all() == {"a": 2}


def test_a_null_value_deletes_from_a_table_and_is_a_value_of_a_stream() -> None:
    topology = eddy.Topology("app")
    topology.table("t", key=S, value=S)
    topology.stream("s", key=S, value=S).map(lambda key, value: (key, repr(value)), value=S).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.input("t").pipe_all([("a", "1"), ("a", None)])
        driver.input("s").pipe("a", None)
        assert driver.store("t").all() == {}
        assert driver.output("out").read_key_values() == [("a", "None")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "ignore"}, "config: on_error='ignore'"),
        ({"max_epoch_records": 0}, "config: max_epoch_records=0; 1 or more"),
        ({"cache_bytes": -1}, "config: cache_bytes=-1"),
        ({"max_epoch_records": math.nan}, "config: max_epoch_records=nan; a whole number"),
        ({"max_epoch_bytes": 0}, "config: max_epoch_bytes=0; 1 or more"),
        ({"max_row_bytes": 1_024}, "config: max_row_bytes=1024; more than the 1,024 of a record's overhead"),
        ({"max_epoch_s": 0.0}, "config: max_epoch_s=0.0; more than 0 seconds"),
        ({"max_epoch_s": math.nan}, "config: max_epoch_s=nan; more than 0 seconds"),
        ({"max_nested_s": -1.0}, "config: max_nested_s=-1.0; more than 0 seconds"),
        ({"retry_s": math.nan}, "config: retry_s=nan; 0 seconds or more"),
        ({"cut_interval_s": -0.1}, "config: cut_interval_s=-0.1; 0 seconds or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(eddy.TopologyError, match=message):
        Config(**settings)
