"""CSV: an oracle of one state machine, what common programs write, and what is refused."""

import csv
import io
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.connectors import csv_rows as parser
from eddy.connectors.csv_rows import csv_line, csv_rows, meant
from eddy.errors import DataError

TEXTS = st.text(st.sampled_from('a,"\r\n é\t'), max_size=6)
TABLES = st.lists(st.lists(st.none() | TEXTS, min_size=2, max_size=4), max_size=6)


def automaton(text: str) -> list[list[str | None]] | None:
    """RFC 4180 character by character; None if the text breaks its grammar."""
    rows: list[list[str | None]] = []
    row: list[str | None] = []
    cell, state, at = "", "begin", 0
    while at < len(text):
        char, at = text[at], at + 1
        if state == "quoted":
            if char != '"':
                cell += char
            elif text[at : at + 1] == '"':
                cell, at = cell + '"', at + 1
            else:
                state = "closed"
        elif char in ",\r\n":
            row.append(None if state == "begin" else cell)
            cell, state = "", "begin"
            if char != ",":
                at += text[at - 1 : at + 1] == "\r\n"
                rows, row = [*rows, row], []
        elif state == "closed" or (char == '"' and state == "plain"):
            return None
        elif char == '"':
            state = "quoted"
        else:
            cell, state = cell + char, "plain"
    if state == "quoted":
        return None
    if row or state != "begin":
        rows.append([*row, None if state == "begin" else cell])
    return [row for row in rows if row != [None]]


def pieces(text: str, rng: random.Random) -> list[str]:
    """The text in lines as Python or Spark splits it."""
    return list(io.StringIO(text, newline="" if rng.random() < 0.5 else "\n"))


@given(st.text(st.sampled_from('aab,,"""\r\n'), max_size=24), st.randoms(use_true_random=False))
@example('"ab"c"d\n', random.Random(0))
@example("a,1\rb", random.Random(0))
def test_rows_are_those_of_the_grammar(text: str, rng: random.Random) -> None:
    expected = automaton(text)
    if expected is None:
        with pytest.raises(DataError, match=r"^line \d+: a quote"):
            list(csv_rows(pieces(text, rng)))
    else:
        assert [row for _, row in csv_rows(pieces(text, rng))] == expected


@given(TABLES, st.sampled_from(["\n", "\r\n"]), st.randoms(use_true_random=False))
def test_rows_that_are_written_are_read_again_with_the_lines_on_which_they_begin(
    table: list[list[str | None]], end: str, rng: random.Random
) -> None:
    lines = [csv_line(row).removesuffix("\n") + end for row in table]
    breaks = [line.replace("\r\n", "\n").replace("\r", "\n").count("\n") for line in lines]
    begins = [1 + sum(breaks[:at]) for at in range(len(lines))]
    assert list(csv_rows(pieces("".join(lines), rng))) == list(zip(begins, table, strict=True))


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=6))
def test_what_pythons_writer_quotes_is_read_as_it_was(table: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(table)
    assert [row for _, row in csv_rows(io.StringIO(file.getvalue(), newline=""))] == table


def test_a_parser_whose_lines_do_not_end_with_cr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:  # private: planted
    monkeypatch.setattr(parser, "_CELL", parser.re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\Z)'))
    with pytest.raises((AssertionError, DataError)):
        test_rows_are_those_of_the_grammar()


def test_an_empty_cell_is_what_the_reader_says() -> None:
    rows = [row for _, row in csv_rows(["\ufeffa,\n", 'b,""\n'])]
    assert [meant(cell, "null", "value") for _, cell in rows] == [None, ""]
    assert [meant(cell, "text", "value") for _, cell in rows] == ["", ""]
    assert meant(rows[1][1], None, "value") == ""
    with pytest.raises(DataError, match=r"the value is empty, without quotes: .*: --empty-is-null or --empty-is-text"):
        meant(rows[0][1], None, "value")


def test_an_open_quote_is_named_and_does_not_take_the_file_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="line 2: a quote is opened and not closed in the file"):
        list(csv_rows(["a,1\n", 'b,"2\n', "c,3\n"]))
    monkeypatch.setattr(parser, "MAX_ROW_CHARS", 100)
    endless = iter(lambda: "c,3\n", "")
    with pytest.raises(DataError, match="line 1: a quote is opened and not closed within 16 MiB"):
        list(csv_rows(line for part in (['a,"1\n'], endless) for line in part))
