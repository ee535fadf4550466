"""How the DSL adds nodes to a plan: names, serdes and the exchanges that a step needs."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from eddy.errors import TopologyError
from eddy.serde import Serde
from eddy.topology.plan import REKEYING, Exchange, Kind, Node, Plan, Transform

__all__ = ["Builder", "check_name", "same_topology", "serdes"]

N = TypeVar("N", bound=Node)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def check_name(name: str, what: str) -> str:
    """Refuse a name that cannot be part of a topic's name or of a path. Raises: TopologyError."""
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise TopologyError(f"{what} {name!r}: not a name; letters, digits, '.', '_' and '-' are needed, at most 200")
    return name


class Builder:
    """Adds nodes to one plan. Every collection of a topology holds the same builder."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.open_loops: list[str] = []

    @contextmanager
    def inside(self, where: str) -> Iterator[None]:
        """While the author's function builds the inside of a loop."""
        self.open_loops.append(where)
        try:
            yield
        finally:
            self.open_loops.pop()

    def add(self, node_type: type[N], name: str, **fields: Any) -> N:
        """Add a node under a name that the author wrote, or that follows from what he wrote.

        It is at one owner where all its inputs are.
        """
        check_name(name, "step")
        inputs = fields.get("inputs", ())
        fields.setdefault("sole", bool(inputs) and all(source.sole for source in inputs))
        return cast("N", self.plan.add(node_type(name=name, label=fields.pop("label", name), **fields)))

    def anonymous(self, node_type: type[N], word: str, kind: Kind, name: str | None, **fields: Any) -> N:
        """Add a step without state; unnamed, it is called by its number, which nothing depends on."""
        shown = {"stream": "KSTREAM", "table": "KTABLE", "relation": "RELATION"}[kind]
        name = name or f"{shown}-{word.upper()}-{len(self.plan.nodes):010d}"
        return self.add(node_type, name, kind=kind, **fields)

    def transform(
        self,
        source: Node,
        verb: str,
        function: Any,
        name: str | None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        kind: Kind | None = None,
    ) -> Transform:
        """Add a transformation: it keeps the serdes of what it does not change."""
        rekeys = verb in REKEYING
        keeps_value = verb in {"filter", "filter-not", "peek", "select-key", "negate"}
        return self.anonymous(
            Transform,
            verb,
            kind or source.kind,
            name,
            label=name or source.label,
            inputs=(source,),
            verb=verb,
            function=_callable(function, verb, name or source.label),
            key=key if rekeys else source.key,
            value=source.value if keeps_value else value,
            rekeyed=source.rekeyed or rekeys,
        )

    def by_key(self, source: Node, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> Node:
        """`source` with its rows at the owners of their keys: itself, or behind an exchange with these serdes."""
        if source.sole or not source.rekeyed:
            return source
        return self._exchange(source, name, key, value)

    def at_one_owner(
        self, source: Node, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None
    ) -> Node:
        """`source` with all its rows at one owner: itself, or behind an exchange of one partition with these serdes.

        Serdes are for where the source names none.
        """
        if source.sole:
            return source
        key, value = source.key or key, source.value or value
        for node in self.plan.nodes:
            same = node.inputs == (source,) and (node.key, node.value) == (key, value)
            if isinstance(node, Exchange) and node.sole and same:
                return node
        return self._exchange(source, name, key, value, partitions=1, sole=True)

    def met(self, nodes: tuple[Node, ...], names: Sequence[str]) -> tuple[Node, ...]:
        """Nodes that are to meet: where one of them is at one owner, all are brought there."""
        if not any(node.sole for node in nodes):
            return nodes
        return tuple(self.at_one_owner(node, name) for node, name in zip(nodes, names, strict=True))

    def _exchange(
        self, source: Node, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None, **fields: Any
    ) -> Node:
        return self.add(
            Exchange,
            f"{name}-repartition",
            label=name,
            kind=source.kind,
            inputs=(source,),
            key=key or source.key,
            value=value or source.value,
            **fields,
        )


def serdes(node: Node) -> dict[str, Any]:
    """The serdes of a node, to be handed on."""
    return {"key": node.key, "value": node.value}


def same_topology(where: str, builder: Builder, others: Sequence[Builder]) -> None:
    """Refuse to mix collections of two topologies. Raises: TopologyError naming both."""
    for other in others:
        if other is not builder:
            raise TopologyError(
                f"{where}: one side is of topology '{builder.plan.name}', the other of '{other.plan.name}'; "
                "both have to be of one. Read the other's output: topology.table('its-topic', ...)"
            )


def _callable(function: Any, verb: str, where: str) -> Any:
    if function is None or callable(function):
        return function
    raise TopologyError(f"{verb} after '{where}': {function!r} is no function; a callable is needed")
