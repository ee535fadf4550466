"""Mutual recursion: several bindings, each defined by all, evaluated in turn from empty until none changes."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators.recursion import Bound
from eddy.serde import Native, Serde, String
from eddy.topology.builder import Builder, check_name
from eddy.topology.plan import Binding, Block, Node, Variable
from eddy.topology.recursive import check_inside, moves_rows, refuse_sinks
from eddy.topology.relation import Relation
from eddy.topology.scopes import Scopes

__all__ = ["Bindings", "mutually_recursive"]

Serdes = Mapping[str, tuple[Serde[Any], Serde[Any]]]


class Bindings:
    """What a block makes: a relation for each binding, by name or in turn, and `errors`.

    `errors` holds rows (binding, (key, value)) while the block's last round has changed something; it is
    empty where the block has no `limit`, or one with `on_limit="return"`.
    """

    def __init__(self, relations: Mapping[str, Relation[Any, Any]], errors: Relation[Any, Any]) -> None:
        self._relations, self.errors = dict(relations), errors

    def __getattr__(self, name: str) -> Relation[Any, Any]:
        try:
            return self.__dict__["_relations"][name]
        except KeyError:
            raise AttributeError(f"no binding '{name}'; there are {', '.join(self._relations)}") from None

    def __getitem__(self, name: str) -> Relation[Any, Any]:
        return self._relations[name]

    def __iter__(self) -> Iterator[Relation[Any, Any]]:
        return iter(self._relations.values())

    def __len__(self) -> int:
        return len(self._relations)


def mutually_recursive(
    builder: Builder,
    step: Callable[..., Any],
    name: str,
    limit: int | None = None,
    on_limit: Literal["error", "return"] = "error",
    serdes: Serdes | None = None,
    sole: bool = False,
) -> Bindings:
    """Make a block of what `step` returns. `sole`: the block is asked for at one owner, and stays there.

    Raises: TopologyError where step does not return a relation for each binding, or the block lies inside a recursion.
    """
    where = f"mutually_recursive '{check_name(name, 'block')}'"
    names = _names(where, step, serdes)
    if limit is not None and limit < 1:
        raise TopologyError(f"{where}: limit={limit}; 1 or more is needed")
    if on_limit not in {"error", "return"}:
        raise TopologyError(f"{where}: on_limit={on_limit!r}; 'error' or 'return' is needed")
    if builder.open_loops:
        raise TopologyError(
            f"{where}: it lies inside {builder.open_loops[-1]}; blocks may follow one another, not nest. Put the "
            "inner bindings into the outer block, or use recursively() for the inner loop"
        )
    held = limit is not None and on_limit == "error"
    length = len(builder.plan.nodes)
    variables, results, body = _build(builder, where, name, names, step, serdes or {}, sole)
    alone = sole or held or moves_rows([*body, *results], True)
    if alone and not sole:
        builder.plan.rewind(length)
        variables, results, body = _build(builder, where, name, names, step, serdes or {}, True)
    check_inside(where, body)
    block = builder.add(
        Block,
        name,
        kind="relation",
        variables=tuple(variables),
        results=tuple(results),
        bound=_bound(limit, on_limit),
        rounds=limit or Bound().limit,
        sole=sole,
    )
    placed: dict[str, Any] = {"kind": "relation", "inputs": (block,), "sole": sole, "rekeyed": alone and not sole}
    relations = {
        v.label: Relation[Any, Any](
            builder, builder.add(Binding, f"{name}-{v.label}", index=i, key=v.key, value=v.value, **placed)
        )
        for i, v in enumerate(variables)
    }
    errors = builder.add(Binding, f"{name}-limit", index=len(variables), key=String, value=Native, **placed)
    return Bindings(relations, Relation(builder, errors))


def _names(where: str, step: Callable[..., Any], serdes: Serdes | None) -> list[str]:
    names = list(inspect.signature(step).parameters)
    if not names:
        raise TopologyError(f"{where}: step takes no binding; a parameter for each is needed: lambda reach: …")
    for name in names:
        check_name(name, f"{where}: binding")
    if unknown := sorted(set(serdes or {}) - set(names)):
        raise TopologyError(f"{where}: serdes for '{unknown[0]}', which is no binding; there are {', '.join(names)}")
    return names


def _bound(limit: int | None, on_limit: str) -> Bound:
    if limit is None:
        return Bound()
    return Bound(limit=limit, on_limit="rows") if on_limit == "error" else Bound(max_depth=limit - 1)


def _build(
    builder: Builder,
    where: str,
    name: str,
    names: list[str],
    step: Callable[..., Any],
    serdes: Serdes,
    sole: bool,
) -> tuple[list[Variable], list[Node], list[Node]]:
    variables = []
    for binding in names:
        key, value = serdes.get(binding, (None, None))
        variables.append(
            builder.add(
                Variable,
                f"{name}-{binding}-variable",
                label=binding,
                kind="relation",
                sole=sole,
                key=key,
                value=value,
            )
        )
    with builder.inside(where):
        made = step(*(Relation(builder, variable) for variable in variables))
    made = (made,) if isinstance(made, Relation) else made
    if not isinstance(made, tuple | list) or len(made) != len(names):
        count = len(made) if isinstance(made, tuple | list) else type(made).__name__
        raise TopologyError(
            f"{where}: step returned {count}; a relation for each binding is needed, in this order: {', '.join(names)}"
        )
    results: list[Node] = []
    for binding, relation in zip(names, made, strict=True):
        if not isinstance(relation, Relation):
            raise TopologyError(
                f"{where}: binding '{binding}' is {type(relation).__name__}; a relation is needed. A table becomes one "
                "by .to_relation()"
            )
        node = relation._node
        results.append(builder.at_one_owner(node, f"{name}-{binding}") if sole else node)
    scopes = Scopes(builder.plan)
    body = scopes.deep(scopes.inside(variables))
    refuse_sinks(f"{where}: step", "mutually_recursive", body)
    return variables, results, body
