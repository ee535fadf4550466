"""Conditions on the present time, which make rows true for a span of time.

    now() < e     until e          now() >= e     from e
    now() <= e    until e + 1      now() > e      from e + 1

`e` is a number of milliseconds since 1970 that is computed from the row. The condition has to be one of the conditions
that AND joins in WHERE; `now() - INTERVAL '1 hour' < e` is the same as `now() < e + INTERVAL '1 hour'`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from eddy.topology.sql.expressions import Expr, literal, transform, walk
from eddy.topology.sql.functions import arithmetic_call
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import BIGINT

__all__ = ["ONLY_IN_WHERE", "Moments", "interval", "present", "taken_apart"]

ONLY_IN_WHERE = "compare it alone, in WHERE, with a number of milliseconds: now() < at + INTERVAL '1 hour'"
_UNITS = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 604_800_000,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBER = re.compile(r"\d{1,12}")


@dataclass(frozen=True)
class Moments:
    """The bounds of rows: each row is true from the last moment of `from_` on, until the first moment of `until`."""

    from_: tuple[Expr, ...]
    until: tuple[Expr, ...]
    where: str
    """The place of the last condition in the text."""


def present(where: str) -> Expr:
    """Return the expression for the present time."""
    return Expr("now", BIGINT, where=where)


def interval(text: StatementText, node: exp.Interval) -> Expr:
    """Return a span of time as a number of milliseconds. Raises: TopologyError."""
    given, unit = node.args.get("this"), node.args.get("unit")
    number = given.args["this"] if isinstance(given, exp.Literal) and given.args["is_string"] else ""
    name = unit.args["this"].upper().removesuffix("S") if isinstance(unit, exp.Var) else ""
    if name not in _UNITS or not _NUMBER.fullmatch(number):
        raise text.unsupported(
            node,
            "this INTERVAL",
            "a whole number of milliseconds, seconds, minutes, hours, days or weeks is needed: INTERVAL '90 minutes'",
        )
    return Expr("interval", BIGINT, value=int(number) * _UNITS[name], where=text.where(node))


def taken_apart(text: StatementText, parts: Sequence[Expr]) -> tuple[Moments | None, list[Expr]]:
    """Split conditions into (bounds on the present time or None, all other conditions). Raises: TopologyError."""
    from_: list[Expr] = []
    until: list[Expr] = []
    others: list[Expr] = []
    where = ""
    for part in parts:
        found = {expr.op: expr for expr in walk(part)}
        if "now" in found:
            where = found["now"].where
            sign, moment = _bound(text, part, where)
            later = moment if sign in {"<", ">="} else _sum("+", moment, literal(1, BIGINT))
            (until if sign in {"<", "<="} else from_).append(later)
        elif "interval" in found:
            raise text.unsupported(
                found["interval"].where, "INTERVAL without now() in its condition", "write milliseconds as a number"
            )
        else:
            others.append(part)
    return (Moments(tuple(from_), tuple(until), where) if where else None), others


def _bound(text: StatementText, part: Expr, where: str) -> tuple[str, Expr]:
    """Return (sign, e) of a condition now() < e, or with another sign."""
    if part.op == "call" and part.value.name in _TURNED and part.args[0].type == BIGINT:
        left, right = part.args
        for sign, ours, theirs in ((part.value.name, left, right), (_TURNED[part.value.name], right, left)):
            if (moment := _without_now(ours, theirs)) is not None:
                return sign, transform(moment, lambda e: literal(e.value, BIGINT) if e.op == "interval" else None)
    raise text.unsupported(where, "now() in this condition", ONLY_IN_WHERE)


def _without_now(ours: Expr, theirs: Expr) -> Expr | None:
    """Return the other side of a condition after now() is alone on its side; None if that is impossible."""
    if any(expr.op in {"now", "subquery"} for expr in walk(theirs)):
        return None
    if ours.op == "now":
        return theirs
    if ours.op != "call" or ours.value.name not in {"+", "-"} or len(ours.args) != 2:
        return None
    one, other = ours.args
    if one.op == "now" and not any(expr.op == "now" for expr in walk(other)):
        return _sum("-" if ours.value.name == "+" else "+", theirs, other)
    if other.op == "now" and ours.value.name == "+" and not any(expr.op == "now" for expr in walk(one)):
        return _sum("-", theirs, one)
    return None


def _sum(sign: str, one: Expr, other: Expr) -> Expr:
    return Expr("call", BIGINT, (one, other), arithmetic_call(sign, BIGINT))
