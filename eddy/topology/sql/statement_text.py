"""The text of a statement, the positions in it, and errors that name these positions."""

from dataclasses import dataclass

from sqlglot import exp

from eddy.errors import TopologyError

__all__ = ["StatementText"]


@dataclass(frozen=True)
class StatementText:
    """The text of a statement and its name."""

    text: str
    name: str

    def at(self, offset: int) -> str:
        """Return the line and column of an offset, both counted from 1."""
        before = self.text[:offset]
        return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"

    def before(self, node: exp.Expr) -> str:
        """Return the text before a node, without trailing blanks and opening parentheses."""
        starts = [start for part in node.walk() if (start := _start(part)) is not None]
        return self.text[: min(starts, default=0)].rstrip(" \t\r\n(")

    def where(self, node: exp.Expr) -> str:
        """Return the line and column of a node's first word, or of the nearest parent whose position is known."""
        around: exp.Expr | None = node
        while around is not None:
            starts = [start for part in around.walk() if (start := _start(part)) is not None]
            if starts:
                return self.at(min(starts))
            around = around.parent
        return self.at(0)

    def error(self, node: exp.Expr | int | str, message: str) -> TopologyError:
        """Return the error for a mistake in the statement, at a parser's node, an offset, or a place as text."""
        where = self.at(node) if isinstance(node, int) else node if isinstance(node, str) else self.where(node)
        return TopologyError(f"sql '{self.name}' {where}: {message}")

    def unsupported(self, node: exp.Expr | int | str, what: str, instead: str = "") -> TopologyError:
        """Return the error for an unsupported feature, which it names."""
        return self.error(node, f"{what} is not supported{'; ' + instead if instead else ''}")


def _start(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Star):
        return None  # the parser adds stars that are not in the text
    found = node.meta.get("start") if node._meta else None
    return found if isinstance(found, int) else None
