"""`eddy sql`: statements over files and topics, what they print, and what a user is told."""

import datetime
import decimal
import gzip
import json
import os
import pathlib
import pty
import subprocess
import sys

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.cli.conftest import Command
from tests.waiting import PATIENCE_S

EDGES = "src,dst,name\n1,2,a\n2,3,\n3,,c\n"
REACH = """
-- what can be reached from 1
WITH MUTUALLY RECURSIVE reach (node bigint) AS (
  SELECT 1 UNION SELECT dst FROM reach JOIN edges ON node = src WHERE dst IS NOT NULL
)
SELECT node FROM reach ORDER BY node;
"""


@pytest.fixture
def edges(folder: pathlib.Path) -> pathlib.Path:
    (folder / "edges.csv").write_text(EDGES)
    return folder


@pytest.mark.parametrize("name", ["no-utf-8.jsonl", "deep.jsonl", "no-gzip.csv.gz", "cut.csv.gz", "changed.csv.gz"])
def test_a_file_that_cannot_be_read_is_named(run: Command, folder: pathlib.Path, name: str) -> None:
    whole = bytearray(gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 200))
    changed = whole[:10] + bytes(20) + whole[30:]
    data = {"no-utf-8.jsonl": b'{"a": "\xff"}\n', "no-gzip.csv.gz": b"a,b", "cut.csv.gz": whole[:-9]}
    data["deep.jsonl"] = b'{"a": %b}' % (b"[" * 20_000)
    (folder / name).write_bytes(data.get(name, changed))
    shown = run("sql", "-t", f"t={name}", "-c", "SELECT 1 FROM t", status=1).stderr
    assert "[DATA]" in shown
    assert name in shown


def test_csv_tells_an_empty_text_from_null_as_it_is_printed(run: Command, folder: pathlib.Path) -> None:
    (folder / "t.csv").write_text('id,s,n\r\n1,"",2\r\n2,,""\r\n3,"a ""b"",\nc",\r\n')
    printed = run("sql", "-t", "t=t.csv", "-c", "SELECT * FROM t WHERE s = '' OR s IS NULL OR n IS NULL").stdout
    assert printed == 'id,s,n\n1,"",2\n2,,\n3,"a ""b"",\nc",\n'
    (folder / "again.csv").write_text(printed)
    again = run("sql", "-t", "t=again.csv", "-c", "SELECT * FROM t").stdout
    assert again == printed
    assert run("sql", "-t", "t=t.csv", "-c", "SELECT n FROM t WHERE id = 3").stdout == 'n\n""\n'
    (folder / "bad.csv").write_text('a\nx "y"\n')
    told = run("sql", "-t", "t=bad.csv", "-c", "SELECT * FROM t", status=1).stderr
    assert "bad.csv: line 2: a quote in the middle of a value" in told


def test_file_of_statements_over_a_csv(run: Command, edges: pathlib.Path) -> None:
    (edges / "reach.sql").write_text(REACH + "SELECT count(*) AS n, sum(src) AS s FROM edges;")
    assert run("sql", "reach.sql", "-t", "edges=edges.csv").stdout == "node\n1\n2\n3\n\nn,s\n3,6\n"


def test_statements_come_from_stdin_too(run: Command, edges: pathlib.Path) -> None:
    assert run("sql", "-t", "edges=edges.csv", stdin="SELECT name FROM edges WHERE src = 3").stdout == "name\nc\n"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "src,name,half\n1,a,0.5\n2,,1.0\n"),
        ("tsv", "src\tname\thalf\n1\ta\t0.5\n2\t\t1.0\n"),
        ("jsonl", '{"src":1,"name":"a","half":0.5}\n{"src":2,"name":null,"half":1.0}\n'),
        ("table", "src  name  half\n  1  a      0.5\n  2  NULL   1.0\n(2 rows)\n"),
    ],
)
def test_answers_are_printed_in_the_form_that_is_asked_for(
    run: Command, edges: pathlib.Path, form: str, expected: str
) -> None:
    query = "SELECT src, name, (src / 2.0)::numeric(3, 1) AS half FROM edges WHERE src < 3 ORDER BY src"
    printed = run("sql", "-t", "edges=edges.csv", "-c", query, "--format", form).stdout
    assert "\n".join(line.rstrip() for line in printed.splitlines()) + "\n" == expected


