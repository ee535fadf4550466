"""Binds the two recursive forms: the standard's WITH RECURSIVE and Materialize's WITH MUTUALLY RECURSIVE.

In WITH RECURSIVE t AS (seed UNION [ALL] step), PostgreSQL applies the step to the rows of the previous iteration only.
If the step is linear, which PostgreSQL requires, too, this gives the least X = seed + step(X). A step that is not
linear is refused; the error names the part that is not linear.
"""

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import (
    Binding,
    Block,
    Distinct,
    Loop,
    NamedColumn,
    Node,
    Project,
    Shared,
    Union,
    Variable,
    all_columns,
)
from eddy.topology.sql.bound_casts import assign
from eddy.topology.sql.linearity import linear_references
from eddy.topology.sql.parsing import Definition, Mutual
from eddy.topology.sql.queries import QueryBinding
from eddy.topology.sql.scope import QueryContext, folded
from eddy.topology.sql.sources import renamed
from eddy.topology.sql.unsupported_syntax import parts_of, unnested, without_meaning

__all__ = ["mutually_recursive", "with_recursive"]


def mutually_recursive(queries: QueryBinding, found: Mutual, path: str, environment: QueryContext) -> QueryContext:
    """Return the context of the query after a block. Raises: TopologyError if a definition breaks its declaration."""
    text, block = queries.text, Block(path, queries.called(path), [], found.bound)
    variables: dict[str, Node] = {}
    for definition in found.definitions:
        if definition.name in variables:
            raise text.error(definition.offset, f"binding '{definition.name}' is defined twice; another name is needed")
        names = [column.name for column in definition.columns]
        if len(set(names)) < len(names):
            raise text.error(
                definition.offset, f"binding '{definition.name}' declares a column twice; names are unique"
            )
        variables[definition.name] = Variable(
            columns=definition.columns, name=f"{path}-{definition.name}", binding=definition.name, of=block
        )
    inside = environment.with_tables(variables)
    for definition in found.definitions:
        block.bindings.append((definition.name, _definition(queries, definition, path, inside)))
    results: dict[str, Node] = {
        name: Binding(columns=variables[name].columns, name=f"{path}-{name}", block=block, binding=name)
        for name, _ in block.bindings
    }
    return environment.with_tables(results)


def _definition(queries: QueryBinding, definition: Definition, path: str, environment: QueryContext) -> Node:
    """Return the node of a binding's query, with its columns cast to the declared types."""
    text, query = queries.text, definition.query
    queries.definitions.append(definition.name)
    node = queries.query(query, f"{path}-{definition.name}", QueryContext(environment.tables))
    queries.definitions.pop()
    if len(node.columns) != len(definition.columns):
        raise text.error(
            query,
            f"binding '{definition.name}' declares {len(definition.columns)} columns, and its query has "
            f"{len(node.columns)}; they have to agree",
        )
    same = all(ours.type == theirs.type for ours, theirs in zip(definition.columns, node.columns, strict=True))
    if same:
        return renamed(node, [column.name for column in definition.columns])
    exprs = node.exprs if isinstance(node, Project) else all_columns(node)
    cast = tuple(
        assign(text, query, expr, column.type, column.name)
        for expr, column in zip(exprs, definition.columns, strict=True)
    )
    below = node.input if isinstance(node, Project) else node
    return Project(columns=definition.columns, name=node.name, input=below, exprs=cast)


def with_recursive(queries: QueryBinding, found: exp.With, path: str, environment: QueryContext) -> QueryContext:
    """Return the context of the query after a WITH RECURSIVE in which some queries name themselves."""
    names = [folded(cte.args["alias"].args["this"]) for cte in parts_of(found)]
    for index, cte in enumerate(parts_of(found)):
        own, later = names[index], set(names[index + 1 :])
        for table in _named(cte.args["this"], later):
            raise queries.text.unsupported(
                table,
                f"'{folded(table.args['this'])}' before it is defined",
                "write WITH MUTUALLY RECURSIVE, which declares columns and types, for queries that name one another",
            )
        recursive = list(_named(cte.args["this"], {own}))
        environment = (
            _loop(queries, cte, own, path, environment) if recursive else queries.common_table(cte, path, environment)
        )
    return environment


