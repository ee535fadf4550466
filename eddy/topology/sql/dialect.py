"""PostgreSQL's dialect of the parser, with functions whose arguments are all in the tree.

The parser builds nodes of many functions by code of its own, some of which drops arguments: of `mod(7, 2, 1)` it makes
`7 % 2`. What is not in the tree nobody can refuse, so such a call becomes one of an unknown function.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlglot import exp
from sqlglot.dialects import Postgres

__all__ = ["WholePostgres"]


def _whole(name: str, build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    """The builder of a function's node, but of an unknown function where an argument would be lost."""

    def built(args: Iterable[exp.Expr], **options: Any) -> exp.Expr:
        given = list(args)
        try:
            node = build(args, **options)
        except (AttributeError, IndexError, KeyError, ValueError):  # it needs others
            return exp.Anonymous(this=name, expressions=given)
        there = {id(part) for part in node.walk()}
        if all(id(arg) in there for arg in given):
            return node
        return exp.Anonymous(this=name, expressions=given)

    return built


class WholePostgres(Postgres):  # type: ignore[misc]  # the parser does not say what it is
    """Nothing of a call is lost."""

    class Parser(Postgres.Parser):  # type: ignore[misc]
        """With other builders of functions."""

        FUNCTIONS = {name: _whole(name, build) for name, build in Postgres.Parser.FUNCTIONS.items()}  # noqa: RUF012
