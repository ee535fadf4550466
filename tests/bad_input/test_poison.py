"""Records that cannot be taken in: under each policy, with their order, their transaction and a rebalance."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import eddy
from eddy.connectors.kafka.log import RECENT_S
from eddy.connectors.log import Headers
from eddy.errors import DataError
from tests.bad_input.conftest import MakeRig
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import added_up, echo, sums
from tests.children import KilledError
from tests.seeds import DAY

Policy = Literal["skip", "dead-letter"]
every_policy = pytest.mark.parametrize("policy", ["skip", "dead-letter"])


def loud(text: str) -> str:
    if text == "poison":
        raise ValueError("cannot be said loudly")
    return text.upper()


@dataclass(frozen=True)
class Kind:
    """A record that does not fit, and what its error says."""

    record: tuple[Any, Any]
    reason: str


KINDS = {
    "value": Kind(("k", b"\xff\xfe"), "the value"),
    "key": Kind((b"\xff\xfe", "v"), "the key"),
    "function": Kind(("k", "poison"), "cannot be said loudly"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_fail_names_the_record_and_commits_nothing_of_its_epoch(rig: Rig, kind: Kind) -> None:
    rig.create("in", "out")
    rig.write("in", [("a", "1"), kind.record, ("b", "2")])
    worker = rig.worker(echo(rig, loud))
    with pytest.raises(DataError, match=rf"{rig.topic('in')}.*partition 0 offset 1\b.*{kind.reason}"):
        rig.settle(worker)
    worker.close()
    assert {partition: at.offset for partition, at in rig.committed("in").items()} in ({}, {0: 0}, {0: 1})
    rig.run(echo(rig, loud), eddy.Config(on_error="skip"))
    assert rig.rows("out") == [("a", "1"), ("b", "2")]


@every_policy
def test_the_others_go_on_in_their_order(rig: Rig, kind: Kind, policy: Policy) -> None:
    rig.create("in", "out")
    rows = [(f"k{n}", f"v{n}") for n in range(50)]
    rig.write("in", [*rows[:20], kind.record, *rows[20:40], kind.record, *rows[40:]])
    rig.run(echo(rig, loud), eddy.Config(on_error=policy))
    assert rig.rows("out") == [(key, value.upper()) for key, value in rows]
    letters = rig.letters()
    if policy == "skip":
        assert letters == []
        return
    assert [told["eddy.offset"] for _, _, told in letters] == ["20", "41"]
    for key, value, told in letters:
        assert (key, value) == tuple(part.encode() if isinstance(part, str) else part for part in kind.record)
        assert (told["eddy.topic"], told["eddy.partition"]) == (rig.topic("in"), "0")
        assert kind.reason in told["eddy.error"]


def test_a_table_drops_what_has_no_key(rig: Rig) -> None:
    rig.create("in", "out")
    topology = eddy.Topology(rig.name)
    topology.table(rig.topic("in"), eddy.String, eddy.String, name="rows").to(rig.topic("out"))
    rig.write("in", [("a", "1"), (None, "lost"), ("a", "2")])
    worker = rig.run(topology, eddy.Config(on_error="dead-letter"))
    assert rig.table("out") == {"a": "2"}
    assert (worker.statistics.dropped, rig.letters()) == (1, [])


@pytest.mark.parametrize("step", ["outputs sent", "changelogs sent", "flushed", "committed"])
def test_a_letter_and_its_neighbours_come_together_or_not_at_all(rig: Rig, step: str) -> None:
    """A worker that ends at `step` is followed by another; what the first did shows whole, or not at all."""
    rig.create("in", "sums")
    rows = [(f"k{n % 3}", n) for n in range(9)]
    config = eddy.Config(on_error="dead-letter")

    ends_at: list[str] = []

    def observe(now: str) -> None:
        if now in ends_at:
            raise KilledError

    worker = rig.worker(sums(rig), config, observe=observe)
    rig.write("in", rows[:1])
    rig.settle(worker)
    ends_at.append(step)
    rig.write("in", [*rows[1:4], ("k0", b"poison"), *rows[4:]])
    with pytest.raises(KilledError):
        rig.settle(worker)
    worker.close()
    done = step == "committed"
    assert len(rig.letters()) == done
    assert rig.table("sums", eddy.Int64) == added_up(rows if done else rows[:1])
    rig.run(sums(rig), config)
    assert [value for _, value, _ in rig.letters()] == [b"poison"]
    assert rig.table("sums", eddy.Int64) == added_up(rows)


@pytest.mark.parametrize("told", [True, False], ids=["told by the rows", "halved"])
def test_a_bad_record_costs_few_epochs_and_not_the_rest_of_its_own(rig: Rig, told: bool) -> None:
    rig.create("in", "out")
    rows = [(f"k{n}", "poison" if n in (700, 701, 1_900) else f"v{n}") for n in range(2_000)]
    rig.write("in", rows)
    topology = eddy.Topology(rig.name)
    lines = topology.table(rig.topic("in"), eddy.String, eddy.String, name="rows")
    loudly = lines.map_values(loud, value=eddy.String) if told else lines.left_join(lines, lambda text, _: loud(text))
    loudly.to(rig.topic("out"), value=eddy.String)
    worker = rig.run(topology, eddy.Config(on_error="skip"))
    assert rig.table("out") == {key: text.upper() for key, text in rows if text != "poison"}
    done = worker.statistics
    assert done.skipped == 3
    polls = 10  # a poll brings what has been fetched
    assert done.aborts <= (polls if told else 3 * 12)
    assert done.epochs <= polls + (0 if told else 3 * 13)


@every_policy
def test_each_is_left_out_once_through_a_rebalance(rig: Rig, policy: Policy) -> None:
    rig.create("in", "sums", partitions=4)
    config = eddy.Config(on_error=policy, max_epoch_records=50)
    rows = [(f"k{n % 20}", n) for n in range(400)]
    poison = [(f"k{n}", b"poison-%03d" % n) for n in range(20)]
    workers = [rig.worker(sums(rig), config, member="0")]
    for part in range(2):
        mixed = [*rows[part::2], *poison[part::2]]
        rig.write("in", sorted(mixed, key=lambda row: str(row[0])[-1]))
        for worker in workers:
            worker.step(0.1)
        workers.append(rig.worker(sums(rig), config, member=str(part + 1)))
    while not all(worker.circuit.ownership.partitions.get(4) for worker in workers):
        for worker in workers:
            worker.step(0.1)
    rig.settle(*workers)
    assert rig.table("sums", eddy.Int64) == added_up(rows)
    left_out = sorted(value for _, value, _ in rig.letters())
    assert left_out == (sorted(value for _, value in poison) if policy == "dead-letter" else [])
    assert sum(worker.statistics.skipped for worker in workers) == len(poison)


HEADERS: Headers = (("trace", b"x" * 10_240), ("größe", b"\0\xff"), ("trace", b""))


@every_policy
def test_large_headers_and_null_keys_pass_and_stay_with_what_is_left_out(rig: Rig, policy: Policy) -> None:
    rig.create("in", "out")
    rig.write("in", [(None, "v"), ("k", None), (None, b"\xff")], [HEADERS] * 3)
    topology = eddy.Topology(rig.name)
    topology.stream(rig.topic("in"), eddy.String, eddy.String).to(rig.topic("out"))
    rig.run(topology, eddy.Config(on_error=policy))
    (records,) = rig.records(rig.topic("out"))
    assert list(zip(records.keys, records.values, strict=True)) == [(None, b"v"), (b"k", None)]
    assert records.headers == [HEADERS] * 2
    if policy == "dead-letter":
        (letter,) = rig.records(f"{rig.name}-dead-letter")
        assert letter.headers is not None
        assert letter.headers[0][: len(HEADERS)] == HEADERS


@every_policy
def test_a_row_without_a_key_has_no_group(rig: Rig, policy: Policy) -> None:
    rig.create("in", "sums", partitions=2)
    rows = [("a", 1), (None, 10), ("b", 2), (None, 20), ("a", 3)]
    rig.write("in", rows)
    rig.run(sums(rig), eddy.Config(on_error=policy))
    assert rig.table("sums", eddy.Int64) == {"a": 4, "b": 2}


class TestOversize:
    """Records that a topic does not take: what is too large is its record's fault, not the broker's."""

    LIMIT = 2_000

    @pytest.fixture
    def written(self, rig: Rig) -> list[tuple[str, str]]:
        """Rows whose output is about 100 times as long; that of the third is too large."""
        rig.create("in")
        rig.create("out", max_message_bytes=str(self.LIMIT))
        rows = [("a", "x"), ("b", "y" * 15), ("c", "z" * 30), ("d", "x" * 15)]
        rig.write("in", rows)
        return rows

    @staticmethod
    def long(text: str) -> str:
        return text * 100

    def test_fail_names_topic_key_and_size(self, rig: Rig, written: list[tuple[str, str]]) -> None:
        worker = rig.worker(echo(rig, self.long))
        with pytest.raises(DataError, match=r"offset 2\b") as refused:
            rig.settle(worker)
        assert rig.topic("out") in str(refused.value)
        assert str(self.LIMIT) in str(refused.value)

    @every_policy
    def test_the_others_go_on(self, rig: Rig, written: list[tuple[str, str]], policy: Policy) -> None:
        rig.run(echo(rig, self.long), eddy.Config(on_error=policy))
        assert rig.rows("out") == [(key, self.long(value)) for key, value in written if key != "c"]
        if policy == "dead-letter":
            assert [(key, value) for key, value, _ in rig.letters()] == [(b"c", b"z" * 30)]

    @staticmethod
    def noise(text: str) -> str:
        """About 100 times as long, and no shorter when it is compressed."""
        return random.Random(text).randbytes(len(text) * 50).hex()

    @every_policy
    def test_records_that_fit_are_written_although_a_batch_of_them_would_not(self, rig: Rig, policy: Policy) -> None:
        rig.create("in", partitions=2)
        rig.create("out", partitions=2, max_message_bytes=str(self.LIMIT))
        dice = random.Random(f"{DAY} batches")
        rows = [(f"k{n}", "x" * dice.randint(1, 15) + str(n)) for n in range(60)]
        large = [("k1", "y" * 30), ("k2", "z" * 40)]
        rig.write("in", [*rows[:30], *large, *rows[30:]])
        rig.run(echo(rig, self.noise), eddy.Config(on_error=policy))
        assert sorted(rig.rows("out")) == sorted((key, self.noise(value)) for key, value in rows)
        if policy == "dead-letter":
            assert sorted((key, value) for key, value, _ in rig.letters()) == [(b"k1", b"y" * 30), (b"k2", b"z" * 40)]

    @every_policy
    def test_the_name_of_a_header_counts_with_all_its_bytes(self, rig: Rig, policy: Policy) -> None:
        rig.create("in")
        rig.create("out", max_message_bytes=str(self.LIMIT))
        dice = random.Random(f"{DAY} names")
        name = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(1_200))  # 3,600 bytes
        rig.write("in", [("a", "x"), ("b", "y"), ("c", "z")], [(), ((name, b""),), ()])
        rig.run(echo(rig), eddy.Config(on_error=policy, retry_s=1))
        assert [key for key, _ in rig.rows("out")] == ["a", "c"]
        if policy == "dead-letter":
            assert [key for key, *_ in rig.letters()] == [b"b"]

    def test_a_limit_that_is_lowered_under_way_is_found_out(self, rig: Rig, make_rig: MakeRig) -> None:
        rig.create("in")
        rig.create("out")
        worker = rig.worker(echo(rig, self.noise), eddy.Config(on_error="dead-letter"))
        rig.write("in", [("a", "x" * 30)])
        rig.settle(worker)
        make_rig().configure(rig.topic("out"), max_message_bytes=str(self.LIMIT))
        rig.write("in", [("b", "y" * 15), ("c", "z" * 30), ("d", "x" * 15)])
        rig.settle(worker)
        assert [key for key, _ in rig.rows("out")] == ["a", "b", "d"]
        ((key, _, told),) = rig.letters()
        assert (key, told["eddy.offset"]) == (b"c", "3")
        assert str(self.LIMIT) in told["eddy.error"]

    @pytest.mark.parametrize("exchanged", [False, True])
    def test_a_limit_that_is_raised_under_way_is_found_out(self, rig: Rig, make_rig: MakeRig, exchanged: bool) -> None:
        rig.create("in")
        rig.create("out", max_message_bytes=str(self.LIMIT))
        topology = eddy.Topology(rig.name)
        lines = topology.stream(rig.topic("in"), eddy.String, eddy.String)
        lines = lines.repartition(1) if exchanged else lines
        lines.map_values(self.noise, value=eddy.String).to_table("long").to(rig.topic("out"))
        worker = rig.worker(topology, eddy.Config(on_error="dead-letter"))
        rig.write("in", [("a", "x" * 30), ("b", "y")])
        rig.settle(worker)
        assert list(rig.table("out")) == ["b"]
        make_rig().configure(rig.topic("out"), max_message_bytes="10000")
        time.sleep(RECENT_S)  # pause: so long is a limit taken for known
        rig.write("in", [("c", "z" * 30), ("d", "x")])
        rig.settle(worker)
        assert sorted(rig.table("out")) == ["b", "c", "d"]
        assert [key for key, *_ in rig.letters()] == [b"a"]

    def test_a_letter_may_be_as_large_as_any_record(self, rig: Rig) -> None:
        """The broker's own limit is what a source may have, and a letter is longer than its record."""
        rig.create("in", max_message_bytes="3000000")
        rig.create("out")
        for size in (1_048_400, 2_900_000):
            rig.write("in", [("k", b"\xff" * size)])
        rig.write("in", [("a", "b")])
        rig.run(echo(rig), eddy.Config(on_error="dead-letter"))
        assert [len(value or b"") for _, value, _ in rig.letters()] == [1_048_400, 2_900_000]
        assert rig.rows("out") == [("a", "B")]

    @pytest.mark.parametrize("exchanged", [False, True])
    def test_a_state_that_grows_too_large_leaves_the_record_out(self, rig: Rig, exchanged: bool) -> None:
        """A changelog takes what Kafka takes by default, about a mebibyte. After an exchange the row is set aside."""
        rig.create("in")
        rig.create("out", max_message_bytes="5000000")
        topology = eddy.Topology(rig.name)
        lines = topology.stream(rig.topic("in"), eddy.String, eddy.String)
        lines = lines.repartition(1) if exchanged else lines
        lines.group_by_key().reduce(lambda text, more: text + more, "texts").to(rig.topic("out"))
        rows = [("a", "x" * 600_000), ("a", "y" * 600_000), ("b", "z"), ("a", "y")]
        rig.write("in", rows)
        rig.run(topology, eddy.Config(on_error="skip"))
        assert rig.table("out") == {"a": "x" * 600_000 + "y", "b": "z"}


