"""Where in its text a statement says something: positions, and the errors that name them."""

from dataclasses import dataclass

from sqlglot import exp

from eddy.errors import TopologyError

__all__ = ["Text"]


@dataclass(frozen=True)
class Text:
    """The text of a statement, and what its author calls it."""

    text: str
    name: str

    def at(self, offset: int) -> str:
        """Line and column of an offset, both from 1 on."""
        before = self.text[:offset]
        return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"

    def before(self, node: exp.Expr) -> str:
        """What stands before a node, without blanks and opening parentheses."""
        starts = [start for part in node.walk() if (start := _start(part)) is not None]
        return self.text[: min(starts, default=0)].rstrip(" \t\r\n(")

    def where(self, node: exp.Expr) -> str:
        """Line and column at which a node begins: of its first word that has a position, or of one around it."""
        around: exp.Expr | None = node
        while around is not None:
            starts = [start for part in around.walk() if (start := _start(part)) is not None]
            if starts:
                return self.at(min(starts))
            around = around.parent
        return self.at(0)

    def error(self, node: exp.Expr | int | str, message: str) -> TopologyError:
        """An error of the author's at a node, at an offset, or at a place that was told before."""
        where = self.at(node) if isinstance(node, int) else node if isinstance(node, str) else self.where(node)
        return TopologyError(f"sql '{self.name}' {where}: {message}")

    def unsupported(self, node: exp.Expr | int | str, what: str, instead: str = "") -> TopologyError:
        """The refusal, by name, of what is not supported."""
        return self.error(node, f"{what} is not supported{'; ' + instead if instead else ''}")


def _start(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Star):
        return None  # the parser makes stars of its own, which are nowhere in the text
    found = node.meta.get("start") if node._meta else None
    return found if isinstance(found, int) else None
