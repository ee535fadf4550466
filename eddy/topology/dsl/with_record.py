"""Functions with a parameter named `record`, which are called with a row's `RecordContext`."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from eddy.errors import TopologyError
from eddy.operators.processors.record import RecordContext
from eddy.topology.arguments import check_function, check_plain, takes_record
from eddy.topology.plan.node import Node
from eddy.topology.plan.record_steps import is_source_of_records, record_steps

__all__ = [
    "FromKey",
    "FromValue",
    "FromValueByName",
    "check_of_row",
    "check_records",
    "first_of",
    "of_pair",
    "of_value_pair",
]

MYPY: Final = False
"""mypy alone takes this for true. It infers the type of a lambda from a Callable, but not from a Protocol.

The names of parameters distinguish a lambda of (key, value) from a lambda of (value, record). A Callable has no names
of parameters. So other type checkers get a Protocol, and mypy gets its own form of Callable, which has names.
"""

if MYPY:
    from mypy_extensions import Arg, NamedArg

    K = TypeVar("K")
    V = TypeVar("V")
    R = TypeVar("R")

    FromKey = Callable[[Arg(K, "key"), V], R]
    FromValue = Callable[[V, Arg(RecordContext, "record")], R]
    FromValueByName = Callable[[V, NamedArg(RecordContext, "record")], R]
else:
    K_in = TypeVar("K_in", contravariant=True)
    V_in = TypeVar("V_in", contravariant=True)
    V_out = TypeVar("V_out", covariant=True)

    class FromValue(Protocol[V_in, V_out]):
        """A function of a value and its record."""

        def __call__(self, value: V_in, /, *, record: RecordContext) -> V_out:
            """Call it."""

    class FromValueByName(FromValue[V_in, V_out], Protocol[V_in, V_out]):
        """The same protocol under another name, which stands for another type in mypy."""

    class FromKey(Protocol[K_in, V_in, V_out]):
        """A function of a key and a value."""

        def __call__(self, key: K_in, value: V_in, /) -> V_out:
            """Call it."""


def of_pair(function: Callable[..., Any]) -> Callable[[Any, tuple[Any, RecordContext]], Any]:
    """Return `function(key, value, record=)` as a function of a key and a pair (value, record)."""

    def called(key: Any, pair: tuple[Any, RecordContext]) -> Any:
        return function(key, pair[0], record=pair[1])

    called.__wrapped__ = function  # type: ignore[attr-defined]  # so that errors name the author's line
    return called


def of_value_pair(function: Callable[..., Any]) -> Callable[[tuple[Any, RecordContext]], Any]:
    """Return `function(value, record=)` as a function of a pair (value, record)."""

    def called(pair: tuple[Any, RecordContext]) -> Any:
        return function(pair[0], record=pair[1])

    called.__wrapped__ = function  # type: ignore[attr-defined]  # so that errors name the author's line
    return called


def check_records(
    where: str, open_loops: Sequence[str], rows: Node, why: str = "its function has a parameter named record, and"
) -> None:
    """Check that the rows are records in the partitions of their sources. Raises: TopologyError."""
    asks = f"{where}: {why}"
    if open_loops:
        raise TopologyError(
            f"{asks} rows inside {open_loops[-1]} are not records of a source; call it before the recursion, "
            "and keep what is needed in the value"
        )
    if rows.kind != "stream":
        raise TopologyError(
            f"{asks} a row of a {rows.kind} is retracted without its record; a stream is needed. Call it on the "
            "stream, and make the table from that: topology.stream('…').map_values(lambda value, record: …).to_table()"
        )
    for node in record_steps(rows):
        if is_source_of_records(node):
            continue
        if node.role == "exchange":
            raise TopologyError(
                f"{asks} step '{node.name}' has sent the rows to other partitions, without their records; call it "
                "before, and keep what is needed in the value"
            )
        if node.kind != "stream" or not node.keeps_records:
            raise TopologyError(
                f"{asks} step '{node.name}' makes rows that are not records of a source; call it on the source's "
                "stream, and keep what is needed in the value"
            )


def _reads_record(function: Any) -> bool:
    return takes_record(function, "key", "value")


def check_of_row(where: str, function: Any, what: str) -> None:
    """Check that a function takes a key and a value, and perhaps the record. Raises: TopologyError."""
    if _reads_record(function):
        check_plain(where, function, f"{what}=")
    else:
        check_function(where, function, "key", "value", what=what)


def first_of(predicates: tuple[Callable[..., Any], ...]) -> Callable[..., bool]:
    """Return a function that is true if the last of the predicates is true, and all before it are false."""
    *earlier, last = predicates

    def takes(key: Any, value: Any) -> bool:
        return not any(other(key, value) for other in earlier) and bool(last(key, value))

    if not any(map(_reads_record, predicates)):
        return takes
    *before, own = (one if _reads_record(one) else _without_record(one) for one in predicates)

    def takes_with(key: Any, value: Any, record: Any) -> bool:
        return not any(one(key, value, record=record) for one in before) and bool(own(key, value, record=record))

    return takes_with


def _without_record(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda key, value, record: function(key, value)
