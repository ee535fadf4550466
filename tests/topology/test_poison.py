"""Records that cannot be processed cost little, and the result is that of the input without them.

The records left out are read from the dead-letter topic. The oracle is the same program on the other records alone,
one epoch each: none of them may fail. Of a table a record that is replaced at once is not looked at, so it may.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy import Config, DataError, TopologyTestDriver

S, N = eddy.String, eddy.Int64
BAD = 13
Row = tuple[str, int]
pytestmark = pytest.mark.usefixtures("quiet")


def check(n: int) -> int:
    if n == BAD:
        raise ValueError("unlucky")
    return n


def new() -> tuple[eddy.Topology, Any]:
    topology = eddy.Topology("app")
    return topology, topology.stream("in", key=S, value=N)


def mapped() -> eddy.Topology:
    """In the first step, and half way along a chain."""
    topology, numbers = new()
    checked = numbers.filter(lambda _, n: n >= 0).map_values(check, "check", value=N)
    checked.to("out", value=N)
    checked.group_by_key().reduce(lambda a, b: a + b, "state")
    return topology


def spread() -> eddy.Topology:
    """The second row of a record's rows fails: the first must not count."""
    topology, numbers = new()
    rows = numbers.flat_map(lambda key, n: [(key, n + 100), (key, n)]).map_values(check, value=N)
    rows.group_by_key().count("state")
    rows.to("out", value=N)
    return topology


def written() -> eddy.Topology:
    """The sink's serde refuses it."""
    topology, numbers = new()
    numbers.group_by_key().count("state")
    numbers.map_values(lambda n: "thirteen" if n == BAD else n).to("out", value=N)
    return topology


def two_steps() -> eddy.Topology:
    """One of two branches fails on it, the other one on its neighbour; 13 and 14 are bad."""
    topology, numbers = new()
    numbers.map_values(check, "first", value=N).group_by_key().count("state")
    numbers.map_values(lambda n: check(n - 1), "second", value=N).to("out", value=N)
    return topology


def added() -> eddy.Topology:
    """An adder fails on it."""
    topology, numbers = new()
    numbers.group_by_key().aggregate(lambda: 0, lambda _, n, sum_: sum_ + check(n), "state", N).to("out", value=N)
    return topology


def full() -> eddy.Topology:
    """No record is bad by itself: a group takes up to 40."""
    topology, numbers = new()

    def add(key: str, n: int, total: int) -> int:
        if total + n > 40:
            raise ValueError(f"{key} is full")
        return total + n

    rows = numbers.flat_map_values(lambda n: [n, 1] if n % 3 else [n])
    rows.group_by_key().aggregate(lambda: 0, add, "state", N).to("out", value=N)
    return topology


def table() -> eddy.Topology:
    """A table's value; rows are taken back downstream."""
    topology = eddy.Topology("app")
    numbers = topology.table("in", key=S, value=N, name="rows").map_values(check, value=N)
    groups = numbers.group_by(lambda key, n: (key[-1], n), key=S, value=N)
    groups.reduce(lambda a, b: a + b, lambda a, b: a - b, "state").to("out", value=N)
    return topology


def looked_up() -> eddy.Topology:
    """A stream's record beside its table's value."""
    topology, numbers = new()
    latest = numbers.filter(lambda _, n: n % 2 == 0).to_table("latest")
    numbers.left_join(latest, lambda n, even: check(n), value=N).group_by_key().count("state").to("out", value=N)
    return topology


def joined() -> eddy.Topology:
    """A join of relations, which says nothing about where its rows come from."""
    topology = eddy.Topology("app")
    rows = topology.table("in", key=S, value=N, name="rows")
    more = rows.map_values(lambda n: n + 1, value=N).to_relation()
    pairs = rows.to_relation().join(more, lambda key, a, b: (key, check(a) + b), key=S)
    pairs.group_by_key(key=S).count("state").to("out", value=N)
    return topology


TRACED = [mapped, spread, written, two_steps, added, table, looked_up]
TABLES = [table, joined]
PROGRAMS: list[Callable[[], eddy.Topology]] = [*TRACED, full, joined]


def state_of(driver: TopologyTestDriver) -> dict[str, int]:
    return dict(driver.store("state").all())


def sorted_out(driver: TopologyTestDriver, as_table: bool) -> Any:
    out = driver.output("out", key=S, value=N)
    return out.read_map() if as_table else sorted(out.read_key_values())


def left_out(driver: TopologyTestDriver, rows: list[Row], partitions: int) -> set[int]:
    """The indexes of the rows in the dead-letter topic."""
    letters = driver.output("app-dead-letter", key=S, value=N).read_records()
    spots = [(letter.key, int(dict(letter.headers)["eddy.offset"])) for letter in letters]
    offsets: dict[int, int] = {}
    at: dict[tuple[str, int], int] = {}
    for index, (key, _) in enumerate(rows):
        home = eddy.partitioner.partition_of(S.encode(key), partitions)
        at[key, offsets.get(home, 0)] = index
        offsets[home] = offsets.get(home, 0) + 1
    assert len(set(spots)) == len(spots)
    return {at[spot] for spot in spots}


