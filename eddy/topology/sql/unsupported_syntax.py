"""Refuses the parts of a statement that the binder does not read.

The parser supports more of SQL than eddy does. Every node of its tree keeps its arguments in a map that notes which
arguments are read. The binder reads all parts on which the answer depends. An argument that has a value and was not
read would be ignored, so it is refused, and the error quotes it. No list of unsupported parts is needed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from eddy.errors import TopologyError
from eddy.topology.sql.statement_text import StatementText

__all__ = ["Unread", "has", "parts_of", "peek", "text_of", "unnested", "whole_number", "without_meaning"]

_LONGEST = 60
_WORDS = {"key_expressions": "USING KEY", "by_name": "BY NAME", "with_": "WITH", "from_": "FROM", "windows": "WINDOW"}
"""The keywords of clauses whose values do not begin with these keywords."""
_ORDERS = (exp.Order, exp.Limit, exp.Offset, exp.Fetch)
_NO_ORDER = "rows of a view and of an inner query have no order. Write both, ORDER BY … LIMIT n, for the first n rows"
_OWN_QUERY = "put it into a query of its own: SELECT … FROM (…) AS q ORDER BY … LIMIT n"


class _Arguments(dict[str, Any]):
    """The arguments of a node. It notes which arguments are read, but not a read of all, as by a walk over the tree."""

    __slots__ = ("read",)

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument as `get` of a dict does, and note that it was read."""
        self.read.add(name)
        return super().get(name, default)


class Unread:
    """Notes which arguments in these trees are read after it was made."""

    def __init__(self, text: StatementText, roots: Iterable[exp.Expr]) -> None:
        self._text = text
        self._nodes = [node for root in roots for node in root.walk()]
        for node in self._nodes:
            node.args = _Arguments(node.args)

    def refuse(self) -> None:
        """Refuse the first part that was not read. Raises: TopologyError with the part's words and place."""
        for node in self._nodes:
            for name in self._unread(node):
                raise self._refused(node, name)

    def _unread(self, node: exp.Expr) -> Iterator[str]:
        arguments = node.args
        assert isinstance(arguments, _Arguments)
        return (name for name, value in arguments.items() if _is_given(value) and name not in arguments.read)

    def _refused(self, node: exp.Expr, name: str) -> TopologyError:
        value = peek(node, name)
        parts = [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr)]
        words, is_order = _words(node, name, parts), isinstance(value, _ORDERS)
        around = _recursive_table(node)
        inside = f" inside of the recursive table '{around}'" if around else ""
        advice = (_OWN_QUERY if has(node, "order") and has(node, "limit") else _NO_ORDER) if is_order else ""
        return self._text.unsupported(parts[0] if parts else node, f"{words}{inside}", advice)


def without_meaning(node: exp.Expr, *names: str) -> None:
    """Mark arguments that change no answer as read: flags that the parser itself sets, and hints of the author's."""
    for name in names:
        node.args.get(name)


def parts_of(node: exp.Expr) -> list[Any]:
    """Return the expressions of a node. The parser's own property may be compiled code, which does not note reads."""
    return node.args.get("expressions") or []


def text_of(node: exp.Expr) -> str:
    """Return the text of a name or of a literal."""
    found = node.args.get("this")
    return text_of(found) if isinstance(found, exp.Expr) else str(found or "")


def unnested(node: exp.Expr) -> Any:
    """Return a query without the parentheses around it."""
    while isinstance(node, exp.Subquery | exp.Paren):
        node = node.args["this"]
    return node


def whole_number(node: exp.Expr | None) -> int | None:
    """Return the value of a whole number literal; None for any other node."""
    if not isinstance(node, exp.Literal) or node.args.get("is_string") or not text_of(node).isdecimal():
        return None
    return int(text_of(node))


def has(node: exp.Expr, *names: str) -> bool:
    """Return whether a node has a value for one of these arguments, without marking them as read."""
    return any(_is_given(peek(node, name)) for name in names)


def peek(node: exp.Expr, name: str) -> Any:
    """Return the value of an argument, without marking it as read."""
    return dict.get(node.args, name)


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value != [] and value != ""


def _words(node: exp.Expr, name: str, parts: list[exp.Expr]) -> str:
    """Return the part in SQL's words; for a flag, its name and its node."""
    word = _WORDS.get(name, name.strip("_").replace("_", " ").upper())
    written = ", ".join(filter(None, (_written(part) for part in parts)))
    if not parts:
        return f"{word} of {_written(node) or node.key.upper()}"
    if not written:
        return word
    return written if name not in _WORDS and not _is_plain(parts[0]) else f"{word} {written}"


def _is_plain(part: exp.Expr) -> bool:
    """Return whether a part is an operand. A clause is no operand, because it begins with a keyword of its own."""
    return isinstance(part, exp.Condition | exp.Identifier | exp.Var)


def _written(node: exp.Expr) -> str:
    """Return the SQL text of a node, cut if it is long; empty if the parser cannot write it."""
    try:
        words = " ".join(node.sql(dialect="postgres", unsupported_level=ErrorLevel.IGNORE).split())
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError):
        return ""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def _recursive_table(node: exp.Expr) -> str:
    """Return the innermost recursive table whose definition contains a node; empty if there is none."""
    around: exp.Expr | None = node
    while around is not None:
        if isinstance(around, exp.CTE) and isinstance(around.parent, exp.With):
            alias = peek(around, "alias")
            if has(around.parent, "recursive") and alias is not None:
                return str(alias.name)
        around = around.parent
    return ""
