"""Adds the DSL's nodes to a plan: chooses names and serdes, and adds the exchanges that a step needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from eddy.errors import TopologyError
from eddy.operators.stateless import no_values
from eddy.serde import Serde
from eddy.topology.arguments import (
    check_function,
    check_name,
    check_plain,
    check_serdes,
    is_type_guard,
    name_or,
    parameters_of,
    takes_key,
    takes_record,
)
from eddy.topology.dsl.with_record import check_records, of_pair, of_value_pair
from eddy.topology.plan.plan import REKEYING, Exchange, Kind, Node, Plan, Transform

__all__ = ["Builder", "of_value", "pair", "same_topology", "serdes"]

N = TypeVar("N", bound=Node)
_VALUE_VERBS = frozenset({"map-values", "flat-map-values"})
"""The verbs whose function is called with the value alone."""
_SEVERAL = frozenset({"flat-map", "flat-map-values"})
"""The verbs whose function returns an iterable."""


class Builder:
    """Adds nodes to one plan. Every collection of a topology holds the same builder."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.open_loops: list[str] = []
        self.columns: dict[Node, Any] = {}
        """The names and types of the columns of those nodes that the SQL layer has made."""

    @contextmanager
    def inside(self, where: str) -> Iterator[None]:
        """Mark, until the block ends, that the author's function is building the inside of a loop."""
        self.open_loops.append(where)
        try:
            yield
        finally:
            self.open_loops.pop()

    def add(self, node_type: type[N], name: str, **fields: Any) -> N:
        """Add a node under a name that the author gave, or that is derived from such a name.

        By default the node has a single partition if all its inputs have.
        """
        check_name(name, "step")
        check_serdes(f"step '{name}'", key=fields.get("key"), value=fields.get("value"))
        inputs = fields.get("inputs", ())
        fields.setdefault("single_partition", bool(inputs) and all(source.single_partition for source in inputs))
        return cast("N", self.plan.add(node_type(name=name, label=fields.pop("label", name), **fields)))

    def anonymous(self, node_type: type[N], word: str, kind: Kind, name: str | None, **fields: Any) -> N:
        """Add a stateless step. Without a name it is named after its number, because no stored state has its name."""
        shown = {"stream": "KSTREAM", "table": "KTABLE", "relation": "RELATION"}[kind]
        name = name_or(name, f"{shown}-{word.upper()}-{len(self.plan.nodes):010d}")
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
        method: str = "",
    ) -> Transform:
        """Add a transformation. It keeps the serde of a key or a value that it does not change.

        `method` is the method that the author has called, if its name is not the verb.
        """
        method = method or verb.replace("-", "_")
        where = f"{method} after '{source.label}'"
        step = where if name is None else f"{method} '{name}'"
        check_serdes(where, key=key, value=value)
        rekeys, word, keeps_key = verb in REKEYING, verb, False
        iterates = verb in _SEVERAL
        if with_record := _takes_record(verb, function):
            check_plain(where, function, iterates=iterates)
            check_records(where, self.open_loops, source)
            verb, function, keeps_key = _of_record(step, verb, function, source.kind)
        elif verb in _VALUE_VERBS and takes_key(where, function, "value", iterates=iterates):
            verb, function, keeps_key = *_on_whole_rows(step, verb, function, source.kind), True
        elif verb == "filter" and is_type_guard(where, function):
            check_plain(where, function)
            function = of_value(function)
        elif verb != "negate" and verb not in _VALUE_VERBS:
            check_function(where, function, "key", "value", iterates=iterates)
        keeps_value = verb in {"filter", "filter-not", "peek", "select-key", "negate"}
        return self.anonymous(
            Transform,
            word,
            kind or source.kind,
            name,
            label=name or source.label,
            inputs=(source,),
            verb=verb,
            function=function,
            key=key if rekeys else source.key,
            value=source.value if keeps_value else value,
            rekeyed=source.rekeyed or rekeys,
            keeps_key=keeps_key,
            method=method,
            with_record=with_record,
        )

    def joined(self, pairs: Node, joiner: Any, value: Serde[Any] | None, with_key: bool = True) -> Transform:
        """Add the step that replaces a join's pairs by `joiner(value, other)` or, `with_key`, by `joiner(key, …)`."""

        def of_pair(pair: Any) -> Any:
            return joiner(*pair)

        def of_key_and_pair(key: Any, value: Any) -> Any:
            return joiner(key, *value)

        return self.transform(pairs, "map-values", of_key_and_pair if with_key else of_pair, None, value=value)

    def by_key(self, source: Node, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> Node:
        """Return a node that has the rows of `source` at the owners of their keys.

        The node is `source` itself if its rows are there already, else a new exchange with these serdes.
        """
        if source.single_partition or not source.rekeyed:
            return source
        return self._exchange(source, name, key, value)

    def at_one_owner(
        self, source: Node, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None
    ) -> Node:
        """Return a node that has all rows of `source` in a single partition: `source`, or an exchange.

        `key` and `value` are the serdes of the exchange where `source` has none.
        """
        if source.single_partition:
            return source
        key, value = source.key or key, source.value or value
        for node in self.plan.nodes:
            same = node.inputs == (source,) and (node.key, node.value) == (key, value)
            if node.role == "exchange" and node.single_partition and same:
                return node
        return self._exchange(source, name, key, value, partitions=1, single_partition=True, any_key=True)

    def met(self, nodes: tuple[Node, ...], names: Sequence[str]) -> tuple[Node, ...]:
        """Return the inputs of one step.

        If one of them is in a single partition, the other inputs are sent there, too.
        """
        if not any(node.single_partition for node in nodes):
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


def of_value(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return `function(value)` as a function of a key and a value."""

    def called(key: Any, value: Any) -> Any:
        return function(value)

    called.__wrapped__ = function  # type: ignore[attr-defined]  # so that errors name the author's line
    return called


def _takes_record(verb: str, function: Any) -> bool:
    """Return whether a function needs the record, and not only the key and the value."""
    if verb not in _VALUE_VERBS:
        return verb != "negate" and takes_record(function, "key", "value")
    if next(iter(parameters_of(function)), "") == "key":
        return takes_record(function, "key", "value")
    return takes_record(function, "value")


def _of_record(where: str, verb: str, function: Any, kind: Kind) -> tuple[str, Any, bool]:
    """Return how to apply `verb` to rows with values (value, record): the verb, the function, whether keys are kept."""
    if verb not in _VALUE_VERBS:
        return verb, of_pair(function), False
    if takes_record(function, "value"):
        return verb, of_value_pair(function), False
    return *_on_whole_rows(where, verb, of_pair(function), kind), True


def _on_whole_rows(where: str, verb: str, function: Any, kind: Kind) -> tuple[str, Any]:
    """Return a verb on whole rows, and its function, that replace values by `function(key, value)` and keep keys."""

    def mapped(key: Any, value: Any) -> tuple[Any, Any]:
        return key, function(key, value)

    def present(key: Any, value: Any) -> list[tuple[Any, Any]]:
        made = function(key, value)
        return [] if made is None else [(key, made)]

    def spread(key: Any, value: Any) -> list[tuple[Any, Any]]:
        returned = function(key, value)
        try:
            return [(key, made) for made in returned]
        except TypeError:
            if not isinstance(returned, Iterable):
                raise no_values(where, function, returned) from None
            raise

    if verb == "flat-map-values":
        return "flat-map", spread
    return ("flat-map", present) if kind == "table" else ("map", mapped)


def pair(value: Any, other: Any) -> tuple[Any, Any]:
    """Return two values as a pair, which the next step combines."""
    return value, other


def serdes(node: Node) -> dict[str, Any]:
    """Return the serdes of a node, as keyword arguments."""
    return {"key": node.key, "value": node.value}


def same_topology(where: str, builder: Builder, others: Sequence[Builder]) -> None:
    """Refuse to mix collections of two topologies. Raises: TopologyError naming both."""
    for other in others:
        if other is not builder:
            raise TopologyError(
                f"{where}: one side is of topology '{builder.plan.name}', the other of '{other.plan.name}'; "
                "both have to be of one. Read the other's output: topology.table('its-topic', ...)"
            )
