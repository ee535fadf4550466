"""The builder of queries. A query is immutable: each call returns a new one.

    issues = eddy.live_table("issues", key="id")
    query = issues.where(issues.status == "open").order_by(-issues.created).limit(20)

Calls are clauses, not steps: their order is free. Conditions of several `where` all apply; a later `order_by`, `limit`,
`skip`, `start` or `select` replaces the earlier call. The key ends every order, so that each order is total.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union, overload

import msgspec

from eddy.errors import QueryBuildError
from eddy.live.query.columns import (
    Column,
    Descending,
    Described,
    Expression,
    Has,
    Measure,
    RowProxy,
    condition_of,
)
from eddy.live.query.conditions import conjunction, resolve
from eddy.live.query.explain import QueryPlan
from eddy.live.query.functions_of_one import check_function_of_one
from eddy.live.query.nesting import build_nest
from eddy.live.query.syntax import (
    Aggregate,
    Function,
    Nest,
    Order,
    QueriedTable,
    Select,
    WindowStart,
    from_json,
    to_json,
)
from eddy.live.query.typed import check_kind
from eddy.live.query.validity import check_select
from eddy.live.query.written import written

__all__ = ["LiveTable", "Query", "R", "checked_query", "kind_of", "live_table", "query_from_json"]

_MAX_SHOWN = 80
Nested = Union["Query[Any]", Callable[..., "Query[Any]"]]


class Explainer(Protocol):
    """Tables that a query can be opened over: `eddy.Tables`."""

    def explain(self, query: "Query[Any]") -> QueryPlan:
        """Return the plan of a query."""


if TYPE_CHECKING:
    import typing_extensions

    R = typing_extensions.TypeVar("R", default=Any)
else:
    R = TypeVar("R")
T = TypeVar("T")


class Query(Described, Generic[R]):
    """A description of rows of one table. Rows are read only when it is passed to `tables.live` or `tables.read`.

    `R` is the type of its result: a list of dicts, unless `into` or `one` changes it.
    """

    __slots__ = ()

    @property
    def syntax(self) -> Select:
        """The query as data.

        Raises: QueryBuildError if it depends on an enclosing row, or clauses exclude each other.
        """
        if self._links:
            link = self._links[0]
            raise QueryBuildError(
                f"query of '{self._select.table.name}': {link.own} equals {link.parent}, of another row; a "
                f"query without links to other rows is needed. Use it in a function for nest or where"
            )
        if self._select.start is not None:
            needed = {*(order.column for order in self._select.order), *self._select.table.key}
            if missing := sorted(needed - self._select.start.row.keys()):
                raise QueryBuildError(
                    f"start of table '{self._select.table.name}': the row has no column '{missing[0]}'; the columns of "
                    f"the order and of the key are needed: {', '.join(sorted(needed))}"
                )
        check_select(self._select)
        return self._select

    def to_json(self) -> bytes:
        """Return the query as JSON: equal queries have equal JSON, and `eddy.query_from_json` reads it."""
        return to_json(self.syntax)

    def explain(self, tables: "Explainer") -> QueryPlan:
        """Return the plan by which these tables answer the query and keep it up to date.

        Raises: QueryError for a query that does not fit the tables; NotReadyError.
        """
        return tables.explain(self)

    def _changed(self, **fields: Any) -> "Query[R]":
        return Query(msgspec.structs.replace(self._select, **fields), self._columns, self._links, self._kind)

    def _own(self, column: Column | str, where: str) -> str:
        if isinstance(column, str):
            return self._check(column)
        table = self._select.table.name
        if not isinstance(column, Column) or column._table != table or column._row is not None:
            method = getattr(column, "__name__", "")
            hint = f". Write: t[{method!r}]" if hasattr(Query, method) else ""
            raise QueryBuildError(f"{where} of table '{table}': {column!r} is none of its columns{hint}")
        return self._check(column._name)

    def where(self, *conditions: Expression | Column | Callable[[RowProxy], Any]) -> "Query[R]":
        """Keep rows for which all conditions hold. A function gets the row, for conditions on other tables' rows."""
        query: Query[R] = self
        for condition in conditions:
            proxy = RowProxy(self._select.table.name, self._check)
            where = f"where of table '{self._select.table.name}'"
            built = _of_row(where, condition, proxy) if callable(condition) else condition
            found, links = resolve(condition_of(built, where), self, proxy)
            both = conjunction(query._select.where, found)
            select = msgspec.structs.replace(query._select, where=both)
            query = Query(select, self._columns, (*query._links, *links), self._kind)
        return query

    def order_by(self, *columns: Column | Descending | str) -> "Query[R]":
        """Sort by these columns. `-t.x` or "-x" is descending, and null is the least value.

        A group's columns sort groups.
        """
        falls = [c.startswith("-") if isinstance(c, str) else isinstance(c, Descending) for c in columns]
        plain = [c.removeprefix("-") if isinstance(c, str) else c for c in columns]
        names = [self._own_result(c.column if isinstance(c, Descending) else c, "order_by") for c in plain]
        return self._changed(order=tuple(map(Order, names, falls)))

    def _own_result(self, column: Column | str, where: str) -> str:
        """Return the name of a column of the result, which with aggregates is a column of the groups."""
        if not self._select.aggregates:
            return self._own(column, where)
        name = column if isinstance(column, str) else self._own(column, where)
        known = (*self._select.group, *(aggregate.name for aggregate in self._select.aggregates))
        if name not in known:
            raise QueryBuildError(
                f"{where}: the groups of '{self._select.table.name}' have no column '{name}'; one of "
                f"{', '.join(known)} is needed"
            )
        return name

    def start(self, row: Mapping[str, Any], *, inclusive: bool = False) -> "Query[R]":
        """Begin after this row's position in the order; with `inclusive`, at this position.

        The row needs the columns of the order.
        """
        where = f"start of table '{self._select.table.name}'"
        if not isinstance(inclusive, bool):
            raise QueryBuildError(f"{where}: inclusive={inclusive!r}; True or False is needed")
        try:
            values = {**row}
        except (TypeError, ValueError) as error:
            raise QueryBuildError(f"{where}: row={row!r} is not a row; columns by name are needed") from error
        return self._changed(start=WindowStart(values, inclusive))

    def skip(self, rows: int) -> "Query[R]":
        """Skip the first rows."""
        return self._changed(skip=_whole(rows, "skip"))

    def limit(self, rows: int | None) -> "Query[R]":
        """Show at most `rows` rows; None shows all."""
        return self._changed(limit=None if rows is None else _whole(rows, "limit"))

    def one(self: "Query[list[T]]") -> "Query[T | None]":
        """Show only the first row; None without rows."""
        made: Query[Any] = self._changed(one=True)
        return made

    @overload
    def into(self: "Query[list[dict[str, Any]]]", kind: type[T]) -> "Query[list[T]]": ...
    @overload
    def into(self: "Query[dict[str, Any] | None]", kind: type[T]) -> "Query[T | None]": ...
    def into(self, kind: Any) -> "Query[Any]":
        """Convert rows to a type: a dataclass, `msgspec.Struct` or `TypedDict`, whose fields are columns and nests.

        Raises: QueryBuildError for a type to which rows cannot be converted.
        """
        return Query(self._select, self._columns, self._links, check_kind(kind, self._select.table.name))

    def select(self, *columns: Column | str) -> "Query[R]":
        """Show these columns only, and the nests."""
        return self._changed(columns=tuple(self._own_result(column, "select") for column in columns))

    def nest(self, *, depth: int | None = None, **nests: Nested) -> "Query[R]":
        """Show rows of other queries below each row.

        `nests` has, by name, functions of the row that return these queries. A function that names itself makes a tree
        of any depth; `depth` bounds its levels.
        """
        if not nests:
            given = "" if depth is None else f"depth={depth!r}"
            raise QueryBuildError(
                f"nest({given}) of table '{self._select.table.name}': it names no nest; a function of the row is "
                "needed. Write: nest(children=lambda row: t.where(t.parent == row.id))"
            )
        if self._select.aggregates:
            raise QueryBuildError(f"nest: groups of '{self._select.table.name}' have no nests; nest rows instead")
        made = {nest.name: nest for nest in self._select.nests}
        for name, function in nests.items():
            made[name] = self._nested(name, function, depth)
        return self._changed(nests=tuple(made.values()))

    def _nested(self, name: str, function: Nested, depth: int | None) -> Nest:
        where = f"nest '{name}' of table '{self._select.table.name}'"
        if self._columns is not None and name in self._columns and name not in (self._select.columns or self._columns):
            raise QueryBuildError(f"{where}: the table has a column of that name; another one is needed")
        if depth is not None and (type(depth) is not int or depth < 1):
            raise QueryBuildError(f"{where}: depth={depth!r}; a number of levels of at least 1 is needed")
        proxy = RowProxy(self._select.table.name, self._check)
        return build_nest(name, function, proxy, depth, where)

    def pluck(self, name: str) -> "Query[R]":
        """Show the rows of this nest instead of the query's own rows: each once, in the order of the nest's query."""
        if not isinstance(name, str) or not name:
            raise QueryBuildError(f"pluck of table '{self._select.table.name}': name={name!r}; a nest's name is needed")
        return self._changed(pluck=name)

    def exists(self) -> Expression:
        """Return the condition, on an enclosing row, that this query has a row. `~` negates it."""
        select = self._select
        if select.skip or select.start or select.limit == 0 or select.aggregates or select.pluck is not None:
            raise QueryBuildError(
                f"exists of table '{select.table.name}': it takes no skip, start, limit 0, aggregate or pluck; "
                "where is needed, also with an exists of its own"
            )
        return Has(self)

    def group_by(self, *columns: Column | str) -> "Query[R]":
        """Show one row for each combination of these columns, with the columns that `aggregate` adds."""
        return self._changed(group=tuple(self._own(column, "group_by") for column in columns))

    def aggregate(self, **measures: Measure) -> "Query[R]":
        """Show aggregates by name, such as `total=t.amount.sum()`: one row a group or, without groups, one row."""
        if self._select.nests or self._select.start or self._select.one:
            raise QueryBuildError(
                f"aggregate of table '{self._select.table.name}': it takes no nest, start or one; where and group_by, "
                "and for groups order_by, skip and limit"
            )
        if not self._select.group and (self._select.limit is not None or self._select.skip):
            raise QueryBuildError(
                f"aggregate of table '{self._select.table.name}': it is over all rows, and takes no skip or limit"
            )
        if taken := measures.keys() & {*self._select.group, *self._select.table.key}:
            raise QueryBuildError(f"aggregate: '{min(taken)}' is a column already; another name is needed")
        made = self._changed(aggregates=tuple(self._measured(name, measure) for name, measure in measures.items()))
        for order in self._select.order:
            made._own_result(order.column, "order_by")
        return made

    def _measured(self, name: str, measure: Measure) -> Aggregate:
        if not isinstance(measure, Measure):
            raise QueryBuildError(f"aggregate: {measure!r} is not an aggregate. Write: total=t.amount.sum()")
        column = None if measure.column is None else self._own(measure.column, measure.function)
        return Aggregate(name, measure.function, column)

    def _alone(self, function: Function, column: Column | str | None) -> "Query[Any]":
        made = self.aggregate(**{function: Measure(function, column)})
        return made if self._select.group else made._changed(scalar=True)

    def count(self, column: Column | str | None = None) -> "Query[Any]":
        """Show the number of rows, or of values of a column."""
        return self._alone("count", column)

    def sum(self, column: Column | str) -> "Query[Any]":
        """Show the sum of the numbers of a column; None if there are no numbers."""
        return self._alone("sum", _some(column, "sum"))

    def min(self, column: Column | str) -> "Query[Any]":
        """Show the least value of a column; None if there are no values."""
        return self._alone("min", _some(column, "min"))

    def max(self, column: Column | str) -> "Query[Any]":
        """Show the greatest value of a column; None if there are no values."""
        return self._alone("max", _some(column, "max"))

    def avg(self, column: Column | str) -> "Query[Any]":
        """Show the mean of the numbers of a column; None if there are no numbers."""
        return self._alone("avg", _some(column, "avg"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and (self._select, self._links) == (other._select, other._links)

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        text = written(self._select, [(link.own, link.parent._name) for link in self._links])
        return text if self._kind is None else f"{text}.into({getattr(self._kind, '__name__', self._kind)})"


class LiveTable(Query[list[dict[str, Any]]]):
    """A table to query. It is itself a query of all its rows, and has `t.x` and `t["x"]` as its columns."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Column:
        return Column(self._select.table.name, self._check(name))

    def __repr__(self) -> str:
        return self._select.table.name


def live_table(
    name: str,
    *,
    key: str | Iterable[str] = "key",
    value: str | None = None,
    columns: type[msgspec.Struct] | Iterable[str] | None = None,
) -> LiveTable:
    """Return a table of a table server, for use in queries.

    Args:
        name: the name under which it is served.
        key: the name of the key's column; for keys that are tuples, a name for each item.
        value: the name of the column for a value that is a number or a string; the members of JSON objects and the
            fields of structs are columns under their own names.
        columns: the columns of the value, or the struct whose fields they are; None allows every name.

    >>> issues = live_table("issues", key="id")
    >>> issues.where(issues.status == "open").order_by(-issues.created).limit(2)
    issues.where(issues.status == 'open').order_by(-issues.created).limit(2)
    """
    if not isinstance(name, str) or not name:
        raise QueryBuildError(f"live_table: name={name!r}; the name of a served table, as text, is needed")
    keys = (
        (key,)
        if isinstance(key, str)
        else tuple(key)
        if isinstance(key, Iterable) and not isinstance(key, Mapping)
        else ()
    )
    if not keys or not all(isinstance(part, str) and part for part in keys) or len(set(keys)) < len(keys):
        raise QueryBuildError(f"table '{name}': key={key!r}; one name for each part of the key is needed")
    if value is not None and (not isinstance(value, str) or not value):
        raise QueryBuildError(f"table '{name}': value={value!r}; the name of a column, as text, is needed")
    if columns is not None and (
        isinstance(columns, str | bytes) or not isinstance(columns, Iterable | msgspec.StructMeta)
    ):
        raise QueryBuildError(f"table '{name}': columns={columns!r}; a struct, or a list of names, is needed")
    if value is not None and columns is not None:
        raise QueryBuildError(f"table '{name}': value={value!r} and columns; one of them is needed")
    known: frozenset[str] | None = None
    if columns is not None:
        named = columns.__struct_encode_fields__ if isinstance(columns, msgspec.StructMeta) else tuple(columns)
        known = frozenset((*keys, *named))
    if value is not None:
        known = frozenset((*keys, value))
    return LiveTable(Select(QueriedTable(name, keys, value)), known)


def query_from_json(data: bytes | str) -> Query[Any]:
    """Return the query that `Query.to_json` wrote. Raises: QueryBuildError."""
    if not isinstance(data, bytes | str):
        raise QueryBuildError(f"query_from_json: data={data!r}; bytes or a text, as of Query.to_json, are needed")
    try:
        select = from_json(data)
        check_select(select)
    except (msgspec.MsgspecError, RecursionError) as error:
        shown = repr(data if len(data) <= _MAX_SHOWN else data[:_MAX_SHOWN])
        raise QueryBuildError(
            f"query_from_json: data={shown} is not a query in JSON: {error}; what Query.to_json wrote is needed"
        ) from error
    return Query(select)


def checked_query(found: Any) -> Query[Any]:
    """Return the argument if it is a query. Raises: QueryBuildError for any other object, such as `t.exists()`."""
    if isinstance(found, Query):
        return found
    shown = "a condition" if isinstance(found, Expression) else repr(found)
    raise QueryBuildError(
        f"live query: {shown} is not a query; rows or aggregates of a table are needed. "
        "Write: t.where(t.x == 1), or t.where(t.x == 1).count()"
    )


def kind_of(query: Query[Any]) -> Any:
    """Return the type to which the query's rows are converted; None if they are dicts."""
    return query._kind


def _of_row(where: str, condition: Any, row: RowProxy) -> Any:
    """Return the condition that a user's function makes of a row.

    Raises: QueryBuildError if it takes other parameters.
    """
    check_function_of_one(f"{where}: ", condition, "a row", "where(lambda row: …)")
    return condition(row)


def _some(column: Any, where: str) -> Any:
    """Return the column of an aggregate. Raises: QueryBuildError if it is None, which only `count` allows."""
    if column is None:
        raise QueryBuildError(f"{where}(None): a column is needed. Write {where}(t.x)")
    return column


def _whole(rows: Any, where: str) -> int:
    if type(rows) is not int or rows < 0:
        raise QueryBuildError(f"{where}({rows!r}): a number of rows is needed")
    return rows