def test_types_are_inferred_or_declared(run: Command, folder: pathlib.Path) -> None:
    (folder / "a.tsv").write_text("i\tn\td\tb\tt\ts\tz\n1\t1.5\t1e3\ttrue\t2024-01-01 10:00\t007\t\n")
    with gzip.open(folder / "b.jsonl.gz", "wt") as lines:
        lines.write('{"i": 1, "x": 1.5}\n{"i": 2, "list": [1, 2], "x": 2}\n')
    printed = run("sql", "-t", "a=a.tsv", "-c", "SELECT i + 1, n * 2, d, NOT b, t, s, z FROM a").stdout
    assert printed.splitlines()[1] == "2,3,1000,false,2024-01-01 10:00:00,007,"
    assert (
        run("sql", "-t", "b=b.jsonl.gz", "-c", "SELECT i, x, list FROM b").stdout == 'i,x,list\n1,1.5,\n2,2,"[1,2]"\n'
    )
    declared = (
        "CREATE TABLE a (s integer, n numeric(5, 2)); CREATE VIEW v AS SELECT s + 1 AS s, n FROM a; SELECT * FROM v"
    )
    assert run("sql", "-t", "a=a.tsv", "-c", declared).stdout == "s,n\n8,1.50\n"
    (folder / "c.csv").write_text("1,x\n2,y\n")
    assert run("sql", "-t", "c=c.csv,header=no", "-c", "SELECT sum(column1) AS n FROM c").stdout == "n\n3\n"


def test_topics_are_tables_up_to_their_present_end(run: Command, folder: pathlib.Path) -> None:
    run("produce", "nodes", stdin="a\tr\nb\ta\nb\tr\n")
    query = "SELECT value AS parent, count(*) AS n FROM nodes GROUP BY 1 ORDER BY 1"
    assert run("sql", "-t", "nodes=nodes", "-c", query).stdout == "parent,n\na,1\nr,2\n"
    assert run("sql", "-t", "nodes=latest:nodes", "-c", query).stdout == "parent,n\nr,2\n"
    run("produce", "orders", "--format", "jsonl", "--value", ".", "--key", "id", "--value-type", "json",
        stdin='{"id": "x", "n": 2}\n{"id": "y", "n": 3, "more": true}\n')  # fmt: skip
    declared = "CREATE TABLE orders (key text, n bigint, more boolean); SELECT * FROM orders ORDER BY key"
    assert run("sql", "-t", "orders=orders", "-c", declared).stdout == "key,n,more\nx,2,\ny,3,true\n"


def test_compacted_topic_is_read_as_a_table(run: Command, folder: pathlib.Path) -> None:
    log = LocalLog(folder / ".eddy" / "log")
    log.create_topics([TopicSpec("counts", 1, {"cleanup.policy": "compact"})])
    log.close()
    run("produce", "counts", "--value-type", "int64", stdin="a\t1\na\t2\nb\t1\n")
    query = "SELECT sum(value) AS n FROM counts"
    assert run("sql", "-t", "counts=counts,value=int64", "-c", query).stdout == "n\n3\n"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("-c", "SELECT\n  x FROM edges"), 78, "error [TOPOLOGY]: sql 'command' line 2, column 3: no column 'x'"),
        (("-c", "SELECT 1;\nSELECT 1 / 0"), 1, "error [DATA]: sql line 2, column 8: division by zero"),
        (("-c", "SELECT 1 FROM edges LIMIT 1 OFFSET src"), 78, "line 1, column 36: OFFSET src is not supported"),
        (("-c", "SELECT 'x"), 78, "cannot be read"),
        (("-t", "x", "-c", "SELECT 1"), 2, "'x' is not a table; NAME=FILE or NAME=TOPIC is needed."),
        (("-t", "x=gone.csv", "-c", "SELECT 1"), 2, "there is no file 'gone.csv'."),
        (("-t", "x=first:t", "-c", "SELECT 1"), 2, "latest:TOPIC or all:TOPIC is needed."),
        (("-t", "x=t,key=money", "-c", "SELECT 1"), 2, "key= is one of string, int64"),
        (("gone.sql",), 2, "there is no file 'gone.sql'."),
        (("gone.sql", "-c", "SELECT 1"), 2, "leave one out"),
        (("SELECT 'a'",), 2, """for a statement write: eddy sql -c 'SELECT '"'"'a'"'"''."""),
        (("-t", "x=t", "-c", "SELECT * FROM x"), 1, "there is no such directory"),
        (("-c", "CREATE TABLE edges (gone int); SELECT * FROM edges"), 1, "edges.csv: there is no column 'gone'"),
        (("-c", "CREATE TABLE edges (name int); SELECT * FROM edges"), 1, "edges.csv:2: 'a' is not a valid integer"),
        (("-c", "DROP TABLE edges"), 78, "DROP is not supported"),
    ],
)
def test_mistakes_are_told(
    run: Command, edges: pathlib.Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    told = run("sql", "-t", "edges=edges.csv", *arguments, status=status).stderr
    assert said in told
    assert "Traceback" not in told


def test_prompt_reads_until_the_semicolon_and_goes_on_after_a_mistake(edges: pathlib.Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "eddy", "sql", "--format", "csv"],
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TERM": "dumb"},
    )  # fmt: skip
    os.close(terminal)
    os.write(controller, b"\\t edges=edges.csv\nSELECT nothing;\n\\d\n\\d edges\nSELECT count(*)\nFROM edges;\n\\q\n")
    out, error = process.communicate(timeout=PATIENCE_S)
    os.close(controller)
    assert process.returncode == 0
    assert "no column 'nothing'" in error
    assert "edges  edges.csv" in out
    assert "src     bigint" in out
    assert "count\n3\n" in out


