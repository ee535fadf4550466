"""The joins of a KStream: with tables and global tables, as they are in the epoch, and with other streams, in time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from eddy.as_of import AsOf
from eddy.errors import TopologyError
from eddy.join_windows import JoinWindows
from eddy.serde import Serde
from eddy.topology.arguments import name_or, takes_key
from eddy.topology.dsl.as_of_joins import as_of_join
from eddy.topology.dsl.builder import pair, same_topology
from eddy.topology.dsl.global_table import GlobalKTable, global_join
from eddy.topology.dsl.processed import Processed
from eddy.topology.dsl.table import KTable
from eddy.topology.dsl.timed_records import alone, check_outside, key_of_both, timed, with_keys
from eddy.topology.plan import plan
from eddy.topology.plan.frontiers import sources_of_records

if TYPE_CHECKING:
    from eddy.topology.dsl.stream import KStream

__all__ = ["StreamJoins"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
W = TypeVar("W")

_How = Literal["inner", "left", "outer"]
_METHODS: dict[_How, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}
_OUTER: dict[_How, tuple[bool, bool]] = {"inner": (False, False), "left": (True, False), "outer": (True, True)}


class StreamJoins(Processed[K, V]):
    """A stream of records (K, V) that can be joined with tables, global tables and other streams."""

    @overload
    def join(
        self,
        table: KTable[K, W],
        joiner: Callable[[V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def join(
        self,
        table: KTable[K, W],
        joiner: Callable[[K, V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def join(
        self,
        table: GlobalKTable[K2, W],
        joiner: Callable[[V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        select: Callable[..., K2 | None],
    ) -> "KStream[K, V2]": ...

    @overload
    def join(
        self,
        table: GlobalKTable[K2, W],
        joiner: Callable[[K, V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        select: Callable[..., K2 | None],
    ) -> "KStream[K, V2]": ...

    @overload
    def join(
        self,
        table: "StreamJoins[K, W]",
        joiner: Callable[[V, W], V2],
        windows: JoinWindows | AsOf,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def join(
        self,
        table: "StreamJoins[K, W]",
        joiner: Callable[[K, V, W], V2],
        windows: JoinWindows | AsOf,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    def join(  # type: ignore[misc]  # the third argument has two names
        self,
        table: Any,
        joiner: Any,
        windows: Any = None,
        value: Any = None,
        *,
        select: Any = None,
        name: Any = None,
    ) -> Any:
        """Join each record with the table's value of its key, or with near records of another stream with its key.

        `joiner` is called with the two values, and with the key before them if its first parameter is named `key`.

        - A table: the value is the table's in the record's epoch. A record whose key the table lacks is dropped.
        - A stream and `JoinWindows`: each pair of records within the windows is emitted, with the later timestamp. A
          late record (see `JoinWindows`) is not joined. A record without a key or a value is dropped.
        - A stream and `AsOf`: the value is the one that the other stream had for the key at the record's timestamp.
        - A global table: its key is `select(value)`, or `select(key, value)`.

        Args:
            table: the table, the global table or the other stream.
            joiner: makes a value from two values.
            windows: for a stream, its `JoinWindows` or `AsOf`. For a table, the third argument is the `name`.
            select: for a global table, makes its key from a record.
            name: of the step; if two streams are joined, the states are called `<name>-left`, `<name>-right` and so on.
            value: the serde of the joined values.

        Raises: TopologyError.
        """
        return self._join(table, joiner, "inner", windows, name, value, select)

    @overload
    def left_join(
        self,
        table: KTable[K, W],
        joiner: Callable[[V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def left_join(
        self,
        table: KTable[K, W],
        joiner: Callable[[K, V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def left_join(
        self,
        table: GlobalKTable[K2, W],
        joiner: Callable[[V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        select: Callable[..., K2 | None],
    ) -> "KStream[K, V2]": ...

    @overload
    def left_join(
        self,
        table: GlobalKTable[K2, W],
        joiner: Callable[[K, V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        select: Callable[..., K2 | None],
    ) -> "KStream[K, V2]": ...

    @overload
    def left_join(
        self,
        table: "StreamJoins[K, W]",
        joiner: Callable[[V, W | None], V2],
        windows: JoinWindows | AsOf,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def left_join(
        self,
        table: "StreamJoins[K, W]",
        joiner: Callable[[K, V, W | None], V2],
        windows: JoinWindows | AsOf,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    def left_join(  # type: ignore[misc]  # the third argument has two names
        self,
        table: Any,
        joiner: Any,
        windows: Any = None,
        value: Any = None,
        *,
        select: Any = None,
        name: Any = None,
    ) -> Any:
        """Join records as `join` does, but keep a record without a match: it is joined with None.

        For a stream: a record without a match is joined with None, once, at its own timestamp, as soon as every record
        that could still match it would be late. A record without a key is joined with None at once (KIP-962).
        """
        return self._join(table, joiner, "left", windows, name, value, select)

    @overload
    def outer_join(
        self,
        other: "StreamJoins[K, W]",
        joiner: Callable[[V | None, W | None], V2],
        windows: JoinWindows,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def outer_join(
        self,
        other: "StreamJoins[K, W]",
        joiner: Callable[[K, V | None, W | None], V2],
        windows: JoinWindows,
        value: Serde[V2] | None = None,
        *,
        name: str | None = None,
    ) -> "KStream[K, V2]": ...

    def outer_join(self, other: Any, joiner: Any, windows: Any = None, value: Any = None, *, name: Any = None) -> Any:
        """Join two streams as `left_join` does, but also join unmatched records of the other stream with None."""
        return self._join(other, joiner, "outer", windows, name, value, None)

    def _join(self, other: Any, joiner: Any, how: _How, windows: Any, name: Any, value: Any, select: Any) -> Any:
        where = f"{_METHODS[how]} after '{self._node.label}'"
        is_table = isinstance(other, KTable | GlobalKTable)
        if select is not None and isinstance(other, KTable | StreamJoins):
            raise TopologyError(
                f"{where}: select={select!r} makes the key of a global table, and '{other._node.label}' is none; "
                "remove it, and give the records that key before: .select_key(…)"
            )
        if isinstance(other, StreamJoins) and isinstance(windows, AsOf):
            if how == "outer":
                raise TopologyError(
                    f"{where}: windows={windows!r}; a record of '{other._node.label}' may be joined any number of "
                    "times, and is never unmatched. Write join or left_join, or give JoinWindows"
                )
            return self._of(as_of_join(self, other, joiner, windows, how == "left", name, value))
        if isinstance(other, StreamJoins):
            return self._join_stream(other, joiner, how, windows, name, value)
        if how == "outer" or not is_table:
            needed = "another KStream is needed" if how == "outer" else "a KTable or a KStream is needed"
            fix = "table.to_stream()" if isinstance(other, KTable) else "other.to_table()"
            raise TopologyError(
                f"{where}: {type(other).__name__} cannot be joined to a stream; {needed}. Make it one: {fix}"
            )
        if isinstance(windows, JoinWindows | AsOf):
            raise TopologyError(
                f"{where}: windows={windows!r}; a table has no time, and a stream is joined with it as of the epoch. "
                "Remove windows=, or join the stream of which the table is made"
            )
        if windows is not None and name is not None:
            raise TopologyError(f"{where}: {windows!r} as the third argument, and name={name!r}; one name is needed")
        name, left = windows if name is None else name, how == "left"
        if isinstance(other, GlobalKTable):
            return self._of(global_join(self._builder, self._node, other, joiner, select, name, value, left))
        return self._join_table(other, joiner, name, value, left)

    def _join_table(self, table: Any, joiner: Any, name: str | None, value: Serde[Any] | None, left: bool) -> Any:
        same_topology("join", self._builder, [table._builder])
        name = name_or(name, f"{self._node.label}-{table._node.label}-{'left-join' if left else 'join'}")
        with_key = takes_key(f"join '{name}'", joiner, "value", "other")
        source = self._builder.by_key(self._node, name)
        source, right = self._builder.met((source, table._node), [f"{name}-left", f"{name}-right"])
        node = self._builder.add(
            plan.StreamTableJoin,
            name,
            kind="stream",
            inputs=(source, right),
            key=source.key,
            value=None if with_key else value,
            joiner=pair if with_key else joiner,
            left=left,
        )
        return self._of(self._builder.joined(node, joiner, value) if with_key else node)

    def _join_stream(
        self, other: "StreamJoins[Any, Any]", joiner: Any, how: _How, windows: Any, name: Any, value: Any
    ) -> Any:
        """Add the steps of a join with another stream. At their sources, records are put under their timestamps.

        Then the two streams are joined by key.
        """
        builder, method = self._builder, _METHODS[how]
        name = name_or(name, f"{self._node.label}-{other._node.label}-{method.replace('_', '-')}")
        where = f"{method} '{name}'"
        same_topology(where, builder, [other._builder])
        if not isinstance(windows, JoinWindows):
            raise TopologyError(
                f"{where}: windows={windows!r}; two streams are joined within a span of time. Write "
                "….join(other, joiner, eddy.JoinWindows(timedelta(minutes=5))), or eddy.AsOf(timedelta(hours=1)) for "
                "the value at each record's time, or join a table: other.to_table()"
            )
        check_outside(where, builder)
        with_key = takes_key(where, joiner, "value", "other")
        nodes, key = (self._node, other._node), key_of_both(where, self._node, other._node)
        outer = _OUTER[how]
        sources = [sources_of_records(where, node, method) for node in nodes]
        keyed = [with_keys(builder, node) if outer[side] else node for side, node in enumerate(nodes)]
        assigned = [
            timed(builder, name, node, side, key, found)
            for node, side, found in zip(keyed, (windows.left, windows.right), sources, strict=True)
        ]
        inputs = [builder.by_key(node, f"{name}-{side}") for node, side in zip(assigned, _SIDES, strict=True)]
        pairs: plan.Node = builder.add(
            plan.StreamStreamJoin,
            name,
            kind="stream",
            inputs=tuple(inputs),
            key=key,
            windows=windows,
            outer=outer,
            assigned=tuple(assigned),
            join=how,
        )
        single = [alone(self._of(node), side)._node for side, node in enumerate(nodes) if outer[side]]
        if single:
            pairs = builder.anonymous(
                plan.Merge, "merge", "stream", None, label=name, inputs=(pairs, *single), key=key, value=None
            )
        return self._of(builder.joined(pairs, joiner, value, with_key))

    def _of(self, node: plan.Node) -> Any:
        return type(self)(self._builder, node)


_SIDES = ("left", "right")
