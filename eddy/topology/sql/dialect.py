"""PostgreSQL's dialect of the parser, changed so that its tree has all arguments of each function.

The parser builds the nodes of many functions by special code, which sometimes drops arguments: it turns `mod(7, 2, 1)`
into `7 % 2`. An argument that is not in the tree cannot be refused. So a call whose argument would be dropped becomes a
call of an unknown function. TUMBLE, HOP and SESSION, which the parser does not know, are added.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlglot import exp
from sqlglot.dialects import Postgres

from eddy.topology.sql.window_syntax import WINDOW_PARSERS

__all__ = ["WholePostgres"]


def _whole(name: str, build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """Return a builder of a function's node; it builds the call of an unknown function if an argument would be lost."""

    def built(args: Iterable[exp.Expr], **options: Any) -> exp.Expr:
        given = list(args)
        try:
            node = build(args, **options)
        except (AttributeError, IndexError, KeyError, ValueError):  # the builder expects other arguments
            return exp.Anonymous(this=name, expressions=given)
        there = {id(part) for part in node.walk()}
        if all(id(arg) in there for arg in given):
            return node
        return exp.Anonymous(this=name, expressions=given)

    return built


class WholePostgres(Postgres):  # type: ignore[misc]  # the parser has no types
    """PostgreSQL's dialect in which no argument of a call is lost."""

    class Parser(Postgres.Parser):  # type: ignore[misc]
        """The parser with changed builders of functions."""

        FUNCTIONS = {name: _whole(name, build) for name, build in Postgres.Parser.FUNCTIONS.items()}  # noqa: RUF012
        FUNCTION_PARSERS = {**Postgres.Parser.FUNCTION_PARSERS, **WINDOW_PARSERS}  # noqa: RUF012
