"""Writes a Python function over whole tables: nested loops with a body that runs for each combination of rows.

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
"""The most loops that are nested in one function. Python allows 20."""


class WholeTable:
    """The rows of a step, once it has run: a sequence, a set or, for look-ups, a dict."""

    __slots__ = ("rows",)

    def __init__(self, rows: Any = ()) -> None:
        self.rows = rows


class RowCode:
    """The Python code of a function's present row: the code of its columns and of its weight.

    `whole` is the code of the row itself if its elements are exactly the columns. `weight` is empty for weight 1.
    """

    def __init__(self, columns: Mapping[int, str], weight: str = "", whole: str = "") -> None:
        self.columns, self.weight, self.whole = columns, weight, whole

    def times(self, weight: str) -> str:
        """Return the code of the present weight times `weight`."""
        return " * ".join(part for part in (self.weight, weight) if part)


class RowFunction:
    """The code of a Python function while it is written, line by line."""

    def __init__(self) -> None:
        self.loops = 0
        self._names: dict[str, Any] = {}
        self._before: list[str] = []
        self._lines: list[str] = []
        self._there: list[str] = []

    def name(self, value: Any) -> str:
        """Return a name in the function for a value that does not change."""
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def table(self, table: WholeTable, attribute: str = "") -> str:
        """Return a name for the rows of a table, or for an attribute of the rows, as they are at the call."""
        name = f"g{len(self._names)}"
        self._before.append(f"{name} = {self.name(table)}.rows{attribute}")
        self._names[name] = None
        return name

    def each(self, rows: str, *, weighted: bool = False) -> tuple[str, str]:
        """Begin a loop over rows. Returns the code of the row and, if the rows are weighted, of its weight."""
        row, weight = self._new("r"), ""
        if weighted:
            weight = self._new("w")
        self.line(f"for {row}{', ' + weight if weighted else ''} in {rows}:")
        self.loops += 1
        return row, weight

    def begin_again(self) -> None:
        """Remove the loops from this function, because they are now in another function."""
        self.loops = 0
        self._names, self._before, self._lines, self._there = {}, [], [], []

    def line(self, text: str) -> None:
        """Add a line to the innermost loop."""
        self._lines.append("    " * (self.loops + 1) + text)

    def unless(self, condition: str) -> None:
        """Skip to the next row if the condition is true."""
        self.line(f"if {condition}:")
        self.line("    continue")

    def kept(self, code: str, prefix: str = "v") -> str:
        """Add a variable whose value is computed at this point, and return its name."""
        name = self._new(prefix)
        self.line(f"{name} = {code}")
        return name

    def value(self, expr: Expr, columns: Mapping[int, str]) -> str:
        """Return the code of an expression over columns."""
        return self._writer(columns).value(expr)

    def truth(self, conditions: Sequence[Expr], columns: Mapping[int, str]) -> str:
        """Return the code that tests if all conditions are true."""
        writer = self._writer(columns)
        return " and ".join(writer.truth(condition) for condition in conditions) or "True"

    def function(self, parameters: str, before: Sequence[str], after: Sequence[str]) -> Callable[..., Any]:
        """Compile the function, with the lines `before` and `after` around its loops."""
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
    """Return the code of a tuple."""
    return f"({''.join(code + ', ' for code in codes)})"
