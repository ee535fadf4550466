"""Parses TUMBLE, HOP and SESSION in FROM, which the parser does not know.

    TUMBLE(orders, at, INTERVAL '10 minutes')                                  RisingWave's
    TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '10' MINUTES))         Flink's
    TABLE(SESSION(TABLE orders PARTITION BY customer, DESCRIPTOR(at), INTERVAL '5' MINUTES))

The table may also be a query in parentheses.
"""

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

__all__ = ["EXAMPLES", "WINDOW_PARSERS", "WindowTable"]

EXAMPLES = {
    "TUMBLE": "TUMBLE(orders, at, INTERVAL '10 minutes')",
    "HOP": "HOP(orders, at, INTERVAL '5 minutes', INTERVAL '10 minutes'): every 5 minutes one of 10",
    "SESSION": "TABLE(SESSION(TABLE orders PARTITION BY customer, DESCRIPTOR(at), INTERVAL '5' MINUTES))",
}
"""An example of a call, by the function's name."""


class WindowTable(exp.Expression):
    """A call of TUMBLE, HOP or SESSION: the rows of `table` in the windows of the times in the column `time`."""

    arg_types = {"this": True, "table": True, "partition": False, "time": True, "spans": True}  # noqa: RUF012


def _parsed(name: str) -> Callable[[Any], exp.Expr]:
    """Return a parser method for the arguments after `NAME (`, up to the closing parenthesis."""

    def parse(parser: Any) -> exp.Expr:
        at = parser._tokens[parser._index - 2]  # NAME
        if parser._match(TokenType.L_PAREN, advance=False):
            table = parser._parse_select(table=True)
        else:
            parser._match(TokenType.TABLE)
            table = parser._parse_table_parts()
        partition = _partition(parser)
        time = _time(parser) if partition or parser._match(TokenType.COMMA) else None
        spans = []
        while parser._match(TokenType.COMMA):
            spans.append(parser._parse_disjunction())
        if table is None or time is None or not spans or None in spans:
            parser.raise_error(f"{name} is {EXAMPLES[name]}")
        return WindowTable(this=name, table=table, partition=partition, time=time, spans=spans).update_positions(at)

    return parse


def _partition(parser: Any) -> list[exp.Expr]:
    """Parse the columns of PARTITION BY, and the comma after them."""
    columns: list[exp.Expr] = []
    if parser._match(TokenType.PARTITION_BY):
        inside = parser._match(TokenType.L_PAREN)
        while (found := parser._parse_column()) is not None:
            columns.append(found)
            if not parser._match(TokenType.COMMA) or parser._curr.text.upper() == "DESCRIPTOR":
                break
        if inside:
            parser._match_r_paren()
            parser._match(TokenType.COMMA)
    return columns


def _time(parser: Any) -> exp.Expr | None:
    """Parse the column of times, which may be inside DESCRIPTOR(…)."""
    if not parser._match_text_seq("DESCRIPTOR"):
        found: exp.Expr | None = parser._parse_column()
        return found
    parser._match_l_paren()
    found = parser._parse_column()
    parser._match_r_paren()
    return found


def _parsed_in_table(parser: Any) -> exp.Expr:
    """Parse the text after `TABLE (`, which is one of the three calls."""
    name = parser._curr.text.upper()
    if name not in EXAMPLES or parser._next.token_type != TokenType.L_PAREN:
        parser.raise_error("TABLE(…) is for TUMBLE, HOP and SESSION")
    parser._advance(2)
    found = _parsed(name)(parser)
    parser._match_r_paren()
    return found


WINDOW_PARSERS: dict[str, Callable[[Any], exp.Expr]] = {
    "TUMBLE": _parsed("TUMBLE"),
    "HOP": _parsed("HOP"),
    "TABLE": _parsed_in_table,
}
"""The parser of the text after the opening parenthesis, by the function's name."""
