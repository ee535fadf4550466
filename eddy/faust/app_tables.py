"""Tables of a Faust app as tables of a topology, read by their changelogs.

    app.Table ──agents write──▶ <app>-<table>-changelog ──codecs──▶ by key ──▶ KTable

Faust writes a change into the partition of the record that the agent was processing, whatever the table's key. So a
repartition step sends the records to the owners of their keys, in memory if the owner is the same worker. String keys
are encoded as by `eddy.String` and as in Faust's topics with `key_type=str`, so such tables and topics can be joined.
"""

import time
import typing
from collections.abc import Callable, Collection
from typing import Any

import faust
from faust.tables import base
from faust.tables.sets import SetTable
from faust.types.tables import WindowWrapperT

from eddy.connectors.log import Log
from eddy.errors import TopologyError
from eddy.faust.serdes import codec, record
from eddy.serde import Bytes, Serde, String
from eddy.topology.dsl.table import KTable
from eddy.topology.topology import Topology

__all__ = ["changelogs", "table", "wait_for_changelogs"]

_CHECKED = (str, int, float, bool, bytes, list, dict)
"""The types for which a codec's decoded values are checked. Faust converts values of other types, such as dates."""
_PATIENCE_S = 30.0
_LOOK_S = 0.1


def table(
    topology: Topology,
    table: Any,
    *,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    partitions: int | None = None,
    name: str | None = None,
) -> KTable[Any, Any]:
    """Return a KTable with the latest values of an `app.Table`, which the app's agents change.

    Args:
        topology: the program that reads it.
        table: made by `app.Table` or `app.GlobalTable`; neither windowed nor a SetTable.
        key: the serde of the changelog's keys; by default the serde of the table's `key_type`.
        value: the serde of its values; by default the serde of the table's `value_type`.
        partitions: the partition count of the topics that the table is joined with, if it differs from the changelog's.
        name: the name of the store; by default the name of the table.

    Raises: TopologyError for a table whose changelog lacks the latest value of a key, and for types without
    a codec.
    """
    if isinstance(table, WindowWrapperT) or getattr(table, "window", None) is not None:
        raise TopologyError(
            f"faust table '{_name(table)}': it is windowed, and Faust drops expired windows without a record in "
            "the changelog; a table without windows is needed. Window in the topology instead: "
            "topology.stream(…).group_by_key().windowed_by(…)"
        )
    if isinstance(table, SetTable):
        raise TopologyError(
            f"faust table '{_name(table)}': a SetTable's changelog has additions and removals, not the latest value of "
            "each key; an app.Table is needed, such as one whose values are lists"
        )
    if not isinstance(table, base.Collection):
        raise TopologyError(f"faust.table: {table!r} is not a table; one made by app.Table is needed")
    store = _name(table) if name is None else name
    read = key or _serde(table, "key_type", table.key_type, table.key_serializer)
    values = value or _serde(table, "value_type", table.value_type, table.value_serializer)
    records = topology.stream(table.changelog_topic_name, read, values)
    return records.repartition(partitions, store, String if read.type is str else read, values).to_table(store)


def changelogs(app: faust.App) -> set[str]:
    """Return the changelog topics of the tables that an app has so far."""
    return {str(table.changelog_topic_name) for table in app.tables.values()}


def wait_for_changelogs(log: Log, topics: Collection[str], given_up: Callable[[], object]) -> None:
    """Wait until Faust has made the topics at the first start of an app; up to half a minute, or until `given_up()`."""
    deadline = time.monotonic() + _PATIENCE_S
    while not given_up() and time.monotonic() < deadline and len(log.topics(topics)) < len(topics):
        time.sleep(_LOOK_S)


def _name(table: Any) -> str:
    return str(getattr(table, "name", None) or table.table.name)


def _serde(table: Any, argument: str, kind: Any, serializer: Any) -> Serde[Any]:
    """Return the serde that encodes keys or values of a type as Faust does.

    Raises: TopologyError if the type has no known codec.
    """
    plain = typing.get_origin(kind) or kind
    if plain is bytes:
        return Bytes
    if isinstance(plain, type) and issubclass(plain, faust.Record):
        return record(plain, serializer)
    if isinstance(plain, type) and issubclass(plain, _CHECKED):
        return codec(serializer, plain)
    if kind is None and argument == "value_type":
        return codec(serializer)
    other = argument.removesuffix("_type")
    raise TopologyError(
        f"faust table '{table.name}': {argument} is {kind!r}, from which no serde follows; str, int, float, bytes, a "
        f"list, a dict or a faust.Record is needed. Or name a serde: eddy.faust.table(topology, table, {other}=…)"
    )
