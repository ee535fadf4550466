"""The algebra of statements: bags of rows of typed columns, and operators on them.

    Filter, Project, Product, Outer, Semi, Anti, Union, Distinct, Except, Intersect, Group, Limit,
    Series, InWindows, InSessions
    over Table, Rows and Variable; Block and Loop are the two recursive forms

Rows are tuples. A Product is an inner join of any number of inputs, under conditions over the columns of all inputs in
their order; the planner turns it into a chain of joins. A node's `name` names its state. The name is made from the
author's names and the place in the statement, not from a counter over the whole statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from eddy.topology.sql.expressions import Expr, column
from eddy.topology.sql.row_order import RowLimit
from eddy.topology.sql.row_windows import FixedWindows, SessionsOfRows
from eddy.topology.sql.types import Type

__all__ = [
    "Aggregate",
    "Anti",
    "Binding",
    "Block",
    "Distinct",
    "Except",
    "Filter",
    "Group",
    "InSessions",
    "InWindows",
    "Intersect",
    "Join",
    "Limit",
    "Loop",
    "NamedColumn",
    "NamedTable",
    "Node",
    "Outer",
    "Product",
    "Project",
    "RecursionLimit",
    "Rows",
    "Semi",
    "Series",
    "Shared",
    "Union",
    "Valid",
    "Variable",
    "all_columns",
    "inputs_of",
    "with_inputs",
]


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """The name and the type of a column."""

    name: str
    type: Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A bag of rows of these columns."""

    columns: tuple[NamedColumn, ...]
    name: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedTable(Node):
    """The rows of one of the statement's tables."""

    table: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Node):
    """Rows written in the statement."""

    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """The rows of a recursive binding, inside its recursion.

    `binding` is the binding's name, `of` the recursion, and `where` the reference's place in the text.
    """

    binding: str
    of: object
    where: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shared(Node):
    """A common table expression: computed once, however often it is named."""

    input: Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Node):
    """The rows for which all of `conditions` are true."""

    input: Node
    conditions: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Valid(Node):
    """The rows of the input for which the present time is at or after all of `from_`, and before all of `until`."""

    input: Node
    from_: tuple[Expr, ...]
    until: tuple[Expr, ...]
    where: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Project(Node):
    """A row with the values of `exprs` for each row of the input."""

    input: Node
    exprs: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Series(Node):
    """Each row once for each number of a series, with the number appended. `bounds`: first and last number, step."""

    input: Node
    bounds: tuple[Expr, Expr, Expr]


@dataclass(frozen=True, eq=False, kw_only=True)
class InWindows(Node):
    """Each row once for each of its windows, with the window's bounds appended."""

    input: Node
    windows: FixedWindows


@dataclass(frozen=True, eq=False, kw_only=True)
class InSessions(Node):
    """Each row with the bounds of its session appended. A session has rows with equal `keys`."""

    input: Node
    keys: tuple[Expr, ...]
    sessions: SessionsOfRows


@dataclass(frozen=True, eq=False, kw_only=True)
class Product(Node):
    """All combinations of rows of `inputs` for which all `conditions` are true. `names` name the join steps."""

    inputs: tuple[Node, ...]
    conditions: tuple[Expr, ...] = ()
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    """The pairs of rows whose keys are equal and not null. The planner makes a Join from a Product of two inputs."""

    left: Node
    right: Node
    left_key: tuple[Expr, ...]
    right_key: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Outer(Node):
    """The inner join, and the unmatched rows of the sides in `kept`, with nulls for the other side's columns."""

    left: Node
    right: Node
    conditions: tuple[Expr, ...]
    kept: Literal["left", "right", "both"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Semi(Node):
    """The rows of `left` for which `right` has a row with an equal key. A key with a null matches only if `nulls`."""

    left: Node
    right: Node
    left_key: tuple[Expr, ...]
    right_key: tuple[Expr, ...]
    nulls: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Anti(Semi):
    """The rows of `left` that `Semi` excludes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """All rows of all inputs."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Distinct(Node):
    """Each row once."""

    input: Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Except(Node):
    """Each row with its weight in `left` minus its weight in `right`; without `all`, rows only in `left`, once."""

    left: Node
    right: Node
    all: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Intersect(Node):
    """Each row with the lesser of its weights in both inputs; without `all`, once."""

    left: Node
    right: Node
    all: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the rows of a group. If `argument` is None it counts rows."""

    function: str
    type: Type
    argument: Expr | None = None
    distinct: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Group(Node):
    """A row for each value of `keys`, with the aggregates. Without keys there is one row, even for an empty input."""

    input: Node
    keys: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Limit(Node):
    """The rows that ORDER BY … LIMIT … OFFSET keeps."""

    input: Node
    first: RowLimit


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(Node):
    """WITH RECURSIVE: the least X = seed + step(X). `step` has `variable` for X; `distinct` makes X a set."""

    variable: Variable
    seed: Node
    step: Node
    distinct: bool
    where: str = ""


@dataclass(frozen=True, slots=True)
class RecursionLimit:
    """The largest number of iterations of a block, and the action when it is reached."""

    iterations: int
    then: Literal["return", "hold"]


@dataclass(frozen=True, eq=False)
class Block:
    """WITH MUTUALLY RECURSIVE: bindings, evaluated in turn from empty until none changes any more.

    `label` is the block's name in errors. It is put before the names of an inner block's bindings.
    """

    name: str
    label: str
    bindings: list[tuple[str, Node]] = field(default_factory=list)
    bound: RecursionLimit | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Binding(Node):
    """The final rows of a binding of a block."""

    block: Block
    binding: str


def all_columns(node: Node) -> tuple[Expr, ...]:
    """Return each column of a node, as an expression."""
    return tuple(column(i, found.type) for i, found in enumerate(node.columns))


def inputs_of(node: Node) -> tuple[Node, ...]:
    """Return the inputs of a node, without the nodes inside a recursion."""
    match node:
        case Filter() | Valid() | Project() | Series() | InWindows() | InSessions():
            return (node.input,)
        case Distinct() | Group() | Limit() | Shared():
            return (node.input,)
        case Product() | Union():
            return node.inputs
        case Join() | Outer() | Semi() | Except() | Intersect():
            return (node.left, node.right)
        case Loop():
            return (node.seed, node.step)
        case _:
            return ()


def with_inputs(node: Node, inputs: Sequence[Node]) -> Node:
    """Return the node with other inputs."""
    match node:
        case Filter() | Valid() | Project() | Series() | InWindows() | InSessions():
            return replace(node, input=inputs[0])
        case Distinct() | Group() | Limit() | Shared():
            return replace(node, input=inputs[0])
        case Product() | Union():
            return replace(node, inputs=tuple(inputs))
        case Join() | Outer() | Semi() | Except() | Intersect():
            return replace(node, left=inputs[0], right=inputs[1])
        case Loop():
            return replace(node, seed=inputs[0], step=inputs[1])
        case _:
            return node
