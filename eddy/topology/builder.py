"""How the DSL adds nodes to a plan: names, serdes and the exchanges that a step needs."""

import re
from collections.abc import Sequence
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

    def add(self, node_type: type[N], name: str, **fields: Any) -> N:
        """Add a node under a name that the author wrote, or that follows from what he wrote."""
        check_name(name, "step")
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
        if not source.rekeyed:
            return source
        return self.add(
            Exchange,
            f"{name}-repartition",
            label=name,
            kind=source.kind,
            inputs=(source,),
            key=key or source.key,
            value=value or source.value,
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
