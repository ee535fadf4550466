"""Turns the parser's expressions into typed expressions: names are resolved, types checked, implicit casts inserted."""

import decimal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from sqlglot import exp

from eddy.topology.sql.aggregates import aggregate_type
from eddy.topology.sql.algebra import Aggregate
from eddy.topology.sql.bound_casts import cast, coerce, constant_cast, type_of
from eddy.topology.sql.casts import LIMITS
from eddy.topology.sql.expressions import Expr, literal
from eddy.topology.sql.functions import (
    FUNCTIONS,
    Call,
    arithmetic_call,
    comparison_call,
    overload_for,
)
from eddy.topology.sql.scope import ColumnScope
from eddy.topology.sql.spelling import AGGREGATES, ARITHMETIC, COMPARISONS, arguments_of, instead_of, name_of
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.temporal import ONLY_IN_WHERE, interval, present
from eddy.topology.sql.types import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    NUMERIC,
    TEXT,
    UNKNOWN,
    Type,
    common_type,
)
from eddy.topology.sql.unsupported_syntax import parts_of, peek, without_meaning
from eddy.topology.sql.window_syntax import WindowTable

__all__ = ["Binder", "Subqueries"]


class Subqueries(Protocol):
    """Binds the subqueries in expressions."""

    def __call__(self, node: exp.Expr, binder: "Binder") -> Expr:
        """Return an expression `subquery` for EXISTS, IN or a scalar subquery. Raises: TopologyError."""


