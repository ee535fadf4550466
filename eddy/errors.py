"""Errors by whose fault they are, each with a stable code.

A message reads `<where>: <what is wrong, with the values>; <what is needed>. <the fix>`.
`TopologyError` is the author's, raised while a topology is built; `DataError` is a record's;
`StateError` is the local state's; `ConnectorError` is the world's, and says whether trying
again can help. Nothing else is raised on purpose.
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
    "NonTerminatingRecursionError",
    "PlanChangedError",
    "RecordRefusedError",
    "SlotTakenError",
    "StateError",
    "TopologyError",
]


class EddyError(Exception):
    """Base of all errors that eddy raises on purpose. `code` is stable across versions."""

    code: ClassVar[str] = "EDDY"


class TopologyError(EddyError):
    """The author's: a topology that cannot be built as written."""

    code = "TOPOLOGY"


class NonTerminatingRecursionError(TopologyError):
    """`op` of a recursion holds no step that can drop a row, so that it could never end."""

    code = "TOPOLOGY_NON_TERMINATING"


class PlanChangedError(TopologyError):
    """The topology differs from the one that wrote the state, in a way that would misread it."""

    code = "TOPOLOGY_PLAN_CHANGED"


class DataError(EddyError):
    """A record's: it cannot be decoded, keyed, hashed or processed. Says which record."""

    code = "DATA"


class RecordRefusedError(DataError):
    """A record that a topic does not take: too large, or without a key where the topic is compacted."""

    code = "DATA_REFUSED"


class LoopLimitError(DataError):
    """A recursion did not come to rest within its limit. Names the loop, the key and the path."""

    code = "DATA_LOOP_LIMIT"


class StateError(EddyError):
    """The local state's: corrupt, of another application, or no room to write it."""

    code = "STATE"


class ConnectorError(EddyError):
    """The world's: a log, a broker, a file. `retriable` tells whether trying again can help."""

    code = "CONNECTOR"

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class ConfigurationError(ConnectorError):
    """The administrator's: a setting, a topic or a right without which no attempt can succeed."""

    code = "CONNECTOR_CONFIGURATION"


class FencedError(ConnectorError):
    """Another member has taken over; nothing of this transaction was or will be committed."""

    code = "CONNECTOR_FENCED"


class SlotTakenError(FencedError):
    """Another worker has joined under the same name: two cannot run in one slot."""

    code = "CONNECTOR_SLOT_TAKEN"


class IndeterminateCommitError(ConnectorError):
    """A commit may or may not have happened: only the log's committed positions can tell."""

    code = "CONNECTOR_COMMIT_UNKNOWN"


class InvariantError(EddyError):
    """Eddy's own: what must always hold does not. The states are kept as they are, to be looked at."""

    code = "INVARIANT"