class TestAheadOfItsTime:
    """Timestamps more than an hour ahead: by default a broker refuses the whole batch for one of them."""

    LATE = (("b", "y"), ("c", "z"))

    @pytest.fixture
    def written(self, rig: Rig) -> list[tuple[str, str]]:
        """The rows that pass; beside them are two whose timestamps are a day ahead."""
        rig.create("in", message_timestamp_after_max_ms=str(1 << 60))
        rig.create("out", "counts")
        rows = [(f"k{n}", f"v{n}") for n in range(100)]
        rig.write("in", rows[:50])
        rig.write("in", self.LATE, time=round(time.time() + 86_400) * 1000)
        rig.write("in", rows[50:])
        return rows

    @staticmethod
    def topology(rig: Rig) -> eddy.Topology:
        """Rows as they are, and merged after an exchange, in a state."""
        topology = eddy.Topology(rig.name)
        rows = topology.stream(rig.topic("in"), eddy.String, eddy.String)
        rows.to(rig.topic("out"))
        letters = rows.map(lambda _, value: (value[:1], value), key=eddy.String, value=eddy.String)
        letters.group_by_key().count("counts").to(rig.topic("counts"), value=eddy.Int64)
        return topology

    @every_policy
    @pytest.mark.parametrize("ahead_s", [0, 7 * 86_400], ids=["our clock is right", "our clock is ahead"])
    def test_the_others_go_on(self, rig: Rig, written: list[tuple[str, str]], policy: Policy, ahead_s: float) -> None:
        """With a clock that is ahead it is the broker that refuses, and the record is found by halves."""
        topology = echo(rig, str) if ahead_s else self.topology(rig)
        worker = rig.run(topology, eddy.Config(on_error=policy), wall=lambda: time.time() + ahead_s)
        assert sorted(rig.rows("out")) == sorted(written)
        assert worker.statistics.skipped == len(self.LATE)
        if not ahead_s:
            assert rig.table("counts", eddy.Int64) == {"v": 100}
        if policy == "dead-letter":
            assert [(key, value) for key, value, _ in rig.letters()] == [(b"b", b"y"), (b"c", b"z")]

    def test_fail_names_the_record_and_the_topic(self, rig: Rig, written: list[tuple[str, str]]) -> None:
        with pytest.raises(
            DataError, match=rf"offset 51 .*topic '{rig.topic('out')}' accepts records up to 3600000 ms"
        ):
            rig.settle(rig.worker(echo(rig, str)))


def test_a_row_that_fails_in_a_loop_is_set_aside_there(make_rig: MakeRig) -> None:
    """The rows on its way count."""
    rig = make_rig()
    rig.create("in", "out", partitions=2)
    topology = eddy.Topology(rig.name)

    def onward(word: str, n: int) -> list[tuple[str, int]]:
        if n == 13:
            raise ValueError("13 is not said here")
        return [(word, n - 1)] if n else []

    numbers = topology.table(rig.topic("in"), eddy.String, eddy.Int64, name="numbers").to_relation()
    steps: Callable[[Any], Any] = lambda rows: rows.flat_map(onward, key=eddy.String, value=eddy.Int64)  # noqa: E731
    numbers.recursively(steps, "down").group_by_key().count("steps").to(rig.topic("out"))
    rig.write("in", [("a", 3), ("b", 20), ("c", 12), ("d", 13), ("a", 5)])
    rig.run(topology, eddy.Config(on_error="dead-letter"))
    assert rig.table("out", eddy.Int64) == {"a": 6, "b": 8, "c": 13, "d": 1}
    assert sorted((key, told["eddy.weight"]) for key, _, told in rig.letters()) == [(b"b", "1"), (b"d", "1")]
