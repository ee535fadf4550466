"""Readable forms of the bytes of outputs and states, for the examples of differences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.serde import Bytes, Float64, Int64, Plain, Serde, String
from eddy.state.row_layout import key_in, split, weighted
from eddy.state.spec import StateSpec
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.plan import Plan, Sink

__all__ = ["Readable", "sink_forms"]

_LONGEST = 200


@dataclass(frozen=True)
class Readable:
    """Turns the bytes of keys and values into text for people. `of_value` gets the key's bytes, too."""

    of_key: Callable[[bytes], Any]
    of_value: Callable[[bytes, bytes], Any]

    @classmethod
    def of_sink(cls, plan: Plan, counts: Mapping[str, int], sink: Sink) -> "Readable":
        """Return the readable forms of a sink's records. Bytes that the serde cannot read are shown as bytes."""
        key, value = sink_forms(plan, counts, sink)
        return cls(key.decode, lambda _, data: value.decode(data))

    @classmethod
    def of_state(cls, spec: StateSpec) -> "Readable":
        """Return the readable forms of a changelog's rows.

        The forms are a table's value, a calendar's entry, or key and value with their weight.
        """
        if spec.kind in {"table", "key-value"}:
            return cls(spec.key.decode, lambda _, data: spec.value.decode(data))

        if spec.kind == "calendar":
            return cls(lambda row: (Int64.decode(row[:8]), spec.key.decode(key_in(spec.kind, row))), lambda *_: "due")

        def row(data: bytes) -> Any:
            key, value = split(data)
            return spec.key.decode(key), spec.value.decode(value)

        return cls(row, lambda _, data: f"weight {weighted(b'', data)[1]}")

    def key(self, data: bytes | None) -> str:
        """Return a key as text."""
        return _shown(lambda given: self.of_key(given), data)

    def value(self, key: bytes | None, data: bytes | None, times: int) -> str:
        """Return a value as text; for a stream with the number of its occurrences."""
        if not times:
            return "nothing"
        shown = _shown(lambda given: self.of_value(bytes(key or b""), given), data)
        return shown if times == 1 else f"{shown}, {times} times"


def sink_forms(plan: Plan, counts: Mapping[str, int], sink: Sink) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes that read a sink's records. A plainly encoded column has the serde of its type, if known."""
    key, value = sink_serdes(plan, counts)[sink]
    source = sink.inputs[0]
    return _readable(key, source.key), _readable(value, source.value)


def _readable(written: Serde[Any], known: Serde[Any] | None) -> Serde[Any]:
    plain = {serde.name for serde in (String, Int64, Float64, Bytes)}
    return known if written.name == Plain.name and known is not None and known.name in plain else written


def _shown(decode: Callable[[bytes], Any], data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = repr(decode(bytes(data)))
    except Exception:
        text = repr(bytes(data))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
