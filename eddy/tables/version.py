"""Versions: the records that were applied to the tables of a table server, as offsets by topic.

    offsets   of each table's topic: all records before these are applied, and none from them on
    inputs    of each input of the application: the tables are computed from all records before these
    exact     whether all tables together are exactly the results for `inputs`: at a cut

A version can be written as a token: text that a client keeps, and may send with a later read as `at_least`. Such a read
waits for a version that is at least as late in every topic.
"""

import base64
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from eddy.errors import QueryError

__all__ = ["Offsets", "Version", "version_of", "wanted_of"]

Offsets = dict[str, list[int]]
"""By topic, one offset a partition."""


class Version(msgspec.Struct, frozen=True, dict=True):
    """The records that tables have applied.

    `number` counts the versions that a server has shown since it was started.
    """

    offsets: Offsets
    inputs: Offsets
    exact: bool
    number: int = 0

    @cached_property
    def token(self) -> str:
        """The version as text, of letters, digits, - and _."""
        data = msgspec.msgpack.encode({"o": self.offsets, "i": self.inputs}, order="sorted")
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def is_at(self, other: "Version") -> bool:
        """Return whether this version and the other one have the same offsets."""
        return (self.offsets, self.inputs) == (other.offsets, other.inputs)

    def covers(self, wanted: "Wanted") -> bool:
        """Whether the version is at least as late as the wanted offsets."""
        return _reached(self.offsets, wanted.offsets) and _reached(self.inputs, wanted.inputs)


class Wanted(msgspec.Struct, frozen=True):
    """The offsets, by topic and partition, up to which all records have to be applied before a reader gets rows."""

    offsets: dict[str, dict[int, int]]
    inputs: dict[str, dict[int, int]]


def _reached(found: Offsets, wanted: Mapping[str, Mapping[int, int]]) -> bool:
    return all(
        topic in found and all(p < len(found[topic]) and found[topic][p] >= offset for p, offset in offsets.items())
        for topic, offsets in wanted.items()
    )


def wanted_of(asked: Any, inputs: Mapping[str, int], tables: Mapping[str, int]) -> Wanted:
    """Return the wanted offsets of `at_least`, given the partition counts of the inputs and of the tables' topics.

    Text that begins with { is offsets by topic, as JSON.

    Raises: QueryError if `asked` is not a version, or names another topic or partition.
    """
    if isinstance(asked, Version):
        asked = asked.token
    if isinstance(asked, str) and asked.startswith("{"):
        asked = _of_json(asked)
    if isinstance(asked, str):
        return _of_token(asked)
    if not isinstance(asked, Mapping):
        raise QueryError(f"at_least: {asked!r} is not a version; a token, or offsets by topic are needed")
    wanted = Wanted({}, {})
    for topic, given in asked.items():
        partitions = inputs.get(topic) or tables.get(topic)
        if partitions is None:
            known = ", ".join(sorted({*inputs, *tables}))
            raise QueryError(f"at_least: topic '{topic}' is not read here; one of {known} is needed")
        offsets = dict(enumerate(given)) if isinstance(given, list | tuple) else given
        if not isinstance(offsets, Mapping) or not all(
            type(p) is int and type(o) is int and 0 <= p < partitions for p, o in offsets.items()
        ):
            raise QueryError(
                f"at_least: {given!r} for topic '{topic}'; offsets by partition, of {partitions}, are needed"
            )
        (wanted.inputs if topic in inputs else wanted.offsets)[topic] = dict(offsets)
    return wanted


def _of_json(text: str) -> dict[str, dict[int, int] | list[int]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[int, int] | list[int]])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise QueryError(
            f"at_least: {text[:80]!r}: {error}; offsets by topic and partition are needed. "
            'Write e.g. at_least={"orders": {"0": 5}}'
        ) from error


def _of_token(token: str) -> Wanted:
    version = version_of("at_least", token)
    offsets, inputs = (
        {topic: dict(enumerate(each)) for topic, each in part.items()} for part in (version.offsets, version.inputs)
    )
    return Wanted(offsets, inputs)


def version_of(name: str, token: str) -> Version:
    """Return the version that a token stands for. Raises: QueryError, which calls the argument `name`.

    A token does not say whether its version is exact.
    """
    try:
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        found = msgspec.msgpack.decode(data, type=dict[str, Offsets])
        return Version(found["o"], found["i"], exact=False)
    except (ValueError, KeyError, msgspec.MsgspecError) as error:
        raise QueryError(f"{name}: {token[:80]!r} is not a version; one that a server gave is needed") from error
