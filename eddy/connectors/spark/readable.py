"""Bytes of outputs and states as people read them, for the examples of what differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.serde import Int64
from eddy.state.spec import StateSpec
from eddy.topology.compile import sink_serdes
from eddy.topology.plan import Plan, Sink

__all__ = ["Readable"]

_LONGEST = 200


@dataclass(frozen=True)
class Readable:
    """Two functions: of a key, and of a key with its value."""

    of_key: Callable[[bytes], Any]
    of_value: Callable[[bytes, bytes], Any]

    @classmethod
    def of_sink(cls, plan: Plan, counts: Mapping[str, int], sink: Sink) -> "Readable":
        """Of a sink's records; where a serde cannot read, the bytes."""
        key, value = sink_serdes(plan, counts)[sink]
        source = sink.inputs[0]
        key = source.key if key.name == "plain" and source.key is not None else key
        value = source.value if value.name == "plain" and source.value is not None else value
        return cls(key.decode, lambda _, data: value.decode(data))

    @classmethod
    def of_state(cls, spec: StateSpec) -> "Readable":
        """Of a changelog's rows: of a table the value; else key and value together, and their weight."""
        if spec.kind == "table":
            return cls(spec.key.decode, lambda _, data: spec.value.decode(data))

        def row(data: bytes) -> Any:
            end = 4 + int.from_bytes(data[:4], "big")
            return spec.key.decode(data[4:end]), spec.value.decode(data[end:])

        return cls(row, lambda _, data: f"weight {Int64.decode(data[:8])}")

    def key(self, data: bytes | None) -> str:
        """A key as text."""
        return _shown(lambda given: self.of_key(given), data)

    def value(self, key: bytes | None, data: bytes | None, times: int) -> str:
        """A value as text; of a stream, with how often the record is there."""
        if not times:
            return "nothing"
        shown = _shown(lambda given: self.of_value(bytes(key or b""), given), data)
        return shown if times == 1 else f"{shown}, {times} times"


def _shown(decode: Callable[[bytes], Any], data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = repr(decode(bytes(data)))
    except Exception:
        text = repr(bytes(data))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
