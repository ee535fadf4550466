"""The functions that a case may name, over keys that are text or None and values that are integers or None.

`Functions.java` has the same ones.
"""

from collections.abc import Callable

__all__ = ["KEYS", "PAIRS", "TESTS", "VALUES", "Key", "Value", "event_time"]

Key = str | None
Value = int | None

TESTS: dict[str, Callable[[Key, Value], bool]] = {
    "all": lambda key, value: True,
    "even": lambda key, value: value is not None and value % 2 == 0,
    "small": lambda key, value: value is not None and value < 4,
    "valued": lambda key, value: value is not None,
    "keyed_a": lambda key, value: key is not None and key.startswith("a"),
}
KEYS: dict[str, Callable[[Key, Value], Key]] = {
    "same": lambda key, value: key,
    "one": lambda key, value: "x",
    "by_value": lambda key, value: None if value is None else f"k{value % 3}",
    "none_if_odd": lambda key, value: None if value is None or value % 2 else key,
    "swap": lambda key, value: {"a": "b", "b": "a"}.get(key or "", key),
}
VALUES: dict[str, Callable[[Key, Value], Value]] = {
    "same": lambda key, value: value,
    "one": lambda key, value: 1,
    "half": lambda key, value: None if value is None else value // 2,
    "plus_key": lambda key, value: None if value is None else value + (10 if key is None else len(key)),
    "none_if_big": lambda key, value: None if value is None or value > 5 else value,
    "zero_for_none": lambda key, value: value or 0,
}


def event_time(key: Key, value: int) -> int:
    """The event time of a record with a value, by a source's own function."""
    return value * 13 + (0 if key is None else len(key) * 5)


def _plus(one: Value, other: Value) -> int:
    return (one or 0) + (other or 0)


def _minus(one: Value, other: Value) -> int:
    return (one or 0) - (other or 0)


PAIRS: dict[str, Callable[[Value, Value], Value]] = {
    "first": lambda one, other: one,
    "last": lambda one, other: other,
    "plus": _plus,
    "minus": _minus,
    "mix": lambda one, other: ((3 if one is None else one) * 7 + (5 if other is None else other)) % 1009,
    "none_if_equal": lambda one, other: None if one == other else other,
    "plus_or_none": lambda one, other: _plus(one, other) or None,
    "minus_or_none": lambda one, other: _minus(one, other) or None,
    "xor_or_none": lambda one, other: ((one or 0) ^ (other or 0)) or None,
}
