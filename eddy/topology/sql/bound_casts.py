"""The explicit and implicit casts in a statement, and the names of types in it.

`casts.py` has the functions that convert values.
"""

from sqlglot import exp

from eddy.errors import DataError
from eddy.topology.sql.casts import cast_function, unchanged
from eddy.topology.sql.expressions import Expr, literal
from eddy.topology.sql.functions import cast_call
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import TEXT, TYPE_NAMES, UNKNOWN, Type, assignable, parse_type
from eddy.topology.sql.unsupported_syntax import parts_of, text_of

__all__ = ["assign", "cast", "coerce", "constant_cast", "type_of"]


def cast(text: StatementText, node: exp.Expr, expr: Expr, target: Type) -> Expr:
    """Cast an expression explicitly. Raises: TopologyError if there is no such cast."""
    if expr.op == "literal" and expr.type == UNKNOWN:
        return constant_cast(text, node, expr, target)
    function = cast_function(expr.type, target)
    if function is None:
        raise text.error(node, f"no cast from {expr.type} to {target}; another expression is needed")
    if function is unchanged:
        return Expr(expr.op, target, expr.args, expr.value, expr.where)
    return Expr("call", target, (expr,), cast_call(function, target), text.where(node))


def constant_cast(text: StatementText, node: exp.Expr, expr: Expr, target: Type) -> Expr:
    """Return a text literal as a literal of a type. Raises: TopologyError if the text is no value of the type."""
    if expr.value is None or target == UNKNOWN:
        return literal(expr.value, target, expr.where)
    function = cast_function(TEXT, target)
    assert function is not None
    try:
        return literal(function(expr.value), target, expr.where)
    except DataError as error:
        raise text.error(node, str(error)) from error


def coerce(text: StatementText, node: exp.Expr, expr: Expr, target: Type) -> Expr:
    """Cast an expression implicitly."""
    return expr if expr.type == target else cast(text, node, expr, target)


def assign(text: StatementText, node: exp.Expr | int, expr: Expr, target: Type, column: str) -> Expr:
    """Cast an expression to the declared type of its column. Raises: TopologyError if it cannot be assigned."""
    if not assignable(expr.type, target):
        raise text.error(
            node,
            f"column '{column}' is declared as {target}, and its expression is {expr.type}; the types have to "
            f"agree. Cast the expression: …::{target}, or declare the column otherwise",
        )
    at = node if isinstance(node, exp.Expr) else exp.Null()
    return coerce(text, at, expr, target)


def type_of(text: StatementText, node: exp.DataType, around: exp.Expr) -> Type:
    """Return the type that the text names. Raises: TopologyError for an unknown name."""
    found = parse_type(_type_name(node))
    if found is None:
        raise text.unsupported(
            around,
            f"the type {node.sql(dialect='postgres')}",
            f"{TYPE_NAMES} is needed",
        )
    return found


def _type_name(node: exp.Expr) -> str:
    """Return the name of a type with its numbers, read from the node's parts; empty if the node has other parts."""
    numbers = [part.args["this"] for part in parts_of(node) if isinstance(part, exp.DataTypeParam)]
    if not isinstance(node, exp.DataType) or len(numbers) != len(parts_of(node)):
        return ""
    name = exp.DataType(this=node.args["this"]).sql(dialect="postgres")
    return f"{name}({', '.join(text_of(number) for number in numbers)})" if numbers else name
