"""A function over whole tables, generated as Python: nested loops that run a body for each combination of rows.

    for r0 in c1.rows:              each(…)
        if not (r0[1] > 3):         unless(…)
            continue
        for r2 in g3(r0[0], ()):    each(…)
            add((r0[0], r2))        the body

Rows are tuples. A row of a *weighted* table is a pair of the row and its weight, which is above 0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eddy.topology.sql.expressions import Expr, PythonWriter

__all__ = ["MOST_LOOPS", "RowCode", "RowFunction", "WholeTable", "row_of"]

MOST_LOOPS = 12
"""The most loops that are nested: Python allows 20."""


class WholeTable:
    """The rows of a step once it has run: a sequence, a set or, for look-ups, a dict."""

    __slots__ = ("rows",)

    def __init__(self, rows: Any = ()) -> None:
        self.rows = rows


class RowCode:
    """The present row of a function: the Python for its columns and its weight.

    `whole` is the Python for the row itself if the columns are exactly its elements; `weight` is empty for 1.
    """

    def __init__(self, columns: Mapping[int, str], weight: str = "", whole: str = "") -> None:
        self.columns, self.weight, self.whole = columns, weight, whole

    def times(self, weight: str) -> str:
        """The weight, multiplied."""
        return " * ".join(part for part in (self.weight, weight) if part)


class RowFunction:
    """A function that is being written."""

    def __init__(self) -> None:
        self.loops = 0
        self._names: dict[str, Any] = {}
        self._before: list[str] = []
        self._lines: list[str] = []
        self._there: list[str] = []

    def name(self, value: Any) -> str:
        """A name for a value that does not change."""
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def table(self, table: WholeTable, attribute: str = "") -> str:
        """A name for the rows of a table, or for an attribute of them, when the function is called."""
        name = f"g{len(self._names)}"
        self._before.append(f"{name} = {self.name(table)}.rows{attribute}")
        self._names[name] = None
        return name

    def each(self, rows: str, *, weighted: bool = False) -> tuple[str, str]:
        """Begin a loop over rows. Returns the Python for the row and, if they are weighted, for its weight."""
        row, weight = self._new("r"), ""
        if weighted:
            weight = self._new("w")
        self.line(f"for {row}{', ' + weight if weighted else ''} in {rows}:")
        self.loops += 1
        return row, weight

    def begin_again(self) -> None:
        """Forget the loops, which are in another function."""
        self.loops = 0
        self._names, self._before, self._lines, self._there = {}, [], [], []

    def line(self, text: str) -> None:
        """Add a line of the innermost loop."""
        self._lines.append("    " * (self.loops + 1) + text)

    def unless(self, condition: str) -> None:
        """Go on with the next row if the condition is true."""
        self.line(f"if {condition}:")
        self.line("    continue")

    def kept(self, code: str, prefix: str = "v") -> str:
        """A variable with a value that is computed now."""
        name = self._new(prefix)
        self.line(f"{name} = {code}")
        return name

    def value(self, expr: Expr, columns: Mapping[int, str]) -> str:
        """The Python for an expression over columns."""
        return self._writer(columns).value(expr)

    def truth(self, conditions: Sequence[Expr], columns: Mapping[int, str]) -> str:
        """The Python for whether all conditions are true."""
        writer = self._writer(columns)
        return " and ".join(writer.truth(condition) for condition in conditions) or "True"

    def function(self, parameters: str, before: Sequence[str], after: Sequence[str]) -> Callable[..., Any]:
        """The function, with lines before and after its loops."""
        inside = [*self._before, *before]
        lines = [f"def run({parameters}):", *(f"    {line}" for line in inside), *self._lines]
        exec("\n".join([*lines, *(f"    {line}" for line in after)]), self._names)
        made: Callable[..., Any] = self._names["run"]
        return made

    def _writer(self, columns: Mapping[int, str]) -> PythonWriter:
        return PythonWriter(", ".join(self._there), columns, self._names)

    def _new(self, prefix: str) -> str:
        name = f"{prefix}{len(self._names)}"
        self._names[name] = None
        self._there.append(name)
        return name


def row_of(codes: Sequence[str]) -> str:
    """The Python for a tuple."""
    return f"({''.join(code + ', ' for code in codes)})"