def _named(node: exp.Expr, names: set[str]) -> Iterator[exp.Table]:
    return (
        table
        for table in node.find_all(exp.Table)
        if isinstance(table.args["this"], exp.Identifier) and folded(table.args["this"]) in names
    )


def _loop(queries: QueryBinding, cte: exp.CTE, name: str, path: str, environment: QueryContext) -> QueryContext:
    text, union = queries.text, unnested(cte.args["this"])
    if not isinstance(union, exp.Union):
        at = next(_named(cte.args["this"], {name}))
        raise text.unsupported(at, f"'{name}' inside of itself", f"{name} AS (seed UNION [ALL] step) is needed")
    for table in _named(union.args["this"], {name}):
        raise text.error(table, f"'{name}' in its own seed; only the query after UNION can name it. Put it there")
    without_meaning(cte, "materialized")
    inner = queries.with_clause(union, f"{path}-{name}", QueryContext(environment.tables))
    seed = queries.resolved(queries.query(union.args["this"], f"{path}-{name}-seed", inner))
    names = [folded(found) for found in cte.args["alias"].args.get("columns") or ()]
    if len(names) > len(seed.columns):
        raise text.error(
            cte, f"'{name}' names {len(names)} columns, and its seed has {len(seed.columns)}; they have to agree"
        )
    seed = renamed(seed, names)
    variable = Variable(columns=seed.columns, name=f"{path}-{name}", binding=name, of=cte)
    step = queries.query(union.args["expression"], f"{path}-{name}-step", inner.with_tables({name: variable}))
    recursive = linear_references(step, cte, _refusal(queries, name))
    step = _fitted(queries, union.args["expression"], step, seed.columns, name)
    distinct = bool(union.args.get("distinct"))
    if not recursive:
        return environment.with_tables({name: _union(seed, step, f"{path}-{name}", distinct)})
    loop = Loop(
        columns=seed.columns,
        name=f"{path}-{name}",
        variable=variable,
        seed=seed,
        step=step,
        distinct=distinct,
        where=text.where(union.args["expression"]),
    )
    return environment.with_tables({name: Shared(columns=loop.columns, name=loop.name, input=loop)})


def _fitted(queries: QueryBinding, at: exp.Expr, step: Node, columns: Sequence[NamedColumn], name: str) -> Node:
    """Return the step with its columns cast to the types of the seed. Raises: TopologyError if the types differ."""
    text = queries.text
    if len(step.columns) != len(columns):
        raise text.error(
            at,
            f"the step of '{name}' has {len(step.columns)} columns, and its seed {len(columns)}; equal numbers are "
            "needed",
        )
    types = [found.type for found in columns]
    for found, type, column in zip(step.columns, types, columns, strict=True):
        if found.type.kind not in (type.kind, "unknown"):
            raise text.error(
                at,
                f"column '{column.name}' of '{name}' is {type} in the seed and {found.type} in the step; they have to "
                f"agree. Cast it in the seed: …::{found.type}",
            )
    return queries.as_types(step, types, at)


def _refusal(queries: QueryBinding, name: str) -> Callable[[Variable, str], TopologyError]:
    """Return a function that makes the error for a reference to the recursive table `name` at a place in the step."""

    def refused(reference: Variable, place: str) -> TopologyError:
        return queries.text.unsupported(
            reference.where, f"'{name}' {place}", "WITH MUTUALLY RECURSIVE, which is over all rows, allows it"
        )

    return refused


def _union(seed: Node, step: Node, name: str, distinct: bool) -> Shared:
    """Return the union of seed and step without a recursion, for a step that does not read its own table.

    The table that the step's text names is then a query inside the step with the same name.
    """
    both: Node = Union(columns=seed.columns, name=name, inputs=(seed, step))
    if distinct:
        both = Distinct(columns=seed.columns, name=name, input=both)
    return Shared(columns=seed.columns, name=name, input=both)
