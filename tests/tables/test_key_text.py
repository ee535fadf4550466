"""Keys as text: each key of bytes has a text of its own, by which its row is found, and pages have each row once."""

from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import eddy
from eddy.connectors.log import Log
from eddy.serve.table_pages import tables_app
from eddy.tables.catalog import ServedTable
from eddy.tables.key_text import key_of_text, text_of_key
from tests.tables.test_row_places import get

BYTES = ServedTable("t", "source", "t", 1, eddy.Bytes, eddy.Bytes)


@given(st.one_of(st.binary(), st.text().map(str.encode), st.from_regex(rb"0x[0-9a-fA-F]*", fullmatch=True)))
def test_each_key_of_bytes_has_a_text_of_its_own(key: bytes) -> None:
    assert key_of_text(BYTES, text_of_key(BYTES, key)) == key


@given(st.floats(allow_nan=False))
def test_each_float_has_a_text(key: float) -> None:
    table = ServedTable("t", "source", "t", 1, eddy.Float64, eddy.Bytes)
    assert key_of_text(table, text_of_key(table, key)) == key
    assert key_of_text(table, text_of_key(table, key).strip('"')) == key
    assert repr(key_of_text(table, text_of_key(table, float("nan")))) == "nan"


@pytest.mark.parametrize(
    ("text", "key"),
    [("ann", b"ann"), ("0xff00", b"\xff\x00"), ("0xf", b"0xf"), ("0xFF", b"0xFF"), ("0x", b""), ("\udcff", b"\xff")],
)
def test_text_is_bytes(text: str, key: bytes) -> None:
    assert key_of_text(BYTES, text) == key


@pytest.mark.parametrize("text", [chr(0xD800), chr(0xDCFF), "a" + chr(0xD83D)])
@pytest.mark.parametrize("serde", [eddy.String, eddy.Json(), eddy.Int64, eddy.Native, eddy.Bytes])
def test_text_that_is_no_utf_8_is_refused_where_bytes_are_not_meant(serde: eddy.Serde[Any], text: str) -> None:
    if serde is eddy.Bytes and text == chr(0xDCFF):  # how Python has a byte of a command line
        return
    with pytest.raises(eddy.QueryError, match=r"table 't': key '.*' is not UTF-8, which is needed"):
        key_of_text(ServedTable("t", "source", "t", 1, serde, eddy.Bytes), text)


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_pages_have_each_row_once(log: Log, name: str, stack: ExitStack) -> None:
    keys = [
        b"",
        b"0x41",
        b"A",
        b"\xc3\xa4",
        b"\n",
        b"A\n",
        b"A\nA",
        *(bytes([first, last]) for first in (0, 200, 255) for last in range(250, 256)),
    ]
    topology = eddy.Topology(name)
    topology.table("items", key=eddy.Bytes, value=eddy.Int64)
    eddy.create_topics(topology, log, partitions=2)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    rows = {key: number for number, key in enumerate(keys)}
    tables.wait(log.write("items", rows, key=eddy.Bytes, value=eddy.Int64), exact=True)
    client = TestClient(tables_app(tables))
    for asked in ({}, {"search": ""}):
        found, after = [], {}
        while True:
            page = get(client, "/v1/tables/items", limit=3, **asked, **after)
            found += [row["value"] for row in page["rows"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert found == [rows[key] for key in sorted(keys)]
    for key in keys[1:]:
        assert get(client, f"/v1/tables/items/{quote(text_of_key(BYTES, key), safe='')}")["value"] == rows[key]
