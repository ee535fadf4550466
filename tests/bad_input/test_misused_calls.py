"""Calls that a first program gets wrong: the error names the place, the value and the fix, at the call itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy import DataError, TopologyError
from tests.waiting import wait_for

S = eddy.String


def one_step() -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("in", key=S, value=S).to("out")
    return topology


@pytest.fixture
def driver() -> Iterator[eddy.TopologyTestDriver]:
    with eddy.TopologyTestDriver(one_step()) as made:
        yield made


def written_by(build: Callable[[eddy.KStream[str, str]], object]) -> list[tuple[Any, Any]]:
    topology = eddy.Topology("app")
    build(topology.stream("in", key=S, value=S))
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("k", "v")
        return driver.output("out").read_key_values()


class TestRows:
    @pytest.mark.parametrize(
        ("records", "said"),
        [
            (
                {"ab": "xy"},
                r"driver: topic 'in': records={'ab': 'xy'}; .* Write pipe_all\(records\.items\(\)\)",
            ),
            (["ab"], "driver: topic 'in': of records, 'ab' is not a pair"),
            ("ab", r"records='ab'; a list of pairs \(key, value\) is needed. Write \[\(key, value\), …\]"),
            ([("a", "b", "c")], r"of records, \('a', 'b', 'c'\) is not a pair"),
            (7, "records=7; a list of pairs"),
        ],
    )
    def test_what_is_piped_has_to_be_pairs(self, driver: eddy.TopologyTestDriver, records: Any, said: str) -> None:
        with pytest.raises(DataError, match=said):
            driver.input("in").pipe_all(records)
        assert driver.output("out").read_key_values() == []

    @pytest.mark.parametrize(
        ("keys", "values", "said"),
        [
            (["a"], [b"b"], "send to in-0: record 0 of 1: key 'a' is str; bytes or None are needed. Encode it"),
            ([b"a", b"b"], [b"b", 7], "record 1 of 2: value 7 is int; bytes or None are needed"),
            (b"a", [b"b"], "keys=b'a'; a list with one entry a record is needed"),
        ],
    )
    def test_producer_takes_bytes(self, keys: Any, values: Any, said: str) -> None:
        log = eddy.open_log()
        eddy.create_topics(one_step(), log)
        producer = log.producer(None)
        producer.begin()
        with pytest.raises(DataError) as caught:
            producer.send("in", 0, keys, values, [0] * len(keys))
        assert said in str(caught.value)
        log.close()


class TestResults:
    @pytest.mark.parametrize(
        ("made", "fix"),
        [
            (("k", "v"), r"Write \[\(key, value\)\] for one pair"),
            (("ab", "cd"), r"Write \[\(key, value\)\] for one pair"),
            (None, r"and \[\] for no row"),
            (["ab"], r"Write return \[\(key, value\), …\]"),
        ],
    )
    def test_flat_map_names_what_its_function_returned(self, made: Any, fix: str) -> None:
        said = r"flat_map after 'in': the function of \S*test_misused_calls.py:\d+ returned .*; an iterable of pairs"
        with pytest.raises(DataError, match=f"{said}.*{fix}"):
            written_by(lambda rows: rows.flat_map(lambda key, value: made, key=S, value=S).to("out"))

    def test_flat_map_values_names_what_its_function_returned(self) -> None:
        said = r"flat_map_values after 'in': the function of \S*test_misused_calls.py:\d+ returned None; an iterable of"
        with pytest.raises(DataError, match=said):
            written_by(lambda rows: rows.flat_map_values(lambda value: None, value=S).to("out"))  # type: ignore[arg-type,return-value]

    @pytest.mark.parametrize("function", [lambda key, value: 5, lambda value, record: 5, lambda key, value, record: 5])
    @pytest.mark.parametrize(("name", "where"), [(None, "after 'in'"), ("parts", "'parts'")])
    def test_flat_map_values_with_a_key_or_a_record_says_the_same(
        self, function: Any, name: str | None, where: str
    ) -> None:
        said = (
            rf"flat_map_values {where}: the function of \S*test_misused_calls.py:\d+ returned 5; an iterable of values"
        )
        with pytest.raises(DataError, match=said):
            written_by(lambda rows: rows.flat_map_values(function, name, value=S).to("out"))

    def test_text_of_two_letters_is_no_pair(self) -> None:
        with pytest.raises(DataError, match=r"map after 'in': the function of \S+ returned 'ab'; a pair"):
            written_by(lambda rows: rows.map(lambda key, value: "ab", key=S, value=S).to("out"))  # type: ignore[arg-type,return-value]

    def test_name_of_a_step_is_said(self) -> None:
        with pytest.raises(DataError, match="map 'swapped': the function of"):
            written_by(lambda rows: rows.map(lambda key, value: 7, "swapped").to("out"))  # type: ignore[arg-type,return-value]

    def test_group_by_of_a_table_says_group_by(self) -> None:
        topology = eddy.Topology("app")
        by_value: Any = lambda key, value: value  # noqa: E731
        topology.table("in", key=S, value=S).group_by(by_value, key=S, value=S).count("counts")
        with eddy.TopologyTestDriver(topology) as driver, pytest.raises(DataError) as caught:
            driver.input("in").pipe("k", "v")
        assert "group_by after 'in': the function of" in str(caught.value)
        assert "returned 'v'; a pair (key, value) is needed" in str(caught.value)
        assert "Write e.g. .group_by(lambda key, value: (value, key))" in str(caught.value)
        assert "RELATION-MAP" not in str(caught.value)

    @pytest.mark.parametrize(
        ("build", "step"),
        [
            (lambda rows: rows.group_by_key().aggregate("n", lambda: 0, lambda key, value, n: n), "aggregate"),
            (lambda rows: rows.group_by_key().aggregate(lambda: 0, "n", lambda key, value, n: n), "aggregate"),
            (lambda rows: rows.group_by_key().reduce("n", lambda a, b: a), "reduce"),
            (lambda rows: rows.group_by_key().count(lambda: 0), "step"),
            (lambda rows: rows.to_table().to_relation().reduce("n", lambda key, values: values), "reduce"),
        ],
    )
    def test_function_in_the_place_of_a_name_is_told(self, build: Any, step: str) -> None:
        said = rf"^{step}: name=\S+ of \S*test_misused_calls.py:\d+ is a function; a name is needed. Give the"
        with pytest.raises(TopologyError, match=said):
            written_by(build)

    @pytest.mark.parametrize("made", [7, ("v", 1)])
    def test_group_whose_key_does_not_fit_is_said_in_types(self, made: Any) -> None:
        with pytest.raises(DataError) as caught:
            written_by(lambda rows: rows.group_by(lambda key, value: made, key=S).count("n").to("out"))
        assert f"str expected, {type(made).__name__} given. Name the serde" in str(caught.value)
        assert "descriptor" not in str(caught.value)

    def test_group_by_with_a_wrong_argument_is_said_as_group_by(self) -> None:
        rows: Any = eddy.Topology("app").stream("in", key=S, value=S)
        with pytest.raises(TopologyError, match="group_by after 'in': 'word' is not a function"):
            rows.group_by("word")
        with pytest.raises(TopologyError, match="group_by after 'in': key=<class 'str'>; a serde is needed"):
            rows.group_by(lambda key, value: value, str)

    @pytest.mark.parametrize(
        "build",
        [
            lambda rows, function: rows.map(function),
            lambda rows, function: rows.filter(function),
            lambda rows, function: rows.peek(function),
            lambda rows, function: rows.foreach(function),
            lambda rows, function: rows.select_key(function),
            lambda rows, function: rows.group_by(function),
            lambda rows, function: rows.split(one=function),
            lambda rows, function: rows.group_by_key().reduce(function, "n"),
        ],
    )
    def test_generator_function_is_refused_where_a_result_is_needed(self, build: Any) -> None:
        def spread(key: Any, value: Any) -> Iterator[Any]:
            yield key, value

        class Spreading:
            def __call__(self, key: Any, value: Any) -> Iterator[Any]:
                yield key, value

        for function in (spread, Spreading()):
            with pytest.raises(TopologyError, match=r"is a generator function.*Write return, not yield"):
                build(eddy.Topology("app").stream("in", key=S, value=S), function)

    def test_generator_function_fits_where_rows_are_spread(self) -> None:
        def spread(key: str, value: str) -> Iterator[tuple[str, str]]:
            yield key, value
            yield value, key

        def values(value: str) -> Iterator[str]:
            yield from (value, value)

        found = written_by(
            lambda rows: rows.flat_map(spread, key=S, value=S).flat_map_values(values, value=S).to("out")
        )
        assert found == [("k", "v"), ("k", "v"), ("v", "k"), ("v", "k")]


class TestProgram:
    @pytest.mark.parametrize("call", [eddy.run, eddy.open_tables, eddy.create_topics, eddy.Worker])
    def test_path_in_place_of_a_log_is_told(self, call: Any, tmp_path: Path) -> None:
        with pytest.raises(TopologyError, match=r"log='data'; a log is needed\. Write log=eddy\.open_log\('data'\)"):
            call(one_step(), "data")
        with pytest.raises(TopologyError, match=r"log=eddy\.kafka\('host:9092'\)"):
            call(one_step(), tmp_path)
        log = eddy.open_log()
        with pytest.raises(TopologyError, match=r"an eddy\.Topology is needed"):
            call(log, one_step())
        log.close()

    @pytest.mark.parametrize(
        "call", [eddy.run, eddy.Worker, lambda topology, _, **kw: eddy.TopologyTestDriver(topology, **kw)]
    )
    def test_dict_in_place_of_settings_is_told(self, call: Any) -> None:
        log = eddy.open_log()
        with pytest.raises(
            TopologyError, match=r"config={'on_error': 'skip'}; .* config=eddy\.Config\(on_error='skip'\)"
        ):
            call(one_step(), log, config={"on_error": "skip"})
        with pytest.raises(TopologyError, match=r"config={'a': 1}; an eddy\.Config is needed"):
            call(one_step(), log, config={"a": 1})
        log.close()

    def test_folder_of_states_may_be_text_or_a_path(self, tmp_path: Path) -> None:
        assert eddy.Config(state_dir=str(tmp_path)).state_dir == eddy.Config(state_dir=tmp_path).state_dir == tmp_path
        log = eddy.open_log()
        topology = eddy.Topology("app")
        topology.table("in", key=S, value=S)
        eddy.create_topics(topology, log)
        for folder in (str(tmp_path / "a"), tmp_path / "b"):
            with (
                eddy.run(topology, log, eddy.Config(state_dir=folder)),
                eddy.open_tables(topology, log, state_dir=folder) as tables,
            ):
                tables.wait()
            assert (Path(folder) / "app").is_dir()
        log.close()

    @pytest.mark.parametrize("folder", [5, b"x", "", ["x"]])
    def test_no_folder_is_refused(self, folder: Any) -> None:
        said = r"state_dir=.*; a folder, as text or a pathlib\.Path, or None is needed"
        with pytest.raises(TopologyError, match=f"config: {said}"):
            eddy.Config(state_dir=folder)
        log = eddy.open_log()
        with pytest.raises(TopologyError, match=f"open_tables: {said}"):
            eddy.open_tables(one_step(), log, state_dir=folder)
        log.close()

    @pytest.mark.parametrize(
        "use",
        [
            lambda driver: driver.input("in"),
            lambda driver: driver.output("out"),
            lambda driver: driver.store("in"),
            lambda driver: driver.held(),
            lambda driver: driver.run(),
            lambda driver: driver.restart(),
            lambda driver: driver.advance_wall_clock_time(1),
            lambda driver: driver.__enter__(),
        ],
    )
    def test_closed_driver_says_so(self, use: Any) -> None:
        driver = eddy.TopologyTestDriver(one_step())
        given, taken = driver.input("in"), driver.output("out")
        driver.close()
        driver.close()
        for one in (use, lambda _: given.pipe("a", "b"), lambda _: taken.read_map()):
            with pytest.raises(TopologyError, match=r"driver of 'app': it is closed, .*make another"):
                one(driver)

    def test_tables_of_an_application_that_never_ran_name_the_worker(self) -> None:
        log = eddy.open_log()
        topology = one_step()
        topology.table("t", key=S, value=S)
        eddy.create_topics(topology, log)
        with eddy.open_tables(topology, log) as tables:
            wait_for(lambda: "not run yet" in tables.rows.hindrance)
            with pytest.raises(eddy.NotReadyError, match=r"has not run yet; .* Start a worker: eddy run FILE"):
                tables["t"].get("a")
        log.close()
