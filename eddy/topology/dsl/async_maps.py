"""Functions that call other systems: `map_async` and `map_values_async` of a KStream."""

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from eddy.errors import TopologyError
from eddy.operators.async_map import CallLimits, CallOrder
from eddy.operators.processors.record import RecordContext
from eddy.serde import Serde
from eddy.source_lines import line_of
from eddy.topology.arguments import check_choice, check_function, check_serdes, check_whole, takes_key, takes_record
from eddy.topology.dsl.stream_joins import StreamJoins
from eddy.topology.dsl.with_record import FromKey, FromValue, FromValueByName, check_records
from eddy.topology.plan import plan
from eddy.topology.plan.node import Node
from eddy.topology.plan.record_steps import record_steps
from eddy.windows import check_span

if TYPE_CHECKING:
    from eddy.topology.dsl.stream import KStream

__all__ = ["AsyncMaps"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

_TIMEOUT = timedelta(seconds=30)


class AsyncMaps(StreamJoins[K, V]):
    """A stream of records (K, V) whose records can be replaced by the results of asynchronous calls."""

    @overload
    def map_async(
        self,
        function: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K2, V2]": ...

    @overload
    def map_async(
        self,
        function: Callable[[K, V, RecordContext], Awaitable[tuple[K2, V2]]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K2, V2]": ...

    def map_async(
        self,
        function: Callable[..., Awaitable[Any]],
        name: str | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> Any:
        """Replace each record by the pair (key, value) that the coroutine function `function(key, value)` returns.

        The calls of many records run at the same time, in an event loop of the worker's, between its transactions.
        Results are passed on in the order of the records, each exactly once. The function is called at least once for
        a record: again after a crash, a rebalance or an epoch that was undone. Only the partition of a record waits for
        its call.

        Args:
            function: is called with a record, and also with its `RecordContext` if it needs a parameter `record`.
            name: of the step.
            key: the serde of the new keys.
            value: the serde of the new values.
            at_most: the most calls that run at a time, for this step in a worker.
            order: the earlier calls for which a call waits: `key`, the calls for records with the same key in this
                worker; `input`, the calls for records of the same source partition; `none`.
            timeout: the time that a call may take, from a millisecond to 100 years. Later it is cancelled and fails.
            retries: how often a failed call is repeated, after pauses from 0.1 s, doubled up to 30 s. The error of the
                last try is for the error policy.

        Raises: TopologyError if the records are not in the partitions of their sources, have been called for before,
            or were joined with a table or deduplicated before.
        """
        where = self._where("map_async", name)
        limits = _limits(where, at_most, order, timeout, retries)
        return self._called("map_async", where, function, limits, name, key, value)

    @overload
    def map_values_async(
        self,
        function: Callable[[V], Awaitable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values_async(
        self,
        function: FromValue[V, Awaitable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values_async(
        self,
        function: FromValueByName[V, Awaitable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values_async(
        self,
        function: FromKey[K, V, Awaitable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values_async(
        self,
        function: Callable[[K, V, RecordContext], Awaitable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> "KStream[K, V2]": ...

    def map_values_async(
        self,
        function: Callable[..., Awaitable[Any]],
        name: str | None = None,
        value: Serde[Any] | None = None,
        *,
        at_most: int = 100,
        order: CallOrder = "key",
        timeout: timedelta = _TIMEOUT,
        retries: int = 0,
    ) -> Any:
        """Replace each value by the result of the coroutine function `function(value)`. Arguments: see `map_async`.

        A function whose first parameter is named `key` is called with `function(key, value)`.
        """
        where = self._where("map_values_async", name)
        limits = _limits(where, at_most, order, timeout, retries)
        return self._called("map_values_async", where, function, limits, name, None, value)

    def _where(self, method: str, name: str | None) -> str:
        """Return the name of the step for messages."""
        return f"{method} after '{self._node.label}'" if name is None else f"{method} '{name}'"

    def _called(
        self,
        method: str,
        where: str,
        function: Any,
        limits: CallLimits,
        name: str | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
    ) -> "KStream[Any, Any]":
        from eddy.topology.dsl.stream import KStream

        check_serdes(where, key=key, value=value)
        check_records(where, self._builder.open_loops, self._node, "its calls are of records, and")
        for node in record_steps(self._node):
            _check_before_call(where, node)
        keeps_key = method == "map_values_async"
        node = self._builder.anonymous(
            plan.AsyncMapped,
            method.replace("_", "-"),
            "stream",
            name,
            label=name or self._node.label,
            inputs=(self._node,),
            function=_of_row(where, function, keeps_key),
            limits=limits,
            where=where,
            key=self._node.key if keeps_key else key,
            value=value,
            keeps_key=keeps_key,
            rekeyed=self._node.rekeyed or not keeps_key,
        )
        return KStream(self._builder, node)


def _check_before_call(where: str, step: Node) -> None:
    """Raise TopologyError unless a step before a call makes its rows from the record alone.

    Calls begin before the epoch of their record, when neither the tables nor the earlier records of that epoch are
    known.
    """
    if step.role == "call":
        raise TopologyError(f"{where}: the records have been called for before; write one function that awaits both")
    more = "a table" if len(step.inputs) > len(step.record_inputs) else "" if step.linear else "earlier records"
    if more:
        raise TopologyError(
            f"{where}: its calls begin before the epoch of their record, and step '{step.name}' needs {more} as of "
            "that epoch; a record alone has to decide its calls. Call before that step, or write its records to a "
            "topic, and read that topic"
        )


def _limits(where: str, at_most: int, order: CallOrder, timeout: timedelta, retries: int) -> CallLimits:
    check_whole(where, 1, optional=False, at_most=at_most)
    check_choice(where, get_args(CallOrder), order=order)
    check_span(f"{where}: timeout", timeout, timedelta(milliseconds=1), "timedelta(seconds=30)")
    check_whole(where, 0, optional=False, retries=retries)
    return CallLimits(at_most, order, timeout.total_seconds(), retries)


def _of_row(where: str, function: Any, of_values: bool) -> Callable[[Any, Any, RecordContext], Awaitable[Any]]:
    """Return the author's function as a function of a key, a value and a record that returns a row."""
    plain = _as_plain(where, function)
    of_value_and_record = of_values and takes_record(plain, "value")
    record = of_value_and_record or takes_record(plain, "key", "value")
    if record:
        with_key = not of_value_and_record
    elif of_values:
        with_key = takes_key(where, plain, "value")
    else:
        check_function(where, plain, "key", "value")
        with_key = True

    async def called(key: Any, value: Any, context: RecordContext) -> Any:
        arguments = (key, value) if with_key else (value,)
        made = await (function(*arguments, record=context) if record else function(*arguments))
        if of_values:
            return key, made
        if isinstance(made, tuple | list) and len(made) == 2:
            return tuple(made)
        raise TypeError(f"the function of {line_of(function)} returned {made!r}; a pair (key, value) is needed")

    return called


def _as_plain(where: str, function: Any) -> Any:
    """Return a plain function with the signature of a coroutine function. Raises: TopologyError for another object."""
    call = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004 - its class's
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(call):
        what = getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]
        place = f" of {line_of(function)}" if callable(function) and line_of(function) else ""
        raise TopologyError(
            f"{where}: {what}{place} is not a coroutine function; one is needed. Write async def; and for a function "
            "that "
            "blocks: async def call(value): return await asyncio.to_thread(function, value)"
        )

    def plain(*arguments: Any, **named: Any) -> None: ...

    plain.__wrapped__ = function  # type: ignore[attr-defined]  # so that errors name the author's line
    plain.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    plain.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return plain