class Binder:
    """Binds the expressions of one query to the columns in its scope. `place` is the name of the clause in messages.

    `no_time` is None where conditions on the present time are allowed; elsewhere it says how to write them instead.
    """

    def __init__(
        self,
        scope: ColumnScope,
        place: str,
        subqueries: Subqueries | None = None,
        aggregates: bool = False,
        no_time: str | None = ONLY_IN_WHERE,
    ) -> None:
        self.scope, self.text, self._no_time = scope, scope.text, no_time
        self._place, self._subqueries, self._aggregates = place, subqueries, aggregates

    def bind(self, node: exp.Expr) -> Expr:
        """Return the typed expression of a node. Raises: TopologyError with the place of the unsupported part."""
        method = _METHODS.get(type(node))
        if method is not None:
            return method(self, node)
        return self._aggregate(node) if isinstance(node, exp.AggFunc) else self._function(node)

    def condition(self, node: exp.Expr) -> Expr:
        """Bind a condition; return an expression of type boolean."""
        return self._boolean(node)

    def where(self, node: exp.Expr) -> str:
        """Return the place of a node in the text."""
        return self.text.where(node)

    def _boolean(self, node: exp.Expr) -> Expr:
        bound = self.bind(node)
        if bound.type.kind not in {"boolean", "unknown"}:
            raise self.text.error(node, f"{bound.type} where a condition is needed; compare it: … = …")
        return coerce(self.text, node, bound, BOOLEAN)

    def _literal(self, node: exp.Literal) -> Expr:
        if node.args.get("is_string"):
            return literal(node.args["this"], UNKNOWN, self.where(node))
        return _number(self.text, node, node.args["this"])

    def _constant(self, node: exp.Expr) -> Expr:
        where = self.where(node)
        return (
            literal(None, UNKNOWN, where) if isinstance(node, exp.Null) else literal(node.args["this"], BOOLEAN, where)
        )

    def _column(self, node: exp.Column) -> Expr:
        if isinstance(node.args["this"], exp.Star) or node.args.get("db"):
            raise self.text.unsupported(node, "this form of a column's name", "table.column or column is needed")
        return self.scope.resolve(node)

    def _present(self, node: exp.Expr) -> Expr:
        if self._no_time is not None or peek(node, "this") is not None:
            raise self.text.unsupported(node, "the present time here", self._no_time or ONLY_IN_WHERE)
        return present(self.where(node))

    def _interval(self, node: exp.Interval) -> Expr:
        if self._no_time is not None:
            raise self.text.unsupported(node, "INTERVAL here", self._no_time)
        return interval(self.text, node)

    def _paren(self, node: exp.Paren) -> Expr:
        return self.bind(node.args["this"])

    def _and_or(self, node: exp.And | exp.Or) -> Expr:
        op = "and" if isinstance(node, exp.And) else "or"
        args: list[Expr] = []
        for part in _operands(node):
            bound = self._boolean(part)
            args += bound.args if bound.op == op else [bound]
        return Expr(op, BOOLEAN, tuple(args))

    def _not(self, node: exp.Not) -> Expr:
        return Expr("not", BOOLEAN, (self._boolean(node.args["this"]),))

    def _comparison(self, node: exp.Binary) -> Expr:
        if isinstance(node.args["expression"], exp.Any | exp.All):
            raise self.text.unsupported(node.args["expression"], "ANY and ALL", "write x IN (SELECT …)")
        return self._compared(COMPARISONS[type(node)], node, node.args["this"], node.args["expression"])

    def _compared(self, sign: str, node: exp.Expr, ours: exp.Expr, theirs: exp.Expr) -> Expr:
        if isinstance(ours, exp.Tuple):
            return self._rows_compared(sign, node, ours, theirs)
        left, right = self._alike([ours, theirs], sign)
        return Expr("call", BOOLEAN, (left, right), comparison_call(sign, left.type))

    def _rows_compared(self, sign: str, node: exp.Expr, ours: exp.Tuple, theirs: exp.Expr) -> Expr:
        if sign != "=" or not isinstance(theirs, exp.Tuple) or len(parts_of(ours)) != len(parts_of(theirs)):
            raise self.text.unsupported(node, "this comparison of rows", "(a, b) = (c, d), of equal length, is needed")
        parts = zip(parts_of(ours), parts_of(theirs), strict=True)
        return Expr("and", BOOLEAN, tuple(self._compared("=", node, one, other) for one, other in parts))

    def _alike(self, nodes: Sequence[exp.Expr], what: str) -> tuple[Expr, ...]:
        """Bind expressions, and cast them to their common type. `what` names the operation in messages."""
        bound = [self.bind(node) for node in nodes]
        type = common_type([expr.type for expr in bound])
        if type is None:
            kinds = " and ".join(dict.fromkeys(str(expr.type) for expr in bound))
            raise self.text.error(nodes[-1], f"{what} of {kinds}; one type is needed. Cast: x::{bound[0].type}")
        target = TEXT if type == UNKNOWN else type
        return tuple(coerce(self.text, node, expr, target) for node, expr in zip(nodes, bound, strict=True))

    def _distinct_from(self, node: exp.Binary) -> Expr:
        found = Expr("distinct", BOOLEAN, self._alike([node.args["this"], node.args["expression"]], "IS DISTINCT FROM"))
        return Expr("not", BOOLEAN, (found,)) if isinstance(node, exp.NullSafeEQ) else found

    def _is(self, node: exp.Is) -> Expr:
        what = node.args["expression"]
        if isinstance(what, exp.Null):
            found = Expr("is-null", BOOLEAN, (self.bind(node.args["this"]),))
        elif isinstance(what, exp.Boolean):
            found = Expr("distinct", BOOLEAN, (self._boolean(node.args["this"]), literal(what.args["this"], BOOLEAN)))
            found = Expr("not", BOOLEAN, (found,))
        else:
            raise self.text.unsupported(node, f"IS {what.sql()}", "IS NULL, TRUE, FALSE or DISTINCT FROM is needed")
        return Expr("not", BOOLEAN, (found,)) if node.args.get("negate") else found

    def _between(self, node: exp.Between) -> Expr:
        if node.args.get("symmetric"):
            raise self.text.unsupported(node, "BETWEEN SYMMETRIC", "write two comparisons")
        value, low, high = self._alike([node.args["this"], node.args["low"], node.args["high"]], "BETWEEN")
        call = comparison_call("<=", value.type)
        pair = (Expr("call", BOOLEAN, (low, value), call), Expr("call", BOOLEAN, (value, high), call))
        found = Expr("and", BOOLEAN, pair)
        return Expr("not", BOOLEAN, (found,)) if node.args.get("negate") else found

    def _like(self, node: exp.Expr) -> Expr:
        if isinstance(node.parent, exp.Escape):
            raise self.text.unsupported(node.parent, "LIKE … ESCAPE", "the escape is \\")
        found = self._call(
            "ilike" if isinstance(node, exp.ILike) else "like",
            node,
            [node.args["this"], node.args["expression"]],
        )
        return Expr("not", BOOLEAN, (found,)) if node.args.get("negate") else found

    def _in(self, node: exp.In) -> Expr:
        if node.args.get("query"):
            found = self._subquery(node)
        elif node.args.get("unnest") or node.args.get("field"):
            raise self.text.unsupported(node, "this form of IN", "IN (…, …) or IN (SELECT …) is needed")
        elif isinstance(node.args["this"], exp.Tuple):
            equals = tuple(self._rows_compared("=", node, node.args["this"], choice) for choice in parts_of(node))
            found = Expr("or", BOOLEAN, equals)
        else:
            value, *choices = self._alike([node.args["this"], *parts_of(node)], "IN")
            call = comparison_call("=", value.type)
            found = Expr("or", BOOLEAN, tuple(Expr("call", BOOLEAN, (value, choice), call) for choice in choices))
        return Expr("not", BOOLEAN, (found,)) if node.args.get("negate") else found

    def _subquery(self, node: exp.Expr) -> Expr:
        if self._subqueries is None:
            raise self.text.unsupported(node, f"a query inside of {self._place}", "join it in FROM")
        return self._subqueries(node, self)

    def _arithmetic(self, node: exp.Binary) -> Expr:
        sign = ARITHMETIC[type(node)]
        without_meaning(node, "typed")  # the quotient of two integers is an integer in any case
        return self._calculation(sign, node, [node.args["this"], node.args["expression"]])

    def _negation(self, node: exp.Neg) -> Expr:
        if isinstance(node.args["this"], exp.Literal) and not node.args["this"].args.get("is_string"):
            return _number(self.text, node, f"-{node.args['this'].args['this']}")
        return self._calculation("neg", node, [node.args["this"]])

    def _calculation(self, sign: str, node: exp.Expr, operands: list[exp.Expr]) -> Expr:
        args = self._alike(operands, sign)
        type = common_type([arg.type for arg in args])
        if args[0].type == TEXT and all(self.bind(operand).type == UNKNOWN for operand in operands):
            type = INTEGER
            args = tuple(coerce(self.text, node, self.bind(operand), INTEGER) for operand in operands)
        if type is None or not type.number or (sign == "%" and type.floating):
            raise self.text.error(
                node, f"{sign} of {args[0].type}; whole or exact numbers are needed. Cast: x::numeric"
            )
        args = tuple(coerce(self.text, node, arg, Type(type.kind)) for arg in args)
        return Expr("call", Type(type.kind), args, arithmetic_call(sign, type), self.where(node))

    def _concatenation(self, node: exp.DPipe) -> Expr:
        without_meaning(node, "safe")
        args = [self.bind(node.args["this"]), self.bind(node.args["expression"])]
        if not any(arg.type in (TEXT, UNKNOWN) for arg in args):
            raise self.text.error(node, f"|| of {args[0].type} and {args[1].type}; a text is needed. Cast: x::text")
        texts = tuple(cast(self.text, node, arg, TEXT) for arg in args)
        return Expr("call", TEXT, texts, FUNCTIONS["||"][0].call)

    def _concat(self, node: exp.Concat) -> Expr:
        """Bind concat(…), in which nulls count as empty texts."""
        without_meaning(node, "safe", "coalesce")
        args = [cast(self.text, part, self.bind(part), TEXT) for part in parts_of(node)]
        empty = literal("", TEXT)
        parts = tuple(Expr("coalesce", TEXT, (arg, empty)) for arg in args)
        return Expr("call", TEXT, parts, _CONCAT)

    def _cast(self, node: exp.Cast) -> Expr:
        if isinstance(node, exp.TryCast) or node.args.get("format"):
            raise self.text.unsupported(node, "this form of a cast", "CAST(x AS type) or x::type is needed")
        return cast(self.text, node, self.bind(node.args["this"]), type_of(self.text, node.args["to"], node))

    def _case(self, node: exp.Case) -> Expr:
        """Bind CASE. Its values are cast to one type; CASE x WHEN y compares x with y."""
        subject = node.args.get("this")
        whens: list[Expr] = []
        values = [arm.args["true"] for arm in node.args["ifs"]]
        for arm in node.args["ifs"]:
            whens.append(
                self._boolean(arm.args["this"])
                if subject is None
                else self._compared("=", arm, subject, arm.args["this"])
            )
        default = node.args.get("default") or exp.Null()
        *results, otherwise = self._alike([*values, default], "CASE")
        pairs = [part for pair in zip(whens, results, strict=True) for part in pair]
        return Expr("case", otherwise.type, (*pairs, otherwise))

    def _coalesce(self, node: exp.Coalesce) -> Expr:
        args = self._alike([node.args["this"], *parts_of(node)], "COALESCE")
        return Expr("coalesce", args[0].type, args)

    def _nullif(self, node: exp.Nullif) -> Expr:
        left, right = self._alike([node.args["this"], node.args["expression"]], "NULLIF")
        equal = Expr("call", BOOLEAN, (left, right), comparison_call("=", left.type))
        return Expr("case", left.type, (equal, literal(None, left.type), left))

    def _extreme(self, node: exp.Greatest | exp.Least) -> Expr:
        """Bind greatest or least, which ignore nulls."""
        without_meaning(node, "ignore_nulls")
        what = "greatest" if isinstance(node, exp.Greatest) else "least"
        args = self._alike([node.args["this"], *parts_of(node)], what)
        return Expr("call", args[0].type, args, _EXTREMES[what])

    def _aggregate(self, node: exp.AggFunc | exp.Filter) -> Expr:
        condition = node.args["expression"].args["this"] if isinstance(node, exp.Filter) else None
        call = node.args["this"] if isinstance(node, exp.Filter) else node
        if type(call) not in AGGREGATES:
            name = name_of(call)
            instead = instead_of(name) or f"one of {sorted(AGGREGATES.values())}"
            raise self.text.unsupported(node, f"the aggregate {name}", instead)
        name = AGGREGATES[type(call)]
        without_meaning(call, "big_int")
        if not self._aggregates:
            raise self.text.error(node, f"{name}() in {self._place}; aggregates belong in SELECT and HAVING")
        inner = Binder(self.scope, f"{name}()", self._subqueries)
        argument = call.args["this"]
        distinct = isinstance(argument, exp.Distinct)
        if distinct:
            if len(parts_of(argument)) != 1 or argument.args.get("on"):
                raise self.text.unsupported(argument, "DISTINCT of several columns", "one expression is needed")
            argument = parts_of(argument)[0]
        if call.args.get("expressions") or isinstance(argument, exp.Order | exp.Limit | exp.HavingMax | None):
            raise self.text.unsupported(call, f"this form of {name}()", f"{name}(expression) is needed")
        bound = None if isinstance(argument, exp.Star) else inner.bind(argument)
        if bound is None and name != "count":
            raise self.text.error(call, f"{name}(*): only count takes *; {name}(expression) is needed")
        if condition is not None:
            test, one = inner.condition(condition), bound or literal(True, BOOLEAN)
            bound = Expr("case", one.type, (test, one, literal(None, one.type)))
        return self._aggregate_of(call, name, bound, distinct)

    def _aggregate_of(self, node: exp.Expr, name: str, argument: Expr | None, distinct: bool) -> Expr:
        if argument is not None and argument.type == UNKNOWN:
            argument = coerce(self.text, node, argument, TEXT)
        result = aggregate_type(name, None if argument is None else argument.type)
        if result is None:
            raise self.text.error(
                node, f"{name}({argument and argument.type}); another type is needed. Cast its argument"
            )
        args = () if argument is None else (argument,)
        return Expr("aggregate", result, args, Aggregate(name, result, None, distinct), self.where(node))

    def _function(self, node: exp.Expr) -> Expr:
        name, args = name_of(node), arguments_of(node)
        if args is None or name not in FUNCTIONS:
            raise self.text.unsupported(node, name_for_people(node, name), instead_of(name))
        return self._call(name, node, args)

    def _call(self, name: str, node: exp.Expr, nodes: Sequence[exp.Expr]) -> Expr:
        args = [self.bind(arg) for arg in nodes]
        found = overload_for(FUNCTIONS[name], [arg.type for arg in args])
        if found is None:
            given = ", ".join(str(arg.type) for arg in args)
            forms = " or ".join(f"{name}({', '.join(map(str, o.parameters))})" for o in FUNCTIONS[name])
            raise self.text.error(node, f"{name}({given}); {forms} is needed. Cast its arguments: x::type")
        cast_args = tuple(
            coerce(self.text, part, arg, type) for part, arg, type in zip(nodes, args, found.parameters, strict=False)
        )
        return Expr("call", found.result, cast_args, found.call, self.where(node))

    def _refused(self, node: exp.Expr) -> Expr:
        raise self.text.unsupported(node, _REFUSED[type(node)][0], _REFUSED[type(node)][1])


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of a chain of ANDs, or of ORs, in order."""
    todo = [node]
    while todo:
        part = todo.pop()
        if type(part) is type(node):
            todo += [part.args["expression"], part.args["this"]]
        else:
            yield part


def _number(text: StatementText, node: exp.Expr, digits: str) -> Expr:
    """Return a number literal, of the smallest of integer, bigint and numeric that holds it. Raises: TopologyError."""
    where = text.where(node)
    try:
        whole = int(digits)
    except ValueError:
        return constant_cast(text, node, literal(digits, UNKNOWN, where), NUMERIC)
    for type in (INTEGER, BIGINT):
        if -LIMITS[type.kind] <= whole < LIMITS[type.kind]:
            return literal(whole, type, where)
    return literal(decimal.Decimal(whole), NUMERIC, where)


def name_for_people(node: exp.Expr, name: str) -> str:
    """Return the name of an unsupported feature for messages."""
    return (
        f"the function {name}()"
        if isinstance(node, exp.Func)
        else f"{type(node).__name__} ({node.sql(dialect='postgres')[:60]})"
    )


def _greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def _least(*values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


_CONCAT = Call("concat", lambda *parts: "".join(parts))
_EXTREMES = {
    "greatest": Call("greatest", _greatest, takes_nulls=True),
    "least": Call("least", _least, takes_nulls=True),
}
_REFUSED: dict[type, tuple[str, str]] = {
    exp.Window: ("a window function", "aggregate with GROUP BY and join it"),
    exp.Array: ("ARRAY", ""),
    exp.Lambda: ("a lambda", ""),
    exp.Placeholder: ("a placeholder", "write the value"),
    exp.Parameter: ("a parameter", "write the value"),
    exp.Escape: ("LIKE … ESCAPE", "the escape is \\"),
    exp.CurrentDate: ("the present date", "give rows a column of times, and compare it with now()"),
    exp.ExplodingGenerateSeries: ("generate_series outside of FROM", "write FROM generate_series(1, 3) AS g(n)"),
    exp.GenerateSeries: ("generate_series outside of FROM", "write FROM generate_series(1, 3) AS g(n)"),
    WindowTable: ("a window outside of FROM", "write FROM TUMBLE(orders, at, INTERVAL '10 minutes')"),
}

_Method = Callable[[Any, Any], Expr]
_BINDERS: list[tuple[Any, _Method]] = [
    (exp.Literal, Binder._literal),
    ((exp.Null, exp.Boolean), Binder._constant),
    (exp.Column, Binder._column),
    (exp.Paren, Binder._paren),
    (exp.CurrentTimestamp, Binder._present),
    (exp.Interval, Binder._interval),
    ((exp.And, exp.Or), Binder._and_or),
    (exp.Not, Binder._not),
    (tuple(COMPARISONS), Binder._comparison),
    ((exp.NullSafeEQ, exp.NullSafeNEQ), Binder._distinct_from),
    (exp.Is, Binder._is),
    (exp.Between, Binder._between),
    ((exp.Like, exp.ILike), Binder._like),
    (exp.In, Binder._in),
    ((exp.Exists, exp.Subquery, exp.Select, exp.Union, exp.Except, exp.Intersect), Binder._subquery),
    (exp.Neg, Binder._negation),
    (tuple(ARITHMETIC), Binder._arithmetic),
    (exp.DPipe, Binder._concatenation),
    (exp.Concat, Binder._concat),
    ((exp.Cast, exp.TryCast), Binder._cast),
    (exp.Case, Binder._case),
    (exp.Coalesce, Binder._coalesce),
    (exp.Nullif, Binder._nullif),
    ((exp.Greatest, exp.Least), Binder._extreme),
    (tuple(_REFUSED), Binder._refused),
    (exp.Filter, Binder._aggregate),
]
_METHODS: dict[type, _Method] = {
    type: method for types, method in _BINDERS for type in (types if isinstance(types, tuple) else (types,))
}
"""The method for each class of node. A subclass has another meaning, such as the parser's CONCAT_WS for CONCAT."""
