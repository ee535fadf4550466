"""Adds the steps that keep the first record of each `by` value within a span of event time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from eddy.errors import TopologyError
from eddy.join_windows import JoinSide
from eddy.operators.processors.record import RecordContext
from eddy.serde import Bytes, Int64, Native, Serde, Tuple
from eddy.topology.arguments import check_serdes, name_or, takes_record
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.with_record import check_of_row
from eddy.topology.plan import plan
from eddy.topology.plan.frontiers import exchanges_before, sources_of_records
from eddy.windows import check_span

__all__ = ["deduplicated"]

_MILLISECOND = timedelta(milliseconds=1)


def deduplicated(
    builder: Builder,
    source: plan.Node,
    by: Callable[..., Any] | None,
    within: timedelta,
    grace: timedelta,
    name: str | None,
    key: Serde[Any] | None,
) -> plan.Node:
    """Add the steps, and return the step of the records that are kept. Raises: TopologyError."""
    name = name_or(name, f"{source.label}-deduplicate")
    where = f"deduplicate '{name}'"
    check_span(f"{where}: within", within, _MILLISECOND, "timedelta(hours=1)")
    check_span(f"{where}: grace", grace, timedelta(0), "timedelta(minutes=1)")
    check_serdes(where, key=key)
    if builder.open_loops:
        raise TopologyError(
            f"{where}: records cannot be deduplicated inside {builder.open_loops[-1]}, whose rows are not records of a "
            "source; deduplicate them before it. In relations .distinct() has each row once"
        )
    if by is None and key is not None:
        raise TopologyError(f"{where}: key={key.name} is the serde of what by= returns, and by=None; remove it")
    origins = sources_of_records(where, source, "deduplicate")
    sent = any(exchanges_before(source))
    pairs = _pairs_by_key(builder, where, source, by, key)
    span = within // _MILLISECOND - 1
    by_serde = pairs.key or Native
    record = source.key or Native, source.value or Native
    ordered = builder.anonymous(
        plan.OrderRecords,
        "order",
        "stream",
        None,
        label=name,
        inputs=(pairs,),
        key=by_serde,
        value=Tuple(Bytes, Int64, *record),
        rekeyed=pairs.rekeyed or sent,  # so that all records wait for marks, in the partitions of their `by` values
        windows=JoinSide(span, span, grace // _MILLISECOND),
        inner_key=by_serde,
        origins=origins,
        record=record,
    )
    made: plan.Node = builder.add(
        plan.Deduplicate,
        name,
        kind="stream",
        inputs=(builder.by_key(ordered, name),),
        key=source.key,
        value=source.value,
        rekeyed=by is not None,
        assigned=ordered,
        by=by_serde,
        record=record,
    )
    return made


def _pairs_by_key(
    builder: Builder, where: str, source: plan.Node, by: Callable[..., Any] | None, key: Serde[Any] | None
) -> plan.Node:
    """Return a step of pairs (key, value) of the records. Their new key is the result of `by`, or else their key."""
    if by is None:
        return builder.transform(source, "map-values", _paired, None, method="deduplicate")
    check_of_row(where, by, what="by")

    def under_with(key: Any, value: Any, record: RecordContext) -> tuple[Any, tuple[Any, Any]]:
        return by(key, value, record=record), (key, value)

    def under(key: Any, value: Any) -> tuple[Any, tuple[Any, Any]]:
        return by(key, value), (key, value)

    function = under_with if takes_record(by, "key", "value") else under
    return builder.transform(source, "map", function, None, key, method="deduplicate")


def _paired(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value
