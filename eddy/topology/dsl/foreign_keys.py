"""Joins of tables by a foreign key, composed of a join of relations and a join of tables by key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eddy.errors import TopologyError
from eddy.serde import Bytes, Native, Tuple
from eddy.topology.arguments import check_serdes, name_or, takes_key
from eddy.topology.dsl.builder import same_topology

if TYPE_CHECKING:
    from eddy.topology.dsl.table import KTable

__all__ = ["foreign_key_join"]


def foreign_key_join(
    table: "KTable[Any, Any]", other: Any, foreign_key: Any, joiner: Any, name: str | None, value: Any, *, left: bool
) -> "KTable[Any, Any]":
    """Find the other table's row for each row by its foreign key, then join the found rows by this table's key.

    A found row is stored with its foreign key. If it was found for an earlier foreign key, because the row for the
    current one has not yet arrived from another worker, it counts as not found.
    """
    from eddy.topology.dsl.table import KTable

    label, verb = table._node.label, "foreign_key_left_join" if left else "foreign_key_join"
    if not isinstance(other, KTable):
        raise TopologyError(f"{verb} of table '{label}': {type(other).__name__} is not a KTable; a KTable is needed")
    same_topology(verb, table._builder, [other._builder])
    name = name_or(name, f"{label}-{other._node.label}-{verb.replace('_', '-')}")
    where = f"{verb} '{name}'"
    check_serdes(where, value=value)
    find = _with_key(where, foreign_key, ("value",), "foreign_key")
    combine = _with_key(where, joiner, ("value", "other"), "joiner")
    of_self, of_other = table._node.key or Native, other._node.key or Native
    of_value = other._node.value or Native
    # Spark pickles a serde by its name; it could not pickle the bound method of a `struct.Struct`.
    rows = other.to_relation().map_values(lambda row: of_value.encode(row), value=Bytes)
    wanted = table.to_relation().map(lambda key, row: (find(key, row), key), None, of_other, of_self)
    found = wanted.join(
        rows, lambda at, key, data: (key, (at, data)), f"{name}-wanted", of_self, Tuple(of_other, Bytes)
    )

    def joined(key: Any, row: Any, there: Any) -> Any:
        if there is None or there[0] != find(key, row):
            return combine(key, row, None) if left else None
        return combine(key, row, of_value.decode(there[1]))

    kept = found.to_table(f"{name}-found")
    join: Callable[..., Any] = table.left_join if left else table.join
    made: KTable[Any, Any] = join(kept, lambda key, row, there: joined(key, row, there), name, value)
    return made


def _with_key(where: str, function: Any, parameters: tuple[str, ...], what: str) -> Callable[..., Any]:
    """Return `function` itself if it takes the key first, else a function that takes the key and ignores it.

    `parameters` are the parameters after the key.
    """
    if takes_key(where, function, *parameters, what=what):
        return function
    return lambda key, *values: function(*values)