def test_jsonl_is_json(run: Command, folder: pathlib.Path) -> None:
    line = run("sql", "-c", "SELECT 1.5 AS n, '2024-01-01 00:00:00'::timestamp AS t", "--format", "jsonl").stdout
    assert json.loads(line) == {"n": 1.5, "t": "2024-01-01T00:00:00"}
    floats = "SELECT 'nan'::double AS a, '-inf'::double AS b, -0.0::double AS c, NULL::double AS d"
    assert run("sql", "-c", floats, "--format", "jsonl").stdout == '{"a":"NaN","b":"-Infinity","c":0.0,"d":null}\n'
    told = run("sql", "-c", "SELECT 1 AS a, 2 AS a", "--format", "jsonl", status=2).stderr
    assert "several columns are called 'a'" in told


def test_parquet_has_its_own_types(run: Command, folder: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    columns = {
        "n": pyarrow.array([1, None], pyarrow.int32()),
        "none": pyarrow.array([None, None], pyarrow.int64()),
        "big": pyarrow.array([2**64 - 1, 0], pyarrow.uint64()),
        "cost": pyarrow.array([decimal.Decimal("1.50"), None], pyarrow.decimal128(9, 2)),
        "at": pyarrow.array([datetime.datetime(2024, 1, 1, 2, tzinfo=zone), None], pyarrow.timestamp("ns", "+02:00")),
        "day": pyarrow.array([datetime.date(2024, 2, 29), None]),
        "data": pyarrow.array([b"\xff", None]),
        "tags": pyarrow.array([["a", "b"], None]),
        "yes": pyarrow.array([True, None]),
        "took": pyarrow.array([datetime.timedelta(hours=26, microseconds=5), None], pyarrow.duration("ns")),
    }
    parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    run_sql = ("sql", "-t", "t=t.parquet", "--format", "jsonl", "-c")
    first, second = map(json.loads, run(*run_sql, "SELECT * FROM t ORDER BY n").stdout.splitlines())
    assert first == {
        "n": 1,
        "none": None,
        "big": 2**64 - 1,
        "cost": 1.5,
        "day": "2024-02-29",
        "data": "ff",
        "took": "P1DT7200.000005S",
        "yes": True,
        "at": "2024-01-01T00:00:00",
        "tags": '["a","b"]',
    }
    assert second == {**dict.fromkeys(columns), "big": 0}
    assert run("sql", "-t", "t=t.parquet", "-c", "SELECT none + n AS s, big * 2 AS b FROM t WHERE yes").stdout == (
        "s,b\n,36893488147419103230\n"
    )
    parquet.write_table(pyarrow.table({}), folder / "none.parquet")
    told = run("sql", "-t", "t=none.parquet", "-c", "SELECT count(*) FROM t", status=1).stderr
    assert "none.parquet: it has no columns; at least one is needed" in told
    late = pyarrow.array([4_000_000], pyarrow.date32())
    parquet.write_table(pyarrow.table({"day": late}), folder / "late.parquet")
    told = run("sql", "-t", "t=late.parquet", "-c", "SELECT day FROM t", status=1).stderr
    assert "late.parquet: " in told
    assert "dates and times up to the year 9999 are needed" in told
    (folder / "bad.parquet").write_bytes(b"PAR1")
    assert "bad.parquet: cannot be read" in run("sql", "-t", "t=bad.parquet", "-c", "SELECT 1 FROM t", status=1).stderr


def test_json_is_an_array_of_objects(run: Command, folder: pathlib.Path) -> None:
    (folder / "t.json").write_text('[{"name": "ann", "age": 3}, {"name": "bob"}]')
    (folder / "u.json.gz").write_bytes(gzip.compress(b"[]"))
    answer = run("sql", "-t", "t=t.json", "-c", "SELECT name, age FROM t ORDER BY name").stdout
    assert answer == "name,age\nann,3\nbob,\n"
    assert run("sql", "-t", "u=u.json.gz", "-c", "SELECT count(*) AS n FROM u").stdout == "n\n0\n"
    for columns in ("*", "name"):
        told = run("sql", "-t", "u=u.json.gz", "-c", f"SELECT {columns} FROM u", status=None).stderr
        assert "or an empty file, whose columns CREATE TABLE name (column type) declares" in told
    declared = "CREATE TABLE u (name text, age bigint); SELECT * FROM u"
    assert run("sql", "-t", "u=u.json.gz", "-c", declared).stdout == "name,age\n"
    for wrong in ('{"name": "ann"}\n{"name": "bob"}', "[1]", '{"a": 1}', ""):
        (folder / "t.json").write_text(wrong)
        told = run("sql", "-t", "t=t.json", "-c", "SELECT 1 FROM t", status=1).stderr
        assert "t.json: " in told
        assert "an array of objects is needed" in told


def test_topics_need_no_option(run: Command, folder: pathlib.Path) -> None:
    (folder / "names.csv").write_text("id,name\na,Ann\n")
    assert "nodes" in run("sql", "-c", "SELECT * FROM nodes", status=78).stderr  # there is no log, and none is made
    assert not (folder / ".eddy").exists()
    run("produce", "nodes", stdin="a\tx\nb\ty\n")
    run("produce", "by-weight", stdin="a\tz\n")
    assert run("sql", "-c", "SELECT count(*) AS n FROM nodes").stdout == "n\n2\n"
    query = (
        'SELECT name, n.value, w.value AS w FROM "by-weight" AS w, Nodes n JOIN names ON id = n.key WHERE w.key = n.key'
    )
    assert run("sql", "-t", "names=names.csv", "-c", query).stdout == "name,value,w\nAnn,x,z\n"
    own = "WITH RECURSIVE nodes (n) AS (SELECT 1 UNION SELECT n + 1 FROM nodes WHERE n < 3) SELECT count(*) FROM nodes"
    assert run("sql", "-c", own).stdout == "count\n3\n"
    for table in ("nodes", "Nodes"):
        assert run("sql", "-t", f"{table}=names.csv", "-c", f"SELECT name FROM {table}").stdout == "name\nAnn\n"
    assert "table by-weight" in run("sql", "-c", 'EXPLAIN SELECT key FROM "by-weight"').stdout
    run("sql", "-c", "CREATE VIEW v AS SELECT key FROM nodes; SELECT count(*) FROM v, nodes WHERE nodes.key = v.key;")
    for name in ("index", "comment", "nodes2"):  # the first two are keywords, which SQL lets be names
        run("produce", name, stdin="a\tz\n")
    for tables in ("index", "(SELECT 1 AS one) AS s, comment", "index AS i JOIN comment AS c ON c.key = i.key, nodes2"):
        assert run("sql", "-c", f"SELECT count(*) AS n FROM {tables}").stdout == "n\n1\n"
    told = run("sql", "-c", "SELECT * FROM nowhere", status=None)
    assert told.exit_code
    assert "nowhere" in told.stderr
