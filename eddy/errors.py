"""Errors, grouped by their cause, each with a stable code.

A message reads `<where>: <problem, with the values>; <requirement>. <fix>`. The author of a topology causes a
`TopologyError`, which is raised while the topology is built, and a `ProcessorError`, which is raised while a processor
runs. A record causes a `DataError`, the local state a `StateError`, and an outside system a `ConnectorError`, which has
a flag for whether a retry can help. eddy raises no other errors on purpose.
"""

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "ConnectorError",
    "DataError",
    "EddyError",
    "FencedError",
    "IndeterminateCommitError",
    "InvariantError",
    "LoopLimitError",
    "NoFiniteAnswerError",
    "NonTerminatingRecursionError",
    "NotReadyError",
    "PlanChangedError",
    "ProcessorError",
    "QueryBuildError",
    "QueryError",
    "RecordRefusedError",
    "SlotTakenError",
    "StateError",
    "StateInUseError",
    "TableNotServedError",
    "TopologyError",
    "UnknownSchemaError",
    "UnwritableRowError",
]


class EddyError(Exception):
    """Base of all errors that eddy raises on purpose. `code` is stable across versions."""

    code: ClassVar[str] = "EDDY"


class TopologyError(EddyError):
    """A mistake of the author: a topology cannot be built as written."""

    code = "TOPOLOGY"


class NonTerminatingRecursionError(TopologyError):
    """No step in a recursion's `op` can drop a row, so the recursion could never end."""

    code = "TOPOLOGY_NON_TERMINATING"


class PlanChangedError(TopologyError):
    """The topology differs from the topology that wrote the state, and would misread the state."""

    code = "TOPOLOGY_PLAN_CHANGED"


class ProcessorError(EddyError):
    """A processor of the author's fails with no record to blame, or uses its context or a store where it may not."""

    code = "PROCESSOR"


class DataError(EddyError):
    """A record cannot be decoded, keyed, hashed or processed. The error names the record."""

    code = "DATA"


class RecordRefusedError(DataError):
    """A record that a topic does not accept: too large, without a key in a compacted topic, or with a refused time."""

    code = "DATA_REFUSED"


class UnknownSchemaError(DataError):
    """The schema registry does not have the schema of a record, but may have it later."""

    code = "DATA_UNKNOWN_SCHEMA"


class LoopLimitError(DataError):
    """A recursion did not end within its limit. The error names the loop, the key and the path."""

    code = "DATA_LOOP_LIMIT"


class UnwritableRowError(DataError):
    """A state, or an internal topic, cannot store a row: the row is too large, or does not fit the serdes.

    `place` is the name of the state or of the topic; it is empty where the name is not known.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class NoFiniteAnswerError(DataError):
    """All input is processed, and a recursion with `on_limit="stop"` holds rows without a finite answer."""

    code = "DATA_NO_FINITE_ANSWER"


class StateError(EddyError):
    """The local state is corrupt, belongs to another application, or cannot be written."""

    code = "STATE"


class StateInUseError(StateError):
    """Another process has the local state open. A retry can help once that process ends."""

    code = "STATE_IN_USE"


class ConnectorError(EddyError):
    """The fault of an outside system: a log, a broker, a file.

    `retriable` says whether a retry can help, `after_s` how many seconds it has to wait.
    """

    code = "CONNECTOR"

    def __init__(self, message: str, *, retriable: bool = False, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retriable, self.after_s = retriable, after_s


class ConfigurationError(ConnectorError):
    """A setting, topic or right is missing or wrong: an administrator has to act, and no retry can succeed."""

    code = "CONNECTOR_CONFIGURATION"


class NoTopicMatchesError(ConfigurationError):
    """No topic of the log matches a pattern of the topology yet, so the partitions of its states are not known."""

    code = "CONNECTOR_NO_TOPIC_MATCHES"


class FencedError(ConnectorError):
    """Another member has taken over; nothing of this transaction was or will be committed."""

    code = "CONNECTOR_FENCED"


class SlotTakenError(FencedError):
    """Another worker has joined under the same name. A slot can have only one worker."""

    code = "CONNECTOR_SLOT_TAKEN"


class IndeterminateCommitError(ConnectorError):
    """It is not known whether a commit has happened: only the committed positions in the log show it."""

    code = "CONNECTOR_COMMIT_UNKNOWN"


class QueryError(EddyError):
    """A mistake of a reader: a key, a range or a version does not fit the table."""

    code = "QUERY"


class QueryBuildError(QueryError):
    """A mistake of a live query's author: the query cannot be built. The error names the table and the column."""

    code = "QUERY_BUILD"


class TableNotServedError(QueryError):
    """A table server does not have this table. The error names its tables, or the way to serve this one."""

    code = "QUERY_TABLE"


class NotReadyError(QueryError):
    """The version asked for does not exist yet: tables are still read, or `at_least` took too long. Try again."""

    code = "QUERY_NOT_READY"


class InvariantError(EddyError):
    """A defect of eddy: an invariant is broken. The states are kept for inspection."""

    code = "INVARIANT"
