"""Adds the steps of processors, and checks the factory and the stores that they are given."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, get_args

from eddy.errors import TopologyError
from eddy.operators.processors.task import Factory
from eddy.serde import Int64, Serde, Tuple
from eddy.source_lines import describe_exception
from eddy.topology.arguments import (
    check_choice,
    check_flag,
    check_function,
    check_name,
    check_names,
    check_serdes,
    name_or,
)
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.global_table import GlobalKTable
from eddy.topology.plan import plan
from eddy.topology.plan.processors import StoreKind
from eddy.windows import SessionWindowed, TimeWindowed, check_span

__all__ = ["Stores", "add_processor", "declared_store"]

Stores = Iterable[str | plan.DeclaredStore | GlobalKTable[Any, Any]]


def add_processor(
    builder: Builder,
    source: plan.Node,
    factory: Factory,
    stores: Stores,
    name: str | None,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    *,
    weights: bool,
    keeps_keys: bool,
    children: Iterable[str] | None,
) -> plan.Process:
    """Add a step of processors, at the owners of its rows' keys, and return it. Raises: TopologyError."""
    verb = "process_values" if keeps_keys else "process"
    name = name_or(name, f"{source.label}-{verb.replace('_', '-')}")
    where = f"{verb} '{name}'"
    if builder.open_loops:
        raise TopologyError(
            f"{where}: it lies inside {builder.open_loops[-1]}; a recursion applies its steps to rows again in each "
            "iteration, in no order, and takes rows back, so that a processor would not be exact. Process the records "
            "before the recursion, or its result after it"
        )
    check_flag(where, weights=weights)
    check_serdes(where, key=key, value=value)
    _check_factory(where, factory)
    named_children = () if children is None else tuple(check_names(f"{where}: children", children))
    given = [(_global_table(builder, store), store) for store in _listed(where, stores)]
    tables = tuple(table for table, _ in given if table is not None)
    named = tuple(_declared(builder, where, store) for table, store in given if table is None)
    all_names = [*(store.name for store in named), *(table.name for table in tables)]
    if len(set(all_names)) < len(all_names):
        raise TopologyError(f"{where}: stores={all_names} names one twice; each once is needed")
    facts = builder.by_key(source, name)
    names = {state.name for store in named for state in store.states}
    return builder.add(
        plan.Process,
        name,
        kind="stream",
        inputs=(facts,),
        key=facts.key if keeps_keys else key,
        value=value,
        rekeyed=not keeps_keys,
        factory=factory,
        stores=named,
        tables=tables,
        keeps_keys=keeps_keys,
        weights=weights,
        children=named_children,
        sharing=tuple(node for node in builder.plan.nodes if not names.isdisjoint(node.store_names)),
    )


def _check_factory(where: str, factory: Any) -> None:
    """Check that a factory makes a new processor at each call; it is called twice. Raises: TopologyError."""
    check_function(where, factory)
    try:
        made = [factory(), factory()]
    except Exception as error:
        raise TopologyError(
            f"{where}: the factory raised {describe_exception(error)}; a function that makes a processor is needed, "
            "such as its class"
        ) from error
    for one in made:
        process = getattr(one, "process", None)
        if process is None:
            raise TopologyError(
                f"{where}: the factory returned {one!r}, which has no process(record); an object with this method is "
                "needed, and init(context) and close() if wanted"
            )
        for method, arguments in (("process", ["record"]), ("init", ["context"]), ("close", [])):
            if (found := getattr(one, method, None)) is not None:
                check_function(where, found, *arguments, what=method)
    if made[0] is made[1]:
        raise TopologyError(
            f"{where}: the factory returned the same object twice; a new one for each partition is needed, and for "
            "each time that one is made anew. Give the class, or lambda: Class(…)"
        )


def _listed(where: str, stores: Any) -> list[Any]:
    if isinstance(stores, str | bytes) or not isinstance(stores, Iterable):
        raise TopologyError(f"{where}: stores={stores!r}; a list of names is needed. Write stores=['…']")
    return list(stores)


def _global_table(builder: Builder, store: Any) -> plan.GlobalTable | None:
    """Return the global table of this topology that `store` is or names; None if there is none."""
    tables = list(builder.plan.global_tables())
    if isinstance(store, GlobalKTable):
        return next((table for table in tables if table is store._node), None)
    return next((table for table in tables if table.name == store), None)


def _declared(builder: Builder, where: str, store: Any) -> plan.DeclaredStore:
    """Return the state store that `store` is or names. Raises: TopologyError if the topology does not declare it."""
    declared = builder.plan.stores
    name = getattr(store, "name", store)
    found = declared.get(name) if isinstance(name, str) else None
    if found is None or (store is not name and found is not store):
        known = ", ".join(f"'{one}'" for one in (*declared, *(t.name for t in builder.plan.global_tables())))
        raise TopologyError(
            f"{where}: stores names {name!r}, which topology '{builder.plan.name}' does not declare; its stores are "
            f"{known or 'none yet'}. Declare it before: topology.store({name!r}, key=…, value=…)"
        )
    return found


def declared_store(
    name: str,
    key: Serde[Any],
    value: Serde[Any],
    kind: StoreKind,
    size: timedelta | None,
    retention: timedelta | None,
    *,
    changelog: bool,
    memory: bool,
) -> plan.DeclaredStore:
    """Return a state store with the serdes of its kind. Raises: TopologyError."""
    where = f"store '{check_name(name, 'store')}'"
    check_serdes(where, optional=False, key=key, value=value)
    check_flag(where, changelog=changelog, memory=memory)
    check_choice(where, get_args(StoreKind), kind=kind)
    size_ms, retention_ms = _spans(where, kind, size, retention)
    if not key.hashable:
        raise TopologyError(
            f"{where}: key={key.name} makes keys that cannot be hashed; a serde of scalars, tuples or a frozen struct "
            "is needed. Name one: key=eddy.String"
        )
    version = None
    if kind == "window":
        assert size is not None
        key = TimeWindowed(key, size)
    elif kind == "session":
        key = SessionWindowed(key)
    elif kind == "versioned":
        value, version = Tuple(Int64, value), Tuple(value)
    return plan.DeclaredStore(
        name=name,
        key=key,
        value=value,
        changelog=changelog,
        memory=memory,
        kind=kind,
        size_ms=size_ms,
        retention_ms=retention_ms,
        version=version,
    )


def _spans(where: str, kind: StoreKind, size: Any, retention: Any) -> tuple[int, int]:
    """Return (size of a store's windows, retention) in milliseconds, 0 if not given. Raises: TopologyError."""
    unit = timedelta(milliseconds=1)
    if kind == "key-value" and (size is not None or retention is not None):
        raise TopologyError(
            f"{where}: size={size!r}, retention={retention!r} are for other kinds, and kind is 'key-value'. Leave them "
            "out, or write kind='window', 'session' or 'versioned'"
        )
    if kind == "key-value":
        return 0, 0
    if kind == "window":
        check_span(f"{where}: size", size, unit, "timedelta(minutes=5)")
    elif size is not None:
        raise TopologyError(f"{where}: size={size!r} is for kind='window', and kind is {kind!r}. Leave it out")
    check_span(f"{where}: retention", retention, unit, "timedelta(hours=1)")
    if size is not None and retention < size:
        raise TopologyError(
            f"{where}: retention={retention!r} is less than size={size!r}, so a window would be gone before its end; "
            "at least the size is needed"
        )
    return (size or timedelta(0)) // unit, retention // unit
