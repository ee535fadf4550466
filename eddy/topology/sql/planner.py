"""The planner: pushes conditions down to the rows that they test, and turns products into joins.

The planner does not change the answer, but makes joins and states smaller. It turns an outer join into the union of the
inner join and the unmatched rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from eddy.topology.sql.algebra import (
    Anti,
    Binding,
    Block,
    Distinct,
    Except,
    Filter,
    Group,
    Intersect,
    InWindows,
    Join,
    Node,
    Outer,
    Product,
    Project,
    Semi,
    Series,
    Shared,
    Union,
    all_columns,
    inputs_of,
    with_inputs,
)
from eddy.topology.sql.expressions import Expr, column, columns_of, literal, replace_columns, shifted
from eddy.topology.sql.types import Type

__all__ = ["Planner"]


class Planner:
    """Plans the nodes of one statement; shared nodes remain shared."""

    def __init__(self) -> None:
        self._shared: dict[int, Node] = {}
        self._kept: list[Node] = []
        self._blocks: set[Block] = set()

    def plan(self, node: Node) -> Node:
        """Return a planned node that has the same rows as this node."""
        return self._push(node, ())

    def _push(self, node: Node, conditions: Sequence[Expr]) -> Node:
        """Return a planned node with the rows of `node` for which all of `conditions` are true."""
        match node:
            case Filter():
                return self._push(node.input, (*node.conditions, *conditions))
            case Project():
                below = [replace_columns(condition, node.exprs) for condition in conditions]
                return replace(node, input=self._push(node.input, below))
            case Product():
                return self._product(node, conditions)
            case Outer():
                return self._outer(node, conditions)
            case Union():
                return replace(node, inputs=tuple(self._push(found, conditions) for found in node.inputs))
            case Distinct():
                return replace(node, input=self._push(node.input, conditions))
            case Semi() | Except() | Intersect():
                return replace(node, left=self._push(node.left, conditions), right=self.plan(node.right))
            case Series() | InWindows():
                return self._through(node, conditions, all_columns(node.input))
            case Group():
                return self._through(node, conditions, node.keys)
            case Shared():
                return _filtered(self._planned_once(node), conditions)
            case Binding():
                self._plan_block(node.block)
                return _filtered(node, conditions)
            case _:
                return _filtered(with_inputs(node, [self.plan(found) for found in inputs_of(node)]), conditions)

    def _planned_once(self, node: Shared) -> Node:
        if id(node) not in self._shared:
            self._shared[id(node)] = replace(node, input=self.plan(node.input))
            self._kept.append(node)  # so that no other object gets its id
        return self._shared[id(node)]

    def _plan_block(self, block: Block) -> None:
        if block not in self._blocks:
            self._blocks.add(block)
            block.bindings[:] = [(name, self.plan(definition)) for name, definition in block.bindings]

    def _through(self, node: Series | InWindows | Group, conditions: Sequence[Expr], passed: Sequence[Expr]) -> Node:
        """Push conditions below a node. `passed` has the input's expression for each column that the node passes on."""
        below: list[Expr] = []
        above: list[Expr] = []
        for condition in conditions:
            goes = passed and all(i < len(passed) for i in columns_of(condition))
            (below if goes else above).append(condition)
        pushed = [replace_columns(condition, passed) for condition in below]
        return _filtered(replace(node, input=self._push(node.input, pushed)), above)

    def _outer(self, node: Outer, conditions: Sequence[Expr]) -> Node:
        """Return the union of the inner join and the unmatched rows, with nulls for the other side."""
        width = len(node.left.columns)
        left_only, right_only, above = [], [], []
        for condition in conditions:
            used = columns_of(condition)
            if node.kept == "left" and all(i < width for i in used):
                left_only.append(condition)
            elif node.kept == "right" and all(i >= width for i in used):
                right_only.append(shifted(condition, -width))
            else:
                above.append(condition)
        left = Shared(columns=node.left.columns, name=node.left.name, input=self._push(node.left, left_only))
        right = Shared(columns=node.right.columns, name=node.right.name, input=self._push(node.right, right_only))
        for side in (left, right):
            self._shared[id(side)] = side
            self._kept.append(side)
        inner = self._product(
            Product(columns=node.columns, inputs=(left, right), conditions=node.conditions, names=("", node.name)), ()
        )
        inner = Shared(columns=node.columns, input=inner)
        parts: list[Node] = [inner]
        if node.kept in {"left", "both"}:
            parts.append(_unmatched(node, inner, left, right, width, at_left=True))
        if node.kept in {"right", "both"}:
            parts.append(_unmatched(node, inner, right, left, width, at_left=False))
        return _filtered(Union(columns=node.columns, name=node.name, inputs=tuple(parts)), above)

    def _product(self, node: Product, conditions: Sequence[Expr]) -> Node:
        """Return a chain of joins in the order of the inputs; inputs linked by a condition are joined first."""
        starts, width = [], 0
        for found in node.inputs:
            starts.append(width)
            width += len(found.columns)
        owner = [k for k, found in enumerate(node.inputs) for _ in found.columns]
        single: list[list[Expr]] = [[] for _ in node.inputs]
        linking = []
        for condition in (*node.conditions, *conditions):
            used = {owner[i] for i in columns_of(condition)}
            if len(used) > 1:
                linking.append(condition)
            else:
                k = min(used, default=0)
                single[k].append(shifted(condition, -starts[k]))
        inputs = [self._push(found, single[k]) for k, found in enumerate(node.inputs)]
        return _Chain(node, inputs, starts, owner, linking).joined()


