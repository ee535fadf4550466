"""Adds the steps of groups with windows: windows are assigned, sliding windows are made, and sessions are merged."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from eddy.errors import TopologyError
from eddy.operators.windows.windowed_fold import Emit
from eddy.serde import Native, Serde
from eddy.topology.dsl.builder import Builder
from eddy.topology.plan import plan
from eddy.topology.plan.frontiers import sources_of_records
from eddy.unlimited_windows import UnlimitedWindows
from eddy.windows import CalendarWindows, SessionWindowed, SessionWindows, SlidingWindows, TimeWindows, Windows

__all__ = ["assigned_windows", "check_ends", "merger_of", "slide"]


def assigned_windows(
    where: str,
    builder: Builder,
    node: plan.Node,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    windows: Windows,
) -> plan.AssignWindows:
    """Add the step that gives windows to the records of a group. Raises: TopologyError."""
    if not isinstance(windows, TimeWindows | CalendarWindows | SlidingWindows | SessionWindows | UnlimitedWindows):
        raise TopologyError(
            f"{where}: windows={windows!r}; TimeWindows, CalendarWindows, SlidingWindows, SessionWindows or "
            "UnlimitedWindows are needed, such as eddy.TimeWindows(timedelta(minutes=5))"
        )
    own, asked = node.key or Native, key or Native
    if not node.rekeyed and own.name != asked.name:
        raise TopologyError(
            f"{where}: group_by_key(key={asked.name}) of records whose keys are {own.name}; the same serde is "
            "needed, so that windows are where their records are. Remove key="
        )
    return builder.anonymous(
        plan.AssignWindows,
        "windows",
        "stream",
        None,
        label=node.label,
        inputs=(node,),
        key=SessionWindowed(asked) if isinstance(windows, SlidingWindows) else windows.serde(asked),
        value=value,
        rekeyed=node.rekeyed,
        windows=windows,
        inner_key=asked,
        origins=sources_of_records(where, node),
    )


def check_ends(where: str, windows: Windows, emit: Emit, retention: timedelta) -> None:
    """Check that windows without an end are not used with `emit="close"` or `retention`. Raises: TopologyError."""
    if isinstance(windows, UnlimitedWindows) and (emit == "close" or retention):
        asked = "emit='close'" if emit == "close" else f"retention={retention!r}"
        raise TopologyError(
            f"{where}: {asked}, and UnlimitedWindows never close; each change of their rows is passed on, and their "
            f"rows are kept. Remove {asked.partition('=')[0]}="
        )


def slide(
    builder: Builder, name: str, assigned: plan.AssignWindows, key: Serde[Any] | None, value: Serde[Any] | None
) -> plan.Node:
    """Add the step that puts the records of a group into their sliding windows, at the owners of its keys."""
    source = builder.by_key(assigned, name, assigned.key, value)
    fields = {"assigned": assigned, "records": source.value or Native}
    return builder.add(
        plan.Slide, f"{name}-records", label=name, kind="stream", inputs=(source,), key=key, value=value, **fields
    )


def merger_of(name: str, fields: dict[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """Return the function that merges the aggregates of two sessions. Raises: TopologyError if it is not given."""
    if fields.get("merger") is not None:
        return fields["merger"]
    if fields.get("reducers") is not None:
        reducer = fields["reducers"][0]
        return lambda key, aggregate, other: reducer(aggregate, other)
    selection = fields.get("selection")
    if selection is None:
        raise TopologyError(
            f"aggregate '{name}': sessions merge, so that their aggregates have to; a function is needed. Write "
            "aggregate(…, merger=lambda key, aggregate, other: …)"
        )

    def merged(key: Any, aggregate: Any, other: Any) -> Any:
        for value in (other,) if selection.n is None else other:
            aggregate = selection.adding(key, value, aggregate)
        return aggregate

    return merged
