"""WITH MUTUALLY RECURSIVE is what its definition says: iterations of plain queries, each over what all bindings hold.

The oracle runs every definition as a query of its own, iteration by iteration, with the bindings as tables;
nothing of it recurs. DuckDB says that the plain queries are right.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eddy
from tests.seeds import share
from tests.sql import duck, queries

PAIR = {"a": "integer", "c": "integer"}
WORDS = [(1, 2, "ab"), (None, 0, ""), (2, 2, "Abc")]


@st.composite
def definitions(draw: Any, own: str, other: str) -> str:
    """A definition over t, base and the two bindings; values stay small, and rows are a set."""
    text = draw(queries.queries(depth=0))
    text = re.sub(r"\bu\b", draw(st.sampled_from([own, own, other, "base"])), text)
    word = draw(st.sampled_from(["UNION", "UNION", "UNION", "EXCEPT", "INTERSECT"]))
    return f"SELECT a, c FROM base {word} SELECT x % 5, y % 5 FROM ({text}) AS q"


def iterations_of(text: dict[str, str], tables: Any, iterations: int) -> dict[str, list[tuple[Any, ...]]]:
    """What the bindings hold after so many iterations, computed as it is defined."""
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in text}
    for _ in range(iterations):
        for name, definition in text.items():
            now = {**tables, **{binding: (PAIR, rows) for binding, rows in held.items()}}
            held[name] = eddy.query(definition, now).rows
    return held


def statement(text: dict[str, str], iterations: int, name: str) -> str:
    bindings = ", ".join(f"{name}(a integer, c integer) AS ({definition})" for name, definition in text.items())
    return f"WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT {iterations}) {bindings} SELECT a, c FROM {name}"


Change = tuple[int, tuple[int | None, int | None] | None]
changes = st.tuples(st.integers(0, 3), st.none() | st.tuples(queries.number, queries.number))
"""Of a row of `base`, by its number."""


def view_of(text: str, story: Iterable[Change]) -> Iterator[tuple[dict[str, Any], dict[Any, int]]]:
    """A view of a statement over `base` and `t`: after each change of `base`, the tables and the view's rows."""
    topology = eddy.Topology("test")
    base = topology.table("base", key=eddy.Int64, value=eddy.Native)
    other = topology.table("other", key=eddy.Int64, value=eddy.Native)
    tables = {"base": (base, {"id": "bigint", **PAIR}), "t": (other, {"id": "bigint", **queries.COLUMNS["t"]})}
    view = topology.sql(text, tables, name="view")
    view.map(lambda key, row: (row, 1)).group_by_key().count("rows")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("other").pipe_all(enumerate(WORDS))
        now: dict[int, Any] = {}
        for key, row in story:
            driver.input("base").pipe(key, row)
            now[key] = row
            held = {"t": (queries.COLUMNS["t"], WORDS), "base": (PAIR, [row for row in now.values() if row])}
            yield held, driver.store("rows").all()


bodies = st.fixed_dictionaries({"r": definitions("r", "z"), "z": definitions("z", "r")})


@settings(max_examples=share(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=bodies, tables=queries.tables, iterations=st.integers(1, 5))
def test_block_is_so_many_iterations_of_its_definitions(text: dict[str, str], tables: Any, iterations: int) -> None:
    tables = {"t": tables["t"], "base": tables["u"]}
    held = iterations_of(text, tables, iterations)
    for name in text:
        found = eddy.query(statement(text, iterations, name), tables).rows
        assert duck.bag(found) == duck.bag(held[name])


@settings(max_examples=share(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=bodies,
    iterations=st.integers(1, 4),
    story=st.lists(changes, min_size=1, max_size=5),
)
def test_view_of_a_block_is_so_many_iterations_after_every_change(
    text: dict[str, str], iterations: int, story: Any
) -> None:
    for tables, rows in view_of(statement(text, iterations, "z"), story):
        assert rows == dict(duck.bag(iterations_of(text, tables, iterations)["z"]))
