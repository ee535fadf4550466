"""Decoding of whole columns of bytes, with a reason for each value that does not decode."""

from collections.abc import Sequence
from typing import Any

from eddy.connectors.log import Headers
from eddy.errors import ConnectorError, UnknownSchemaError
from eddy.serde import Serde
from eddy.source_lines import raised_at

__all__ = ["decoded", "note_unhashable"]


def decoded(
    data: Sequence[bytes | None],
    serde: Serde[Any],
    what: str,
    problems: dict[int, str],
    causes: dict[int, UnknownSchemaError] | None = None,
    *,
    headers: Sequence[Headers] | None,
) -> list[Any]:
    """Decode a column of bytes with `serde`; null is decoded as None. `headers` are the records' headers, or None.

    Failures are stored in `problems` by index. If a later attempt may succeed, the error is in `causes`, too.
    Raises: ConnectorError if an outside system that the serde needs does not answer: no record is to blame.
    """
    data = serde.with_ids(data, headers)
    if None not in data:
        try:
            return serde.decode_many(data)  # type: ignore[arg-type]
        except ConnectorError:
            raise
        except Exception:
            pass
    column: list[Any] = []
    for index, item in enumerate(data):
        value = None
        if item is not None:
            try:
                value = serde.decode(item)
            except ConnectorError:
                raise
            except Exception as error:
                if causes is not None and isinstance(error, UnknownSchemaError):
                    causes[index] = error
                problems[index] = f"the {what} {item[:80]!r} is not a valid {serde.name}: {error}{raised_at(error)}"
        column.append(value)
    return column


def note_unhashable(keys: Sequence[Any], problems: dict[int, str]) -> None:
    """Store a problem for each key that cannot be hashed."""
    for index, key in enumerate(keys):
        try:
            hash(key)
        except TypeError:
            problems[index] = f"the key {key!r} cannot be hashed; use a serde of scalars or of a frozen struct"
