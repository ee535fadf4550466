"""From Kafka's error codes to eddy's errors, in the order that transactions demand: fatal, abort, retry.

another worker has the slot or generation  FencedError, SlotTakenError
an administrator has to act                ConfigurationError, naming the right or the topic
the cluster will be back                   ConnectorError, retriable
anything else                              ConnectorError
"""

from confluent_kafka import KafkaError, KafkaException

from eddy.errors import ConfigurationError, ConnectorError, FencedError, SlotTakenError

__all__ = ["error_of", "is_transient", "kafka_error", "the_error"]

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
}
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "on the consumer group: Read and Describe",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "on the transactional id: Write and Describe",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "on the cluster",
}
_CONFIGURATION = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._INVALID_ARG,
    KafkaError._SSL,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
}
_TRANSIENT = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._RETRY,
    KafkaError._NOENT,  # offsets were requested of a partition whose leader is not known yet
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FETCH_SESSION_ID_NOT_FOUND,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
}


def error_of(exception: BaseException) -> KafkaError | None:
    """Return the `KafkaError` of an exception of the client; None if the exception has none."""
    found = exception.args[0] if isinstance(exception, KafkaException) and exception.args else None
    return found if isinstance(found, KafkaError) else None


def the_error(exception: KafkaException) -> KafkaError:
    """Return the `KafkaError` of a `KafkaException`, which always has one."""
    error = error_of(exception)
    assert error is not None
    return error


def is_transient(error: KafkaError) -> bool:
    """Whether the same call may succeed later."""
    return error.retriable() or error.code() in _TRANSIENT


def kafka_error(where: str, error: KafkaError, fix: str = "") -> ConnectorError:
    """Return eddy's error for an error of Kafka; `where` names the operation and its place."""
    code, text = error.code(), f"{where}: {error.str()} ({error.name()})"
    if code == KafkaError.UNRELEASED_INSTANCE_ID or (code == KafkaError._FATAL and "still used" in error.str()):
        return SlotTakenError(
            f"{text}; under group.protocol=consumer a name is free again once its last session has ended. Then "
            f"start the worker again",
            retriable=True,
        )
    if code == KafkaError.FENCED_INSTANCE_ID or (code == KafkaError._FATAL and "group.instance.id" in error.str()):
        return SlotTakenError(f"{text}; each worker needs a name of its own. Give it one: --member NAME")
    if code in _FENCED:
        return FencedError(f"{text}; another worker has taken over, or this one did not poll for too long")
    if code in _RIGHTS:
        return ConfigurationError(
            f"{text}; a right {_RIGHTS[code]} is missing. List the rights needed: eddy run FILE --no-create-topics"
        )
    if code in _CONFIGURATION:
        return ConfigurationError(f"{text}. {fix or 'Check the settings given by --config and --set'}")
    return ConnectorError(
        f"{text}{'. ' if fix else ''}{fix}", retriable=is_transient(error) or error.txn_requires_abort()
    )
