"""Reads CREATE TABLE, which declares the tables of a file of statements. SQL's other definitions are not supported."""

from sqlglot import exp

from eddy.topology.sql.algebra import NamedColumn
from eddy.topology.sql.bound_casts import type_of
from eddy.topology.sql.parsing import parse
from eddy.topology.sql.scope import folded
from eddy.topology.sql.statement_text import StatementText

__all__ = ["declared_table"]


def declared_table(text: StatementText) -> tuple[str, tuple[NamedColumn, ...]]:
    """Return the name and columns of CREATE TABLE name (column type, …). Raises: TopologyError for another CREATE."""
    node = parse(text)
    if not isinstance(node, exp.Create) or not isinstance(node.this, exp.Schema):
        raise text.unsupported(0, "this form of CREATE", "CREATE TABLE name (column type, …) is needed")
    columns = [
        NamedColumn(folded(part.this), type_of(text, part.args["kind"], part))
        for part in node.this.expressions
        if isinstance(part, exp.ColumnDef) and isinstance(part.args.get("kind"), exp.DataType)
    ]
    return folded(node.this.this.this), tuple(columns)
