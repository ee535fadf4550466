"""`produce` and `consume`: files become records, and records become text again."""

import gzip
import json
import pathlib
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.cli.fields import FIELD_TYPES
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Records, TopicPartition
from tests.cli.conftest import Command

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "cli.md"


def stored(folder: pathlib.Path, topic: str) -> list[Records]:
    log = LocalLog(folder / ".eddy" / "log")
    partitions = [TopicPartition(topic, p) for p in range(log.topics()[topic].partitions)]
    found = [log.read(tp, 0, end, 1_000_000) for tp, end in log.end_offsets(partitions).items()]
    log.close()
    return found


def rows(folder: pathlib.Path, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [pair for part in stored(folder, topic) for pair in zip(part.keys, part.values, strict=True)]


class TestProduce:
    def test_tsv_takes_quotes_as_they_are_and_an_empty_value_as_a_tombstone(
        self, run: Command, folder: pathlib.Path
    ) -> None:
        told = run("produce", "t", stdin='a\t"x\nb\t\tmore\n\nc\ty\r\n').stderr
        assert rows(folder, "t") == [(b"a", b'"x'), (b"b", None), (b"c", b"y")]
        assert told.splitlines()[-1] == "3 records into 't', 1 of them tombstones"

    def test_empty_text_can_be_a_value(self, run: Command, folder: pathlib.Path) -> None:
        run("produce", "t", "--empty-is-text", stdin="a\t\n")
        assert rows(folder, "t") == [(b"a", b"")]

    def test_format_follows_the_suffix_and_gzip_is_read(self, run: Command, folder: pathlib.Path) -> None:
        (folder / "a.tsv.gz").write_bytes(gzip.compress(b"a\t1\n"))
        (folder / "b.csv").write_text('b,"2,\n3"\n')
        (folder / "c.jsonl").write_text('{"key": "c", "value": null}\n\n{"value": "5", "key": null}\n')
        (folder / "d.txt").write_text("one line\n")
        run("produce", "t", "a.tsv.gz", "b.csv", "c.jsonl", "d.txt")
        expected = [(b"a", b"1"), (b"b", b"2,\n3"), (b"c", None), (None, b"5"), (None, b"one line")]
        assert rows(folder, "t") == expected

    def test_columns_are_chosen_by_name_or_number(self, run: Command, folder: pathlib.Path) -> None:
        (folder / "bom.csv").write_text("\ufeffid,who,at\n7,ann,1700000000000\n")
        chosen = ("--key", "who", "--value", "id", "--timestamp", "at", "--value-type", "int64")
        run("produce", "t", "bom.csv", *chosen)
        assert rows(folder, "t") == [(b"ann", b"\0\0\0\0\0\0\0\7")]
        assert stored(folder, "t")[0].timestamps == (1_700_000_000_000,)
        run("produce", "numbered", "bom.csv", "--key", "2", "--value", "1", "--header")
        assert rows(folder, "numbered") == [(b"ann", b"7")]

    def test_csv_tells_empty_text_from_nothing_and_nothing_has_to_be_said(
        self, run: Command, folder: pathlib.Path
    ) -> None:
        (folder / "a.csv").write_bytes(b'a,""\r\nb,\r\n"",x\r\n,"say ""hi""\r\n"\r\n')
        told = run("produce", "t", "a.csv", status=1).stderr
        assert "a.csv: line 2: the value is empty, without quotes" in told
        assert rows(folder, "t") == []
        run("produce", "nulls", "a.csv", "--empty-is-null")
        assert rows(folder, "nulls") == [(b"a", b""), (b"b", None), (b"", b"x"), (None, b'say "hi"\r\n')]
        run("produce", "texts", "a.csv", "--empty-is-text")
        assert rows(folder, "texts") == [(b"a", b""), (b"b", b""), (b"", b"x"), (b"", b'say "hi"\r\n')]
        again = run("consume", "nulls", "--format", "csv").stdout_bytes.decode()
        assert again == 'a,""\nb,\n"",x\n,"say ""hi""\r\n"\n'
        run("produce", "copy", "--format", "csv", "--empty-is-null", stdin=again)
        assert rows(folder, "copy") == rows(folder, "nulls")

    def test_example_of_the_docs_has_an_empty_text_and_a_tombstone(self, run: Command, folder: pathlib.Path) -> None:
        (line,) = [line for line in DOCS.read_text().splitlines() if line.startswith("printf") and "--empty" in line]
        text, command = line.split(" | eddy ")
        written = subprocess.run(["sh", "-c", text], capture_output=True, check=True, timeout=60).stdout
        run(*command.split(), stdin=written)
        assert rows(folder, "nodes") == [(b"leaf", b""), (b"twig", None)]

    def test_csv_row_of_another_width_is_a_bad_line(self, run: Command, folder: pathlib.Path) -> None:
        told = run("produce", "t", "--format", "csv", stdin="a,1\nb,2,3\n", status=1).stderr
        assert "line 2: 3 columns, where the first line has 2; a value with a comma needs quotes" in told
        run("produce", "t", "--format", "csv", "--skip-bad", stdin="a,1\nb,2,3\nc,4\n")
        assert rows(folder, "t") == [(b"a", b"1"), (b"c", b"4")]

    def test_json_fields_and_whole_objects(self, run: Command, folder: pathlib.Path) -> None:
        line = '{"id": 3, "tags": ["b", "a"]}\n'
        form = ("--format", "jsonl", "--key", "id", "--key-type", "int64", "--value-type", "json")
        run("produce", "whole", *form, "--value", ".", stdin=line)
        run("produce", "part", *form, "--value", "tags", stdin=line)
        assert rows(folder, "whole") == [(b"\0" * 7 + b"\3", b'{"id":3,"tags":["b","a"]}')]
        assert rows(folder, "part") == [(b"\0" * 7 + b"\3", b'["b","a"]')]

    def test_time_is_now_where_none_is_named(self, run: Command, folder: pathlib.Path) -> None:
        before = time.time_ns() // 1_000_000
        run("produce", "t", stdin="a\t1\n")
        assert before <= stored(folder, "t")[0].timestamps[0] <= time.time_ns() // 1_000_000

    def test_records_of_a_key_share_a_partition_and_transactions_are_bounded(
        self, run: Command, folder: pathlib.Path
    ) -> None:
        told = run("produce", "t", "--partitions", "3", stdin="".join(f"k{i % 50}\t{i}\n" for i in range(25_000)))
        assert "25,000 records into 't'" in told.stderr
        parts = stored(folder, "t")
        assert sum(map(len, parts)) == 25_000
        assert not set(parts[0].keys) & set(parts[1].keys)
        assert [part.next_offset - len(part) for part in parts] == [3, 3, 3]  # a control record a transaction
        refused = run("produce", "t", "--partitions", "4", stdin="a\t1\n", status=2)
        assert "topic 't' exists, with 3 partitions" in refused.stderr

    @pytest.mark.parametrize(
        ("arguments", "text", "said"),
        [
            ((), "a\t1\nb\n", "line 2: 1 columns, and the value is to be read from column 2"),
            (("--value-type", "int64"), "a\t1\nb\tx\n", "line 2: the value 'x' is not a valid int64"),
            (("--key-type", "json"), "1\t1\n{\tx\n", "line 2: the key '{' is not a valid json"),
            (("--value-type", "bytes"), "a\t00\nb\tzz\n", "line 2: the value 'zz' is not a valid bytes"),
            ((), b"a\t1\nb\t\xff\n", "line 2: the value b'\\xff' is not UTF-8: byte 0xff"),
            (("--timestamp", "3"), "a\t1\t2\na\t1\tlate\n", "line 2: the timestamp 'late' is not a number"),
            (("--format", "jsonl"), '{"key":"a","value":"b"}\n[1]\n', "line 2: no JSON object"),
            (("--format", "jsonl"), '{"key":"a","value":"b"}\n{"key":' + "[" * 20_000 + "\n", "line 2: no JSON object"),
            (("--format", "jsonl"), '{"key":"a","value":"b"}\n{"key":"c"}\n', "line 2: no field 'value' among ['key']"),
            (
                ("--format", "jsonl"),
                '{"key":"a","value":"b"}\n{"key":1,"value":"x"}\n',
                "line 2: the key 1 is not a valid string: Expected `str`, got `int`",
            ),
        ],
    )
    def test_bad_line_is_named_or_left_out(
        self, run: Command, folder: pathlib.Path, arguments: tuple[str, ...], text: str | bytes, said: str
    ) -> None:
        told = run("produce", "t", *arguments, stdin=text, status=1).stderr
        assert f"error [DATA]: stdin: {said}" in told
        assert rows(folder, "t") == []
        told = run("produce", "t", *arguments, "--skip-bad", stdin=text).stderr
        assert told.splitlines()[-1] == "1 records into 't', 0 of them tombstones, 1 bad lines skipped"

    def test_broken_quotes_and_unknown_columns_stop_it(self, run: Command, folder: pathlib.Path) -> None:
        told = run("produce", "t", "--format", "csv", stdin='a,1\nb,"2\n', status=1).stderr
        assert "stdin: line 2: a quote is opened and not closed in the file" in told
        told = run("produce", "t", "--format", "csv", "--key", "id", stdin="a,b\n1,2\n", status=1).stderr
        assert "there is no column 'id' among ['a', 'b']" in told

    def test_file_that_cannot_be_read_is_named(self, run: Command, folder: pathlib.Path) -> None:
        assert "gone.tsv: no such file" in run("produce", "t", "gone.tsv", status=2).stderr
        assert not (folder / ".eddy").exists()
        assert "Add --format" in run("produce", "t", "gone.dat", status=2).stderr
        (folder / "broken.tsv.gz").write_bytes(b"no gzip")
        assert "broken.tsv.gz" in run("produce", "t", "broken.tsv.gz", status=1).stderr
        whole = gzip.compress(b"a\t1\n" * 200)
        (folder / "changed.tsv.gz").write_bytes(whole[:10] + bytes(8) + whole[18:])
        assert "changed.tsv.gz" in run("produce", "t", "changed.tsv.gz", status=1).stderr


class TestConsume:
    @pytest.fixture
    def records(self, run: Command) -> None:
        lines = [("a", "1"), ("b", 'x\t"y"\n'), ("a", None), ("c", "3"), ("b", "2")]
        objects = ({"key": k, "value": v, "at": 10 * i} for i, (k, v) in enumerate(lines))
        text = "\n".join(map(json.dumps, objects))
        run("produce", "t", "--format", "jsonl", "--timestamp", "at", stdin=text)

    def test_tsv_keeps_a_record_on_its_line(self, run: Command, records: None) -> None:
        assert run("consume", "t").stdout == 'a\t1\nb\tx\\t"y"\\n\na\t\nc\t3\nb\t2\n'

    def test_csv_quotes(self, run: Command, records: None) -> None:
        assert run("consume", "t", "--format", "csv").stdout == 'a,1\nb,"x\t""y""\n"\na,\nc,3\nb,2\n'

    def test_jsonl_tells_null_from_empty_and_carries_what_is_asked_for(self, run: Command, records: None) -> None:
        out = run("consume", "t", "--format", "jsonl", "--timestamps", "--headers", "--max", "3").stdout
        assert list(map(json.loads, out.splitlines()))[2] == {
            "key": "a",
            "value": None,
            "timestamp": 20,
            "headers": [],
        }

    def test_latest_is_the_table(self, run: Command, records: None) -> None:
        assert run("consume", "t", "--latest", "--timestamps").stdout == "b\t2\t40\nc\t3\t30\n"
        assert run("consume", "t", "--latest", "--max", "1").stdout == "b\t2\n"

    def test_from_end_prints_what_comes_later(self, run: Command, records: None) -> None:
        assert run("consume", "t", "--from-end").stdout == ""
        assert "leave out --follow and --from-end" in run("consume", "t", "--latest", "-f", status=2).stderr

    def test_one_partition(self, run: Command) -> None:
        run("produce", "wide", "--partitions", "2", stdin="".join(f"{i}\tx\n" for i in range(20)))
        parts = [run("consume", "wide", "--partition", p).stdout.splitlines() for p in "01"]
        assert all(parts)
        assert run("consume", "wide").stdout.splitlines() == parts[0] + parts[1]
        assert "there is no partition 2" in run("consume", "wide", "--partition", "2", status=1).stderr

    def test_wrong_type_is_named_and_a_right_one_suggested(self, run: Command, records: None) -> None:
        told = run("consume", "t", "--value-type", "int64", status=1).stderr
        assert "topic 't' partition 0 offset 0: the value b'1' is not a valid int64" in told
        run("produce", "counts", "--value-type", "int64", stdin="a\t1\nb\t2\n")
        assert run("consume", "counts").stderr == "the values do not look like text; perhaps: --value-type int64\n"
        assert run("consume", "counts", "--value-type", "int64").stdout == "a\t1\nb\t2\n"

    def test_topic_or_log_that_does_not_exist(self, run: Command, folder: pathlib.Path) -> None:
        assert "local log .eddy/log: there is no such directory" in run("consume", "t", status=1).stderr
        assert not (folder / ".eddy").exists()
        run("produce", "t")
        assert "topic 'u' does not exist" in run("consume", "u", status=1).stderr

    @pytest.mark.parametrize("form", ["csv", "jsonl"])
    def test_what_is_consumed_can_be_produced_again(
        self, run: Command, records: None, folder: pathlib.Path, form: str
    ) -> None:
        run("produce", "copy", "--format", form, "--empty-is-null", stdin=run("consume", "t", "--format", form).stdout)
        assert rows(folder, "copy") == rows(folder, "t")


@given(
    st.one_of(
        st.tuples(st.just("string"), st.text()),
        st.tuples(st.just("int64"), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just("float64"), st.floats(allow_nan=False)),
        st.tuples(st.just("bytes"), st.binary()),
        st.tuples(st.just("json"), st.dictionaries(st.text(), st.integers(-9, 9) | st.text() | st.none())),
    )
)
def test_text_and_json_lead_back_to_the_same_bytes(case: tuple[str, object]) -> None:
    name, value = case
    form = FIELD_TYPES[name]
    data = form.serde.encode(value)
    assert form.encode_text(form.show(form.serde.decode(data))) == data
    if value not in (float("inf"), float("-inf")):  # JSON has no infinity
        assert form.encode_json(form.to_json(form.serde.decode(data))) == data


APP = """
import eddy

topology = eddy.Topology("shop")
orders = topology.stream("orders", key=eddy.Int64, value=eddy.Json())
orders.group_by_key().count("counts").to("counts")
orders.map_values(lambda order: (order["who"], 1)).to("pairs", value=eddy.Native)
orders.map_values(lambda order: len(order)).to("untold")
"""


class TestConsumeOf:
    @pytest.fixture
    def made(self, run: Command, folder: pathlib.Path) -> None:
        (folder / "app.py").write_text(APP)
        run(
            "produce",
            "orders",
            "--key-type",
            "int64",
            "--value-type",
            "json",
            stdin='7\t{"who":"ann"}\n7\t{"who":"é"}\n',
        )
        run("run", "app.py", "--until-idle")

    @pytest.mark.usefixtures("made")
    def test_the_topology_tells_the_types_of_sources_and_outputs(self, run: Command) -> None:
        assert run("consume", "orders", "--of", "app.py").stdout == '7\t{"who":"ann"}\n7\t{"who":"é"}\n'
        assert run("consume", "counts", "--of", "app.py:topology", "--latest").stdout == "7\t2\n"
        assert run("consume", "pairs", "--of", "app.py").stdout == '7\t["ann",1]\n7\t["é",1]\n'
        found = run("consume", "pairs", "--of", "app.py", "--format", "jsonl", "--max", "1").stdout
        assert json.loads(found) == {"key": 7, "value": ["ann", 1]}

    @pytest.mark.usefixtures("made")
    def test_a_type_that_is_named_is_taken(self, run: Command) -> None:
        assert run("consume", "counts", "--of", "app.py", "--key-type", "bytes", "--latest").stdout == f"{7:016x}\t2\n"
        assert run("consume", "untold", "--of", "app.py", "--value-type", "int64").stdout == "7\t1\n7\t1\n"

    @pytest.mark.usefixtures("made")
    def test_what_the_topology_does_not_tell_is_refused_by_name(self, run: Command) -> None:
        told = run("consume", "untold", "--of", "app.py", status=78).stderr
        assert "topic 'untold': the topology names no serde for its values" in told
        assert "--value-type int64" in told
        told = run("consume", "elsewhere", "--of", "app.py", status=78).stderr
        assert "does not read or write it; one of its topics is needed: counts, orders, pairs, untold" in told
        told = run("consume", "counts", "--of", "app.py", "--registry", "http://127.0.0.1:1", status=2).stderr
        assert "--of and --registry exclude each other" in told
