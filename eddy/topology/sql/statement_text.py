"""The text of a statement: positions in it, and errors that name them."""

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
        """Line and column of an offset, both from 1."""
        before = self.text[:offset]
        return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"

    def before(self, node: exp.Expr) -> str:
        """The text before a node, without trailing blanks and opening parentheses."""
        starts = [start for part in node.walk() if (start := _start(part)) is not None]
        return self.text[: min(starts, default=0)].rstrip(" \t\r\n(")

    def where(self, node: exp.Expr) -> str:
        """Line and column of a node: of its first word with a position, or of the nearest parent with one."""
        around: exp.Expr | None = node
        while around is not None:
            starts = [start for part in around.walk() if (start := _start(part)) is not None]
            if starts:
                return self.at(min(starts))
            around = around.parent
        return self.at(0)

    def error(self, node: exp.Expr | int | str, message: str) -> TopologyError:
        """The error for a mistake in the statement. `node` is a parser's node, an offset, or a place as text."""
        where = self.at(node) if isinstance(node, int) else node if isinstance(node, str) else self.where(node)
        return TopologyError(f"sql '{self.name}' {where}: {message}")

    def unsupported(self, node: exp.Expr | int | str, what: str, instead: str = "") -> TopologyError:
        """The error for an unsupported feature, by name."""
        return self.error(node, f"{what} is not supported{'; ' + instead if instead else ''}")


def _start(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Star):
        return None  # the parser adds stars that are not in the text
    found = node.meta.get("start") if node._meta else None
    return found if isinstance(found, int) else None
