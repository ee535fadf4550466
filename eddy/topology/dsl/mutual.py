"""Mutual recursion: several bindings, each defined by all, are evaluated in turn from empty until none changes."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators.bound import Bound, Words
from eddy.serde import Native, Serde, String
from eddy.topology.arguments import check_choice, check_mapping, check_name, check_serdes, check_whole
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.recursion_builder import check_inside, moves_rows, refuse_sinks
from eddy.topology.dsl.relation import Relation
from eddy.topology.plan.plan import Binding, Block, Node, Variable
from eddy.topology.plan.scopes import Scopes

__all__ = ["Bindings", "mutually_recursive"]

Serdes = Mapping[str, tuple[Serde[Any], Serde[Any]]]


class Bindings:
    """The results of a block: a relation for each binding, by name or in order, and the relation `errors`.

    `errors` has rows (binding, (key, value)) that the block's last iteration has changed. It is empty if the block has
    no `limit`, or one with `on_limit="return"`. In an outermost block `errors` also has the errors of the blocks
    inside, in any iteration, as rows ("block.binding", (key, value)).
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
    on_limit: Literal["hold", "stop", "return"] = "hold",
    serdes: Serdes | None = None,
    single_partition: bool = False,
    label: str | None = None,
    words: Words | None = None,
) -> Bindings:
    """Create a block from the definitions that `step` returns, in a single partition if `single_partition`.

    Inside a loop the block is evaluated again from empty in every iteration of the loop. `label` is the block's name in
    errors of enclosing loops. `words` are the texts of messages for a block that is not written as a call of
    `mutually_recursive`.

    Raises: TopologyError if `step` does not return a relation for each binding, or adds a step that is not allowed.
    """
    where = f"mutually_recursive '{check_name(name, 'block')}'"
    names = _names(where, step, serdes)
    check_whole(where, 1, limit=limit)
    check_choice(where, ("hold", "stop", "return"), on_limit=on_limit)
    held = limit is not None and on_limit != "return"
    length = len(builder.plan.nodes)
    variables, results, body = _build(builder, where, name, names, step, serdes or {}, single_partition)
    alone = single_partition or held or moves_rows([*body, *results], True)
    if alone and not single_partition:
        builder.plan.rewind(length)
        variables, results, body = _build(builder, where, name, names, step, serdes or {}, True)
    check_inside(where, body)
    # Inputs of an enclosing loop remain in its single partition.
    stays = single_partition or (alone and bool(builder.open_loops))
    block = builder.add(
        Block,
        name,
        label=label or name,
        kind="relation",
        variables=tuple(variables),
        results=tuple(results),
        bound=replace(_bound(limit, on_limit), words=words),
        iterations=limit or Bound().limit,
        single_partition=stays,
    )
    placed: dict[str, Any] = {
        "kind": "relation",
        "inputs": (block,),
        "single_partition": stays,
        "rekeyed": alone and not stays,
    }
    relations = {
        v.label: Relation[Any, Any](
            builder, builder.add(Binding, f"{name}-{v.label}", index=i, key=v.key, value=v.value, **placed)
        )
        for i, v in enumerate(variables)
    }
    errors = builder.add(Binding, f"{name}-limit", index=len(variables), key=String, value=Native, **placed)
    return Bindings(relations, Relation(builder, errors))


def _names(where: str, step: Callable[..., Any], serdes: Serdes | None) -> list[str]:
    names = _parameters(where, step)
    for name in names:
        check_name(name, f"{where}: binding")
    check_mapping(where, serdes=serdes)
    for name, pair in (serdes or {}).items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TopologyError(f"{where}: serdes of '{name}' are {pair!r}; a pair (key's, value's) is needed")
        check_serdes(f"{where}: binding '{name}'", key=pair[0], value=pair[1])
    if unknown := sorted(set(serdes or {}) - set(names)):
        raise TopologyError(f"{where}: serdes for '{unknown[0]}', which is not a binding; there are {', '.join(names)}")
    return names


def _parameters(where: str, step: Callable[..., Any]) -> list[str]:
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        raise TopologyError(f"{where}: step={step!r} does not tell its parameters; a function is needed") from None
    if not parameters:
        raise TopologyError(f"{where}: step takes no binding; a parameter for each is needed: lambda reach: …")
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TopologyError(
                f"{where}: step takes '{parameter}', which names no binding; a parameter for each is needed: "
                "lambda reach: …"
            )
    return [parameter.name for parameter in parameters]


def _bound(limit: int | None, on_limit: str) -> Bound:
    stops = on_limit == "stop"
    if limit is None:
        return Bound(stops=stops)
    return Bound(max_depth=limit - 1) if on_limit == "return" else Bound(limit=limit, on_limit="rows", stops=stops)


def _build(
    builder: Builder,
    where: str,
    name: str,
    names: list[str],
    step: Callable[..., Any],
    serdes: Serdes,
    single_partition: bool,
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
                single_partition=single_partition,
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
        results.append(builder.at_one_owner(node, f"{name}-{binding}") if single_partition else node)
    scopes = Scopes(builder.plan)
    body = scopes.deep(scopes.inside(variables))
    refuse_sinks(f"{where}: step", "mutually_recursive", body)
    return variables, results, body
