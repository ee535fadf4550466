"""Resolves the names in a query: they are columns of the tables in its FROM, or of the enclosing query."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import Node
from eddy.topology.sql.expressions import Expr, column, shifted, walk
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.unsupported_syntax import text_of, whole_number

__all__ = ["ColumnScope", "QueryContext", "Seen", "folded", "position_of", "refuse_outer", "scope_of"]


def folded(identifier: exp.Expr) -> str:
    """Return a name in its canonical form: unchanged if quoted, else in lower case."""
    name = text_of(identifier)
    return name if isinstance(identifier, exp.Identifier) and identifier.args.get("quoted") else name.lower()


_NO_COLUMNS = (
    "there is no FROM to take it from, or an empty file, whose columns CREATE TABLE name (column type) declares"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A column that `table.name` can mean, and also `name`, unless the column is `hidden` because USING merged it."""

    table: str
    name: str
    expr: Expr
    hidden: bool = False


@dataclass(frozen=True)
class QueryContext:
    """The names available to a query besides its FROM: the tables, and the scope of the enclosing query."""

    tables: dict[str, Node]
    outer: "ColumnScope | None" = None
    correlated: list[Expr] = field(default_factory=list)
    """The expressions of the enclosing query that the query's appended columns have to equal."""
    value: bool = False
    """Whether the query is a scalar subquery."""
    missing: list[Expr] = field(default_factory=list)
    """The value of a scalar subquery without matching rows, as the only item; null if the list is empty."""

    def with_tables(self, tables: dict[str, Node]) -> "QueryContext":
        """Return the context with these tables added."""
        return replace(self, tables={**self.tables, **tables})


class ColumnScope:
    """The columns of a FROM, in their order."""

    def __init__(self, text: StatementText, seen: Iterable[Seen], environment: QueryContext) -> None:
        self.text, self.seen, self.environment = text, list(seen), environment

    def resolve(self, node: exp.Column) -> Expr:
        """Return the column of a name; an operation `outer` if it is the enclosing query's. Raises: TopologyError."""
        found = self.find(node)
        if found is not None:
            return replace(found, where=self.text.where(node))
        outer = self.environment.outer
        if outer is not None and (expr := outer.find(node)) is not None:
            return Expr("outer", expr.type, (expr,), where=self.text.where(node))
        raise self._unknown(node)

    def find(self, node: exp.Column) -> Expr | None:
        """Return the column of this FROM with that name, or None. Raises: TopologyError if there are several."""
        name, table = folded(node.args["this"]), node.args.get("table")
        wanted = folded(table) if table is not None else None
        fitting = [s for s in self.seen if (s.table == wanted if wanted is not None else not s.hidden)]
        exact = [s for s in fitting if s.name == name]
        if not exact and not node.args["this"].args.get("quoted"):
            exact = [s for s in fitting if s.name.lower() == name]
        if len(exact) > 1:
            tables = ", ".join(f"{s.table}.{s.name}" for s in exact)
            raise self.text.error(
                node, f"column '{name}' is ambiguous: {tables}; one is needed. Name its table: {tables}"
            )
        return exact[0].expr if exact else None

    def star(self, node: exp.Expr, table: str | None) -> list[Seen]:
        """Return the columns of `*` or `table.*`. Raises: TopologyError if there is no such table."""
        found = [s for s in self.seen if (not s.hidden if table is None else s.table == table)]
        if not found and table is None:
            raise self.text.error(node, f"SELECT * without a column: {_NO_COLUMNS}")
        if not found:
            what = f"no table '{table}' in FROM"
            raise self.text.error(node, f"{what}; one of {self._tables()} is needed")
        return found

    def _tables(self) -> list[str]:
        return list(dict.fromkeys(s.table for s in self.seen))

    def _unknown(self, node: exp.Column) -> TopologyError:
        name, table = folded(node.args["this"]), node.args.get("table")
        if table is not None and folded(table) not in self._tables():
            message = f"no table '{folded(table)}' in FROM; one of {self._tables()} is needed"
        else:
            place = f" in '{folded(table)}'" if table is not None else ""
            names = [s.name for s in self.seen if table is None or s.table == folded(table)]
            message = f"no column '{name}'{place}; one of {list(dict.fromkeys(names))} is needed"
            if len(names) == 0:
                message = f"no column '{name}': {_NO_COLUMNS}"
        return self.text.error(node, message)

    def moved(self, change: Callable[[Expr], Expr]) -> "ColumnScope":
        """Return a scope with the same names, whose expressions are changed by `change`."""
        seen = [Seen(s.table, s.name, change(s.expr), s.hidden) for s in self.seen]
        return ColumnScope(self.text, seen, self.environment)

    def shifted(self, by: int) -> "ColumnScope":
        """Return a scope with the same columns, moved `by` places to the right."""
        return self.moved(lambda expr: shifted(expr, by))


def refuse_outer(text: StatementText, *exprs: Expr) -> None:
    """Refuse columns of the enclosing query in expressions. They are allowed only in equalities of WHERE."""
    for expr in exprs:
        for part in walk(expr):
            if part.op == "outer":
                raise text.unsupported(
                    part.where,
                    "a column of the enclosing query, used so,",
                    "only conditions inner = outer in the WHERE of a query can name one. Write a join",
                )


def scope_of(text: StatementText, node: Node, alias: str, environment: QueryContext) -> ColumnScope:
    """Return a scope with the columns of one table in FROM."""
    seen = [Seen(alias, found.name, column(i, found.type)) for i, found in enumerate(node.columns)]
    return ColumnScope(text, seen, environment)


def position_of(text: StatementText, part: exp.Expr, names: Sequence[str], clause: str) -> int | None:
    """Return the index of the column that a clause names by number or by name; None if it is an expression."""
    number = whole_number(part)
    if number is not None:
        if not 1 <= number <= len(names):
            raise text.error(part, f"{clause} {number}: the SELECT has {len(names)} columns; a number of one is needed")
        return number - 1
    if isinstance(part, exp.Column) and part.args.get("table") is None:
        name = folded(part.args["this"])
        found = [i for i, other in enumerate(names) if other == name]
        return found[0] if found else None
    return None