class _Chain:
    """Joins the inputs of a product, one after another. `places`: a column's index in the rows joined so far."""

    def __init__(
        self, node: Product, inputs: list[Node], starts: list[int], owner: list[int], conditions: list[Expr]
    ) -> None:
        self._node, self._inputs, self._starts, self._owner = node, inputs, starts, owner
        self._conditions = conditions
        self._rows = inputs[0]
        self._there = {0}
        self._places = {i: i for i in range(len(inputs[0].columns))}

    def joined(self) -> Node:
        """Join all inputs of the product; return the joined rows, with their columns in the order of the inputs."""
        rest = list(range(1, len(self._inputs)))
        while rest:
            k = next((k for k in rest if any(self._link(c, k) for c in self._conditions)), rest[0])
            rest.remove(k)
            self._take(k)
        columns = self._node.columns
        order = [self._places[i] for i in range(len(columns))]
        if order == list(range(len(columns))):
            return self._rows
        exprs = tuple(column(place, found.type) for place, found in zip(order, columns, strict=True))
        return Project(columns=columns, input=self._rows, exprs=exprs)

    def _owners(self, expr: Expr) -> set[int]:
        return {self._owner[i] for i in columns_of(expr)}

    def _link(self, condition: Expr, k: int) -> tuple[Expr, Expr] | None:
        """Return an equality's side over the rows joined so far and its side over input k; else None."""
        if condition.op != "call" or condition.value.name != "=":
            return None
        for ours, theirs in (condition.args, condition.args[::-1]):
            if self._owners(theirs) == {k} and self._owners(ours) and self._owners(ours) <= self._there:
                return ours, theirs
        return None

    def _take(self, k: int) -> None:
        links = [(condition, link) for condition in self._conditions if (link := self._link(condition, k))]
        width, start = len(self._rows.columns), self._starts[k]
        join = Join(
            columns=(*self._rows.columns, *self._inputs[k].columns),
            name=self._node.names[k],
            left=self._rows,
            right=self._inputs[k],
            left_key=tuple(self._placed(ours) for _, (ours, _) in links),
            right_key=tuple(shifted(theirs, -start) for _, (_, theirs) in links),
        )
        self._there.add(k)
        self._places |= {start + i: width + i for i in range(len(self._inputs[k].columns))}
        done = [condition for condition, _ in links]
        ready = [c for c in self._conditions if c not in done and self._owners(c) <= self._there]
        self._conditions = [c for c in self._conditions if c not in done and c not in ready]
        self._rows = _filtered(join, [self._placed(condition) for condition in ready])

    def _placed(self, expr: Expr) -> Expr:
        return replace_columns(expr, {i: column(place, self._type(i)) for i, place in self._places.items()})

    def _type(self, index: int) -> Type:
        return self._node.columns[index].type


def _unmatched(node: Outer, inner: Node, kept: Node, other: Node, width: int, *, at_left: bool) -> Node:
    """Return the unmatched rows of one side of an outer join, with nulls for the other side."""
    first = 0 if at_left else width
    links = _equalities(node.conditions, width)
    name = f"{node.name}-{'left' if at_left else 'right'}"
    if links is not None and len(links):
        ours = tuple(pair[0] if at_left else pair[1] for pair in links)
        theirs = tuple(pair[1] if at_left else pair[0] for pair in links)
        rows: Node = Anti(columns=kept.columns, name=name, left=kept, right=other, left_key=ours, right_key=theirs)
    else:
        matched = tuple(column(first + i, found.type) for i, found in enumerate(kept.columns))
        rows = Anti(
            columns=kept.columns,
            name=name,
            left=kept,
            right=inner,
            left_key=all_columns(kept),
            right_key=matched,
            nulls=True,
        )
    nulls = tuple(literal(None, found.type) for found in other.columns)
    exprs = (*all_columns(kept), *nulls) if at_left else (*nulls, *all_columns(kept))
    return Project(columns=node.columns, name=name, input=rows, exprs=exprs)


def _equalities(conditions: Iterable[Expr], width: int) -> list[tuple[Expr, Expr]] | None:
    """Return conditions as pairs of equal left and right expressions; None if a condition is not such an equality."""
    found = []
    for condition in conditions:
        if condition.op != "call" or condition.value.name != "=":
            return None
        sides = [(columns_of(arg), arg) for arg in condition.args]
        left = [arg for used, arg in sides if used and all(i < width for i in used)]
        right = [arg for used, arg in sides if used and all(i >= width for i in used)]
        if len(left) != 1 or len(right) != 1:
            return None
        found.append((left[0], shifted(right[0], -width)))
    return found


def _filtered(node: Node, conditions: Sequence[Expr]) -> Node:
    if not conditions:
        return node
    return Filter(columns=node.columns, name=node.name, input=node, conditions=tuple(conditions))