few = settings(max_examples=max(10, settings.default.max_examples // 3))
rows_of_keys = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(10, 15)), min_size=1, max_size=30)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@few
@given(rows=rows_of_keys, size=st.sampled_from([1, 3, 8, 50]), partitions=st.sampled_from([1, 3]), hasty=st.booleans())
@example(rows=[("a", 10), ("a", 13), ("a", 12)], size=50, partitions=1, hasty=False)
@example(rows=[("a", 13)] * 20 + [("a", 12)], size=50, partitions=1, hasty=False)
@example(rows=[("a", 13)] * 9, size=50, partitions=1, hasty=False)
@example(rows=[("a", 10), ("a", 10), ("a", 10), ("b", 13)], size=8, partitions=3, hasty=True)
def test_result_is_that_of_the_input_without_them(
    program: Callable[[], eddy.Topology], rows: list[Row], size: int, partitions: int, hasty: bool
) -> None:
    """`hasty`: the time after which a poll is due, for the group's sake, is up after every try."""
    topology = program()
    as_table = next(iter(topology.plan.sinks())).kind == "table"
    config = Config(on_error="dead-letter", max_epoch_records=size, max_epoch_s=0.5)
    with TopologyTestDriver(topology, config, partitions=partitions) as driver:
        if hasty:
            driver.worker._clock = count().__next__  # private: a driver's own clock stands still in an epoch
        driver.input("in").pipe_all(rows)
        found, written_rows = state_of(driver), sorted_out(driver, as_table)
        bad = left_out(driver, rows, partitions)
        done = driver.worker.statistics
        assert (done.skipped, done.records) == (len(bad), len(rows))
        tries = max(len(bad), sum(n >= BAD for _, n in rows)) * ((min(size, len(rows)) - 1).bit_length() + 2)
        if hasty:  # a poll knows nothing of the half that must have the cause: it is tried whole, and then divided
            tries *= 2
        assert done.aborts <= tries
        # The mark of a transaction takes an offset, so that a poll may bring a record less than there is room for.
        assert done.epochs <= 2 * tries + 2 * (len(rows) // size + partitions) + 2
    good = [row for index, row in enumerate(rows) if index not in bad]
    with TopologyTestDriver(
        program(), Config(on_error="skip" if program in TABLES else "fail"), partitions=partitions
    ) as driver:
        for row in good:
            driver.input("in").pipe(*row)
        assert found == state_of(driver)
        assert written_rows == sorted_out(driver, as_table)
    if program not in (full, two_steps, *TABLES):
        assert bad == {index for index, (_, n) in enumerate(rows) if n == BAD}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@few
@given(rows=rows_of_keys, size=st.sampled_from([1, 3, 50]))
def test_fail_takes_in_what_comes_before(program: Callable[[], eddy.Topology], rows: list[Row], size: int) -> None:
    with TopologyTestDriver(program(), Config(on_error="dead-letter", max_epoch_records=1)) as driver:
        driver.input("in").pipe_all(rows)
        bad = left_out(driver, rows, 1)
    with TopologyTestDriver(program(), Config(max_epoch_records=size)) as driver:
        first = len(rows)
        try:
            driver.input("in").pipe_all(rows)
        except DataError as refused:
            first = int(str(refused).split("topic 'in' partition 0 offset ")[1].split()[0])
        least = min(bad, default=len(rows))
        assert first >= least if program in TABLES else first == least
        found = state_of(driver)
    with TopologyTestDriver(program(), Config(on_error="skip", max_epoch_records=1)) as driver:
        driver.input("in").pipe_all(rows[:first])
        assert found == state_of(driver)


@pytest.mark.parametrize("program", TRACED, ids=lambda program: program.__name__)
def test_all_that_one_step_fails_on_are_found_by_one_try(program: Callable[[], eddy.Topology]) -> None:
    rows = [(f"k{n}", BAD if n % 50 == 7 else 20 + n % 30) for n in range(1_000)]
    with TopologyTestDriver(program(), Config(on_error="skip")) as driver:
        driver.input("in").pipe_all(rows)
        done = driver.worker.statistics
        assert (done.skipped, done.records) == (20, 1_000)
        assert done.aborts == 1
        assert done.epochs <= 3


@pytest.mark.parametrize("bad", [1, 5])
def test_what_is_not_known_is_found_by_halving_and_the_rest_goes_on_whole(bad: int) -> None:
    rows = [(f"k{n}", BAD if n % (1_000 // bad) == 7 else 10 + n % 3) for n in range(1_000)]
    with TopologyTestDriver(joined(), Config(on_error="skip")) as driver:
        driver.input("in").pipe_all(rows)
        done = driver.worker.statistics
        assert (done.skipped, done.records) == (bad, 1_000)
        assert done.aborts <= bad * 11
        assert done.epochs <= bad * 11 + 3


def test_the_error_of_a_record_has_that_of_the_function_as_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with TopologyTestDriver(mapped()) as driver, pytest.raises(DataError) as refused:
        driver.input("in").pipe_all([("a", 1), ("b", BAD), ("c", 2)])
    causes: list[BaseException] = [refused.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert isinstance(causes[-1], ValueError)


def test_a_function_that_fails_on_no_record_blames_none() -> None:
    topology, numbers = new()
    calls = count()

    def flaky(n: int) -> int:
        if next(calls) == 5:
            raise OSError("away for a moment")
        return n

    numbers.map_values(flaky, value=N).to("out", value=N)
    with TopologyTestDriver(topology, Config(on_error="skip")) as driver:
        driver.input("in").pipe_all([("a", n) for n in range(10)])
        assert driver.output("out").read_key_values() == [("a", n) for n in range(10)]
        assert driver.worker.statistics.skipped == 0
