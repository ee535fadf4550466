"""The conformance cases as queries of the builder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eddy

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = json.loads((HERE / "conformance.json").read_text(encoding="utf-8"))
LIKES: list[dict[str, Any]] = json.loads((HERE / "like.json").read_text(encoding="utf-8"))
Row = dict[str, Any]


def query_of(case: dict[str, Any]) -> eddy.Query:
    """Build a case's query."""
    tables = {name: eddy.live_table(name, key=table["key"]) for name, table in case["tables"].items()}
    return _query(case["query"], tables, None)


def _query(given: dict[str, Any], tables: dict[str, eddy.LiveTable], row: Any) -> eddy.Query:
    table = tables[given["from"]]
    query: eddy.Query = table
    for parent, own in given.get("on", ()):
        query = query.where(table[own] == row[parent])
    if "where" in given:
        query = query.where(lambda me: _condition(given["where"], me, tables))
    if "order_by" in given:
        query = query.order_by(*(-table[name] if way == "desc" else table[name] for name, way in given["order_by"]))
    query = query.skip(given.get("skip", 0)).limit(given.get("limit"))
    if "select" in given:
        query = query.select(*given["select"])
    if given.get("one"):
        query = query.one()
    for include in given.get("include", ()):
        query = query.nest(**{include["as"]: _nest(include, tables)})
    return query


def _nest(include: dict[str, Any], tables: dict[str, eddy.LiveTable]) -> Callable[[Any], eddy.Query]:
    if "via" not in include:
        return lambda row: _query(include, tables, row)
    return lambda row: (
        _query(include["via"], tables, row).nest(target=lambda via: _query(include, tables, via)).pluck("target")
    )


def _condition(given: dict[str, Any], me: Any, tables: dict[str, eddy.LiveTable]) -> Any:
    if "and" in given:
        first, *others = (_condition(each, me, tables) for each in given["and"])
        for other in others:
            first = first & other
        return first
    if "exists" in given:
        return _query(given["exists"], tables, me).exists()
    if "not_exists" in given:
        return ~_query(given["not_exists"], tables, me).exists()
    column, value = me[given["col"]], given["value"]
    return {"=": column == value, ">": column > value}[given["op"]]


def windowed(query: eddy.Query, change: dict[str, Any]) -> eddy.Query:
    """The query with the window that a change asks for."""
    return query.skip(change.get("skip") or 0).limit(change.get("limit"))


def apply_to(tables: dict[str, dict[Any, Row]], keys: dict[str, list[str]], change: dict[str, Any]) -> None:
    """Apply a change to plain rows by key."""
    rows, name = tables[change["table"]], change["table"]
    if change["op"] in {"remove", "edit"}:
        gone = change["old"] if change["op"] == "edit" else change["row"]
        del rows[tuple(gone[column] for column in keys[name])]
    if change["op"] in {"add", "edit"}:
        rows[tuple(change["row"][column] for column in keys[name])] = change["row"]


def plain_tables(case: dict[str, Any]) -> tuple[dict[str, dict[Any, Row]], dict[str, list[str]]]:
    """A case's rows by table and key, and the key's columns by table."""
    keys = {name: table["key"] for name, table in case["tables"].items()}
    rows = {
        name: {tuple(row[column] for column in keys[name]): row for row in table["rows"]}
        for name, table in case["tables"].items()
    }
    return rows, keys


def without_nulls(found: Any) -> Any:
    """The result with null columns left out: a missing column is null."""
    if isinstance(found, list):
        return [without_nulls(each) for each in found]
    if isinstance(found, dict):
        return {name: without_nulls(value) for name, value in found.items() if value is not None}
    return found


def as_list(found: Any) -> Any:
    """The rows of a result: that of `one` is a row or None."""
    return found if isinstance(found, list) else [] if found is None else [found]
